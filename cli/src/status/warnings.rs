//! What somebody should know or mend. Pure.

use std::time::Duration;

use serde::Serialize;

use super::facts::{Library, Loaded, Process};
use super::held::{Held, Kind};
use super::judge::{Activity, Source, State, Verdict};
use super::library_file::FileState;
use super::phases;
use super::text::count;
use crate::foreign_text::printable;

/// Below this share of huge pages a buffer that asked for them is slower than it could be.
const FEW_HUGE_PAGES: u64 = 50;
/// Smaller buffers may have no aligned 2 MiB inside.
const LARGE: u64 = 64 << 20;
/// The driver's own pauses are a thousandth of this.
const STALLED: Duration = Duration::from_secs(2);

/// A warning. The words for scripts do not change; the text may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// What it is about, for scripts.
    pub about: &'static str,
    /// For people; harmless on a terminal.
    pub text: String,
}

fn warning(about: &'static str, text: impl Into<String>) -> Warning {
    Warning {
        about,
        text: text.into(),
    }
}

/// All warnings about a process, at a moment in nanoseconds since 1970.
pub fn of(process: &Process, verdict: &Verdict, now: u64) -> Vec<Warning> {
    let mut all = Vec::new();
    all.extend(left_behind(process, verdict));
    all.extend(no_library(process));
    all.extend(unreadable(process));
    if let Library::Loaded(loaded) = &process.library {
        all.extend(file(loaded));
        all.extend(complaints(loaded));
        all.extend(order(process));
        all.extend(activity(process, verdict));
        all.extend(interrupted(process, loaded, verdict, now));
        all.extend(few_huge_pages(process, loaded));
    }
    all
}

/// What keeps a checkpointed process from being dumped.
fn left_behind(process: &Process, verdict: &Verdict) -> Vec<Warning> {
    let held = process.held.iter().flatten();
    let stopping = held.filter(|held| held.kind.stops_a_dump());
    if verdict.state != State::Checkpointed {
        return Vec::new();
    }
    stopping
        .map(|held| {
            let driver = if held.kind == Kind::Nvidia {
                "the driver left it behind"
            } else {
                "it is the program's own"
            };
            warning(
                "stops-a-dump",
                format!(
                    "a process dump (CRIU) will refuse {}: {driver}",
                    describe(held)
                ),
            )
        })
        .collect()
}

/// `/dev/nvidia0 (descriptors 4, 5; 2 mappings)`
pub fn describe(held: &Held) -> String {
    let mut parts = Vec::new();
    if !held.descriptors.is_empty() {
        let numbers: Vec<String> = held
            .descriptors
            .iter()
            .take(8)
            .map(ToString::to_string)
            .collect();
        let more = held.descriptors.len().saturating_sub(8);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let word = if held.descriptors.len() == 1 {
            "descriptor"
        } else {
            "descriptors"
        };
        parts.push(format!("{word} {}{more}", numbers.join(", ")));
    }
    if held.mappings > 0 {
        parts.push(count(held.mappings, "mapping", "mappings"));
    }
    format!("{} ({})", printable(&held.name), parts.join("; "))
}

/// A process that ought to have the library and has not.
fn no_library(process: &Process) -> Option<Warning> {
    if process.library != Library::Absent {
        return None;
    }
    if process
        .preload
        .as_ref()
        .is_some_and(|preload| preload.names_library)
    {
        return Some(warning(
            "preload-failed",
            "LD_PRELOAD names the library and it is not loaded: the loader could not load it (wrong path, architecture or libc), \
             or the program is static or has file capabilities; `cudasnap run` says which",
        ));
    }
    let above = process.library_above.as_ref()?;
    Some(warning(
        "child-without-library",
        format!(
            "process {} ({}) above it has the library and this one has not: something in between dropped LD_PRELOAD",
            above.pid,
            printable(&above.name)
        ),
    ))
}

fn unreadable(process: &Process) -> Option<Warning> {
    let Library::Unreadable { path, reason } = &process.library else {
        return None;
    };
    if process.missing_right.is_some() {
        return None;
    }
    let place = path
        .as_deref()
        .map_or_else(String::new, |path| format!(" ({})", printable(path)));
    Some(warning(
        "record-unreadable",
        format!(
            "the library's record{place} cannot be read: {}",
            printable(reason)
        ),
    ))
}

