//! NVIDIA's `cuda-checkpoint`, as of drivers 580 and 590: the same flags, words on stdout, error lines and exit codes 0 and 1.
//! What CRIU's CUDA plugin (4.2) executes and parses of it is listed in the test `dropin`.
//!
//! The error lines are those of NVIDIA's tool as people quote them in public (cuda-checkpoint#47 and others); their quoted part
//! is the driver's own text.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgGroup, Parser, ValueEnum};

use crate::driver::{kernel_driver_version, Driver, DriverError, GpuPair, State};
use crate::exit::Exit;
use crate::job;
use crate::output;
use crate::values;

/// Callers search this text for flags; CRIU's plugin reads its first 2047 bytes.
const HELP: &str = "\
Operations:
--get-state --pid <pid>
        Prints the state of the process: running, locked, checkpointed or failed

--action lock | checkpoint | restore | unlock --pid <pid> [--timeout <ms>] [--device-map <old>=<new>,...]
        One step. A lock waits for at most <ms> milliseconds (default: for ever).
        A restore may move the process to other GPUs.

--toggle --pid <pid> [--device-map <old>=<new>,...]
        Running becomes checkpointed (lock, checkpoint), checkpointed becomes running (restore, unlock)

--get-restore-tid --pid <pid>
        Prints the id of the thread that does the driver's work in the process

@JOB@Options:
--pid|-p <pid>
        The process
--timeout|-t <ms>
        For the lock
--device-map|-d <old>=<new>,...
        UUIDs of GPUs, every one that the process uses, for a restore
--help|-h
        This text";

/// Stands in the text where the driver knows jobs, and only there: callers look for the flag to know whether it does.
const JOB_HELP: &str = "\
--launch-job|-j <program> [<argument>...]
        Starts a program whose CUDA processes share one job file (CUDA_CHECKPOINT_JOB_FILE)

";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    Lock,
    Checkpoint,
    Restore,
    Unlock,
}

#[derive(Debug, Parser)]
#[command(
    disable_help_flag = true,
    override_usage = "cuda-checkpoint OPERATION [OPTIONS]"
)]
#[command(group(ArgGroup::new("operation").required(true).args(["get_state", "action", "toggle", "get_restore_tid", "launch_job", "help"])))]
struct Flags {
    #[arg(long)]
    get_state: bool,
    #[arg(long)]
    action: Option<Action>,
    #[arg(long)]
    toggle: bool,
    #[arg(long)]
    get_restore_tid: bool,
    #[arg(long, short = 'j', num_args = 1.., allow_hyphen_values = true)]
    launch_job: Vec<OsString>,
    #[arg(long, short)]
    help: bool,
    #[arg(long, short, required_unless_present_any = ["help", "launch_job"], value_parser = values::pid())]
    pid: Option<i32>,
    #[arg(long, short, value_parser = values::whole::<u32>(0, u32::MAX.into()))]
    timeout: Option<u32>,
    #[arg(long, short, value_parser = values::read(GpuPair::parse), value_delimiter = ',')]
    device_map: Vec<GpuPair>,
}

/// Runs with NVIDIA's flags; exit status 0 or 1.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let flags = match Flags::try_parse_from(arguments) {
        Ok(flags) => flags,
        Err(error) => {
            let text = error.to_string();
            output::complain_plainly(format_args!("{}\n{}", text.trim_end(), operations()));
            return ExitCode::FAILURE;
        }
    };
    match perform(&flags) {
        Ok(Some(text)) => output::say(&text, Exit::Done).into(),
        Ok(None) => ExitCode::SUCCESS,
        Err(text) => {
            output::complain_plainly(text);
            ExitCode::FAILURE
        }
    }
}

fn perform(flags: &Flags) -> Result<Option<String>, String> {
    if let Some((program, arguments)) = flags.launch_job.split_first() {
        return Err(job::launch(program, arguments));
    }
    let (true, Some(pid)) = (!flags.help, flags.pid) else {
        return Ok(Some(help()));
    };
    check(flags)?;
    let driver = Driver::load().map_err(|error| error.to_string())?;
    if flags.get_state {
        return state(&driver, pid).map(|state| Some(state.to_string()));
    }
    if flags.get_restore_tid {
        // NVIDIA's words, without the driver's: CRIU's log quotes them for every process without CUDA.
        let tid = driver.restore_thread(pid);
        let text = |_| format!("Could not find restore thread for process ID {pid}");
        return tid.map(|tid| Some(tid.to_string())).map_err(text);
    }
    match flags.action {
        Some(action) => act(&driver, pid, action, flags)?,
        None => toggle(&driver, pid, flags)?,
    }
    Ok(None)
}

