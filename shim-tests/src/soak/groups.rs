//! A control group of its own for each host, in which the kernel refuses threads and limits CPUs, and lets go again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cudasnap_cli::{control_groups, cpus};

/// Begins the names of all groups; the id of the process that made one follows.
const PREFIX: &str = "cudasnap-soak-";
const PERIOD_US: u32 = 100_000;

/// The folders of a group. Dropping it removes them; its processes must be gone or about to go.
#[derive(Debug)]
pub struct Group {
    cpu: PathBuf,
    pids: PathBuf,
}

impl Group {
    /// Makes a group.
    ///
    /// # Errors
    /// What is missing: root, or the controllers `cpu` and `pids` of either hierarchy.
    pub fn new(name: &str) -> Result<Self, String> {
        let name = format!("{PREFIX}{}-{name}", std::process::id());
        let cpu = folder("cpu", &name, &["cpu.max", "cpu.cfs_quota_us"])?;
        // In the unified hierarchy one folder has both.
        let pids = if cpu.join("pids.max").exists() {
            cpu.clone()
        } else {
            folder("pids", &name, &["pids.max"])?
        };
        Ok(Group { cpu, pids })
    }

    /// Moves a process into it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take(&self, pid: i32) -> io::Result<()> {
        for folder in [&self.cpu, &self.pids] {
            fs::write(folder.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Refuses new threads and processes from now on, or lets them be made again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn refuse_threads(&self, refuse: bool) -> io::Result<()> {
        fs::write(self.pids.join("pids.max"), if refuse { "1" } else { "max" })
    }

    /// Limits it to so many hundredths of a CPU; 0 = no limit.
    ///
    /// # Errors
    /// The kernel's.
    pub fn limit_cpus(&self, hundredths: u32) -> io::Result<()> {
        let quota = PERIOD_US / 100 * hundredths;
        let unified = self.cpu.join("cpu.max");
        if unified.exists() {
            let quota = if quota == 0 {
                "max".into()
            } else {
                quota.to_string()
            };
            return fs::write(unified, format!("{quota} {PERIOD_US}"));
        }
        let quota = if quota == 0 {
            "-1".into()
        } else {
            quota.to_string()
        };
        fs::write(self.cpu.join("cpu.cfs_quota_us"), quota)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was killed is in its group until the kernel is through with it.
        let deadline = Instant::now() + Duration::from_secs(5);
        for folder in [&self.pids, &self.cpu] {
            while folder.exists() && fs::remove_dir(folder).is_err() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// A folder in this process's own group of a controller, or as near above it as can be.
fn folder(controller: &str, name: &str, files: &[&str]) -> Result<PathBuf, String> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for level in control_groups::levels(&membership, controller) {
        let folder = level.join(name);
        if !level.exists() || fs::create_dir(&folder).is_err() {
            continue;
        }
        let enabled = || files.iter().any(|file| folder.join(file).exists());
        if !enabled() {
            // Refused where the level itself holds processes.
            let _ = fs::write(
                level.join("cgroup.subtree_control"),
                format!("+{controller}"),
            );
        }
        if enabled() {
            return Ok(folder);
        }
        let _ = fs::remove_dir(&folder);
    }
    Err(format!(
        "no control group with '{controller}' can be made: the soak needs root and that controller; leave out what needs it \
         with --without quota,no-threads"
    ))
}

/// Removes groups that soaks which were killed have left.
pub fn sweep() {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for controller in ["cpu", "pids"] {
        for level in control_groups::levels(&membership, controller) {
            let entries = fs::read_dir(level).into_iter().flatten().flatten();
            entries
                .map(|entry| entry.path())
                .filter(|path| is_orphan(path))
                .for_each(|path| {
                    let _ = fs::remove_dir(path);
                });
        }
    }
}

fn is_orphan(path: &Path) -> bool {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let maker = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split('-').next());
    maker.is_some_and(|maker| !Path::new("/proc").join(maker).exists())
}

/// CPUs that the control groups of this process leave to it; `None` without a limit.
#[must_use]
pub fn quota_around_us() -> Option<u32> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let levels = control_groups::levels(&membership, "cpu");
    let quotas = levels.iter().filter_map(|level| cpus::quota(level));
    quotas.map(|quota| quota.ceil() as u32).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_processes_that_live_are_not_orphans() {
        let own = format!("/x/{PREFIX}{}-1", std::process::id());
        assert!(!is_orphan(Path::new(&own)));
        assert!(is_orphan(Path::new(&format!("/x/{PREFIX}4000000000-1"))));
        assert!(!is_orphan(Path::new("/x/other-4000000000")));
    }
}