fn file(loaded: &Loaded) -> Option<Warning> {
    let path = printable(loaded.path.trim_end_matches(" (deleted)"));
    match &loaded.file {
        FileState::Same | FileState::Unknown => None,
        FileState::Missing => Some(warning(
            "library-missing",
            format!("{path} is gone: child processes run without the library, and a restore on another host needs the file"),
        )),
        FileState::OtherBuild { build_id } => Some(warning(
            "library-replaced",
            format!(
                "{path} is another build by now ({}): this process goes on with the one it has loaded; a restore after a dump \
                 needs that one at this path",
                if build_id.is_empty() { "without a build id" } else { build_id }
            ),
        )),
    }
}

fn complaints(loaded: &Loaded) -> Vec<Warning> {
    let complaints = loaded.record.complaints.iter();
    complaints
        .map(|complaint| {
            let option = complaint.option.unwrap_or("an option of a newer library");
            warning(
                "option-not-understood",
                format!(
                    "{option}=\"{}\" was not understood: the default is in force",
                    printable(&complaint.value)
                ),
            )
        })
        .collect()
}

fn order(process: &Process) -> Option<Warning> {
    let rivals = &process.preload.as_ref()?.rivals;
    (!rivals.is_empty()).then(|| {
        warning(
            "not-first",
            format!(
                "{} defines mmap too and stands before the library: the driver's requests may not be recognised; put the library \
                 first in LD_PRELOAD",
                printable(&rivals.join(", "))
            ),
        )
    })
}

fn activity(process: &Process, verdict: &Verdict) -> Option<Warning> {
    match verdict.activity {
        Activity::Off => Some(warning(
            "off",
            format!(
                "the library is switched off: `cudasnap mode {} on` switches it on",
                process.identity.pid
            ),
        )),
        Activity::NotEffective => Some(warning(
            "not-effective",
            "less than 99 % of a last phase went through the library: see its steps down",
        )),
        _ => None,
    }
}

/// A phase that broke off, or whose end did not come.
fn interrupted(process: &Process, loaded: &Loaded, verdict: &Verdict, now: u64) -> Option<Warning> {
    let (phase, buffer) = (&loaded.record.current, &loaded.record.buffer.state);
    let there = process.buffer_is_mapped && (buffer.is("live") || buffer.is("observed"));
    if !there {
        return None;
    }
    let ask = format!("`cudasnap state {}` asks the driver", process.identity.pid);
    if phases::is_open(&loaded.record) && !phase.end.is("covered") {
        let quiet = phases::quiet_for(phase, now).filter(|quiet| *quiet > STALLED)?;
        return Some(warning(
            "phase-stalled",
            format!(
                "no copy of the {} for {}: {ask}",
                phase.direction,
                phases::age(quiet)
            ),
        ));
    }
    if !phase.end.is("covered") {
        return Some(warning(
            "phase-broken-off",
            format!(
                "the last {} ended early ({}): {ask}",
                phase.direction, phase.end
            ),
        ));
    }
    let stuck = phase.direction.is("restore")
        && verdict.state != State::Restoring
        && verdict.state_from != Source::Record;
    stuck.then(|| {
        warning(
            "buffer-not-unmapped",
            format!("the last restore has copied everything and the driver has not unmapped its buffer: {ask}"),
        )
    })
}

fn few_huge_pages(process: &Process, loaded: &Loaded) -> Option<Warning> {
    let pages = process.buffer_pages?;
    let percent = pages.huge_percent()?;
    let asked = loaded.record.current.pages;
    let wanted = asked.is("thp") || asked.is("hugetlb");
    (wanted && pages.resident >= LARGE && percent < FEW_HUGE_PAGES).then(|| {
        warning(
            "few-huge-pages",
            format!(
                "{asked} was asked for, and {percent} % of the buffer is on huge pages ({}): copies are slower than they could be",
                "after a process dump and restore that is normal; else see `cudasnap doctor`"
            ),
        )
    })
}

