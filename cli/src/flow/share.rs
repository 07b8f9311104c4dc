//! How many threads each of several processes may copy with, when all copy at once on the same CPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::process::target::{MemoryError, Target};

/// The CPUs that a process may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Cpus {
    /// Numbers of the CPUs that it may run on.
    allowed: BTreeSet<u32>,
    /// Its control groups that limit CPU time, each with its quota in CPUs.
    quotas: BTreeMap<PathBuf, f64>,
}

impl Cpus {
    /// Looks at a process: its affinity, and the quotas of its control groups that can be seen from here.
    ///
    /// # Errors
    /// It has ended.
    pub fn of(target: Target) -> Result<Self, MemoryError> {
        let status = target.proc_file("status")?;
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let membership = target.proc_file("cgroup")?;
        let quotas = membership.lines().filter_map(group).flat_map(levels);
        Ok(Cpus {
            allowed: parse_list(list.unwrap_or_default()),
            quotas: quotas.collect(),
        })
    }
}

/// The share of each process, at least 1. CPUs are divided by the number of processes, and each quota by the number of
/// those that it holds for. A process pinned to CPUs of its own gets no more than those anyway: the library in it looks.
pub fn shares(all: &[Cpus]) -> Vec<u32> {
    let together: BTreeSet<u32> = all.iter().flat_map(|cpus| &cpus.allowed).copied().collect();
    let by_affinity = together.len() as f64 / all.len().max(1) as f64;
    all.iter()
        .map(|cpus| {
            let by_quota = cpus.quotas.iter().map(|(group, quota)| {
                let members = all.iter().filter(|other| other.quotas.contains_key(group));
                quota / members.count() as f64
            });
            by_quota.fold(by_affinity, f64::min).max(1.0) as u32
        })
        .collect()
}

/// Numbers of a list such as `0-3,8`.
fn parse_list(text: &str) -> BTreeSet<u32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Mount and folder of a line of `/proc/PID/cgroup` that can limit CPU time.
fn group(line: &str) -> Option<(PathBuf, PathBuf)> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let mount = if id == "0" && controllers.is_empty() {
        "/sys/fs/cgroup"
    } else if controllers.split(',').any(|name| name == "cpu") {
        "/sys/fs/cgroup/cpu"
    } else {
        return None;
    };
    let mount = PathBuf::from(mount);
    // A path that leaves our namespace names nothing that can be seen.
    let inside = !path.split('/').any(|part| part == "..");
    let folder = if inside {
        mount.join(path.trim_start_matches('/'))
    } else {
        mount.clone()
    };
    Some((mount, folder))
}

/// The quotas from a group's folder up to the mount.
fn levels((mount, folder): (PathBuf, PathBuf)) -> Vec<(PathBuf, f64)> {
    let all = folder
        .ancestors()
        .take_while(|level| level.starts_with(&mount));
    all.filter_map(|level| Some((level.to_path_buf(), quota(level)?)))
        .collect()
}

fn quota(level: &Path) -> Option<f64> {
    let read = |name: &str| std::fs::read_to_string(level.join(name)).ok();
    let text = read("cpu.max").or_else(|| {
        let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
        Some(format!("{} {}", quota.trim(), period.trim()))
    })?;
    parse_quota(&text)
}

/// `QUOTA PERIOD`, in the same unit; no number, or a negative one, is no limit.
fn parse_quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &str, quotas: &[(&str, f64)]) -> Cpus {
        Cpus {
            allowed: parse_list(list),
            quotas: quotas
                .iter()
                .map(|(group, quota)| (group.into(), *quota))
                .collect(),
        }
    }

    #[test]
    fn cpus_are_divided_and_nobody_gets_none() {
        let same = cpus("0-15", &[]);
        assert_eq!(shares(&[same.clone(), same.clone()]), [8, 8]);
        assert_eq!(shares(&vec![same; 40]), [1; 40]);
        // Those with CPUs of their own have them all.
        assert_eq!(shares(&[cpus("0-7", &[]), cpus("8-15", &[])]), [8, 8]);
        assert_eq!(shares(&[]), [0; 0]);
    }

    #[test]
    fn a_quota_is_divided_among_those_it_holds_for() {
        let pod = cpus("0-191", &[("/pod", 8.0)]);
        let free = cpus("0-191", &[]);
        assert_eq!(shares(&[pod.clone(), pod, free]), [4, 4, 64]);
        assert_eq!(shares(&[cpus("0-191", &[("/a", 0.5), ("/", 6.0)])]), [1]);
    }

    #[test]
    fn lists_and_quotas_are_read() {
        assert_eq!(parse_list("0-2,1025\n").len(), 4);
        assert_eq!(parse_list("x,3-1").len(), 0);
        for (text, quota) in [
            ("max 100000", None),
            ("-1 100000", None),
            ("150000 100000\n", Some(1.5)),
            ("", None),
        ] {
            assert_eq!(parse_quota(text), quota, "{text}");
        }
        assert_eq!(group("3:cpuset:/x"), None);
        let (mount, folder) = group("5:cpu,cpuacct:/a/b").unwrap();
        assert_eq!(folder, mount.join("a/b"));
        let (mount, folder) = group("0::/../x").unwrap();
        assert_eq!(folder, mount);
    }

    #[test]
    fn this_process_has_cpus() {
        let own = Cpus::of(Target::new(std::process::id() as i32)).unwrap();
        assert!(!own.allowed.is_empty());
    }
}
