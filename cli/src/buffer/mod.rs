//! `cudasnap buffer`: looks into a checkpointed process's buffer, and changes it.
//!
//! * Where it is: [`locate`] asks the library's record ([`verdict`]), or finds it as one does by hand ([`appeared`]).
//! * [`opened`]: the buffer as bytes by offset, and whether it is still the same.
//! * The commands: [`list`], [`read`], [`find`] over [`scan`], [`write`](mod@write) (and undo, [`undo_file`]), [`save`] and
//!   [`load`] over [`windows`] and [`image`].
//! * Files: [`new_file`], [`origin`]. Words: [`words`], [`hexdump`]. Ends: [`stop`], [`progress`].

pub mod appeared;
pub mod find;
pub mod hexdump;
pub mod image;
pub mod list;
pub mod load;
pub mod locate;
pub mod new_file;
pub mod opened;
pub mod origin;
pub mod progress;
pub mod read;
pub mod save;
pub mod scan;
pub mod stop;
pub mod undo_file;
pub mod verdict;
pub mod windows;
pub mod words;
pub mod write;

use crate::exit::Exit;
use crate::output;
use locate::Place;
use opened::Buffer;
use stop::Stop;

/// In clap's own words the commands are missing when the PID is: that is when people need to see where it belongs.
const USAGE: &str =
    "cudasnap buffer <PID> [list|read|find|write|undo|save|load] [OPTIONS]\n       \
                     PID comes first: cudasnap buffer 1234 list";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE)]
pub struct Args {
    /// Process id; it comes before the command
    #[arg(value_parser = crate::values::pid())]
    pid: i32,
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    action: Option<Action>,
}

/// What to do with the buffer.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Shows whether there is a buffer, and where (this is the default)
    List(list::ListArgs),
    /// Prints bytes
    Read(read::ReadArgs),
    /// Searches for bytes; exit status 1 when there are none
    Find(find::FindArgs),
    /// Shows what would be changed; with --yes changes it and keeps the old bytes in a file
    Write(write::WriteArgs),
    /// Puts the old bytes of a write back
    Undo(write::UndoArgs),
    /// Saves the whole buffer to a new file
    Save(save::SaveArgs),
    /// Compares the buffer with a saved file; with --yes puts the file's contents into it
    Load(load::LoadArgs),
}

/// Runs it.
pub fn run(args: &Args) -> Exit {
    match carry_out(args) {
        Ok(exit) => exit,
        Err(stop) => {
            if let Some(text) = stop.text {
                output::complain(&text);
            }
            stop.exit
        }
    }
}

fn carry_out(args: &Args) -> Result<Exit, Stop> {
    let open = || Buffer::open(args.pid, &args.place);
    let done = |()| Exit::Done;
    match &args.action {
        None => list::run(args.pid, &args.place, &list::ListArgs::default()).map(done),
        Some(Action::List(list)) => list::run(args.pid, &args.place, list).map(done),
        Some(Action::Read(read)) => read::run(&open()?, read).map(done),
        Some(Action::Find(find)) => find::run(&open()?, find),
        Some(Action::Write(write)) => write::run(&open()?, write).map(done),
        Some(Action::Undo(undo)) => write::undo(&open()?, undo).map(done),
        Some(Action::Save(save)) => save::run(&open()?, save).map(done),
        Some(Action::Load(load)) => load::run(&open()?, load).map(done),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use crate::grammar::Cli;

    #[test]
    fn the_usage_has_every_command_and_the_pid_first() {
        let cli = Cli::command();
        let buffer = cli.find_subcommand("buffer").unwrap();
        let names: Vec<&str> = buffer
            .get_subcommands()
            .map(|command| command.get_name())
            .collect();
        let wanted = format!("Usage: cudasnap buffer <PID> [{}]", names.join("|"));
        for line in ["cudasnap buffer", "cudasnap buffer find 1"] {
            let error = Cli::try_parse_from(line.split(' '))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(&wanted) && error.contains("PID comes first"),
                "{error}"
            );
        }
    }
}
