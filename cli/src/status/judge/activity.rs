//! Whether the library does its work in a process.

use serde::Serialize;

use crate::record::view::PhaseView;
use crate::status::facts::Library;
use crate::status::phases;

/// Whether the library does its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// It is not loaded.
    Absent,
    /// It may be loaded, its record cannot be read.
    Unreadable,
    /// Switched off.
    Off,
    /// Loaded; the driver has not asked for a buffer yet.
    NeverUsed,
    /// The last phases went through it.
    Active,
    /// It only times the driver.
    Observing,
    /// The driver has asked, and less than 99 % of a last phase went through it.
    NotEffective,
}

impl Activity {
    /// The word in the table.
    pub fn word(self) -> &'static str {
        match self {
            Activity::Absent => "no",
            Activity::Unreadable => "unreadable",
            Activity::Off => "off",
            Activity::NeverUsed => "never used",
            Activity::Active => "active",
            Activity::Observing => "observing",
            Activity::NotEffective => "not effective",
        }
    }
}

/// Judged by the last phases of each direction.
pub fn of(library: &Library) -> Activity {
    let record = match library {
        Library::Absent => return Activity::Absent,
        Library::Unreadable { .. } => return Activity::Unreadable,
        Library::Loaded(loaded) => &loaded.record,
    };
    if record.mode.is("off") {
        return Activity::Off;
    }
    if record.mode.is("observe") {
        return Activity::Observing;
    }
    // A request that was made while the library was off leaves no phase.
    let lasts = ["checkpoint", "restore"].map(|direction| record.last(direction));
    let lasts: Vec<&PhaseView> = lasts
        .into_iter()
        .flatten()
        .filter(|phase| phase.mode.is("on"))
        .collect();
    let under_way = record.buffer.state.is("live") && phases::is_open(record);
    match record.counters.requests {
        0 => Activity::NeverUsed,
        _ if lasts.iter().any(|phase| !phase.is_effective()) => Activity::NotEffective,
        _ if lasts.is_empty() && !under_way => Activity::NeverUsed,
        _ => Activity::Active,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::facts::tests::with_record;
    use cudasnap_wire::Record;
    use std::sync::atomic::Ordering::Relaxed;

    fn ended(record: &Record, place: usize, direction: u32, copied: u64, mode: u32) {
        record.history_count.fetch_max(place as u32 + 1, Relaxed);
        let phase = &record.history[place];
        phase.direction.store(direction, Relaxed);
        phase.mode.store(mode, Relaxed);
        phase.expected.store(1000, Relaxed);
        phase.copied.store(copied, Relaxed);
    }

    #[test]
    fn activity_is_judged_by_the_last_phases_of_each_direction() {
        let activity = |change: &dyn Fn(&Record)| {
            let process = with_record(7, change);
            of(&process.library)
        };
        assert_eq!(activity(&|_| {}), Activity::NeverUsed);
        assert_eq!(
            activity(&|record| record.mode.store(2, Relaxed)),
            Activity::Off
        );
        assert_eq!(
            activity(&|record| record.mode.store(1, Relaxed)),
            Activity::Observing
        );
        let used = |record: &Record| record.counters.requests.store(1, Relaxed);
        // Asked while it was off.
        assert_eq!(activity(&used), Activity::NeverUsed);
        let first = |copied, second| {
            activity(&move |record: &Record| {
                used(record);
                ended(record, 0, 1, copied, 0);
                ended(record, 1, 2, 1000, 0);
                ended(record, 2, 1, second, 0);
            })
        };
        assert_eq!(first(0, 1000), Activity::Active);
        assert_eq!(first(1000, 900), Activity::NotEffective);
        let going = activity(&|record| {
            used(record);
            record.buffer.state.store(1, Relaxed);
            record.current.direction.store(1, Relaxed);
        });
        assert_eq!(going, Activity::Active);
        assert_eq!(of(&Library::Absent), Activity::Absent);
    }
}
