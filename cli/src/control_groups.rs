//! The control groups that a process is in, as its `/proc/PID/cgroup` names them, for limits on memory, CPUs and threads.

use std::path::{Path, PathBuf};

/// Folders of the groups that limit a process through `controller`, from its own up to the root, in both hierarchies and where
/// each is mounted by custom. Not every folder exists.
pub fn levels(membership: &str, controller: &str) -> Vec<PathBuf> {
    let named = membership
        .lines()
        .filter_map(|line| mounts_and_path(line, controller));
    named
        .flat_map(|(mounts, path)| mounts.into_iter().flat_map(|mount| climb(&mount, path)))
        .collect()
}

fn mounts_and_path<'a>(line: &'a str, controller: &str) -> Option<(Vec<PathBuf>, &'a str)> {
    let mut fields = line.splitn(3, ':');
    let (id, names, path) = (fields.next()?, fields.next()?, fields.next()?);
    let folders: &[&str] = if id == "0" && names.is_empty() {
        &["", "unified"]
    } else if names == controller {
        &[names]
    } else if names.split(',').any(|name| name == controller) {
        &[names, controller]
    } else {
        return None;
    };
    let root = Path::new("/sys/fs/cgroup");
    Some((
        folders.iter().map(|folder| root.join(folder)).collect(),
        path,
    ))
}

/// A path that leaves the namespace (`/../x`) names nothing that can be seen from here: only the mount itself counts.
pub(crate) fn climb(mount: &Path, path: &str) -> Vec<PathBuf> {
    let inside = !path.split('/').any(|part| part == "..");
    let own = mount.join(path.trim_start_matches('/'));
    let start = if inside { own.as_path() } else { mount };
    start
        .ancestors()
        .take_while(|level| level.starts_with(mount))
        // Without the slash that joining an empty folder or path leaves.
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
            "/sys/fs/cgroup/cpu/kube/pod",
            "/sys/fs/cgroup/cpu/kube",
            "/sys/fs/cgroup/cpu",
            "/sys/fs/cgroup/a/b",
            "/sys/fs/cgroup/a",
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/unified/a/b",
            "/sys/fs/cgroup/unified/a",
            "/sys/fs/cgroup/unified",
        ];
        assert_eq!(levels(text, "cpu"), expected.map(PathBuf::from));
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        assert_eq!(levels("0::/../other\n", "pids"), mounts);
        assert_eq!(levels("0::/\n", "pids"), mounts);
        assert!(levels("3:cpuset:/x\n", "pids").is_empty());
        assert_eq!(
            levels("5:memory:/x\n", "memory"),
            ["/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"].map(PathBuf::from)
        );
        assert!(levels("garbage\n", "cpu").is_empty());
    }
}