/// The steps down in words.
pub fn steps(loaded: &Loaded) -> Vec<String> {
    let steps = loaded.record.counters.steps.iter();
    steps
        .map(|step| {
            let times = count(step.value as usize, "time", "times");
            format!("{}, {times}: {}", step.name, phases::meaning(step.name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::{process, with_record};
    use super::super::facts::Relative;
    use super::super::pages::Pages;
    use super::super::preload::Preload;
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    fn about(process: &Process) -> Vec<&'static str> {
        let verdict = Verdict::of(process, 1_000_000_000_000);
        verdict
            .warnings
            .iter()
            .map(|warning| warning.about)
            .collect()
    }

    fn change_loaded(process: &mut Process, change: impl FnOnce(&mut Loaded)) {
        match &mut process.library {
            Library::Loaded(loaded) => change(loaded),
            _ => panic!("no library"),
        }
    }

    /// Checkpointed, by its record.
    fn checkpointed(record: &cudasnap_wire::Record) {
        record.buffer.state.store(1, Relaxed);
        record.current.direction.store(1, Relaxed);
        record.current.end.store(1, Relaxed);
    }

    #[test]
    fn a_sound_process_has_none() {
        assert!(about(&process(7)).is_empty());
        assert!(about(&with_record(7, |_| {})).is_empty());
    }

    #[test]
    fn what_stops_a_dump_is_told_once_the_driver_has_let_go() {
        let mut process = with_record(7, checkpointed);
        process.held = Some(vec![
            Held {
                kind: Kind::Nvidia,
                name: "/dev/nvidia0".into(),
                descriptors: vec![4, 5],
                mappings: 1,
            },
            Held {
                kind: Kind::IoUring,
                name: "anon_inode:[io_uring]".into(),
                descriptors: vec![9],
                mappings: 0,
            },
            Held {
                kind: Kind::Memfd,
                name: "/memfd:x".into(),
                descriptors: vec![10],
                mappings: 0,
            },
        ]);
        process.buffer_is_mapped = true;
        let verdict = Verdict::of(&process, 1);
        assert_eq!(verdict.warnings.len(), 2);
        assert_eq!(
            verdict.warnings[0].text,
            "a process dump (CRIU) will refuse /dev/nvidia0 (descriptors 4, 5; 1 mapping): the driver left it behind"
        );
        process.buffer_is_mapped = false;
        assert!(about(&process).is_empty());
    }

    #[test]
    fn missing_libraries_are_told() {
        let mut child = process(7);
        child.library_above = Some(Relative {
            pid: 3,
            name: "launch\n".into(),
            library: Some(true),
        });
        assert_eq!(about(&child), ["child-without-library"]);
        assert!(!Verdict::of(&child, 1).warnings[0].text.contains('\n'));
        child.preload = Some(Preload {
            names_library: true,
            ..Preload::default()
        });
        assert_eq!(about(&child), ["preload-failed"]);
    }

    #[test]
    fn the_librarys_file_order_and_options_are_told() {
        let mut process = with_record(7, |record| {
            record.complaints[0].option.store(2, Relaxed);
            record.complaints[0].length.store(1, Relaxed);
            record.complaints[0].value[0].store(27, Relaxed);
        });
        assert_eq!(about(&process), ["option-not-understood"]);
        assert!(Verdict::of(&process, 1).warnings[0]
            .text
            .starts_with("CUDASNAP_THREADS=\"\\u{1b}\""));
        change_loaded(&mut process, |loaded| loaded.file = FileState::Missing);
        process.preload = Some(Preload {
            rivals: vec!["/x.so".into()],
            ..Preload::default()
        });
        assert_eq!(
            about(&process),
            ["library-missing", "option-not-understood", "not-first"]
        );
        change_loaded(&mut process, |loaded| {
            loaded.file = FileState::OtherBuild {
                build_id: String::new(),
            };
            loaded.record.complaints.clear();
        });
        assert_eq!(about(&process), ["library-replaced", "not-first"]);
    }

    #[test]
    fn modes_phases_and_pages_are_told() {
        assert_eq!(
            about(&with_record(7, |record| record.mode.store(2, Relaxed))),
            ["off"]
        );
        let mut broken = with_record(7, |record| {
            checkpointed(record);
            record.current.end.store(6, Relaxed);
        });
        broken.buffer_is_mapped = true;
        assert_eq!(about(&broken), ["phase-stalled"]);
        change_loaded(&mut broken, |loaded| {
            loaded.record.history.push(loaded.record.current.clone())
        });
        assert_eq!(about(&broken), ["phase-broken-off"]);
        let mut stuck = with_record(7, |record| {
            checkpointed(record);
            record.current.direction.store(2, Relaxed);
        });
        stuck.buffer_is_mapped = true;
        assert_eq!(about(&stuck), ["buffer-not-unmapped"]);
        let mut small = with_record(7, checkpointed);
        small.buffer_is_mapped = true;
        small.buffer_pages = Some(Pages {
            resident: 1 << 30,
            huge: 1 << 20,
            hugetlb: 0,
        });
        assert_eq!(about(&small), ["few-huge-pages"]);
        small.buffer_pages = Some(Pages {
            resident: 1 << 30,
            huge: 1 << 30,
            hugetlb: 0,
        });
        assert!(about(&small).is_empty());
    }
}
