//! The columns of the table: their heads, their order, what is in a cell.

use crate::status::facts::Process;
use crate::status::judge::Verdict;
use crate::status::text::printable_within;
use crate::units;

/// Most columns of a name: it is at most 15 bytes.
const NAME: usize = 15;
/// Most columns of a user.
const USER: usize = 12;

/// A column.
pub struct Column {
    /// Its head.
    pub head: &'static str,
    /// Whether its cells end at its right edge.
    pub right: bool,
    /// The order in which columns are left out where there is no room; 0 = never. Beyond [`super::room::BEFORE_NAME`] names are cut first.
    pub spare: u32,
    /// What is in its cells.
    pub value: fn(&Process, &Verdict) -> String,
}

/// All of them, in the order in which they are shown.
pub const COLUMNS: [Column; 11] = [
    column("PID", true, 0, |process, _| {
        process.identity.pid.to_string()
    }),
    column("NAME", false, 0, |process, _| {
        printable_within(&process.identity.name, NAME)
    }),
    column("USER", false, 2, |process, _| {
        printable_within(&process.user, USER)
    }),
    column("STATE", false, 0, |_, verdict| state(verdict)),
    column("RSSANON", true, 7, |process, _| {
        units::bytes(process.rss_anon)
    }),
    column("MAPS", true, 5, |_, verdict| {
        number(verdict.device_mappings)
    }),
    column("FDS", true, 4, |_, verdict| {
        number(verdict.device_descriptors)
    }),
    column("NVML", false, 3, |process, _| nvml(process)),
    column("GPU MEM", true, 6, |process, _| gpu_memory(process)),
    column("LIBRARY", false, 8, |_, verdict| {
        verdict.activity.word().to_owned()
    }),
    column("LAST PHASE", false, 1, |_, verdict| last(verdict)),
];

const fn column(
    head: &'static str,
    right: bool,
    spare: u32,
    value: fn(&Process, &Verdict) -> String,
) -> Column {
    Column {
        head,
        right,
        spare,
        value,
    }
}

fn state(verdict: &Verdict) -> String {
    let word = verdict.state.word();
    match verdict.percent {
        Some(percent) => format!("{word} {percent}%"),
        None => word.to_owned(),
    }
}

fn number(value: Option<usize>) -> String {
    value.map_or_else(|| "?".into(), |value| value.to_string())
}

fn nvml(process: &Process) -> String {
    let seen = process.nvml.as_ref();
    let word = seen.map_or("?", |seen| if seen.is_listed() { "yes" } else { "no" });
    word.to_owned()
}

fn gpu_memory(process: &Process) -> String {
    match &process.nvml {
        Some(seen) if seen.is_listed() => seen.memory.map_or_else(|| "?".into(), units::bytes),
        Some(_) => "-".into(),
        None => "?".into(),
    }
}

fn last(verdict: &Verdict) -> String {
    let Some(phase) = verdict.phases.last() else {
        return "-".into();
    };
    let time = std::time::Duration::try_from_secs_f64(phase.seconds).unwrap_or_default();
    let rate = units::rate(phase.bytes, time);
    // The driver copied by itself: a rate of the few bytes that were seen would be read as its speed.
    let rate = if !phase.effective && rate.starts_with("0.00") {
        "-"
    } else {
        &rate
    };
    format!("{} {rate}", phase.direction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::facts::tests::with_record;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_phase_that_was_not_taken_over_has_no_rate() {
        let last_word = |copied: u64| {
            let process = with_record(7, |record| {
                record.history_count.store(1, Relaxed);
                let phase = &record.history[0];
                phase.direction.store(1, Relaxed);
                phase.total_ns.store(1_000_000_000, Relaxed);
                phase.expected.store(1 << 20, Relaxed);
                phase.copied.store(copied, Relaxed);
            });
            last(&Verdict::of(&process, 1_000_000_000_000))
        };
        assert_eq!(last_word(0), "checkpoint -");
        assert_eq!(last_word(4096), "checkpoint -");
        assert_eq!(
            last_word(1 << 20),
            "checkpoint 0.00 GB/s",
            "a small one, done"
        );
    }
}
