//! What a number should not be trusted for: seen in what was measured, each with advice. [`look`](mod@look) finds them, `words`
//! says what was seen, `advice` what to do about each.

mod advice;
pub mod look;
mod words;

use std::collections::BTreeMap;

use super::summary::Direction;

pub use look::look;

/// A doubt. `workload` is empty where a run has one only.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are what the sentence says")]
pub enum Doubt {
    /// Verification said no.
    Wrong { workload: String, cycles: Vec<u32> },
    /// The run ended early.
    Stopped { why: String },
    /// Cycles failed.
    Failed {
        workload: String,
        cycles: Vec<u32>,
        why: String,
    },
    /// The library did not make the copies of a variant that means it to.
    NotEffective {
        workload: String,
        variant: String,
        cycles: usize,
        of: usize,
    },
    /// A phase ran in another mode than its variant's.
    OtherMode {
        workload: String,
        variant: String,
        mode: String,
        cycles: usize,
    },
    /// Some variants found a kept buffer, which nobody had asked for, and others none.
    KeptInSome {
        workload: String,
        with: Vec<String>,
        without: Vec<String>,
    },
    /// A variant that keeps its buffer did not find it.
    NotKept {
        workload: String,
        variant: String,
        cycles: usize,
        of: usize,
    },
    /// The process keeps its buffer, and it was dropped between the variants.
    Dropped {
        workload: String,
        cycles: usize,
        late: usize,
    },
    /// A process's first cycle counts.
    FreshPages { workload: String, cycles: Vec<u32> },
    /// No interval can be given.
    FewPairs {
        workload: String,
        variant: String,
        pairs: usize,
        fewest: usize,
    },
    /// Pairs of the same two processes are not independent of each other.
    SharedProcesses { workload: String, rounds: usize },
    /// Cycles moved different numbers of bytes.
    UnequalBytes {
        workload: String,
        direction: Direction,
        least: u64,
        most: u64,
    },
    /// A variant's times are far apart.
    Noisy {
        workload: String,
        direction: Direction,
        variant: String,
        spread: f64,
    },
    /// Times changed over the run.
    Drift {
        workload: String,
        direction: Direction,
        change: f64,
    },
    /// Whoever comes first in a round is slower.
    FirstOfRound {
        workload: String,
        direction: Direction,
        factor: f64,
    },
    /// Single times that do not fit the others.
    Outliers {
        workload: String,
        direction: Direction,
        variant: String,
        cycles: Vec<u32>,
    },
    /// Other programs computed.
    OthersBusy {
        workload: String,
        most: f64,
        cycles: usize,
    },
    /// Other processes were on the GPU.
    OthersOnGpu {
        workload: String,
        most: u32,
        cycles: usize,
    },
    /// The CPU's frequency changed.
    Frequency {
        workload: String,
        low: u32,
        high: u32,
    },
    /// Steps down were taken.
    StepsDown {
        workload: String,
        variant: String,
        steps: BTreeMap<String, u32>,
    },
    /// Transparent huge pages are off.
    ThpOff,
    /// The limit is not known.
    NoLimit { workload: String, why: String },
    /// A result is above the limit.
    AboveLimit {
        workload: String,
        direction: Direction,
        variant: String,
        rate: f64,
        limit: f64,
    },
}
