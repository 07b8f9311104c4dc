//! A run of `cudasnap ab` from its command line to its exit status.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::Receiver;

use super::args::{Args, Order, Subject};
use super::bench::Trouble;
use super::csv::csv;
use super::data::{Measured, Workload, SCHEMA};
use super::document::document;
use super::doubts::look::{has_failed, is_wrong};
use super::limit::Link;
use super::plan::plan;
use super::real::Real;
use super::session::{self, Session};
use super::{host, json, place, target};
use crate::document::shown;
use crate::exit::Exit;
use crate::flow::call::leave;
use crate::flow::calls::Calls;
use crate::flow::targets::{load, Stop};
use crate::process::identity::Identity;
use crate::status::text::count;
use crate::{output, signals};

/// Variants that are named at the start.
const NAMED: usize = 8;

/// Measures, and tells about it.
pub fn run(args: &Args) -> Exit {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    // Short enough to be typed again.
    let clock = u64::from(now.subsec_nanos()) ^ now.as_secs() & 0xffff_ffff;
    let order = match args.order(clock) {
        Ok(order) => order,
        Err(text) => {
            output::complain(text);
            return Exit::Usage;
        }
    };
    match measure(&order, now.as_secs()) {
        Ok((measured, stopped)) => leave(tell(&order, &measured, stopped)),
        Err(trouble) => {
            output::complain(&trouble.text);
            leave(trouble.exit)
        }
    }
}

fn measure(order: &Order<'_>, started_unix: u64) -> Result<(Measured, Option<Trouble>), Trouble> {
    let output = order.start.output().map(PathBuf::as_path);
    let writable = order.outputs.check_beside(output);
    writable.map_err(Trouble::refused)?;
    for subject in &order.subjects {
        if let Subject::Process(pid) = subject {
            Identity::of(*pid).map_err(|error| Trouble::refused(error.to_string()))?;
            place::look(*pid, order, 0)?;
        }
    }
    let signals = signals::listen(&signals::ENDING);
    let signals =
        signals.map_err(|error| Trouble::failed(format!("signals cannot be caught: {error}")))?;
    let theirs = order.subjects.iter().filter_map(Subject::identity);
    let theirs: Vec<Identity> = theirs.collect();
    let driver: Arc<dyn Calls> = Arc::new(load(theirs.iter(), &signals).map_err(stop)?);
    if let Some(path) = order.start.output() {
        let emptied = target::empty_output(path);
        emptied.map_err(|error| Trouble::failed(error.to_string()))?;
    }
    announce(order);
    let mut measured = Measured {
        schema: SCHEMA,
        tool: env!("CARGO_PKG_VERSION").into(),
        started_unix,
        seed: order.seed,
        host: host::host(),
        gpu: None,
        workloads: Vec::new(),
        stopped: None,
        confidence: Some(order.confidence),
    };
    let origin = Instant::now();
    let mut stopped = None;
    for (number, subject) in order.subjects.iter().enumerate() {
        // Each program its own order.
        let seed = order.seed.wrapping_add(number as u64);
        let plan = plan(&order.groups, order.rounds, seed);
        let mut bench = Real::new(order, subject, Arc::clone(&driver), signals.clone(), origin);
        let session = session::run(&mut bench, &plan, &order.variants);
        stopped = session.stopped.clone();
        let link = bench.link();
        measured.gpu = link.and_then(|link| link.gpu.clone()).or(measured.gpu);
        let workload = workload(order, subject, session, link);
        measured.workloads.push(workload);
        if stopped.is_some() {
            break;
        }
    }
    measured.stopped = stopped.as_ref().map(|trouble| trouble.text.clone());
    drop_unheard(&signals);
    let nothing = measured
        .workloads
        .iter()
        .all(|workload| workload.cycles.is_empty());
    match stopped {
        Some(trouble) if nothing => Err(trouble),
        stopped => Ok((measured, stopped)),
    }
}