/// What would be ignored is refused.
fn check(flags: &Flags) -> Result<(), String> {
    let maps = flags.toggle || flags.action == Some(Action::Restore);
    if !flags.device_map.is_empty() && !maps {
        return Err("--device-map goes with --action restore, or with --toggle".into());
    }
    if flags.timeout.is_some() && flags.action != Some(Action::Lock) && !flags.toggle {
        return Err("--timeout goes with --action lock".into());
    }
    Ok(())
}

fn help() -> String {
    let version =
        kernel_driver_version().unwrap_or_else(|| "unknown (no NVIDIA driver is loaded)".into());
    format!(
        "CUDA checkpoint and restore utility (cudasnap {}).\nDriver version {version}.\n\n{}",
        env!("CARGO_PKG_VERSION"),
        operations()
    )
}

/// The flags, as this driver has them.
fn operations() -> String {
    let jobs = kernel_driver_version().is_some_and(|version| job::known_to(&version));
    HELP.replace("@JOB@", if jobs { JOB_HELP } else { "" })
}

fn state(driver: &Driver, pid: i32) -> Result<State, String> {
    let text = |error| {
        format!(
            "Error getting process state for process ID {pid}: {}",
            quoted(&error)
        )
    };
    driver.state(pid).map_err(text)
}

fn act(driver: &Driver, pid: i32, action: Action, flags: &Flags) -> Result<(), String> {
    let (word, done) = match action {
        Action::Lock => ("lock", driver.lock(pid, flags.timeout.unwrap_or(0))),
        Action::Checkpoint => ("checkpoint", driver.checkpoint(pid)),
        Action::Restore => ("restore", driver.restore_to(pid, &flags.device_map)),
        Action::Unlock => ("unlock", driver.unlock(pid)),
    };
    done.map_err(|error| format!("Could not {word} on process ID {pid}: {}", quoted(&error)))
}

fn toggle(driver: &Driver, pid: i32, flags: &Flags) -> Result<(), String> {
    match state(driver, pid)? {
        State::Running if !flags.device_map.is_empty() => Err(format!(
            "process ID {pid} is running: --device-map goes with the toggle that restores it"
        )),
        State::Running => {
            act(driver, pid, Action::Lock, flags)?;
            act(driver, pid, Action::Checkpoint, flags).map_err(|text| {
                // A process that nobody unlocks would wait for ever.
                match driver.unlock(pid) {
                    Ok(()) => text,
                    Err(error) => format!(
                        "{text}\nCould not unlock on process ID {pid}: {}",
                        quoted(&error)
                    ),
                }
            })
        }
        State::Checkpointed => {
            act(driver, pid, Action::Restore, flags)?;
            act(driver, pid, Action::Unlock, flags)
        }
        other => Err(format!(
            "Could not toggle process ID {pid}: it is {other}, neither running nor checkpointed"
        )),
    }
}

/// The driver's own text, in quotes as NVIDIA's tool has it.
fn quoted(error: &DriverError) -> String {
    match error {
        DriverError::Refused { text, .. } if !text.is_empty() => format!("\"{text}\""),
        other => format!("\"{other}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Flags> {
        Flags::try_parse_from(line.split(' ').map(OsString::from)).ok()
    }

    #[test]
    fn the_flags_are_nvidias() {
        let flags = parse("x --action lock --pid 12 --timeout 10000").unwrap();
        assert_eq!(
            (flags.action, flags.pid, flags.timeout),
            (Some(Action::Lock), Some(12), Some(10_000))
        );
        assert!(parse("x --get-state -p 7").unwrap().get_state);
        assert!(parse("x -h").unwrap().help);
        let job = parse("x -j python3 -u x.py --pid 3").unwrap();
        assert_eq!((job.launch_job.len(), job.pid), (5, None));
        for bad in [
            "x",
            "x --pid 3",
            "x --toggle",
            "x --toggle --get-state --pid 3",
            "x --toggle --pid 0",
            "x --action fly --pid 3",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        let uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";
        let map = format!("--device-map {uuid}={uuid}");
        for (line, right) in [
            (format!("x --action restore --pid 3 {map}"), true),
            (format!("x --toggle --pid 3 {map}"), true),
            (format!("x --action lock --pid 3 {map}"), false),
            (format!("x --get-state --pid 3 {map}"), false),
            ("x --action restore --pid 3 --timeout 5".into(), false),
        ] {
            assert_eq!(check(&parse(&line).unwrap()).is_ok(), right, "{line}");
        }
        assert!(parse("x --action restore --pid 3 --device-map 1=2").is_none());
    }

    #[test]
    fn criu_finds_every_flag_in_the_first_2047_bytes_of_help() {
        let help = help();
        assert!(help.len() + JOB_HELP.len() < 2048, "{}", help.len());
        assert!(!help.contains('@') && HELP.contains("@JOB@"));
        for flag in [
            "--get-state",
            "--action",
            "--toggle",
            "--get-restore-tid",
            "--pid",
            "--timeout",
            "--device-map",
            "--help",
        ] {
            assert!(help.contains(flag), "{flag}");
        }
    }
}
