//! All that is known of a process, as a block of lines: `library` tells of the library's file and its place among the preloaded ones, `record`
//! what its record says.

mod library;
mod record;

use crate::foreign_text::printable;
use crate::process::cuda::CudaUse;
use crate::units;

use super::facts::{Library, Process, Round, SeenByNvml};
use super::judge::{State, Verdict};
use super::notes;
use super::text::{count, printable_within, Paper};

/// Columns before the text of a line.
const INDENT: usize = 14;
/// A command line longer than this is cut; JSON has all of it.
const COMMAND: usize = 240;

/// A line: its label and its text.
type Line = (&'static str, String);

/// The blocks of all processes, then the notes.
pub fn text(round: &Round, verdicts: &[Verdict], paper: Paper) -> String {
    let blocks: Vec<String> = round
        .processes
        .iter()
        .zip(verdicts)
        .map(|(process, verdict)| block(process, verdict, round.unix_ns, paper))
        .collect();
    let mut text = blocks.join("\n");
    if blocks.is_empty() && !round.named {
        text += "no CUDA process\n";
    }
    if !blocks.is_empty() || !round.named {
        text += &notes::text(round, paper);
    }
    text
}

fn block(process: &Process, verdict: &Verdict, now: u64, paper: Paper) -> String {
    let mut text = format!("{}\n", paper.bold(&title(process)));
    let mut lines = vec![
        ("command", command(process)),
        ("state", state(process, verdict)),
    ];
    lines.push((
        "memory",
        format!("RssAnon {}", units::bytes(process.rss_anon)),
    ));
    lines.push(("GPU", gpu(process, verdict)));
    lines.extend(library::lines(process, verdict));
    lines.extend(library::preload(process));
    if let Library::Loaded(loaded) = &process.library {
        lines.extend(record::lines(process, &loaded.record, now));
    }
    lines.extend(dump(process, verdict));
    lines.extend(below(process));
    for (label, line) in lines {
        push(&mut text, paper, label, &line, false);
    }
    for warning in &verdict.warnings {
        push(&mut text, paper, "warning", &warning.text, true);
    }
    text
}

fn push(text: &mut String, paper: Paper, label: &str, line: &str, warning: bool) {
    for (number, part) in paper.wrap(line, INDENT).iter().enumerate() {
        let label = if number == 0 { label } else { "" };
        let label = format!("  {label:<width$}", width = INDENT - 2);
        let whole = format!("{label}{part}");
        *text += &if warning {
            paper.warning(&whole)
        } else {
            whole
        };
        text.push('\n');
    }
}

fn title(process: &Process) -> String {
    let identity = &process.identity;
    let inside = if identity.own_pid() == identity.pid {
        String::new()
    } else {
        format!(", {} in its container", identity.own_pid())
    };
    format!(
        "{} {}{inside}, user {}",
        identity.pid,
        printable(&identity.name),
        printable(&process.user)
    )
}

fn command(process: &Process) -> String {
    if process.command.is_empty() {
        return "-".into();
    }
    printable_within(&process.command.join(" "), COMMAND)
}

fn state(process: &Process, verdict: &Verdict) -> String {
    let word = match verdict.state {
        State::NotInitialised => "libcuda is mapped and has not been initialised",
        State::NoContext => "CUDA is initialised, without a context",
        State::Running => "running or locked (\"cudasnap state PID\" asks the driver)",
        other => other.word(),
    };
    let percent = verdict
        .percent
        .map_or_else(String::new, |percent| format!(" {percent}%"));
    let thread = match process.cuda {
        Some(CudaUse::Initialised { restore_thread }) => {
            format!("; restore thread {restore_thread}")
        }
        _ => String::new(),
    };
    format!("{word}{percent} ({}){thread}", verdict.state_from.words())
}

fn gpu(process: &Process, verdict: &Verdict) -> String {
    let nvml = match &process.nvml {
        None => "NVML not asked".into(),
        Some(seen) if seen.is_listed() => listed(seen),
        Some(_) => "not visible to NVML".into(),
    };
    let devices = match (verdict.device_mappings, verdict.device_descriptors) {
        (Some(mappings), Some(descriptors)) => format!(
            "{} and {} of /dev/nvidia*",
            count(mappings, "mapping", "mappings"),
            count(descriptors, "descriptor", "descriptors")
        ),
        _ => "device files may not be seen".into(),
    };
    format!("{nvml}; {devices}")
}

fn listed(seen: &SeenByNvml) -> String {
    let numbers: Vec<String> = seen.gpus.iter().map(ToString::to_string).collect();
    let memory = seen
        .memory
        .map_or_else(|| "memory not told".into(), units::bytes);
    let word = if numbers.len() == 1 { "GPU" } else { "GPUs" };
    format!("{memory} on {word} {} (NVML)", numbers.join(", "))
}

fn dump(process: &Process, verdict: &Verdict) -> Vec<Line> {
    let Some(held) = &process.held else {
        return Vec::new();
    };
    // A process that has its GPU needs the driver's device files: not worth a word.
    let has_gpu = verdict.state != State::Checkpointed;
    let expected = |kind| has_gpu && kind == super::held::Kind::Nvidia;
    let told = held.iter().filter(|held| !expected(held.kind));
    let told: Vec<String> = told
        .map(|held| {
            let word = if held.kind.stops_a_dump() {
                "stopped by"
            } else {
                "CRIU takes it, others may not:"
            };
            format!("{word} {}", held.described())
        })
        .collect();
    match told.len() {
        0 if has_gpu => Vec::new(),
        0 => vec![("dump", "nothing here stops a process dump".into())],
        _ => told
            .into_iter()
            .enumerate()
            .map(|(number, text)| (if number == 0 { "dump" } else { "" }, text))
            .collect(),
    }
}

/// CUDA processes below one that are named; the others are counted.
const BELOW: usize = 16;

fn below(process: &Process) -> Option<Line> {
    let more = process.cuda_below.len().saturating_sub(BELOW);
    let below: Vec<String> = process
        .cuda_below
        .iter()
        .take(BELOW)
        .map(|child| {
            let library = match child.library {
                Some(true) => "",
                Some(false) => ", without the library",
                None => ", library not visible",
            };
            format!("{} ({}{library})", child.pid, printable(&child.name))
        })
        .collect();
    (!below.is_empty()).then(|| {
        (
            "CUDA below",
            match more {
                0 => format!("{}; --tree shows all", below.join(", ")),
                _ => format!("{} and {more} more; --tree shows all", below.join(", ")),
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::{process, round, with_record};
    use super::super::facts::Relative;
    use super::super::held::{Held, Kind};
    use super::super::pages::Pages;
    use super::super::preload::Preload;
    use super::*;
    use console::measure_text_width;
    use cudasnap_wire::PageKind;
    use std::sync::atomic::Ordering::Relaxed;

    pub fn shown(process: Process, paper: Paper) -> String {
        let round = round(vec![process]);
        let verdicts = [Verdict::of(&round.processes[0], round.unix_ns)];
        text(&round, &verdicts, paper)
    }

    /// A checkpointed process with everything that can be told of one.
    fn full() -> Process {
        let mut process = with_record(7, |record| {
            // As its process counts.
            record.pid.store(1, Relaxed);
            record.buffer.state.store(1, Relaxed);
            record.buffer.address.store(0x7f00_0000_0000, Relaxed);
            record.buffer.length.store(9_145_044_112, Relaxed);
            record.current.direction.store(1, Relaxed);
            record.current.end.store(1, Relaxed);
            record.counters.requests.store(1, Relaxed);
            record.counters.answered.store(1, Relaxed);
            record.counters.steps[4].store(2, Relaxed);
            record.history_count.store(1, Relaxed);
            let phase = &record.history[0];
            phase.direction.store(1, Relaxed);
            phase.end.store(1, Relaxed);
            phase.expected.store(9_145_044_112, Relaxed);
            phase.copied.store(9_145_044_112, Relaxed);
            phase.total_ns.store(430_000_000, Relaxed);
            phase.threads.store(16, Relaxed);
            phase.mmap_ns.store(2_000_000, Relaxed);
            phase.started_unix_ns.store(900_000_000_000, Relaxed);
        });
        process.buffer_is_mapped = true;
        process.buffer_pages = Some(Pages {
            resident: 9_145_044_112,
            huge: 9_100_000_000,
            hugetlb: 0,
        });
        process.identity.namespace_pids = vec![7, 1];
        process.preload = Some(Preload {
            entries: vec!["/opt/cudasnap/0.1.0/libcudasnap.so".into()],
            position: Some(1),
            ..Preload::default()
        });
        process.cuda_below = vec![Relative {
            pid: 9,
            name: "worker".into(),
            library: Some(false),
        }];
        process
    }

    #[test]
    fn many_processes_below_are_counted() {
        let mut parent = process(7);
        parent.cuda_below = (100..300)
            .map(|pid| Relative {
                pid,
                name: "rank".into(),
                library: Some(true),
            })
            .collect();
        let (_, text) = below(&parent).unwrap();
        assert!(
            text.ends_with("115 (rank) and 184 more; --tree shows all"),
            "{text}"
        );
    }

    #[test]
    fn all_of_a_checkpointed_process_is_told() {
        let text = shown(full(), Paper::plain());
        for expected in [
            "7 python3, 1 in its container, user root\n",
            "  state       checkpointed (from the record); restore thread 8\n",
            "  GPU         NVML not asked; 0 mappings and 0 descriptors of /dev/nvidia*\n",
            "  library     /opt/cudasnap/0.1.0/libcudasnap.so\n",
            "  activity    active: 1 of 1 request answered, 0 phases\n",
            "  preload     first in LD_PRELOAD\n",
            "  options     mode on, threads automatic, pages thp, buffer fresh, strategy fixed, log off, no report\n",
            "  buffer      live, 9.15 GB at 0x7f0000000000; 9.15 GB resident, 99 % of it on transparent huge pages (asked for: thp)\n",
            "  last phases",
            "checkpoint  9.15 GB in 430 ms, 21.3 GB/s, covered, 99.6 s ago\n",
            "              16 threads: mmap 2.00 ms\n",
            "  steps down  slow-huge-pages, 2 times: the kernel took too long to make room for huge pages",
            "  dump        nothing here stops a process dump\n",
            "  CUDA below  9 (worker, without the library); --tree shows all\n",
        ] {
            assert!(text.contains(expected), "{expected:?} in:\n{text}");
        }
    }

    /// A step down is none of what was asked for.
    #[test]
    fn pages_are_those_of_the_option_and_those_that_were_settled_for() {
        let mut process = with_record(7, |record| {
            record.buffer.state.store(1, Relaxed);
            record
                .current
                .pages
                .store(PageKind::Small.number(), Relaxed);
        });
        process.buffer_is_mapped = true;
        process.buffer_pages = full().buffer_pages;
        let text = shown(process, Paper::plain());
        let words = "(asked for: thp, settled for: 4k)";
        assert!(text.contains(words), "{text}");
    }

    #[test]
    fn lines_fit_and_foreign_text_is_harmless() {
        let mut process = full();
        process.command = vec!["\u{1b}]0;x\u{7}".into(), "a\nb".into(), "word ".repeat(90)];
        process.identity.name = "\u{1b}[2J".into();
        process.held = Some(vec![Held {
            kind: Kind::Memfd,
            name: "/memfd:\u{1b}[1m".into(),
            descriptors: (1..30).collect(),
            mappings: 1,
        }]);
        let paper = Paper {
            width: Some(80),
            colour: false,
        };
        let text = shown(process, paper);
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
        for line in text.lines() {
            assert!(measure_text_width(line) <= 80, "{line}");
        }
    }

    #[test]
    fn what_may_not_be_seen_is_said() {
        let mut process = process(7);
        process.cuda = None;
        process.held = None;
        process.library = Library::Unreadable {
            path: None,
            reason: "its mappings may not be read".into(),
        };
        let text = shown(process, Paper::plain());
        assert!(text.contains("unknown (nothing tells)"), "{text}");
        assert!(text.contains("device files may not be seen"), "{text}");
    }
}
