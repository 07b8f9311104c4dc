//! From what was found to words: the state as it can be seen from outside, and whether the library does its work. Pure.

mod activity;
mod state;

use serde::Serialize;

use super::facts::Process;
use super::held;
use super::phases::{self, Summary};
use super::warnings::{self, Warning};

pub use activity::Activity;
pub use state::{Source, State};

/// What is said about a process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Its state.
    pub state: State,
    /// What the state was taken from.
    pub state_from: Source,
    /// Hundredths of the phase that goes on.
    pub percent: Option<u64>,
    /// Whether the library does its work.
    pub activity: Activity,
    /// Mappings of NVIDIA's device files; `None` when they may not be seen.
    pub device_mappings: Option<usize>,
    /// Descriptors of NVIDIA's device files; `None` when they may not be seen.
    pub device_descriptors: Option<usize>,
    /// Phases that ended, oldest first.
    pub phases: Vec<Summary>,
    /// What somebody should know or mend.
    pub warnings: Vec<Warning>,
}

impl Verdict {
    /// Judges a process at a moment in nanoseconds since 1970.
    pub fn of(process: &Process, now: u64) -> Self {
        let (state, state_from) = state::of(process, now);
        let record = process.library.record();
        let devices = process.held.as_deref().map(held::of_nvidia);
        let going_on = matches!(state, State::Checkpointing | State::Restoring);
        let history = record.map_or(&[][..], |record| &record.history);
        let mut verdict = Verdict {
            state,
            state_from,
            percent: record
                .filter(|_| going_on)
                .and_then(|record| phases::percent(&record.current)),
            activity: activity::of(&process.library),
            device_mappings: devices.map(|(_, mappings)| mappings),
            device_descriptors: devices.map(|(descriptors, _)| descriptors),
            phases: history
                .iter()
                .map(|phase| Summary::of(phase, now))
                .collect(),
            warnings: Vec::new(),
        };
        verdict.warnings = warnings::of(process, &verdict, now);
        verdict
    }
}
