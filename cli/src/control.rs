//! `cudasnap mode` and `cudasnap drop`: the words of the record that may be written from outside.

use clap::ValueEnum;
use cudasnap_wire::Mode;

use crate::exit::Exit;
use crate::process::identity::Identity;
use crate::process::rights;
use crate::process::target::MemoryError;
use crate::record::{Control, Located, RecordError};
use crate::units;

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
pub struct ModeArgs {
    /// Process id
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
    /// Without it: print the mode
    mode: Option<ModeWord>,
}

/// Arguments of `cudasnap drop`.
#[derive(Debug, clap::Args)]
pub struct DropArgs {
    /// Process id
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
}

/// Prints or sets the mode of the next checkpoint.
pub fn mode(args: &ModeArgs) -> Exit {
    told(args.pid, |record| match args.mode {
        None => Ok(record.read()?.mode.to_string()),
        Some(word) => set_mode(record, word.into()),
    })
}

fn set_mode(record: &Located, mode: Mode) -> Result<String, RecordError> {
    let before = record.read()?;
    record.write(Control::Mode(mode))?;
    let until = if before.buffer.state.is("none") || before.buffer.state.is("kept") {
        ""
    } else {
        " (from the next checkpoint on: there is a buffer, and its mode stays until it is unmapped)"
    };
    Ok(format!("{} -> {}{until}", before.mode, mode.word()))
}

/// Asks the library to free a kept buffer.
pub fn drop(args: &DropArgs) -> Exit {
    told(args.pid, |record| {
        let before = record.read()?.buffer;
        if !before.state.is("kept") {
            return Ok(format!("no buffer is kept (state: {})", before.state));
        }
        record.write(Control::Drop)?;
        Ok(format!(
            "asked to free the kept buffer of {}: done at the process's next mmap",
            units::bytes(before.length)
        ))
    })
}

/// Finds the record of the process, does something with it, prints the result.
fn told(pid: i32, work: impl FnOnce(&Located) -> Result<String, RecordError>) -> Exit {
    let identity = match Identity::of(pid) {
        Ok(identity) => identity,
        Err(error) => {
            eprintln!("cudasnap: {error}");
            return Exit::Failed;
        }
    };
    match Located::find(identity.target()).and_then(|record| work(&record)) {
        Ok(text) => {
            println!("{text}");
            Exit::Done
        }
        Err(RecordError::Memory(MemoryError::Denied)) => {
            eprintln!("cudasnap: {}", rights::missing(pid));
            Exit::Refused
        }
        Err(error) => {
            eprintln!("cudasnap: process {pid}: {error}");
            Exit::Failed
        }
    }
}
