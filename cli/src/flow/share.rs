//! How many threads each of several processes may copy with, when all copy at once on the same CPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::control_groups::levels;
use crate::cpus;
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
        let groups = levels(&membership, "cpu").into_iter();
        let quotas = groups.filter_map(|level| Some((level.clone(), cpus::quota(&level)?)));
        Ok(Cpus {
            allowed: cpus::list(list.unwrap_or_default()).into_iter().collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(list: &str, quotas: &[(&str, f64)]) -> Cpus {
        Cpus {
            allowed: cpus::list(list).into_iter().collect(),
            quotas: quotas
                .iter()
                .map(|(group, quota)| (group.into(), *quota))
                .collect(),
        }
    }

    #[test]
    fn cpus_are_divided_and_nobody_gets_none() {
        let same = limited("0-15", &[]);
        assert_eq!(shares(&[same.clone(), same.clone()]), [8, 8]);
        assert_eq!(shares(&vec![same; 40]), [1; 40]);
        // Those with CPUs of their own have them all.
        assert_eq!(shares(&[limited("0-7", &[]), limited("8-15", &[])]), [8, 8]);
        assert_eq!(shares(&[]), [0; 0]);
    }

    #[test]
    fn a_quota_is_divided_among_those_it_holds_for() {
        let pod = limited("0-191", &[("/pod", 8.0)]);
        let free = limited("0-191", &[]);
        assert_eq!(shares(&[pod.clone(), pod, free]), [4, 4, 64]);
        assert_eq!(shares(&[limited("0-191", &[("/a", 0.5), ("/", 6.0)])]), [1]);
    }

    #[test]
    fn this_process_has_cpus() {
        let own = Cpus::of(Target::new(std::process::id() as i32)).unwrap();
        assert!(!own.allowed.is_empty());
    }
}
