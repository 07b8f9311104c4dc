//! `cudasnap mode` and `cudasnap drop`: the words of the record that may be written from outside, and what can be done at once.
//!
//! * [`drop`](mod@drop): what `cudasnap drop` does. [`free`]: frees a kept buffer's pages from outside, with [`stopped`] (a
//!   process all of whose threads are stopped), [`inject`] (one system call in one of them) and [`ptrace`].

pub mod drop;
#[cfg(target_arch = "x86_64")]
pub mod free;
#[cfg(target_arch = "x86_64")]
pub mod inject;
#[cfg(target_arch = "x86_64")]
pub mod ptrace;
#[cfg(target_arch = "x86_64")]
pub mod stopped;

use clap::ValueEnum;
use cudasnap_wire::Mode;
use serde::Serialize;

use crate::exit::Exit;
use crate::foreign_text::printable;
use crate::output;
use crate::process::identity::Identity;
use crate::process::rights;
use crate::process::target::MemoryError;
use crate::record::{Control, Located, RecordError};
use crate::selection::Selection;

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
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
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
    after_help = "Only a process that runs with CUDASNAP_BUFFER=keep keeps a buffer. Its next checkpoint makes a new one, \
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
struct ModeReport<'a> {
    schema: u32,
    pid: i32,
    before: &'a str,
    after: &'a str,
    /// Whether a buffer that exists now still has the mode from before.
    buffer_keeps_its_mode: bool,
}

/// Prints or sets the mode of the next checkpoint.
pub fn mode(args: &ModeArgs) -> Exit {
    match Identity::of(args.pid) {
        Ok(identity) => match set_mode(&identity, args) {
            Ok(exit) => exit,
            Err(error) => refused(args.pid, &error),
        },
        Err(error) => {
            output::complain(&error);
            Exit::Failed
        }
    }
}

fn set_mode(identity: &Identity, args: &ModeArgs) -> Result<Exit, RecordError> {
    let record = Located::find(identity.target())?;
    let view = record.read()?;
    let before = view.mode.to_string();
    if let Some(word) = args.mode {
        record.write(Control::Mode(word.into()))?;
    }
    let after = args
        .mode
        .map_or_else(|| before.clone(), |word| Mode::from(word).word().into());
    let idle = view.buffer.state.is("none") || view.buffer.state.is("kept");
    let report = ModeReport {
        schema: 1,
        pid: args.pid,
        before: &before,
        after: &after,
        buffer_keeps_its_mode: !idle && args.mode.is_some() && before != after,
    };
    Ok(if args.json {
        output::say_json(&report, Exit::Done)
    } else {
        output::say(&mode_text(&report, args.mode.is_some()), Exit::Done)
    })
}

fn mode_text(report: &ModeReport<'_>, set: bool) -> String {
    match set {
        false => report.before.into(),
        true if report.buffer_keeps_its_mode => format!(
            "{} -> {} (from the next checkpoint on: the buffer that exists keeps its mode until it is unmapped)",
            report.before, report.after
        ),
        true => format!("{} -> {}", report.before, report.after),
    }
}

#[derive(Serialize)]
struct DropReport {
    schema: u32,
    processes: Vec<DropLine>,
}

#[derive(Serialize)]
struct DropLine {
    pid: i32,
    name: String,
    #[serde(flatten)]
    dropped: drop::Dropped,
}

/// Frees the kept buffers of processes.
pub fn drop(args: &DropArgs) -> Exit {
    let processes = match args.processes.resolve() {
        Ok(processes) => processes,
        Err(errors) => {
            errors.iter().for_each(|error| output::complain(error));
            return Exit::Failed;
        }
    };
    let mut lines = Vec::new();
    let mut failures = Vec::new();
    for identity in &processes {
        match drop::kept_buffer(identity) {
            Ok(dropped) => lines.push(DropLine {
                pid: identity.pid,
                name: identity.name.clone(),
                dropped,
            }),
            Err(error) => failures.push(refused(identity.pid, &error)),
        }
    }
    let ended = match failures.first() {
        None => Exit::Done,
        Some(only) if processes.len() == 1 => *only,
        Some(_) => Exit::SomeFailed,
    };
    if args.json {
        let report = DropReport {
            schema: 1,
            processes: lines,
        };
        return output::say_json(&report, ended);
    }
    let texts = lines.iter().map(|line| {
        format!(
            "{} ({}): {}",
            line.pid,
            printable(&line.name),
            line.dropped.text()
        )
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    if text.is_empty() {
        return ended;
    }
    output::say(&text, ended)
}

/// Says why there is no record to work on.
fn refused(pid: i32, error: &RecordError) -> Exit {
    if *error == RecordError::Memory(MemoryError::Denied) {
        output::complain(&rights::missing(pid));
        return Exit::Refused;
    }
    output::complain(&format_args!("process {pid}: {error}"));
    Exit::Failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_told_before_and_after() {
        let report = |after, buffer_keeps_its_mode| ModeReport {
            schema: 1,
            pid: 1,
            before: "on",
            after,
            buffer_keeps_its_mode,
        };
        assert_eq!(mode_text(&report("on", false), false), "on");
        assert_eq!(mode_text(&report("off", false), true), "on -> off");
        assert!(mode_text(&report("off", true), true).starts_with("on -> off (from the next"));
    }
}
