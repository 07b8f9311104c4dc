//! CPUs and threads: a checkpoint copies with up to 16 threads at once.

use std::path::{Path, PathBuf};

use crate::control_groups::levels;
use crate::cpus;
use crate::doctor::finding::{Finding, Group};
use crate::doctor::memory::limit;
use crate::doctor::read;
use crate::process::identity::line_of;

/// With fewer the copies are bound by the CPUs (one thread copies 7 to 9 GB/s).
const FEW: usize = 4;
/// Threads that a phase may start.
const THREADS: u64 = 32;

/// Looks at the machine and at what this process may use of it.
pub fn look() -> Group {
    let status = read("/proc/self/status").unwrap_or_default();
    let membership = read("/proc/self/cgroup").unwrap_or_default();
    let allowed = cpus::list(line_of(&status, "Cpus_allowed_list").unwrap_or_default());
    let online = cpus::list(&read("/sys/devices/system/cpu/online").unwrap_or_default());
    let quota = levels(&membership, "cpu")
        .iter()
        .filter_map(|level| cpus::quota(level))
        .fold(None, |least: Option<f64>, quota| {
            Some(least.map_or(quota, |least| least.min(quota)))
        });
    let room = levels(&membership, "pids")
        .iter()
        .filter_map(|level| pids_room_at(level))
        .min_by_key(|(room, _)| *room);
    // SAFETY: takes nothing.
    let is_root = unsafe { libc::geteuid() } == 0;
    let processes = limit(libc::RLIMIT_NPROC).filter(|_| !is_root);
    let mut findings = vec![
        usable(allowed.len(), online.len(), quota),
        threads(room.as_ref(), processes),
    ];
    findings.extend(gpu_nodes(&gpus_in_sysfs(), &allowed));
    Group {
        name: "processors",
        findings,
    }
}

