//! `cudasnap status`: CUDA processes, the library in them and their last phases, without initialising CUDA.
//!
//! * [`gather`] looks at processes, cheap things first: [`held`] (device files and what else stops a dump), [`preload`] (order of
//!   preloaded libraries), [`library_file`] (is the library's file still the one that was loaded), [`pages`] (page kind granted),
//!   [`relatives`] (processes above and below), [`own_program`] (other processes of this tool). What it finds is in [`facts`].
//! * [`judge`] (pure) makes words of it: state, activity, and the [`warnings`]. [`phases`] and [`steps`] are words for those.
//! * [`table`], [`detail`] and [`json`] show it, with [`notes`]; [`watch`] repeats. [`text`] keeps foreign text from commanding the terminal.

pub mod detail;
pub mod facts;
pub mod gather;
pub mod held;
pub mod json;
pub mod judge;
pub mod library_file;
pub mod notes;
pub mod own_program;
pub mod pages;
pub mod phases;
pub mod preload;
pub mod relatives;
pub mod steps;
pub mod table;
pub mod text;
pub mod warnings;
pub mod watch;

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use crate::exit::Exit;
use crate::output;
use crate::process::identity::{is_proc_there, IdentityError};
use crate::selection::Selection;
use crate::values;

use facts::Round;
use gather::Depth;
use judge::Verdict;
use text::Paper;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Process ids; without any: every CUDA process
    #[arg(value_name = "PID", value_parser = values::pid())]
    pids: Vec<i32>,
    /// Every CUDA process below each PID, itself included
    #[arg(long, requires = "pids")]
    tree: bool,
    /// The PIDs are those that a container sees, not this machine's
    #[arg(long, requires = "pids")]
    ns_pid: bool,
    /// All that is known of each process, as with a PID
    #[arg(long, short)]
    verbose: bool,
    /// One JSON object; with --watch one per line and round
    #[arg(long)]
    json: bool,
    /// Again and again, every so many seconds, until interrupted
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = values::read(seconds)
    )]
    watch: Option<Duration>,
}

impl Args {
    /// What to look at: one selection per number, so that one that is wrong does not hide the others.
    fn selections(&self) -> Vec<Selection> {
        Selection::of_each(&self.pids, self.tree, self.ns_pid)
    }

    /// How much to look at.
    fn depth(&self) -> Depth {
        if self.json || self.is_detailed() {
            Depth::Everything
        } else {
            Depth::Overview
        }
    }

    /// Blocks, not the table. A watch of several processes shows the table: a window has no room for more than one block, and what
    /// is below its edge is never seen.
    fn is_detailed(&self) -> bool {
        let several = self.tree || self.pids.len() > 1;
        let watches_several = self.watch.is_some() && several;
        self.verbose || !(self.pids.is_empty() || watches_several)
    }

    fn look(&self) -> Round {
        let selections = self.selections();
        if selections.is_empty() {
            gather::all(self.depth())
        } else {
            gather::these(&selections, self.depth())
        }
    }

    fn show(&self, round: &Round, paper: Paper) -> String {
        let verdicts: Vec<Verdict> = round
            .processes
            .iter()
            .map(|process| Verdict::of(process, round.unix_ns))
            .collect();
        if self.json {
            json::line(round, &verdicts)
        } else if self.is_detailed() {
            detail::text(round, &verdicts, paper)
        } else {
            table::text(round, &verdicts, paper)
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let fit = |seconds| (0.1..=86_400.0).contains(&seconds);
    values::seconds(text, fit, "seconds, 0.1 to 86400")
}

/// Runs it.
pub fn run(args: &Args) -> Exit {
    if !is_proc_there() {
        output::complain(&IdentityError::NoProc);
        return Exit::Refused;
    }
    if let Some(interval) = args.watch {
        return watch::run(args, interval);
    }
    let round = args.look();
    let shown = write(&args.show(&round, Paper::of_stdout()));
    complain(&round);
    match shown {
        Ok(()) => round.exit(),
        Err(exit) => exit,
    }
}

/// Writes to stdout. Who reads it may have seen enough: a closed pipe is no failure.
fn write(text: &str) -> Result<(), Exit> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Exit::Done),
        Err(error) => {
            output::complain(format_args!("stdout: {error}"));
            Err(Exit::Failed)
        }
    }
}

/// Says on stderr what is wrong with the numbers that were given.
fn complain(round: &Round) {
    round.complaints().iter().for_each(output::complain);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_watch_of_several_processes_shows_the_table() {
        for (line, detailed) in [
            ("status", false),
            ("status 1", true),
            ("status 1 2", true),
            ("status --tree 1", true),
            ("status --watch", false),
            ("status --watch 1", true),
            ("status --watch 1 2", false),
            ("status --watch --tree 1", false),
            ("status --watch -v 1 2", true),
        ] {
            let line_args = <Line as clap::Parser>::try_parse_from(line.split(' '));
            let args = line_args
                .map(|line| line.args)
                .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(args.is_detailed(), detailed, "{line}");
        }
    }

    #[test]
    fn intervals_are_checked() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "x", "", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
