//! The kernel's side of the driver, its device nodes, and what NVML tells about the GPUs.

use std::ffi::CString;

use crate::doctor::finding::{Finding, Group};
use crate::gpus::{Gpu, Gpus};
use crate::units;

/// First driver with checkpoint calls, with restores to other GPUs, with `--launch-job`.
const CHECKPOINT: u32 = 570;
const DEVICE_MAP: u32 = 580;
const LAUNCH_JOB: u32 = 590;

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    name: String,
    /// May be read and written.
    usable: bool,
}

/// Looks at the driver. `simulated`: the libcuda that would be loaded is the simulated one, which needs no kernel driver.
pub fn look(kernel: Option<&str>, gpus: &Result<Gpus, String>, simulated: bool) -> Group {
    let mut findings = vec![kernel_driver(kernel, simulated)];
    if kernel.is_some() {
        findings.push(device_nodes(&nodes_in_dev()));
    }
    findings.extend(nvml(gpus, kernel, simulated));
    Group {
        name: "driver",
        findings,
    }
}

fn kernel_driver(version: Option<&str>, simulated: bool) -> Finding {
    const CHECK: &str = "kernel driver";
    let Some(version) = version else {
        return match simulated {
            true => Finding::unknown(CHECK, "none is loaded; the simulated libcuda needs none"),
            false => Finding::failed(
                CHECK,
                "no NVIDIA driver is loaded",
                "install driver 580 or newer (at least 570), then modprobe nvidia; in a container, give it the GPUs",
            ),
        };
    };
    let major = version
        .split('.')
        .next()
        .and_then(|part| part.parse::<u32>().ok());
    match major {
        None => Finding::unknown(CHECK, version),
        Some(..CHECKPOINT) => Finding::failed(
            CHECK,
            format!("{version} has no checkpoint calls"),
            "install driver 580 or newer (at least 570)",
        ),
        Some(CHECKPOINT..DEVICE_MAP) => Finding::ok(
            CHECK,
            format!("{version}: checkpoints; restores to other GPUs only from 580 on"),
        ),
        Some(DEVICE_MAP..LAUNCH_JOB) => Finding::ok(
            CHECK,
            format!("{version}: checkpoints, restores to other GPUs"),
        ),
        Some(LAUNCH_JOB..) => Finding::ok(
            CHECK,
            format!("{version}: checkpoints, restores to other GPUs, jobs"),
        ),
    }
}

fn nodes_in_dev() -> Vec<Node> {
    let Ok(entries) = std::fs::read_dir("/dev") else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut nodes: Vec<Node> = names
        .filter(|name| is_node(name))
        .map(|name| Node {
            usable: may_be_used(&format!("/dev/{name}")),
            name,
        })
        .collect();
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    nodes
}

