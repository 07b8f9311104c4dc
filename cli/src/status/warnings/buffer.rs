//! Warnings about a process's buffer and its phases, and about what the driver left behind.

use std::time::Duration;

use super::{warning, Warning};
use crate::status::facts::{Loaded, Process};
use crate::status::held::Kind;
use crate::status::judge::{Source, State, Verdict};
use crate::status::phases;

/// Below this share of huge pages a buffer that asked for them is slower than it could be.
const FEW_HUGE_PAGES: u64 = 50;
/// Smaller buffers may have no aligned 2 MiB inside.
const LARGE: u64 = 64 << 20;
/// The driver's own pauses are a thousandth of this.
const STALLED: Duration = Duration::from_secs(2);

/// What keeps a checkpointed process from being dumped.
pub fn left_behind(process: &Process, verdict: &Verdict) -> Vec<Warning> {
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
                    held.described()
                ),
            )
        })
        .collect()
}

/// A phase that broke off, or whose end did not come.
pub fn interrupted(
    process: &Process,
    loaded: &Loaded,
    verdict: &Verdict,
    now: u64,
) -> Option<Warning> {
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

/// A buffer that is on base pages though huge ones were asked for.
pub fn few_huge_pages(process: &Process, loaded: &Loaded) -> Option<Warning> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::facts::tests::with_record;
    use crate::status::held::Held;
    use crate::status::pages::Pages;
    use crate::status::warnings::tests::{about, change_loaded};
    use std::sync::atomic::Ordering::Relaxed;

    /// Checkpointed, by its record.
    fn checkpointed(record: &cudasnap_wire::Record) {
        record.buffer.state.store(1, Relaxed);
        record.current.direction.store(1, Relaxed);
        record.current.end.store(1, Relaxed);
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
    fn phases_and_pages_are_told() {
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
