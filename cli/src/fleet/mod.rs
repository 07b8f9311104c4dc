//! `cudasnap report`: the JSON lines of `CUDASNAP_REPORT` from many processes on many hosts, in tables and plots.
//!
//! | file | job |
//! |---|---|
//! | [`source`], [`lines`] | files, and their lines one at a time |
//! | [`phase`] | pure: a line, read |
//! | [`collect`] | what is known, made line by line |
//! | [`tally`], [`timeline`], [`steps`] | of a group: sums and quantiles; rates over time; steps down that are new |
//! | [`troubles`], [`words`] | lines that are left out; words of lines, made harmless |
//! | [`doubts`] | what the numbers should not be trusted for |
//! | [`document`](mod@document), [`export`] | the report; the same for scripts |

pub mod collect;
pub mod document;
pub mod doubts;
pub mod export;
pub mod lines;
pub mod phase;
pub mod source;
pub mod steps;
pub mod tally;
pub mod timeline;
pub mod troubles;
pub mod words;

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueHint;

use crate::document::{shown, OutputArgs};
use crate::exit::Exit;
use crate::output;
use crate::values;

use collect::Fleet;
use source::Source;

pub use document::document;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "cudasnap report node1=/logs/node1.jsonl node2=/logs/node2.jsonl --json fleet.json\n\
                  ssh node3 cat /var/log/cudasnap.jsonl | cudasnap report node3=-"
)]
pub struct Args {
    /// Files that CUDASNAP_REPORT names; HOST=FILE says whose it is; - is stdin
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = values::text())]
    files: Vec<String>,
    #[command(flatten)]
    outputs: OutputArgs,
}

/// Runs it.
pub fn run(args: &Args) -> Exit {
    let sources = Source::all(&args.files);
    let read = sources.iter().filter_map(|source| source.path.as_deref());
    let usable = args.outputs.check_apart_from(read);
    if let Err(text) = usable.and_then(|()| args.outputs.check()) {
        output::complain(text);
        return Exit::Usage;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut fleet = Fleet::new(now.unwrap_or_default().as_secs());
    let failed = read_all(&mut fleet, &sources);
    let ended = match failed {
        0 => Exit::Done,
        _ if failed == args.files.len() => return Exit::Failed,
        _ => Exit::SomeFailed,
    };
    let report = document(&fleet);
    let shown = match args.outputs.takes_stdout() {
        true => ended,
        false => output::say(shown(&report).trim_end(), ended),
    };
    let (json, csv) = (export::json(&fleet), export::csv(&fleet));
    match args.outputs.write(&json, &csv, &report) {
        Ok(_) => shown,
        Err(text) => {
            output::complain(text);
            Exit::Failed
        }
    }
}

/// Each file once, by whatever names it comes. How many could not be read.
fn read_all(fleet: &mut Fleet, sources: &[Source]) -> usize {
    let mut known: HashMap<(u64, u64), &Source> = HashMap::new();
    let mut failed = 0;
    for source in sources {
        match source.identity() {
            Some(identity) if known.contains_key(&identity) => {
                fleet.note_read_once(&source.as_given(), &known[&identity].as_given());
                continue;
            }
            Some(identity) => drop(known.insert(identity, source)),
            None => {}
        }
        failed += usize::from(!read(fleet, source));
    }
    failed
}

/// Whether it could be read.
fn read(fleet: &mut Fleet, source: &Source) -> bool {
    let shown = source.shown();
    let done = source
        .open()
        .and_then(|from| fleet.read(&source.label, &shown, from));
    if let Err(error) = &done {
        output::complain(format_args!("{shown}: {error}"));
    }
    done.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use collect::tests::line;
    use doubts::Doubt;

    #[test]
    fn one_file_by_two_paths_counts_once_and_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("a"), line(&[]) + "\n").unwrap();
        std::fs::write(path("b"), line(&[]) + "\n").unwrap();
        std::fs::hard_link(path("a"), path("c")).unwrap();
        let files = [path("a"), path("b"), format!("n={}", path("c")), path("a")];
        let mut fleet = Fleet::new(1_764_600_000);
        assert_eq!(read_all(&mut fleet, &Source::all(&files)), 0);
        assert_eq!((fleet.files, fleet.phases), (2, 2));
        let same = |name: String| (name, path("a"));
        let expected = vec![same(format!("n={}", path("c"))), same(path("a"))];
        let doubts = doubts::of(&fleet);
        assert_eq!(doubts, [Doubt::ReadOnce(expected)]);
        assert!(
            doubts[0].told().what.contains("is the same file as"),
            "{doubts:?}"
        );
        assert_eq!(read_all(&mut fleet, &Source::all(&[path("none")])), 1);
    }
}
