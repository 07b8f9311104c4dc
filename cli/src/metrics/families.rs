//! Metrics from records: one table of what is shown, docs/fleet.md has the same for people.

use std::time::Duration;

use cudasnap_wire::{Direction, Mode, PageKind, Step, Strategy};

use super::exposition::{Family, Kind, Sample, Value};
use super::gather::{Harvest, Seen};
use crate::record::view::{PhaseView, Word};

/// Labels that a sample has beside those of its process.
type More = Vec<(&'static str, String)>;
/// What a process, or a phase, has to say of one family.
type Samples = Vec<(More, Value)>;

/// A family of which every process has samples.
struct OfProcess(&'static str, &'static str, Kind, fn(&Seen) -> Samples);
/// A family of which every last phase has samples.
struct OfPhase(&'static str, &'static str, fn(&PhaseView) -> Samples);

use Kind::{Counter, Gauge};

const OF_PROCESS: [OfProcess; 13] = [
    OfProcess(
        "cudasnap_library_info",
        "The library in the process; always 1.",
        Gauge,
        info,
    ),
    OfProcess(
        "cudasnap_cuda_initialised",
        "Whether the process has initialised CUDA.",
        Gauge,
        |seen| plain(u64::from(seen.initialised)),
    ),
    OfProcess(
        "cudasnap_mode",
        "What the library does with the next buffer request: 1 for the mode in force, 0 for the others.",
        Gauge,
        |seen| one_of("mode", &seen.record.mode, Mode::ALL.iter().map(|mode| mode.word())),
    ),
    OfProcess(
        "cudasnap_thread_cap",
        "Threads that copy at most, as set from outside; 0 is no cap.",
        Gauge,
        |seen| plain(u64::from(seen.record.thread_cap)),
    ),
    OfProcess(
        "cudasnap_buffer_state",
        "State of the buffer: 1 for the one it is in, 0 for the others.",
        Gauge,
        |seen| one_of("state", &seen.record.buffer.state, BUFFER_STATES.into_iter()),
    ),
    OfProcess(
        "cudasnap_buffer_bytes",
        "Bytes that the driver asked for, of the buffer that is live, kept, observed or reserved.",
        Gauge,
        |seen| plain(if_there(seen, seen.record.buffer.length)),
    ),
    OfProcess(
        "cudasnap_buffer_mapped_bytes",
        "Bytes of address space of that buffer.",
        Gauge,
        |seen| plain(if_there(seen, seen.record.buffer.mapped)),
    ),
    OfProcess(
        "cudasnap_buffer_requests_total",
        "Buffer requests of the driver that were recognised.",
        Counter,
        |seen| plain(seen.record.counters.requests),
    ),
    OfProcess(
        "cudasnap_buffer_requests_answered_total",
        "Buffer requests that were answered with a buffer of the library.",
        Counter,
        |seen| plain(seen.record.counters.answered),
    ),
    OfProcess(
        "cudasnap_phases_total",
        "Phases (checkpoints and restores) that ended.",
        Counter,
        |seen| plain(seen.record.counters.phases),
    ),
    OfProcess(
        "cudasnap_helpers_started_total",
        "Helper threads that were started.",
        Counter,
        |seen| plain(seen.record.counters.helpers_started),
    ),
    OfProcess(
        "cudasnap_steps_down_total",
        "Steps down: what the library did less well than it wished, by reason.",
        Counter,
        steps,
    ),
    OfProcess(
        "cudasnap_complaints_total",
        "Values of options that were not understood; the defaults are in force.",
        Counter,
        |seen| plain(seen.record.complaints.len() as u64),
    ),
];

const OF_PHASE: [OfPhase; 14] = [
    OfPhase(
        "cudasnap_last_phase_start_timestamp_seconds",
        "Start of the last ended phase, seconds since 1970.",
        |phase| real(seconds(phase.started_unix_ns)),
    ),
    OfPhase(
        "cudasnap_last_phase_bytes",
        "Bytes that the driver asked for in the last ended phase.",
        |phase| plain(phase.expected),
    ),
    OfPhase(
        "cudasnap_last_phase_copied_bytes",
        "Bytes of it that were copied through the library.",
        |phase| plain(phase.copied),
    ),
    OfPhase(
        "cudasnap_last_phase_zero_bytes",
        "Bytes of those that were zero and take no memory.",
        |phase| plain(phase.zeros),
    ),
    OfPhase(
        "cudasnap_last_phase_prefaulted_bytes",
        "Bytes that were populated ahead of the copies.",
        |phase| plain(phase.prefaulted),
    ),
    OfPhase(
        "cudasnap_last_phase_duration_seconds",
        "Start of the last ended phase to its end.",
        |phase| real(seconds(phase.total_ns)),
    ),
    OfPhase(
        "cudasnap_last_phase_piece_seconds",
        "Where its time went; the pieces overlap, see docs/fleet.md.",
        pieces,
    ),
    OfPhase(
        "cudasnap_last_phase_bytes_per_second",
        "Bytes copied through the library divided by the duration.",
        |phase| match phase.total_ns {
            0 => Vec::new(),
            _ => real(phase.copied as f64 / seconds(phase.total_ns)),
        },
    ),
    OfPhase(
        "cudasnap_last_phase_effective",
        "Whether the library made the copies: at least 99 % of the buffer, into memory of its own.",
        |phase| plain(u64::from(is_effective(phase))),
    ),
    OfPhase(
        "cudasnap_last_phase_kept",
        "Whether its buffer was one kept from the cycle before, or a reserved one that was found full.",
        |phase| plain(u64::from(phase.kept)),
    ),
    OfPhase(
        "cudasnap_last_phase_threads",
        "Threads that copied, the driver's own included.",
        |phase| plain(u64::from(phase.threads)),
    ),
    OfPhase(
        "cudasnap_last_phase_mode",
        "Mode of the last ended phase: 1 for the one it had, 0 for the others.",
        |phase| one_of("mode", &phase.mode, Mode::ALL.iter().map(|mode| mode.word())),
    ),
    OfPhase(
        "cudasnap_last_phase_pages",
        "Kind of page of its buffer: 1 for the one it had, 0 for the others.",
        |phase| one_of("pages", &phase.pages, PageKind::ALL.iter().map(|kind| kind.word())),
    ),
    OfPhase(
        "cudasnap_last_phase_strategy",
        "How its copies were made: 1 for that, 0 for the others.",
        |phase| {
            let all = Strategy::ALL.iter().map(|strategy| strategy.word());
            one_of("strategy", &phase.strategy, all)
        },
    ),
];

const BUFFER_STATES: [&str; 5] = ["none", "live", "kept", "observed", "reserved"];

/// All families. `now` is the time since 1970.
pub fn of(harvest: &Harvest, now: Duration) -> Vec<Family> {
    let mut families: Vec<Family> = OF_PROCESS
        .iter()
        .map(|of| of.family(&harvest.seen))
        .collect();
    families.extend(OF_PHASE.iter().map(|of| of.family(&harvest.seen)));
    families.extend(own(harvest, now));
    families
}

impl OfProcess {
    fn family(&self, seen: &[Seen]) -> Family {
        let samples = seen.iter().flat_map(|process| {
            let all = (self.3)(process).into_iter();
            all.map(|(more, value)| sample(process, more, value))
        });
        Family {
            name: self.0,
            help: self.1,
            kind: self.2,
            samples: samples.collect(),
        }
    }
}

impl OfPhase {
    fn family(&self, seen: &[Seen]) -> Family {
        let mut samples = Vec::new();
        for process in seen {
            for direction in [Direction::Checkpoint, Direction::Restore] {
                let Some(phase) = process.record.last(direction.word()) else {
                    continue;
                };
                for (more, value) in (self.2)(phase) {
                    let mut labels = vec![("direction", direction.word().to_owned())];
                    labels.extend(more);
                    samples.push(sample(process, labels, value));
                }
            }
        }
        Family {
            name: self.0,
            help: self.1,
            kind: Gauge,
            samples,
        }
    }
}

/// About this look itself.
fn own(harvest: &Harvest, now: Duration) -> [Family; 2] {
    let counts = [
        ("read", harvest.seen.len()),
        ("ended", harvest.ended),
        ("failed", harvest.refusals.len()),
    ];
    let processes = counts.map(|(result, count)| Sample {
        labels: vec![("result", result.to_owned())],
        value: Value::Whole(count as u64),
    });
    [
        Family {
            name: "cudasnap_scrape_processes",
            help:
                "Processes that were looked at: read, ended before they were read, or not readable.",
            kind: Gauge,
            samples: processes.to_vec(),
        },
        Family {
            name: "cudasnap_scrape_timestamp_seconds",
            help: "Time of this look, seconds since 1970.",
            kind: Gauge,
            samples: vec![Sample {
                labels: Vec::new(),
                value: Value::Real(now.as_secs_f64()),
            }],
        },
    ]
}

fn sample(process: &Seen, more: More, value: Value) -> Sample {
    let mut labels = vec![
        ("pid", process.pid.to_string()),
        ("name", process.name.clone()),
    ];
    labels.extend(more);
    Sample { labels, value }
}

fn plain(number: u64) -> Samples {
    vec![(Vec::new(), Value::Whole(number))]
}

fn real(number: f64) -> Samples {
    vec![(Vec::new(), Value::Real(number))]
}

/// A sample for each word; one for a number that this build has no word for.
fn one_of(label: &'static str, word: &Word, all: impl Iterator<Item = &'static str>) -> Samples {
    let known = all.map(|each| (each.to_owned(), word.is(each)));
    let unknown = word.word.is_none().then(|| (word.to_string(), true));
    known
        .chain(unknown)
        .map(|(text, is)| (vec![(label, text)], Value::Whole(u64::from(is))))
        .collect()
}

fn info(seen: &Seen) -> Samples {
    let labels = vec![
        ("version", seen.record.library_version.clone()),
        ("build_id", seen.record.build_id.clone()),
    ];
    vec![(labels, Value::Whole(1))]
}

/// Those that never happened too: a rate needs its first 0.
fn steps(seen: &Seen) -> Samples {
    let count = |step: &Step| {
        let labels = vec![("reason", step.word().to_owned())];
        (labels, Value::Whole(u64::from(seen.record.steps(*step))))
    };
    Step::ALL.iter().map(count).collect()
}

fn pieces(phase: &PhaseView) -> Samples {
    let pieces = [
        ("mmap", phase.mmap_ns),
        ("prefault", phase.prefault_ns),
        ("first_copy", phase.first_copy_ns),
        ("copying", phase.copying_ns),
        ("waiting", phase.waiting_ns),
        ("longest_wait", phase.longest_wait_ns),
        ("copy_loop", phase.loop_ns),
        ("munmap", phase.munmap_ns),
    ];
    let sample = |(piece, time): (&str, u64)| {
        let labels = vec![("piece", piece.to_owned())];
        (labels, Value::Real(seconds(time)))
    };
    pieces.map(sample).to_vec()
}

/// As the library's own report has it.
fn is_effective(phase: &PhaseView) -> bool {
    phase.is_effective() && phase.mode.is("on") && !phase.pages.is("driver")
}

/// A record at rest may still hold the numbers of a buffer that is gone.
fn if_there(seen: &Seen, bytes: u64) -> u64 {
    if seen.record.buffer.state.is("none") {
        0
    } else {
        bytes
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::super::exposition::text;
    use super::*;
    use cudasnap_wire::Record;
    use std::collections::HashSet;
    use std::sync::atomic::Ordering::Relaxed;

    fn seen(change: impl FnOnce(&Record)) -> Seen {
        let record = Record::new(0x0001_0203);
        change(&record);
        Seen {
            pid: 7,
            name: "python3".into(),
            initialised: true,
            record: crate::record::view::RecordView::new(&record),
        }
    }

    fn shown(seen: Vec<Seen>) -> String {
        let harvest = Harvest {
            seen,
            ended: 2,
            refusals: Vec::new(),
        };
        text(&of(&harvest, Duration::from_millis(1500)))
    }

    #[test]
    fn counters_and_states_are_there_from_the_beginning() {
        let text = shown(vec![seen(|record| {
            record.counters.requests.store(3, Relaxed);
            record.counters.steps[Step::NoThread as usize].store(4, Relaxed);
            record.mode.store(Mode::Observe.number(), Relaxed);
            record.buffer.length.store(99, Relaxed);
        })]);
        for line in [
            "cudasnap_library_info{pid=\"7\",name=\"python3\",version=\"1.2.3\",build_id=\"\"} 1",
            "cudasnap_buffer_requests_total{pid=\"7\",name=\"python3\"} 3",
            "cudasnap_steps_down_total{pid=\"7\",name=\"python3\",reason=\"no-thread\"} 4",
            "cudasnap_steps_down_total{pid=\"7\",name=\"python3\",reason=\"panic\"} 0",
            "cudasnap_mode{pid=\"7\",name=\"python3\",mode=\"on\"} 0",
            "cudasnap_mode{pid=\"7\",name=\"python3\",mode=\"observe\"} 1",
            "cudasnap_buffer_state{pid=\"7\",name=\"python3\",state=\"none\"} 1",
            "cudasnap_buffer_bytes{pid=\"7\",name=\"python3\"} 0",
            "cudasnap_scrape_processes{result=\"ended\"} 2",
            "cudasnap_scrape_timestamp_seconds 1.5",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
        assert!(!text.contains("last_phase"), "there was none");
    }

    #[test]
    fn the_last_phase_of_each_direction_is_shown() {
        let text = shown(vec![seen(|record| {
            record.history_count.store(2, Relaxed);
            for (place, copied) in [(0, 1), (1, 990)] {
                let phase = &record.history[place];
                phase.direction.store(Direction::Restore.number(), Relaxed);
                phase.expected.store(1000, Relaxed);
                phase.copied.store(copied, Relaxed);
                phase.total_ns.store(500_000_000, Relaxed);
                phase.pages.store(77, Relaxed);
            }
        })]);
        let labels = "{pid=\"7\",name=\"python3\",direction=\"restore\"";
        for line in [
            format!("cudasnap_last_phase_bytes{labels}}} 1000"),
            format!("cudasnap_last_phase_bytes_per_second{labels}}} 1980"),
            format!("cudasnap_last_phase_effective{labels}}} 1"),
            format!("cudasnap_last_phase_piece_seconds{labels},piece=\"mmap\"}} 0"),
            format!("cudasnap_last_phase_pages{labels},pages=\"unknown number 77\"}} 1"),
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
        assert!(!text.contains("direction=\"checkpoint\""));
    }

    #[test]
    fn what_was_only_watched_is_not_effective() {
        let text = shown(vec![seen(|record| {
            record.history_count.store(1, Relaxed);
            let phase = &record.history[0];
            phase.direction.store(1, Relaxed);
            phase.expected.store(1000, Relaxed);
            phase.copied.store(1000, Relaxed);
            phase.mode.store(Mode::Observe.number(), Relaxed);
        })]);
        let line = "cudasnap_last_phase_effective{pid=\"7\",name=\"python3\",direction=\"checkpoint\"} 0\n";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("bytes_per_second"), "there was no time");
    }

    /// Prometheus' rules for names: a prefix, base units, `_total` for counters and for nothing else.
    #[test]
    fn names_follow_the_conventions() {
        let families = of(&Harvest::default(), Duration::ZERO);
        let names: HashSet<_> = families.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), families.len(), "each name once");
        for family in families {
            let name = family.name;
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(
                name.starts_with("cudasnap_") && name.chars().all(fits),
                "{name}"
            );
            assert_eq!(
                name.ends_with("_total"),
                family.kind == Kind::Counter,
                "{name}"
            );
            assert!(family.help.ends_with('.'), "{name}");
        }
    }

    /// The documentation lists what there is, and nothing else.
    #[test]
    fn every_metric_is_in_the_documentation() {
        let document = include_str!("../../../docs/fleet.md");
        let rows = document
            .lines()
            .filter_map(|line| line.strip_prefix("| `cudasnap_"));
        let listed: HashSet<String> = rows
            .filter_map(|row| Some(format!("cudasnap_{}", row.split_once('`')?.0)))
            .collect();
        let families = of(&Harvest::default(), Duration::ZERO);
        let there: HashSet<String> = families.iter().map(|f| f.name.to_owned()).collect();
        assert_eq!(listed, there);
    }
}
