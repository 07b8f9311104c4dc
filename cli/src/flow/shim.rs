//! What the library in a process recorded about a step.

use serde::Serialize;

use super::plan::Step;
use crate::process::target::Target;
use crate::record::view::{Named, RecordView};
use crate::record::{Located, RecordError};

/// A step as the library saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Bytes that the driver's buffer had.
    pub bytes: u64,
    /// Bytes that the library copied.
    pub copied: u64,
    /// Whether it made nearly all of the copies.
    pub effective: bool,
    /// Threads that copied.
    pub threads: u32,
    /// Kind of page that the buffer asked for.
    pub pages: String,
    /// Whether the buffer was one kept from before.
    pub kept: bool,
    /// How the copies were made.
    pub strategy: String,
    /// Ways that were tried for that; 0 = none.
    pub tried: u32,
    /// Bytes that were zero, as what lay there, and were left out.
    pub zeros: u64,
    /// The library's mode for this buffer.
    pub mode: String,
    /// Nanoseconds from the first to the last of the library's calls.
    pub nanoseconds: u64,
    /// What went less well than it could, with how often.
    pub steps_down: Vec<Named<u32>>,
}

/// What is known about the library's part in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// It is not loaded.
    NotLoaded,
    /// It is loaded, and saw nothing of the step.
    SawNothing,
    /// It saw it.
    Saw(Numbers),
    /// Its record cannot be read.
    Unknown(RecordError),
}

/// The record of a process, before and after steps.
#[derive(Debug)]
pub struct Shim {
    record: Result<Located, RecordError>,
    before: Option<RecordView>,
}

/// How far a phase has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the buffer; 0 before the driver has asked for it.
    pub expected: u64,
    /// Bytes copied.
    pub copied: u64,
    /// Bytes populated ahead of the copies.
    pub prefaulted: u64,
    /// Whether the phase is over, and the driver does the rest.
    pub over: bool,
}

impl Shim {
    /// Looks for the record.
    pub fn find(target: Target) -> Self {
        Shim {
            record: Located::find(target),
            before: None,
        }
    }

    /// The record's place, when there is one.
    pub fn located(&self) -> Option<&Located> {
        self.record.as_ref().ok()
    }

    /// The record now.
    pub fn read(&self) -> Option<RecordView> {
        self.located()?.read().ok()
    }

    /// A step begins.
    pub fn began(&mut self) {
        self.before = self.read();
    }

    /// How far the step has come; `None`: nobody knows.
    pub fn progress(&self, step: Step) -> Option<Progress> {
        progress(&self.read()?, self.before.as_ref()?, step)
    }

    /// The step has ended.
    pub fn ended(&self, step: Step) -> Part {
        let record = match &self.record {
            Ok(record) => record,
            Err(RecordError::NotLoaded) => return Part::NotLoaded,
            Err(error) => return Part::Unknown(error.clone()),
        };
        match (record.read(), &self.before) {
            (Ok(after), Some(before)) => {
                numbers(&after, before, step).map_or(Part::SawNothing, Part::Saw)
            }
            (Ok(_), None) => Part::Unknown(RecordError::Busy),
            (Err(error), _) => Part::Unknown(error),
        }
    }
}

/// The step's phase, from two looks at the record.
fn numbers(after: &RecordView, before: &RecordView, step: Step) -> Option<Numbers> {
    let phase = after.last(&step.to_string())?;
    let earlier = before.last(&step.to_string());
    let is_new = earlier.is_none_or(|earlier| earlier.started_unix_ns != phase.started_unix_ns);
    is_new.then(|| Numbers {
        bytes: phase.expected,
        copied: phase.copied,
        effective: phase.is_effective() && phase.mode.is("on"),
        threads: phase.threads,
        pages: phase.pages.to_string(),
        kept: phase.kept,
        strategy: phase.strategy.to_string(),
        tried: phase.tried,
        zeros: phase.zeros,
        mode: phase.mode.to_string(),
        nanoseconds: phase.total_ns,
        steps_down: steps_down(after, before),
    })
}

/// Steps down that were taken between two looks.
pub(crate) fn steps_down(after: &RecordView, before: &RecordView) -> Vec<Named<u32>> {
    let steps = after.counters.steps.iter();
    let since = steps.map(|step| {
        let earlier = before.counters.steps.iter();
        let earlier = earlier.filter(|other| other.name == step.name);
        Named {
            name: step.name,
            value: step.value
                - earlier
                    .map(|other| other.value)
                    .sum::<u32>()
                    .min(step.value),
        }
    });
    since.filter(|step| step.value > 0).collect()
}

fn progress(now: &RecordView, before: &RecordView, step: Step) -> Option<Progress> {
    if now.mode.is("off") && !now.buffer.state.is("live") {
        return None;
    }
    let phase = &now.current;
    // What stands in `current` until the phase begins is the one before.
    let is_ours = phase.direction.is(&step.to_string())
        && (phase.started_unix_ns != before.current.started_unix_ns
            || phase.direction != before.current.direction);
    if !is_ours {
        return Some(Progress {
            expected: 0,
            copied: 0,
            prefaulted: 0,
            over: false,
        });
    }
    Some(Progress {
        expected: phase.expected,
        copied: phase.copied,
        prefaulted: phase.prefaulted,
        over: !phase.end.is("running"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudasnap_wire as wire;
    use std::sync::atomic::Ordering::Relaxed;

    fn record(phases: u64, started: u64, copied: u64) -> wire::Record {
        let record = wire::Record::new(0);
        record.counters.phases.store(phases, Relaxed);
        record.history_count.store(phases as u32, Relaxed);
        for phase in [&record.history[0], &record.current] {
            phase
                .direction
                .store(wire::Direction::Checkpoint.number(), Relaxed);
            phase.started_unix_ns.store(started, Relaxed);
            phase.expected.store(1000, Relaxed);
            phase.copied.store(copied, Relaxed);
        }
        record
    }

    #[test]
    fn only_a_phase_of_this_step_counts() {
        let before = RecordView::new(&wire::Record::new(0));
        let after = record(1, 5, 1000);
        let lows = &after.counters.steps[wire::Step::NoThread.number() as usize];
        lows.store(2, Relaxed);
        let after = RecordView::new(&after);
        let seen = numbers(&after, &before, Step::Checkpoint).unwrap();
        assert!(seen.effective && seen.bytes == 1000);
        assert_eq!(seen.steps_down[0].name, "no-thread");
        assert_eq!(numbers(&after, &after, Step::Checkpoint), None);
        assert_eq!(numbers(&after, &before, Step::Restore), None);
        let part = RecordView::new(&record(1, 5, 500));
        assert!(!numbers(&part, &before, Step::Checkpoint).unwrap().effective);
    }

    #[test]
    fn progress_is_not_that_of_the_phase_before() {
        let before = RecordView::new(&record(1, 5, 1000));
        let told = |now: &wire::Record| {
            progress(&RecordView::new(now), &before, Step::Checkpoint).unwrap()
        };
        assert_eq!(told(&record(1, 5, 1000)).expected, 0);
        let running = told(&record(1, 6, 400));
        assert_eq!((running.expected, running.copied), (1000, 400));
        assert!(!running.over);
    }
}
