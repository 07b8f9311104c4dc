//! Phases in words: how much, how fast, where the time went.

use std::time::Duration;

use serde::Serialize;

use crate::record::view::{PhaseView, RecordView};
use crate::units;

/// A phase in the numbers that people compare.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// `checkpoint` or `restore`.
    pub direction: String,
    /// Bytes that went through the library.
    pub bytes: u64,
    /// Seconds from its first call to its end.
    pub seconds: f64,
    /// Bytes per nanosecond; `None` when there was no time.
    pub gb_per_s: Option<f64>,
    /// Whether at least 99 % of the buffer went through the library.
    pub effective: bool,
    /// How it ended.
    pub end: String,
    /// Seconds since it ended, as this machine's clock counts.
    pub ended_ago: Option<f64>,
}

impl Summary {
    /// The summary of a phase that ended, at a moment in nanoseconds since 1970.
    pub fn of(phase: &PhaseView, now: u64) -> Self {
        let seconds = Duration::from_nanos(phase.total_ns).as_secs_f64();
        Summary {
            direction: phase.direction.to_string(),
            bytes: phase.copied,
            seconds,
            gb_per_s: (seconds > 0.0).then(|| phase.copied as f64 / seconds / 1e9),
            effective: phase.is_effective(),
            end: phase.end.to_string(),
            ended_ago: ended_ago(phase, now).map(|ago| ago.as_secs_f64()),
        }
    }
}

/// Time since the phase ended; `None` when that lies ahead: the clock was set, or the process comes from another host.
pub fn ended_ago(phase: &PhaseView, now: u64) -> Option<Duration> {
    let ended = phase.started_unix_ns.checked_add(phase.total_ns)?;
    Some(Duration::from_nanos(now.checked_sub(ended)?))
}

/// Whether the record's phase has not been closed: it is not among those that ended. The word of its end does not tell: threads
/// that meet no copy for 20 ms leave and write why, and come back with the next copy.
pub fn is_open(record: &RecordView) -> bool {
    let current = &record.current;
    let same = |phase: &PhaseView| {
        (phase.started_unix_ns, phase.buffer) == (current.started_unix_ns, current.buffer)
            && phase.direction == current.direction
    };
    !current.direction.is("none") && !record.history.iter().any(same)
}

/// For how long an open phase has seen no copy; `None` while its threads still prefault for the first one, or when the clock
/// does not tell.
pub fn quiet_for(phase: &PhaseView, now: u64) -> Option<Duration> {
    if phase.copies == 0 && phase.end.is("running") {
        return None;
    }
    let loop_began = phase.started_unix_ns.checked_add(phase.first_copy_ns)?;
    let last_copy = loop_began.checked_add(phase.loop_ns)?;
    Some(Duration::from_nanos(now.checked_sub(last_copy)?))
}

/// Hundredths of a phase that goes on; `None` when nothing is expected.
pub fn percent(phase: &PhaseView) -> Option<u64> {
    let done = phase.copied.min(phase.expected).checked_mul(100)?;
    done.checked_div(phase.expected)
}

/// One line: `checkpoint  9.15 GB in 430 ms, 21.3 GB/s, covered, 12.0 s ago`.
pub fn line(phase: &PhaseView, now: u64) -> String {
    let total = Duration::from_nanos(phase.total_ns);
    let mut text = format!(
        "{:<10}  {} in {}, {}, {}",
        phase.direction,
        units::bytes(phase.copied),
        units::duration(total),
        units::rate(phase.copied, total),
        phase.end,
    );
    if !phase.mode.is("on") {
        text += &format!(", mode {}", phase.mode);
    }
    if phase.kept {
        text += ", buffer kept from before";
    }
    if phase.zeros > 0 {
        text += &format!(
            ", {} of it zeros that take no memory",
            units::bytes(phase.zeros)
        );
    }
    if !phase.is_effective() {
        text += &format!(", not effective: {} expected", units::bytes(phase.expected));
    }
    if let Some(ago) = ended_ago(phase, now) {
        text += &format!(", {} ago", age(ago));
    }
    text
}

/// With how many threads, and where the time of a phase went.
pub fn split(phase: &PhaseView) -> String {
    let time = |nanoseconds| units::duration(Duration::from_nanos(nanoseconds));
    let parts = [
        ("mmap", phase.mmap_ns),
        ("prefault", phase.prefault_ns),
        ("first copy after", phase.first_copy_ns),
        ("copying", phase.copying_ns),
        ("waiting for the driver", phase.waiting_ns),
        ("longest wait", phase.longest_wait_ns),
        ("munmap", phase.munmap_ns),
    ];
    let known = parts.iter().filter(|(_, nanoseconds)| *nanoseconds > 0);
    let words: Vec<String> = known
        .map(|(name, value)| format!("{name} {}", time(*value)))
        .collect();
    let threads = super::text::count(phase.threads as usize, "thread", "threads");
    format!("{threads}{}: {}", strategy(phase), words.join(", "))
}

