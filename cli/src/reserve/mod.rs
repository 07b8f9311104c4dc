//! `cudasnap reserve`: fills the range that a process has reserved for its next checkpoint, from outside and slowly.
//!
//! * [`mod@fill`]: the loop; [`halt`]: why it ends early. [`pace`]: its rate. [`pressure`]: whether there is memory to spare.
//! * [`range`]: the range in a process. [`populate`]: how its pages come without a byte being stored (docs/reserve.md).

pub mod fill;
pub mod halt;
pub mod pace;
pub mod populate;
pub mod pressure;
pub mod range;

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::buffer::progress::Interrupts;
use crate::exit::Exit;
use crate::foreign_text::printable;
use crate::per_process;
use crate::process::identity::Identity;
use crate::record::RecordError;
use crate::refusal::{failed, not_selected, refusal, Refusal};
use crate::run::options::size;
use crate::selection::Selection;
use crate::status::pages::Pages;
use crate::units;
use crate::values;

use fill::{fill, Filled, Plan};
use halt::{Halt, Why};
use populate::Populator;
use pressure::Margins;
use range::{Filling, Found, Missing};

/// Arguments of `cudasnap reserve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Only a process that runs with CUDASNAP_BUFFER=reserve has a range to fill, from the end of its first restore on. \
                  Nothing is stored in it, and the process does nothing for it. A range that is full makes the next checkpoint as \
                  fast as a kept buffer; cudasnap drop frees it. Exit status 5: stopped before the range was full."
)]
pub struct Args {
    /// The processes, one after the other
    #[command(flatten)]
    processes: Selection,
    /// Bytes per second, with K, M, G or T; 0 is as fast as it goes
    #[arg(long, value_name = "BYTES", default_value = "2G", value_parser = values::read(bytes))]
    rate: u64,
    /// Bytes of each range that may be in memory, with K, M, G or T
    #[arg(long, value_name = "BYTES", value_parser = values::read(bytes))]
    limit: Option<u64>,
    /// Bytes that stay free, in the machine and in the process's control groups
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = values::read(bytes))]
    margin: u64,
    /// Stop when processes have waited for memory in so many hundredths of the last ten seconds
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = values::whole::<u8>(1, 100))]
    pressure: u8,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn bytes(text: &str) -> Result<u64, String> {
    size(text.as_bytes()).ok_or_else(|| values::takes("bytes, with K, M, G or T"))
}

impl Args {
    fn margins(&self) -> Margins {
        Margins {
            free: self.margin,
            waiting: f64::from(self.pressure),
        }
    }

    fn plan(&self, found: &Found) -> Plan {
        let own = Some(found.keep_max).filter(|most| *most > 0);
        let limits = self.limit.into_iter().chain(own);
        Plan {
            length: found.buffer.length,
            limit: limits.min().unwrap_or(u64::MAX),
            rate: self.rate,
        }
    }
}

#[derive(Serialize)]
struct Line {
    pid: i32,
    name: String,
    /// Bytes that the range is for.
    length: u64,
    /// Bytes that were populated.
    populated: u64,
    /// Bytes of the range that are in memory, as far as it was gone through.
    resident: u64,
    /// Bytes of the range that lie on huge pages; null when it was not looked.
    huge: Option<u64>,
    seconds: f64,
    /// Why it was not filled to its end.
    stopped: Option<Halt>,
}

/// Fills the ranges of processes.
pub fn run(args: &Args) -> Exit {
    let (lines, refusals) = match args.processes.resolve() {
        Ok(processes) => {
            per_process::tell_launchers(&processes, "--tree");
            fill_each(&processes, args)
        }
        Err(errors) => (Vec::new(), errors.iter().map(not_selected).collect()),
    };
    let ends = lines.iter().map(|line| end_of(line.stopped.as_ref()));
    let ends: Vec<Exit> = ends
        .chain(refusals.iter().map(|refusal| refusal.exit))
        .collect();
    per_process::report(lines, refusals, all_ends(&ends), args.json, Line::text)
}

fn fill_each(processes: &[Identity], args: &Args) -> (Vec<Line>, Vec<Refusal>) {
    let refused = |text| {
        (
            Vec::new(),
            vec![Refusal {
                text,
                exit: Exit::Refused,
            }],
        )
    };
    let populator = match Populator::new() {
        Ok(populator) => populator,
        Err(why) => return refused(why),
    };
    let interrupts = match Interrupts::watch() {
        Ok(interrupts) => interrupts,
        Err(stop) => return refused(stop.text.unwrap_or_default()),
    };
    let mut lines = Vec::new();
    let mut refusals = Vec::new();
    for identity in processes {
        if interrupts.came().is_some() && !lines.is_empty() {
            break;
        }
        match fill_one(identity, args, &populator, &interrupts) {
            Ok(line) => lines.push(line),
            Err(refusal) => refusals.push(refusal),
        }
    }
    (lines, refusals)
}

