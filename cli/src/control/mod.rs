//! `cudasnap mode` and `cudasnap drop`: the words of the record that may be written from outside, and what can be done at once.
//!
//! * [`drop`](mod@drop): what `cudasnap drop` does. [`free`]: frees a kept buffer's pages from outside, with [`stopped`] (a
//!   process all of whose threads are stopped), [`inject`] (one system call in one of them, chosen by [`sandbox`]) and
//!   [`ptrace`]; all of that in a process of its own ([`apart`]).

#[cfg(target_arch = "x86_64")]
pub mod apart;
pub mod drop;
#[cfg(target_arch = "x86_64")]
pub mod free;
#[cfg(target_arch = "x86_64")]
pub mod inject;
#[cfg(target_arch = "x86_64")]
pub mod ptrace;
#[cfg(target_arch = "x86_64")]
pub mod sandbox;
#[cfg(target_arch = "x86_64")]
pub mod stopped;

use clap::ValueEnum;
use cudasnap_wire::Mode;
use serde::Serialize;

use crate::exit::Exit;
use crate::foreign_text::printable;
use crate::process::identity::Identity;
use crate::record::{Control, Located, RecordError};
use crate::refusal::{failed, not_selected, refusal, Refusal};
use crate::selection::Selection;
use crate::{output, per_process};

/// A mode, as people write it.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeWord {
    /// Answer the driver's request for a buffer, make its copies
    On,
    /// Leave the request untouched, only time the copies
    Observe,
    /// Do nothing
    Off,
}

impl From<ModeWord> for Mode {
    fn from(word: ModeWord) -> Self {
        match word {
            ModeWord::On => Mode::On,
            ModeWord::Observe => Mode::Observe,
            ModeWord::Off => Mode::Off,
        }
    }
}