/// Signals that came when there was nothing left to stop.
fn drop_unheard(signals: &Receiver<i32>) {
    while signals.try_recv().is_ok() {}
}

fn stop(stop: Stop) -> Trouble {
    match stop {
        Stop::Refused(sentences) => Trouble::refused(sentences.join("\n")),
        Stop::Failed(sentences) => Trouble::failed(sentences.join("\n")),
        Stop::Signal(number) => Trouble::signal(number),
    }
}

fn announce(order: &Order<'_>) {
    output::complain(announcement(order));
}

/// What is about to be measured; many variants are counted.
fn announcement(order: &Order<'_>) -> String {
    let names: Vec<&str> = order
        .variants
        .iter()
        .map(|variant| &variant.name[..])
        .collect();
    let variants = match names.len() {
        0..=NAMED => names.join(", "),
        many => format!("{many} variants"),
    };
    format!(
        "{} of {variants}; seed {}",
        count(order.rounds.cycles as usize, "round", "rounds"),
        order.seed
    )
}

fn workload(
    order: &Order<'_>,
    subject: &Subject,
    session: Session,
    link: Option<&Link>,
) -> Workload {
    let (name, command) = match subject {
        Subject::Program {
            name,
            command,
            is_built_in,
        } => (name.clone(), shown_command(command, *is_built_in)),
        Subject::Process(pid) => (format!("process {pid}"), Vec::new()),
    };
    Workload {
        name,
        command,
        variants: order.variants.clone(),
        limit: link.and_then(|link| link.limit.clone().ok()),
        no_limit: link.and_then(|link| link.limit.clone().err()),
        cycles: session.cycles,
    }
}

/// As a person would type it: where this program lies is nobody's business.
fn shown_command(command: &[OsString], is_built_in: bool) -> Vec<String> {
    let words = command
        .iter()
        .map(|word| word.to_string_lossy().into_owned());
    let mut words: Vec<String> = words.collect();
    if let (true, Some(own)) = (is_built_in, words.first_mut()) {
        *own = "cudasnap".into();
    }
    words
}

/// Writes the report, whatever was measured of it.
fn tell(order: &Order<'_>, measured: &Measured, stopped: Option<Trouble>) -> Exit {
    let report = document(measured);
    let exit = match &stopped {
        Some(trouble) => {
            output::complain(&trouble.text);
            trouble.exit
        }
        None if is_wrong(measured) || has_failed(measured) => Exit::SomeFailed,
        None => Exit::Done,
    };
    let written = json::write(measured);
    let written = written.and_then(|json| order.outputs.write(&json, &csv(measured), &report));
    if let Err(text) = written {
        output::complain(text);
        return Exit::Failed;
    }
    if order.outputs.takes_stdout() {
        return exit;
    }
    output::say(&shown(&report), exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::{Cli, Command};
    use clap::Parser;

    fn said(line: &str) -> String {
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Ab(args) = cli.command else {
            panic!("{line}");
        };
        announcement(&args.order(7).unwrap())
    }

    #[test]
    fn the_built_in_workload_is_shown_as_it_would_be_typed() {
        let command = ["/x/y/cudasnap", "workload", "--gib", "8"].map(OsString::from);
        assert_eq!(
            shown_command(&command, true).join(" "),
            "cudasnap workload --gib 8"
        );
        assert_eq!(shown_command(&command, false)[0], "/x/y/cudasnap");
    }

    #[test]
    fn the_start_names_a_few_variants_and_counts_many() {
        assert_eq!(
            said("cudasnap ab --cycles 1 7"),
            "1 round of observe, on; seed 7"
        );
        let seven = "cudasnap ab --cycles 2 --grid threads=1|2|3|4|5|6|7 7";
        assert!(said(seven).starts_with("2 rounds of observe, threads=1, "));
        let eight = "cudasnap ab --grid threads=1|2|3|4|5|6|7|8 7";
        assert_eq!(said(eight), "10 rounds of 9 variants; seed 7");
    }
}