/// How the copies were made, unless by the driver, and how many ways were tried for that.
fn strategy(phase: &PhaseView) -> String {
    match phase.tried {
        _ if phase.strategy.number == 0 => String::new(),
        0 => format!(", {}", phase.strategy),
        tried => format!(", {} ({tried} ways tried)", phase.strategy),
    }
}

/// An age as people say it: seconds, minutes, hours, days.
pub fn age(time: Duration) -> String {
    match time.as_secs() {
        0..=119 => units::duration(time),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::view::Word;
    use std::sync::atomic::Ordering::Relaxed;

    fn phase(change: impl FnOnce(&cudasnap_wire::Phase)) -> PhaseView {
        let record = cudasnap_wire::Record::new(0);
        change(&record.current);
        RecordView::new(&record).current
    }

    #[test]
    fn a_phase_is_told_in_one_line() {
        let phase = phase(|phase| {
            phase.direction.store(1, Relaxed);
            phase.end.store(1, Relaxed);
            phase.threads.store(16, Relaxed);
            phase.expected.store(9_145_044_112, Relaxed);
            phase.copied.store(9_145_044_112, Relaxed);
            phase.started_unix_ns.store(1_000_000_000, Relaxed);
            phase.total_ns.store(430_000_000, Relaxed);
            phase.mmap_ns.store(2_000_000, Relaxed);
        });
        assert_eq!(
            line(&phase, 13_430_000_000),
            "checkpoint  9.15 GB in 430 ms, 21.3 GB/s, covered, 12.0 s ago"
        );
        assert_eq!(split(&phase), "16 threads: mmap 2.00 ms");
        let sparse = PhaseView {
            zeros: 5_000_000_000,
            ..phase.clone()
        };
        assert_eq!(
            line(&sparse, 13_430_000_000),
            "checkpoint  9.15 GB in 430 ms, 21.3 GB/s, covered, 5.00 GB of it zeros that take no memory, 12.0 s ago"
        );
        let tried = PhaseView {
            strategy: Word {
                number: 1,
                word: Some("flush-late"),
            },
            tried: 5,
            ..phase.clone()
        };
        assert_eq!(
            split(&tried),
            "16 threads, flush-late (5 ways tried): mmap 2.00 ms"
        );
        assert_eq!(ended_ago(&phase, 5), None, "another host's clock");
        let summary = Summary::of(&phase, 13_430_000_000);
        assert!(summary.effective && summary.ended_ago == Some(12.0));
    }

    #[test]
    fn foreign_numbers_do_no_harm() {
        let phase = phase(|phase| {
            phase.direction.store(77, Relaxed);
            for word in [
                &phase.copied,
                &phase.total_ns,
                &phase.started_unix_ns,
                &phase.mmap_ns,
            ] {
                word.store(u64::MAX, Relaxed);
            }
        });
        assert!(line(&phase, 1).starts_with("unknown number 77"));
        assert!(line(&phase, 1).contains("not effective"));
        assert_eq!((ended_ago(&phase, u64::MAX), percent(&phase)), (None, None));
        split(&phase);
    }

    #[test]
    fn a_phase_is_open_until_it_is_filed() {
        let record = cudasnap_wire::Record::new(0);
        let open = || is_open(&RecordView::new(&record));
        assert!(!open(), "there was none");
        record.current.direction.store(1, Relaxed);
        record.current.started_unix_ns.store(9, Relaxed);
        assert!(open());
        record.history_count.store(1, Relaxed);
        assert!(open(), "another phase was filed");
        record.history[0].direction.store(1, Relaxed);
        record.history[0].started_unix_ns.store(9, Relaxed);
        assert!(!open());
    }

    #[test]
    fn quiet_is_the_time_since_the_last_copy() {
        let quiet = |copies, end| {
            let phase = phase(|phase| {
                phase.started_unix_ns.store(100, Relaxed);
                phase.first_copy_ns.store(20, Relaxed);
                phase.loop_ns.store(30, Relaxed);
                phase.copies.store(copies, Relaxed);
                phase.end.store(end, Relaxed);
            });
            quiet_for(&phase, 200)
        };
        assert_eq!(quiet(1, 0), Some(Duration::from_nanos(50)));
        assert_eq!(quiet(0, 7), Some(Duration::from_nanos(50)));
        assert_eq!(quiet(0, 0), None);
    }

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (12, "12.0 s"),
            (600, "10 min"),
            (90_000, "25 h"),
            (900_000, "10 days"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }
}
