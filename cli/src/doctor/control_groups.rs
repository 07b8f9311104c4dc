//! The control groups that this process is in, for limits on CPUs and threads.

use std::path::{Path, PathBuf};

/// Folders of the groups that limit this process through `controller`, from its own up to the root, in both hierarchies.
pub fn levels(membership: &str, controller: &str) -> Vec<PathBuf> {
    membership
        .lines()
        .filter_map(|line| mount_and_path(line, controller))
        .flat_map(|(mount, path)| climb(&mount, path))
        .collect()
}

fn mount_and_path<'a>(line: &'a str, controller: &str) -> Option<(PathBuf, &'a str)> {
    let mut fields = line.splitn(3, ':');
    let (id, names, path) = (fields.next()?, fields.next()?, fields.next()?);
    if id == "0" && names.is_empty() {
        return Some(("/sys/fs/cgroup".into(), path));
    }
    let is_there = names.split(',').any(|name| name == controller);
    is_there.then(|| (Path::new("/sys/fs/cgroup").join(names), path))
}

/// A path that leaves the namespace (`/../x`) names nothing that can be seen from here: only the mount itself counts.
fn climb(mount: &Path, path: &str) -> Vec<PathBuf> {
    let inside = !path.split('/').any(|part| part == "..");
    let own = mount.join(path.trim_start_matches('/'));
    let start = if inside { own.as_path() } else { mount };
    start
        .ancestors()
        .take_while(|level| level.starts_with(mount))
        .map(|level| level.components().collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_of_both_hierarchies_is_listed() {
        let text = "12:cpu,cpuacct:/kube/pod\n5:memory:/x\n0::/a/b\n";
        let expected = [
            "/sys/fs/cgroup/cpu,cpuacct/kube/pod",
            "/sys/fs/cgroup/cpu,cpuacct/kube",
            "/sys/fs/cgroup/cpu,cpuacct",
            "/sys/fs/cgroup/a/b",
            "/sys/fs/cgroup/a",
            "/sys/fs/cgroup",
        ];
        assert_eq!(levels(text, "cpu"), expected.map(PathBuf::from));
        assert_eq!(
            levels("0::/../other\n", "pids"),
            [PathBuf::from("/sys/fs/cgroup")]
        );
        assert_eq!(levels("0::/\n", "pids"), [PathBuf::from("/sys/fs/cgroup")]);
        assert!(levels("garbage\n", "cpu").is_empty());
    }
}
