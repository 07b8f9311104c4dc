//! What may be behind an error of the driver, as far as it can be checked from here, and what to do about it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::failure::{Cause, Failure, ILLEGAL_STATE, NOT_READY, NO_CUDA};
use super::plan::{advice, Step};
use crate::driver::{kernel_driver_version, DriverError, State};
use crate::foreign_text::printable;
use crate::gpus::Gpus;
use crate::process::cuda::is_libcuda;
use crate::process::rights;
use crate::process::target::Target;

/// First driver with the checkpoint calls.
const FIRST_DRIVER: u32 = 570;
const OUT_OF_MEMORY: u32 = 2;
const OPERATING_SYSTEM: u32 = 304;
const NOT_SUPPORTED: u32 = 801;

/// What can be seen of the driver around this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Version of the kernel's driver.
    pub kernel_driver: Option<String>,
    /// Device nodes that are not there.
    pub missing_nodes: Vec<&'static str>,
    /// `CUDA_VISIBLE_DEVICES`.
    pub visible_devices: Option<String>,
    /// Whether a GPU is in multi-instance mode.
    pub mig: bool,
}

impl Surroundings {
    /// What was seen at the first call. It asks NVML too, so this is for when something has failed.
    pub fn known() -> &'static Self {
        static SEEN: OnceLock<Surroundings> = OnceLock::new();
        SEEN.get_or_init(Self::look)
    }

    fn look() -> Self {
        let nodes = ["/dev/nvidiactl", "/dev/nvidia-uvm"];
        let gpus = Gpus::look().map(|gpus| gpus.gpus).unwrap_or_default();
        Surroundings {
            kernel_driver: kernel_driver_version(),
            missing_nodes: nodes
                .into_iter()
                .filter(|node| !Path::new(node).exists())
                .collect(),
            visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
            mig: gpus.iter().any(|gpu| gpu.mig == Some(true)),
        }
    }
}

/// Why the driver could not be loaded or initialised.
pub fn for_load(error: &DriverError, around: &Surroundings) -> Vec<String> {
    let mut hints = Vec::new();
    match (&around.kernel_driver, error) {
        (None, _) => hints.push(
            "no NVIDIA kernel driver is loaded here (/proc/driver/nvidia/version is missing)".into(),
        ),
        (Some(version), DriverError::NoLibrary(_)) => hints.push(format!(
            "the kernel has driver {version}, its library is not found: in a container ask for the driver's \"compute\" and \
             \"utility\" capabilities (NVIDIA_DRIVER_CAPABILITIES), else set LD_LIBRARY_PATH"
        )),
        (Some(version), _) => hints.extend(too_old(version)),
    }
    if !around.missing_nodes.is_empty() {
        hints.push(format!(
            "{} is missing: a container without GPUs, or nvidia-modprobe has not run yet",
            around.missing_nodes.join(", ")
        ));
    }
    if let Some(visible) = around.visible_devices.as_deref().filter(|text| hides(text)) {
        hints.push(format!(
            "CUDA_VISIBLE_DEVICES is \"{visible}\", which hides every GPU: unset it for this command"
        ));
    }
    hints
}

/// Where a process has the driver's library from, as far as it is there for us too.
pub fn libcuda_of(target: Target) -> Option<PathBuf> {
    let mappings = target.mappings().ok()?;
    let library = mappings.into_iter().find(is_libcuda)?;
    let path = PathBuf::from(library.path);
    path.is_file().then_some(path)
}

/// How to load the library that a process has, where this command finds none: it was started in another environment.
pub fn from_there(library: &Path) -> String {
    let folder = library.parent().unwrap_or(Path::new("/"));
    let simulated = folder
        .file_name()
        .is_some_and(|name| name == "sim" || name == "sim-relro");
    let how = match simulated {
        true => "the simulated driver: eval \"$(scripts/sim-env)\" in this shell too".to_owned(),
        false => format!("call this with LD_LIBRARY_PATH={}", folder.display()),
    };
    printable(&format!("has it from {}: {how}", library.display()))
}

/// A list ends at its first entry that is no device.
fn hides(visible: &str) -> bool {
    let first = visible.split(',').next().unwrap_or_default().trim();
    first.is_empty() || first.starts_with('-') || first.eq_ignore_ascii_case("none")
}

fn too_old(version: &str) -> Option<String> {
    let major: u32 = version.split('.').next()?.parse().ok()?;
    (major < FIRST_DRIVER)
        .then(|| format!("driver {version} has no checkpoint calls: they came with {FIRST_DRIVER}"))
}

/// What to know about a failure, and what to do. `now` is the state the process is in.
pub fn for_failure(
    failure: &Failure,
    pid: i32,
    now: Option<State>,
    around: &Surroundings,
) -> Vec<String> {
    match &failure.cause {
        Cause::Driver(DriverError::NoCall(_)) => for_old_driver(around),
        Cause::WrongState { verb, state, .. } => vec![advice(*verb, *state, pid)],
        cause => for_code(cause.code(), failure.step, pid, now, around),
    }
}

fn for_old_driver(around: &Surroundings) -> Vec<String> {
    let version = around.kernel_driver.as_deref();
    vec![version.and_then(too_old).unwrap_or_else(|| {
        format!("this driver has no such call: checkpoints need driver {FIRST_DRIVER} or newer")
    })]
}

