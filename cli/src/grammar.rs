//! The command line: one grammar for parsing, help, completions and the man page.

use clap::{Parser, Subcommand};

use crate::ab::target::keeper;
use crate::exit::Exit;
use crate::{
    ab, buffer, control, doctor, fleet, flow, generate, links, metrics, pinned, reserve, run,
    status, workload,
};

/// Checkpoints and restores CUDA processes, runs them under the cudasnap library, shows what happened and looks inside.
///
/// With NVIDIA's flags (--get-state, --action, --toggle, --get-restore-tid), or called as cuda-checkpoint, it behaves as
/// NVIDIA's cuda-checkpoint does.
#[derive(Debug, Parser)]
#[command(name = "cudasnap", version, max_term_width = 110, after_long_help = generate::after_help())]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs a program under the library
    Run(run::Args),
    /// Stops new CUDA calls and waits for those under way
    Lock(flow::LockArgs),
    /// Locks, then brings device memory into main memory and lets go of the GPU
    Checkpoint(flow::CheckpointArgs),
    /// Brings device memory back, then unlocks
    Restore(flow::RestoreArgs),
    /// Lets CUDA calls go on
    Unlock(flow::UnlockArgs),
    /// Checkpoints what runs, restores what is checkpointed
    Toggle(flow::ToggleArgs),
    /// Prints the driver's state of processes
    State(flow::StateArgs),
    /// Shows CUDA processes, the library in them and their last phases, without initialising CUDA
    Status(status::Args),
    /// Looks into a checkpointed process's buffer, and changes it
    Buffer(buffer::Args),
    /// Looks for what would keep checkpoints from working or from being fast
    Doctor(doctor::Args),
    /// Says what the library in a running process does with the next checkpoint
    Mode(control::ModeArgs),
    /// Frees the buffer that a process keeps, or has reserved, for its next checkpoint
    Drop(control::DropArgs),
    /// Fills the memory that a process has reserved for its next checkpoint
    Reserve(reserve::Args),
    /// Measures variants against each other: cycles that take turns, ratios with intervals, doubts, reports
    Ab(Box<ab::Args>),
    /// Holds device memory with known contents, for measuring and for trying out
    Workload(workload::Args),
    /// Tables and plots of the phases of many hosts, from the files of CUDASNAP_REPORT
    Report(fleet::Args),
    /// What the library's records say, for Prometheus
    Metrics(metrics::Args),
    /// Makes a link named cuda-checkpoint to this program
    InstallLinks(links::Args),
    /// Prints completions for a shell
    Completions(generate::completions::Args),
    /// Writes the man pages into a folder
    Man(generate::man::Args),
    /// Measures pinned copies, for other commands
    #[command(hide = true)]
    Pinned(pinned::Args),
    /// Keeps a program that another command has started, and ends it with that
    #[command(hide = true)]
    Keep(keeper::Args),
}

impl Command {
    /// Carries it out.
    pub fn run(&self) -> Exit {
        match self {
            Command::Run(args) => run::run(args),
            Command::Lock(args) => flow::lock(args),
            Command::Checkpoint(args) => flow::checkpoint(args),
            Command::Restore(args) => flow::restore(args),
            Command::Unlock(args) => flow::unlock(args),
            Command::Toggle(args) => flow::toggle(args),
            Command::State(args) => flow::state(args),
            Command::Status(args) => status::run(args),
            Command::Buffer(args) => buffer::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::Mode(args) => control::mode(args),
            Command::Drop(args) => control::drop(args),
            Command::Reserve(args) => reserve::run(args),
            Command::Ab(args) => ab::run(args),
            Command::Workload(args) => workload::run(args),
            Command::Report(args) => fleet::run(args),
            Command::Metrics(args) => metrics::run(args),
            Command::InstallLinks(args) => links::run(args),
            Command::Completions(args) => generate::completions::run(args),
            Command::Man(args) => generate::man::run(args),
            Command::Pinned(args) => pinned::run(args),
            Command::Keep(args) => keeper::run(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, CommandFactory};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }

    fn with_all_below(command: clap::Command) -> Vec<clap::Command> {
        let below: Vec<_> = command.get_subcommands().cloned().collect();
        let below = below.into_iter().flat_map(with_all_below);
        std::iter::once(command.clone()).chain(below).collect()
    }

    /// Of every argument of every command: who gives what it cannot take is told which argument, which value, and what it takes.
    #[test]
    fn a_value_that_is_not_understood_is_told_with_what_is_taken() {
        let mut refused = 0;
        for command in with_all_below(Cli::command()) {
            let takes_value = |arg: &&Arg| arg.get_action().takes_values();
            for arg in command.get_arguments().filter(takes_value) {
                for (value, shown) in [(&b"?!"[..], "?!"), (b"\xff", "\u{fffd}")] {
                    let parser = arg.get_value_parser().clone();
                    let alone =
                        clap::Command::new("x").arg(Arg::new("it").long("it").value_parser(parser));
                    let line = [
                        OsStr::new("x"),
                        OsStr::new("--it"),
                        OsStr::from_bytes(value),
                    ];
                    // What takes it takes any text or path.
                    let Err(error) = alone.try_get_matches_from(line) else {
                        continue;
                    };
                    let said = error.to_string();
                    assert!(
                        said.starts_with(&format!(
                            "error: invalid value '{shown}' for '--it <it>'"
                        )) && (said.contains("it takes ") || said.contains("[possible values: ")),
                        "{} {}: {said}",
                        command.get_name(),
                        arg.get_id()
                    );
                    refused += 1;
                }
            }
        }
        assert!(refused > 60, "{refused}");
    }
}