fn pids_room_at(level: &Path) -> Option<(u64, PathBuf)> {
    let number = |name: &str| -> Option<u64> {
        std::fs::read_to_string(level.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let room = number("pids.max")?.saturating_sub(number("pids.current")?);
    Some((room, level.join("pids.max")))
}

fn usable(allowed: usize, online: usize, quota: Option<f64>) -> Finding {
    const CHECK: &str = "CPUs";
    let by_quota = quota.map_or(usize::MAX, |quota| quota.ceil() as usize);
    let usable = allowed.min(by_quota).max(1);
    // Without /sys nobody says how many there are.
    let mut found = match online {
        0 => format!("{usable} may be used"),
        _ => format!("{usable} of {online} may be used"),
    };
    if let Some(quota) = quota {
        found += &format!(" (quota of {quota:.1})");
    }
    if usable >= FEW {
        return Finding::ok(CHECK, found);
    }
    let mend = if (1..FEW).contains(&online) {
        "no command mends it: only a machine with more CPUs"
    } else if by_quota < FEW {
        "give the container a larger CPU limit (docker update --cpus N)"
    } else {
        "give the server a larger CPU set (taskset, cpuset)"
    };
    Finding::warning(CHECK, format!("{found}: copies are bound by them"), mend)
}

fn threads(group: Option<&(u64, PathBuf)>, processes: Option<u64>) -> Finding {
    const CHECK: &str = "threads";
    if let Some((room, file)) = group.filter(|(room, _)| *room < THREADS) {
        return Finding::warning(
            CHECK,
            format!("room for {room} more, up to {THREADS} are wanted"),
            format!("raise {}", file.display()),
        );
    }
    match (group, processes) {
        (_, Some(limit)) if limit < 1024 => Finding::warning(
            CHECK,
            format!(
                "this user may have {limit} (RLIMIT_NPROC), those of all its processes together"
            ),
            "ulimit -u unlimited",
        ),
        (Some((room, _)), _) => Finding::ok(CHECK, format!("room for {room} more")),
        (None, _) => Finding::ok(CHECK, "no limit in the way"),
    }
}

/// A GPU as the PCI bus knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PciGpu {
    address: String,
    /// -1: the machine has one node only, or does not say.
    node: i32,
    cpus: Vec<u32>,
}

/// Display controllers of NVIDIA on the PCI bus.
fn gpus_in_sysfs() -> Vec<PciGpu> {
    let Ok(entries) = std::fs::read_dir("/sys/bus/pci/devices") else {
        return Vec::new();
    };
    let mut found: Vec<PciGpu> = entries
        .flatten()
        .filter_map(|entry| pci_gpu(&entry.path()))
        .collect();
    found.sort_by(|one, other| one.address.cmp(&other.address));
    found
}

fn pci_gpu(folder: &Path) -> Option<PciGpu> {
    let file = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let is_gpu = file("vendor")?.trim() == "0x10de" && file("class")?.starts_with("0x03");
    let node = file("numa_node").and_then(|text| text.trim().parse().ok());
    is_gpu.then(|| PciGpu {
        address: folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        node: node.unwrap_or(-1),
        cpus: cpus::list(&file("local_cpulist").unwrap_or_default()),
    })
}

/// Memory is placed near the CPU that touches it first: the CPUs of a GPU's node should be among those that may be used.
fn gpu_nodes(gpus: &[PciGpu], allowed: &[u32]) -> Option<Finding> {
    const CHECK: &str = "GPUs' nodes";
    if gpus.is_empty() {
        return None;
    }
    let far: Vec<&PciGpu> = gpus
        .iter()
        .filter(|gpu| gpu.node >= 0 && !gpu.cpus.is_empty())
        .filter(|gpu| !gpu.cpus.iter().any(|cpu| allowed.contains(cpu)))
        .collect();
    if let Some(first) = far.first() {
        let names: Vec<&str> = far.iter().map(|gpu| gpu.address.as_str()).collect();
        return Some(Finding::warning(
            CHECK,
            format!(
                "no CPU of their NUMA node may be used: {}",
                names.join(", ")
            ),
            format!(
                "numactl --cpunodebind={} for the server of {}",
                first.node, first.address
            ),
        ));
    }
    let nodes = gpus.iter().map(|gpu| match gpu.node {
        -1 => gpu.address.clone(),
        node => format!("{} on node {node}", gpu.address),
    });
    Some(Finding::ok(CHECK, nodes.collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict::{Ok, Warning};

    #[test]
    fn the_least_of_set_and_quota_counts_rounded_up() {
        let finding = usable(16, 192, Some(3.5));
        assert_eq!(finding.verdict, Ok);
        assert!(finding.found.starts_with("4 of 192"), "{}", finding.found);
        assert_eq!(
            usable(16, 192, Some(2.5)).mend.unwrap(),
            "give the container a larger CPU limit (docker update --cpus N)"
        );
        assert_eq!(
            usable(2, 192, None).mend.unwrap(),
            "give the server a larger CPU set (taskset, cpuset)"
        );
        assert_eq!(
            usable(2, 2, None).mend.unwrap(),
            "no command mends it: only a machine with more CPUs"
        );
    }

    #[test]
    fn room_for_threads_is_the_least_of_the_limits() {
        let group = |room| Some((room, PathBuf::from("/g/pids.max")));
        let short = threads(group(7).as_ref(), None);
        assert_eq!(short.mend.unwrap(), "raise /g/pids.max");
        assert_eq!(threads(group(100).as_ref(), None).verdict, Ok);
        assert_eq!(threads(None, None).verdict, Ok);
        assert_eq!(threads(group(100).as_ref(), Some(100)).verdict, Warning);
        assert_eq!(threads(None, Some(100_000)).verdict, Ok);
    }

    #[test]
    fn a_gpu_whose_node_may_not_be_used_is_named() {
        let gpu = |node, cpus: &[u32]| PciGpu {
            address: format!("0000:{node:02}:00.0"),
            node,
            cpus: cpus.to_vec(),
        };
        assert_eq!(gpu_nodes(&[], &[0]), None);
        let near = gpu_nodes(&[gpu(0, &[0, 1]), gpu(1, &[2, 3])], &[1, 2]).unwrap();
        assert_eq!(near.verdict, Ok);
        let far = gpu_nodes(&[gpu(0, &[0, 1]), gpu(1, &[2, 3])], &[0, 1]).unwrap();
        assert_eq!(far.verdict, Warning);
        assert!(far.mend.unwrap().starts_with("numactl --cpunodebind=1"));
        assert_eq!(gpu_nodes(&[gpu(-1, &[])], &[0]).unwrap().verdict, Ok);
    }
}