fn for_code(
    code: u32,
    step: Option<Step>,
    pid: i32,
    now: Option<State>,
    around: &Surroundings,
) -> Vec<String> {
    let state = now.map_or_else(|| "in an unknown state".into(), |state| state.to_string());
    match code {
        NO_CUDA => vec!["the driver finds no CUDA in this process".into()],
        NOT_READY => vec![
            format!("work under way did not end in time; the process is {state}"),
            "a long kernel, or a rank that waits for another one: try a longer --timeout (0 = for ever), and give all \
             processes of a job in one call"
                .into(),
        ],
        OPERATING_SYSTEM => vec![match rights::to_look_into(pid) {
            Err(missing) => missing.to_string(),
            Ok(()) if step == Some(Step::Restore) && now == Some(State::Checkpointed) => {
                "a restore that failed before, for lack of GPU memory say, cannot be repeated (driver 580): start the process anew".into()
            }
            Ok(()) => "the process is there and may be read, so it is the driver that failed (the kernel's log may say more)".into(),
        }],
        ILLEGAL_STATE => vec![format!("the process is {state} by now: somebody else works on it too")],
        OUT_OF_MEMORY if around.mig => vec![
            "a GPU here is in multi-instance mode (MIG), where this text is misleading: the driver does not support checkpoints \
             of its instances"
                .into(),
        ],
        OUT_OF_MEMORY => vec![match step {
            Some(Step::Restore) => {
                format!(
                    "the GPU has not the room (nvidia-smi shows who uses it). The driver (580) cannot repeat such a restore, it answers 304 from now on: the contents \
                     lie in the process's buffer still, \"cudasnap buffer {pid} save FILE\" keeps them"
                )
            }
            _ => "main memory has not the room for the GPU's contents".to_owned(),
        }],
        NOT_SUPPORTED => vec!["not supported by this driver on this device".into()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::plan::Verb;

    fn refused(code: u32) -> Cause {
        Cause::Driver(DriverError::Refused {
            call: "x",
            code,
            name: String::new(),
            text: String::new(),
        })
    }

    fn told(step: Step, code: u32, around: &Surroundings) -> String {
        let failure = Failure {
            step: Some(step),
            cause: refused(code),
        };
        let own = std::process::id() as i32;
        for_failure(&failure, own, Some(State::Running), around).join("; ")
    }

    #[test]
    fn each_cause_that_can_be_checked_is_named() {
        let init = DriverError::NoLibrary("no such file".into());
        let bare = Surroundings {
            missing_nodes: vec!["/dev/nvidiactl"],
            visible_devices: Some("-1".into()),
            ..Surroundings::default()
        };
        let text = for_load(&init, &bare).join("; ");
        for part in [
            "no NVIDIA kernel driver",
            "/dev/nvidiactl",
            "hides every GPU",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let old = Surroundings {
            kernel_driver: Some("535.261.03".into()),
            visible_devices: Some("0,1".into()),
            ..Surroundings::default()
        };
        let no_call = DriverError::NoCall("cuInit");
        assert_eq!(
            for_load(&no_call, &old),
            ["driver 535.261.03 has no checkpoint calls: they came with 570"]
        );
        assert!(for_load(&init, &old)[0].contains("NVIDIA_DRIVER_CAPABILITIES"));
    }

    #[test]
    fn lists_that_hide_everything_are_known() {
        for (list, hidden) in [
            ("", true),
            ("-1", true),
            ("NoDevFiles", false),
            ("none", true),
            (",0", true),
            ("0", false),
            ("GPU-1,2", false),
        ] {
            assert_eq!(hides(list), hidden, "{list:?}");
        }
    }

    #[test]
    fn codes_get_their_advice() {
        let none = Surroundings::default();
        let mig = Surroundings {
            mig: true,
            ..Surroundings::default()
        };
        for (step, code, around, part) in [
            (Step::Lock, 600, &none, "--timeout"),
            (Step::Lock, 600, &none, "is running"),
            (Step::Lock, 3, &none, "no CUDA"),
            (Step::Checkpoint, 304, &none, "the driver that failed"),
            (Step::Checkpoint, 401, &none, "running by now"),
            (Step::Restore, 2, &none, "nvidia-smi"),
            (Step::Restore, 2, &none, "cannot repeat"),
            (Step::Checkpoint, 2, &none, "main memory"),
            (Step::Checkpoint, 2, &mig, "misleading"),
            (Step::Checkpoint, 801, &none, "not supported by this driver"),
        ] {
            let text = told(step, code, around);
            assert!(text.contains(part), "{code}: {text}");
        }
        assert_eq!(told(Step::Lock, 999, &none), "");
    }

    #[test]
    fn a_wrong_state_says_what_would_be_right() {
        let failure = Failure {
            step: None,
            cause: Cause::WrongState {
                verb: Verb::Unlock,
                state: State::Checkpointed,
                words: String::new(),
            },
        };
        let hints = for_failure(&failure, 7, None, &Surroundings::default());
        assert!(hints[0].contains("cudasnap restore 7"), "{hints:?}");
    }
}
