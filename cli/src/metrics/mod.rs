//! `cudasnap metrics`: what the library's records say, in the text format of Prometheus, for the textfile folder of a node exporter.
//!
//! | file | job |
//! |---|---|
//! | [`gather`] | which processes, and their records |
//! | [`families`] | pure: metrics from records |
//! | [`exposition`] | pure: the text format |
//! | [`textfile`] | a file that is there whole or not at all |

pub mod exposition;
pub mod families;
pub mod gather;
pub mod textfile;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueHint;

use crate::exit::Exit;
use crate::foreign_text::printable;
use crate::output;
use crate::process::identity::{is_proc_there, IdentityError};
use crate::selection::Selection;
use crate::values;

use gather::Harvest;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A node exporter reads files named *.prom from the folder of --collector.textfile.directory:\n\
                  cudasnap metrics --all --output /var/lib/node_exporter/textfile/cudasnap.prom"
)]
pub struct Args {
    /// Process ids
    #[arg(value_name = "PID", required_unless_present = "all", value_parser = values::pid())]
    pids: Vec<i32>,
    /// Every process in which the library and libcuda are loaded
    #[arg(long, conflicts_with_all = ["pids", "tree", "ns_pid"])]
    all: bool,
    /// Every CUDA process below each PID, itself included
    #[arg(long)]
    tree: bool,
    /// The PIDs are those that a container sees, not this machine's
    #[arg(long)]
    ns_pid: bool,
    /// File to write, in place of stdout: whole or not at all
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

impl Args {
    /// One selection for each number, so that one that is wrong does not hide the others.
    fn selections(&self) -> Vec<Selection> {
        Selection::of_each(&self.pids, self.tree, self.ns_pid)
    }
}

/// Runs it.
pub fn run(args: &Args) -> Exit {
    if !is_proc_there() {
        output::complain(IdentityError::NoProc);
        return Exit::Refused;
    }
    let harvest = if args.all {
        Harvest::of_all()
    } else {
        Harvest::of(&args.selections())
    };
    for refusal in &harvest.refusals {
        output::complain(printable(&refusal.text));
    }
    let ended = ended(&harvest, args.all);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let text = exposition::text(&families::of(&harvest, now.unwrap_or_default()));
    match &args.output {
        Some(path) if path.as_os_str() != "-" => put(path, &text, ended),
        // `say` adds the last line's end.
        _ => output::say(text.trim_end(), ended),
    }
}

fn put(path: &Path, text: &str, ended: Exit) -> Exit {
    if path.extension().is_none_or(|extension| extension != "prom") {
        output::complain(format_args!(
            "{}: a node exporter reads files named *.prom only",
            path.display()
        ));
    }
    match textfile::write(path, text) {
        Ok(()) => ended,
        Err(error) => {
            output::complain(format_args!("{}: {error}", path.display()));
            Exit::Failed
        }
    }
}

/// Some were read: done. Where all are asked for, there need not be any.
fn ended(harvest: &Harvest, all: bool) -> Exit {
    let only_denied = || {
        let mut refusals = harvest.refusals.iter();
        harvest.ended == 0 && refusals.all(|refusal| refusal.exit == Exit::Refused)
    };
    match harvest.seen.is_empty() {
        false => Exit::Done,
        true if harvest.refusals.is_empty() && all => Exit::Done,
        true if only_denied() => Exit::Refused,
        true => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn all_or_some() {
        for (line, fine) in [
            ("x 1 2", true),
            ("x --all", true),
            ("x --tree 1 --output x.prom", true),
            ("x", false),
            ("x --all 1", false),
            ("x --all --tree", false),
        ] {
            let parsed = Line::try_parse_from(line.split(' '));
            assert_eq!(parsed.is_ok(), fine, "{line}");
            let selections = parsed.map(|line| line.args.selections().len());
            assert!(selections.is_err() || selections.is_ok_and(|n| n <= 2));
        }
    }

    #[test]
    fn the_status_says_whether_any_was_read() {
        let refused = |exit| Refusal {
            text: String::new(),
            exit,
        };
        let none = Harvest::default();
        assert_eq!(ended(&none, true), Exit::Done, "nobody is there");
        let gone = Harvest {
            ended: 1,
            ..Harvest::default()
        };
        assert_eq!(ended(&gone, false), Exit::Failed);
        let denied = Harvest {
            refusals: vec![refused(Exit::Refused)],
            ..Harvest::default()
        };
        assert_eq!(ended(&denied, false), Exit::Refused);
        let both = Harvest {
            refusals: vec![refused(Exit::Refused), refused(Exit::Failed)],
            ..Harvest::default()
        };
        assert_eq!(ended(&both, true), Exit::Failed);
    }
}