/// Arguments of `cudasnap mode`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The mode counts from the driver's next request for a buffer on: a checkpoint that is under way, and its \
                        restore, keep theirs. It is lost when the process ends."
)]
pub struct ModeArgs {
    /// Process id
    #[arg(value_parser = crate::values::pid())]
    pid: i32,
    /// The mode from the next checkpoint on; without it the mode in force is printed
    mode: Option<ModeWord>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `cudasnap drop`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Only a process that runs with CUDASNAP_BUFFER=keep (or reserve) keeps a buffer (or its addresses). Its next checkpoint makes a new one, \
                        which takes longer. Where ptrace is allowed the memory is free when the command returns, and the process \
                        stands still for some milliseconds per GB; otherwise the process frees it at its next mmap."
)]
pub struct DropArgs {
    /// The processes
    #[command(flatten)]
    processes: Selection,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ModeReport {
    schema: u32,
    status: u8,
    pid: i32,
    /// `None`: it could not be read.
    before: Option<String>,
    after: Option<String>,
    /// Whether a buffer that exists now still has the mode from before.
    buffer_keeps_its_mode: bool,
    /// Why not, in sentences.
    errors: Vec<String>,
}

/// Prints or sets the mode of the next checkpoint.
pub fn mode(args: &ModeArgs) -> Exit {
    let done = Identity::of(args.pid)
        .map_err(|error| failed(&error))
        .and_then(|identity| set_mode(&identity, args).map_err(|error| refusal(args.pid, &error)));
    per_process::tell_launchers(Identity::of(args.pid).ok().as_slice(), "name that one");
    match done {
        Ok(report) if args.json => output::say_json(&report, Exit::Done),
        Ok(report) => output::say(&mode_text(&report, args.mode.is_some()), Exit::Done),
        Err(Refusal { text, exit }) => {
            output::complain(&text);
            if !args.json {
                return exit;
            }
            let report = ModeReport {
                schema: 1,
                status: exit.status(),
                pid: args.pid,
                before: None,
                after: None,
                buffer_keeps_its_mode: false,
                errors: vec![text],
            };
            output::say_json(&report, exit)
        }
    }
}

fn set_mode(identity: &Identity, args: &ModeArgs) -> Result<ModeReport, RecordError> {
    let record = Located::find(identity.target())?;
    let view = record.read()?;
    let before = view.mode.to_string();
    if let Some(word) = args.mode {
        record.write(Control::Mode(word.into()))?;
    }
    let after = args
        .mode
        .map_or_else(|| before.clone(), |word| Mode::from(word).word().into());
    let idle = view.buffer.is_idle();
    Ok(ModeReport {
        schema: 1,
        status: Exit::Done.status(),
        pid: args.pid,
        buffer_keeps_its_mode: !idle && args.mode.is_some() && before != after,
        before: Some(before),
        after: Some(after),
        errors: Vec::new(),
    })
}

fn mode_text(report: &ModeReport, set: bool) -> String {
    let word = |mode: &Option<String>| mode.clone().unwrap_or_default();
    let (before, after) = (word(&report.before), word(&report.after));
    match set {
        false => before,
        true if report.buffer_keeps_its_mode => format!(
            "{before} -> {after} (from the next checkpoint on: the buffer that exists keeps its mode until it is unmapped)"
        ),
        true => format!("{before} -> {after}"),
    }
}

#[derive(Serialize)]
struct DropLine {
    pid: i32,
    name: String,
    #[serde(flatten)]
    dropped: drop::Dropped,
}

/// Frees the kept and reserved buffers of processes.
pub fn drop(args: &DropArgs) -> Exit {
    let (lines, refusals) = match args.processes.resolve() {
        Ok(processes) => {
            per_process::tell_launchers(&processes, "--tree");
            drop_each(&processes)
        }
        Err(errors) => (Vec::new(), errors.iter().map(not_selected).collect()),
    };
    let exit = drop_exit(lines.len(), &refusals);
    per_process::report(lines, refusals, exit, args.json, |line| {
        let name = printable(&line.name);
        format!("{} ({name}): {}", line.pid, printable(&line.dropped.text()))
    })
}

fn drop_each(processes: &[Identity]) -> (Vec<DropLine>, Vec<Refusal>) {
    let mut lines = Vec::new();
    let mut refusals = Vec::new();
    for identity in processes {
        match drop::kept_buffer(identity) {
            Ok(dropped) => lines.push(DropLine {
                pid: identity.pid,
                name: identity.name.clone(),
                dropped,
            }),
            Err(error) => refusals.push(refusal(identity.pid, &error)),
        }
    }
    (lines, refusals)
}

/// As with the verbs: 3 when some failed; when all did 1, or 4 when all were refused.
fn drop_exit(done: usize, refusals: &[Refusal]) -> Exit {
    match refusals.first() {
        None => Exit::Done,
        Some(_) if done > 0 => Exit::SomeFailed,
        Some(first) if refusals.iter().all(|other| other.exit == first.exit) => first.exit,
        Some(_) => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_told_before_and_after() {
        let report = |after: &str, buffer_keeps_its_mode| ModeReport {
            schema: 1,
            status: 0,
            pid: 1,
            before: Some("on".into()),
            after: Some(after.into()),
            buffer_keeps_its_mode,
            errors: Vec::new(),
        };
        assert_eq!(mode_text(&report("on", false), false), "on");
        assert_eq!(mode_text(&report("off", false), true), "on -> off");
        assert!(mode_text(&report("off", true), true).starts_with("on -> off (from the next"));
    }

    #[test]
    fn the_status_of_a_drop_is_that_of_its_worst() {
        let refusals = |exits: &[Exit]| {
            let refusals = exits.iter().map(|exit| Refusal {
                text: String::new(),
                exit: *exit,
            });
            refusals.collect::<Vec<_>>()
        };
        for (done, exits, expected) in [
            (0, &[][..], Exit::Done),
            (2, &[], Exit::Done),
            (0, &[Exit::Refused], Exit::Refused),
            (0, &[Exit::Failed, Exit::Failed], Exit::Failed),
            (0, &[Exit::Refused, Exit::Failed], Exit::Failed),
            (1, &[Exit::Refused, Exit::Failed], Exit::SomeFailed),
        ] {
            assert_eq!(drop_exit(done, &refusals(exits)), expected, "{exits:?}");
        }
    }
}