fn fill_one(
    identity: &Identity,
    args: &Args,
    populator: &Populator,
    interrupts: &Interrupts,
) -> Result<Line, Refusal> {
    let found = Found::of(identity).map_err(|missing| match missing {
        Missing::Record(error) => refusal(identity.pid, &error),
        Missing::None(why) => Refusal {
            text: format!(
                "process {} ({}): {why}",
                identity.pid,
                identity.shown_name()
            ),
            exit: Exit::Refused,
        },
    })?;
    let began = Instant::now();
    let mut filling = Filling::new(&found, populator, args.margins(), interrupts)
        .map_err(|error| refusal(identity.pid, &RecordError::Memory(error)))?;
    let filled = fill(&mut filling, args.plan(&found));
    let time = began.elapsed();
    drop(filling);
    Ok(line(identity, &found, filled, time))
}

fn line(identity: &Identity, found: &Found, filled: Filled, time: Duration) -> Line {
    let away = [Why::Checkpoint, Why::Ended, Why::Dropped, Why::Failed];
    // The look holds the process's mapping lock: not while it is in the middle of a checkpoint.
    let there = !filled
        .halt
        .as_ref()
        .is_some_and(|halt| away.contains(&halt.why));
    let (start, end) = (
        found.buffer.address,
        found.buffer.address + found.buffer.mapped,
    );
    let pages = there
        .then(|| Pages::of(identity.target(), start, end).ok())
        .flatten();
    Line {
        pid: identity.pid,
        name: identity.name.clone(),
        length: found.buffer.length,
        populated: filled.populated,
        resident: filled.resident,
        huge: pages.map(|pages| pages.huge.min(filled.resident)),
        seconds: time.as_secs_f64(),
        stopped: filled.halt,
    }
}

impl Line {
    fn text(&self) -> String {
        let [resident, length, new] =
            [self.resident, self.length, self.populated].map(units::bytes);
        let time = units::duration(Duration::try_from_secs_f64(self.seconds).unwrap_or_default());
        let mut text = format!(
            "{} ({}): {resident} of {length} reserved are in memory, {new} of them new, in {time}",
            self.pid,
            printable(&self.name)
        );
        if let Some(huge) = self.huge.filter(|huge| *huge < self.resident / 2) {
            text += &format!(
                "; only {} on huge pages (cudasnap doctor)",
                units::bytes(huge)
            );
        }
        if let Some(halt) = &self.stopped {
            text += &format!("; stopped: {}", printable(&halt.text));
        }
        text
    }
}

/// The status that one process's end means.
fn end_of(halt: Option<&Halt>) -> Exit {
    match halt.map(|halt| halt.why) {
        None | Some(Why::Limit) => Exit::Done,
        Some(Why::Memory | Why::Pressure | Why::Checkpoint | Why::Dropped | Why::NotGiven) => {
            Exit::Stopped
        }
        Some(Why::Ended | Why::Failed) => Exit::Failed,
        Some(Why::Signal(number)) => Exit::Signal(number),
    }
}

/// A signal's; else that which all have in common; else that some failed.
fn all_ends(ends: &[Exit]) -> Exit {
    if let Some(signal) = ends.iter().find(|end| matches!(end, Exit::Signal(_))) {
        return *signal;
    }
    match ends {
        [] => failed(&"").exit,
        [first, others @ ..] if others.iter().all(|other| other == first) => *first,
        _ => Exit::SomeFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_what_is_documented() {
        let halt = |why| Halt::new(why, "");
        for (why, status) in [
            (Why::Limit, 0),
            (Why::Memory, 5),
            (Why::Pressure, 5),
            (Why::Checkpoint, 5),
            (Why::Dropped, 5),
            (Why::NotGiven, 5),
            (Why::Ended, 1),
            (Why::Failed, 1),
            (Why::Signal(15), 143),
        ] {
            assert_eq!(end_of(Some(&halt(why))).status(), status, "{why:?}");
        }
        assert_eq!(end_of(None), Exit::Done);
        for (ends, exit) in [
            (&[Exit::Done, Exit::Done][..], Exit::Done),
            (&[Exit::Stopped, Exit::Stopped], Exit::Stopped),
            (&[Exit::Done, Exit::Stopped], Exit::SomeFailed),
            (&[Exit::Refused], Exit::Refused),
            (&[Exit::Refused, Exit::Done], Exit::SomeFailed),
            (&[Exit::Done, Exit::Signal(2)], Exit::Signal(2)),
        ] {
            assert_eq!(all_ends(ends), exit, "{ends:?}");
        }
    }

    #[test]
    fn a_line_says_what_is_there_and_why_not_more() {
        let mut line = Line {
            pid: 7,
            name: "python3".into(),
            length: 9_140_000_000,
            populated: 5_000_000_000,
            resident: 6_000_000_000,
            huge: Some(6_000_000_000),
            seconds: 2.5,
            stopped: Some(Halt::new(Why::Checkpoint, "a checkpoint began")),
        };
        assert_eq!(
            line.text(),
            "7 (python3): 6.00 GB of 9.14 GB reserved are in memory, 5.00 GB of them new, in 2.50 s; stopped: a checkpoint began"
        );
        line.huge = Some(0);
        assert!(line.text().contains("only 0 B on huge pages"));
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!(json["stopped"]["why"], "checkpoint");
        line.stopped = Some(Halt::new(Why::Signal(15), "x"));
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!(json["stopped"]["why"]["signal"], 15);
    }
}