/// `nvidia0`, `nvidiactl`, `nvidia-uvm`: what a CUDA program opens.
fn is_node(name: &str) -> bool {
    let rest = name.strip_prefix("nvidia");
    rest.is_some_and(|rest| {
        rest == "ctl"
            || rest == "-uvm"
            || (!rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Asked of the kernel without opening the device, which could have effects.
fn may_be_used(path: &str) -> bool {
    let path = CString::new(path).unwrap_or_default();
    // SAFETY: the text ends with a zero and is valid for the call.
    unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) == 0 }
}

fn device_nodes(nodes: &[Node]) -> Finding {
    const CHECK: &str = "device nodes";
    const MEND: &str =
        "nvidia-modprobe -u -c 0 as root; in a container, give it the GPUs (--gpus all)";
    let has = |name: &str| nodes.iter().any(|node| node.name == name);
    let gpus = nodes.iter().filter(|node| {
        node.name["nvidia".len()..].starts_with(|first: char| first.is_ascii_digit())
    });
    let missing = if !has("nvidiactl") {
        "/dev/nvidiactl is missing"
    } else if gpus.count() == 0 {
        "there is no /dev/nvidia0, and none of another number"
    } else if !has("nvidia-uvm") {
        "/dev/nvidia-uvm is missing"
    } else if let Some(node) = nodes.iter().find(|node| !node.usable) {
        return Finding::failed(
            CHECK,
            format!("/dev/{} may not be read and written", node.name),
            "run as a user who may (often the groups video or render)",
        );
    } else {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        return Finding::ok(CHECK, names.join(", "));
    };
    Finding::failed(CHECK, missing, MEND)
}

fn nvml(gpus: &Result<Gpus, String>, kernel: Option<&str>, simulated: bool) -> Vec<Finding> {
    match gpus {
        Ok(gpus) => {
            let mut findings: Vec<Finding> = gpus.gpus.iter().map(gpu).collect();
            if gpus.gpus.is_empty() {
                findings.push(no_gpu());
            } else {
                findings.extend([persistence(&gpus.gpus), mig(&gpus.gpus)]);
            }
            findings
        }
        Err(error) if kernel.is_some() => vec![Finding::warning(
            "NVML",
            error.as_str(),
            "install the driver's libnvidia-ml.so.1; restart the machine if driver and library do not fit",
        )],
        Err(_) if simulated => vec![Finding::unknown("NVML", "none beside the simulated libcuda")],
        Err(_) => vec![Finding::unknown("NVML", "not there, or of no use without a driver")],
    }
}

fn no_gpu() -> Finding {
    Finding::failed(
        "GPUs",
        "the driver sees none",
        "look at dmesg | grep -i nvrm; in a container, give it the GPUs (--gpus all)",
    )
}

fn gpu(gpu: &Gpu) -> Finding {
    let users = match gpu.processes.len() {
        0 => "no process".into(),
        1 => "1 process".into(),
        number => format!("{number} processes"),
    };
    let found = format!(
        "{} {}: {} of {} free, {users}",
        gpu.index,
        gpu.name,
        units::bytes(gpu.free),
        units::bytes(gpu.total)
    );
    Finding::ok("GPU", found)
}

fn numbers(gpus: &[Gpu], is: impl Fn(&Gpu) -> bool) -> String {
    let numbers = gpus
        .iter()
        .filter(|gpu| is(gpu))
        .map(|gpu| gpu.index.to_string());
    numbers.collect::<Vec<_>>().join(", ")
}

fn persistence(gpus: &[Gpu]) -> Finding {
    const CHECK: &str = "persistence mode";
    let off = numbers(gpus, |gpu| gpu.persistence == Some(false));
    if !off.is_empty() {
        return Finding::warning(
            CHECK,
            format!("off on GPU {off}: the driver starts the GPU anew for each first user, seconds each time"),
            "nvidia-smi -pm 1, or the nvidia-persistenced service",
        );
    }
    match gpus.iter().any(|gpu| gpu.persistence.is_none()) {
        true => Finding::unknown(CHECK, "NVML does not say"),
        false => Finding::ok(CHECK, "on"),
    }
}

fn mig(gpus: &[Gpu]) -> Finding {
    const CHECK: &str = "MIG";
    let on = numbers(gpus, |gpu| gpu.mig == Some(true));
    if on.is_empty() {
        return Finding::ok(CHECK, "off");
    }
    Finding::warning(
        CHECK,
        format!("on for GPU {on}: the driver does not checkpoint processes there"),
        "nvidia-smi -mig 0, with nothing running on the GPU",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict::{Failed, Ok as Fine, Unknown, Warning};

    #[test]
    fn what_a_driver_can_do_depends_on_its_version() {
        for (version, simulated, verdict, words) in [
            (None, false, Failed, "no NVIDIA driver"),
            (None, true, Unknown, "simulated"),
            (Some("535.261.03"), false, Failed, "no checkpoint calls"),
            (Some("570.86.15"), false, Fine, "only from 580"),
            (Some("580.159.04"), false, Fine, "restores to other GPUs"),
            (Some("590.44.01"), false, Fine, "jobs"),
            (Some("x"), false, Unknown, "x"),
        ] {
            let finding = kernel_driver(version, simulated);
            assert_eq!(finding.verdict, verdict, "{version:?}");
            assert!(finding.found.contains(words), "{}", finding.found);
        }
    }

    #[test]
    fn the_nodes_of_a_cuda_program_are_looked_for() {
        for (name, is) in [
            ("nvidia0", true),
            ("nvidia15", true),
            ("nvidiactl", true),
            ("nvidia-uvm", true),
            ("nvidia-uvm-tools", false),
            ("nvidia-caps", false),
            ("nvidia", false),
            ("null", false),
        ] {
            assert_eq!(is_node(name), is, "{name}");
        }
        let nodes = |names: &[&str]| -> Vec<Node> {
            let nodes = names.iter().map(|name| Node {
                name: (*name).into(),
                usable: *name != "nvidia7",
            });
            nodes.collect()
        };
        let verdict = |names: &[&str]| device_nodes(&nodes(names)).verdict;
        assert_eq!(verdict(&["nvidia0", "nvidiactl", "nvidia-uvm"]), Fine);
        for wrong in [
            &["nvidia0", "nvidia-uvm"][..],
            &["nvidiactl", "nvidia-uvm"],
            &["nvidia0", "nvidiactl"],
            &["nvidia7", "nvidiactl", "nvidia-uvm"],
            &[],
        ] {
            assert_eq!(verdict(wrong), Failed, "{wrong:?}");
        }
        assert!(may_be_used("/dev/null") && !may_be_used("/dev/nothing-there"));
    }

    #[test]
    fn gpus_are_told_with_what_slows_or_forbids() {
        let gpu = |index, persistence, mig| Gpu {
            index,
            uuid: String::new(),
            name: "NVIDIA H200".into(),
            total: 150_000_000_000,
            free: 120_000_000_000,
            persistence,
            mig,
            processes: Vec::new(),
        };
        let verdicts = |gpus: Vec<Gpu>| -> Vec<_> {
            let gpus = Ok(Gpus {
                driver: String::new(),
                gpus,
            });
            let findings = nvml(&gpus, Some("580.1"), false);
            findings.iter().map(|finding| finding.verdict).collect()
        };
        assert_eq!(
            verdicts(vec![gpu(0, Some(true), Some(false))]),
            [Fine, Fine, Fine]
        );
        assert_eq!(
            verdicts(vec![gpu(0, Some(false), Some(true))]),
            [Fine, Warning, Warning]
        );
        assert_eq!(verdicts(vec![gpu(0, None, None)]), [Fine, Unknown, Fine]);
        assert_eq!(verdicts(Vec::new()), [Failed]);
        let off = persistence(&[gpu(0, Some(true), None), gpu(3, Some(false), None)]);
        assert!(off.found.starts_with("off on GPU 3:"), "{}", off.found);
        let none = Err("no library".into());
        assert_eq!(nvml(&none, Some("580.1"), false)[0].verdict, Warning);
        assert_eq!(nvml(&none, None, false)[0].verdict, Unknown);
    }
}
