//! What a number should not be trusted for: seen in what was measured, each with advice. [`look`](mod@look) finds them, `advice` says what to
//! do about each.

mod advice;
pub mod look;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::summary::Direction;
use crate::status::text::count;

pub use look::look;

/// A doubt. `workload` is empty where a run has one only.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are what the sentence says")]
pub enum Doubt {
    /// The verification command said no.
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

impl Doubt {
    /// What was seen.
    pub fn what(&self) -> String {
        let (workload, text) = self.sentence();
        match workload {
            "" => text,
            workload => format!("{workload}: {text}"),
        }
    }

    fn sentence(&self) -> (&str, String) {
        use Doubt::*;
        match self {
            Wrong { .. }
            | Stopped { .. }
            | Failed { .. }
            | NotEffective { .. }
            | OtherMode { .. } => self.about_failures(),
            KeptInSome { .. } | NotKept { .. } | Dropped { .. } | FreshPages { .. } => {
                self.about_memory()
            }
            FewPairs { .. }
            | SharedProcesses { .. }
            | UnequalBytes { .. }
            | Noisy { .. }
            | Drift { .. }
            | FirstOfRound { .. }
            | Outliers { .. } => self.about_numbers(),
            _ => self.about_machine(),
        }
    }

    fn about_failures(&self) -> (&str, String) {
        match self {
            Doubt::Wrong { workload, cycles } => (
                workload,
                format!(
                    "the verification command said no after {}",
                    numbered(cycles)
                ),
            ),
            Doubt::Failed {
                workload,
                cycles,
                why,
            } => (
                workload,
                format!(
                    "{} failed and {} left out: {why}",
                    numbered(cycles),
                    was(cycles.len())
                ),
            ),
            Doubt::NotEffective {
                workload,
                variant,
                cycles,
                of,
            } => (
                workload,
                format!(
                    "the library made less than 99 % of the copies in {cycles} of {} of {variant}",
                    phases(*of)
                ),
            ),
            Doubt::OtherMode {
                workload,
                variant,
                mode,
                cycles,
            } => (
                workload,
                format!("{} of {variant} ran in mode {mode}", phases(*cycles)),
            ),
            Doubt::Stopped { why } => ("", format!("the run ended early: {why}")),
            _ => ("", String::new()),
        }
    }

    fn about_memory(&self) -> (&str, String) {
        match self {
            Doubt::KeptInSome { workload, with, without } => (
                workload,
                format!(
                    "a kept buffer was found by {}, and none by {}",
                    with.join(", "),
                    without.join(", ")
                ),
            ),
            Doubt::NotKept { workload, variant, cycles, of } => (
                workload,
                format!(
                    "{variant} keeps its buffer, and {cycles} of its {} did not find it",
                    count(*of, "checkpoint", "checkpoints")
                ),
            ),
            Doubt::Dropped { workload, cycles, late } => (
                workload,
                format!(
                    "the process keeps its buffer, which was freed before {} so that no variant finds another's{}",
                    count(*cycles, "cycle", "cycles"),
                    match late {
                        0 => String::new(),
                        1 => "; once only within the checkpoint, which took longer for it".into(),
                        late => format!("; {late} times only within the checkpoint, which took longer for it"),
                    }
                ),
            ),
            Doubt::FreshPages { workload, cycles } => (
                workload,
                format!("{} the first of a process: pages that it had never touched count in them", are(cycles)),
            ),
            _ => ("", String::new()),
        }
    }

    fn about_numbers(&self) -> (&str, String) {
        match self {
            Doubt::FewPairs { workload, variant, pairs, fewest } => (
                workload,
                format!(
                    "{} of {variant} and the baseline {} too few for an interval, which takes {fewest}",
                    count(*pairs, "pair", "pairs"),
                    if *pairs == 1 { "is" } else { "are" }
                ),
            ),
            Doubt::SharedProcesses { workload, rounds } => (
                workload,
                format!("a process served up to {rounds} rounds, so what differs from start to start counts less often than there are pairs"),
            ),
            Doubt::UnequalBytes { workload, direction, least, most } => (
                workload,
                format!("{}s moved {least} to {most} bytes", direction.name()),
            ),
            Doubt::Noisy { workload, direction, variant, spread } => (
                workload,
                format!("half of the {}s of {variant} lie {} apart", direction.name(), percent(*spread)),
            ),
            Doubt::Drift { workload, direction, change } => (
                workload,
                format!(
                    "{}s became {} {} over the run",
                    direction.name(),
                    percent(change.abs()),
                    if *change > 0.0 { "slower" } else { "faster" }
                ),
            ),
            Doubt::FirstOfRound { workload, direction, factor } => (
                workload,
                format!("the first {} of a round takes {factor:.2} of the time of the others", direction.name()),
            ),
            Doubt::Outliers { workload, direction, variant, cycles } => (
                workload,
                format!("{}s of {variant} that do not fit the others: {}", direction.name(), numbered(cycles)),
            ),
            _ => ("", String::new()),
        }
    }

    fn about_machine(&self) -> (&str, String) {
        match self {
            Doubt::OthersBusy { workload, most, cycles } => (
                workload,
                format!(
                    "other programs used up to {} of all CPUs in {}",
                    percent(*most),
                    count(*cycles, "cycle", "cycles")
                ),
            ),
            Doubt::OthersOnGpu { workload, most, cycles } => (
                workload,
                format!(
                    "{} on the GPU in {}",
                    match most {
                        1 => "1 other process was".into(),
                        most => format!("up to {most} other processes were"),
                    },
                    count(*cycles, "cycle", "cycles")
                ),
            ),
            Doubt::Frequency { workload, low, high } => (
                workload,
                format!("the fastest CPU ran at {low} to {high} MHz"),
            ),
            Doubt::StepsDown { workload, variant, steps } => {
                let mut list = String::new();
                for (name, count) in steps {
                    let comma = if list.is_empty() { "" } else { ", " };
                    let _ = write!(list, "{comma}{name} {count}");
                }
                (workload, format!("{variant} took steps down: {list}"))
            }
            Doubt::NoLimit { workload, why } => {
                (workload, format!("the limit of the bus was not measured: {why}"))
            }
            Doubt::AboveLimit { workload, direction, variant, rate, limit } => (
                workload,
                format!(
                    "the {} of {variant} reached {rate:.1} GB/s, and the limit was measured at {limit:.1}",
                    direction.name()
                ),
            ),
            _ => ("", "transparent huge pages are switched off".into()),
        }
    }
}

fn phases(number: usize) -> String {
    count(number, "phase", "phases")
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn was(count: usize) -> &'static str {
    match count {
        1 => "was",
        _ => "were",
    }
}

fn are(cycles: &[u32]) -> String {
    let verb = if cycles.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", numbered(cycles))
}

/// `cycle 7`, `cycles 7, 9 and 4 more`.
fn numbered(cycles: &[u32]) -> String {
    const SHOWN: usize = 6;
    let shown: Vec<String> = cycles.iter().take(SHOWN).map(u32::to_string).collect();
    let noun = if cycles.len() == 1 { "cycle" } else { "cycles" };
    let more = match cycles.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{noun} {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_told_as_one() {
        let workload = String::new;
        let variant = || "on".to_owned();
        for (doubt, part) in [
            (
                Doubt::FewPairs {
                    workload: workload(),
                    variant: variant(),
                    pairs: 1,
                    fewest: 6,
                },
                "1 pair of on and the baseline is too few",
            ),
            (
                Doubt::OtherMode {
                    workload: workload(),
                    variant: variant(),
                    mode: "off".into(),
                    cycles: 1,
                },
                "1 phase of on ran",
            ),
            (
                Doubt::NotEffective {
                    workload: workload(),
                    variant: variant(),
                    cycles: 1,
                    of: 1,
                },
                "in 1 of 1 phase of on",
            ),
            (
                Doubt::OthersOnGpu {
                    workload: workload(),
                    most: 1,
                    cycles: 1,
                },
                "1 other process was on the GPU in 1 cycle",
            ),
            (
                Doubt::Dropped {
                    workload: workload(),
                    cycles: 1,
                    late: 1,
                },
                "before 1 cycle so that no variant finds another's; once only",
            ),
        ] {
            assert!(doubt.what().contains(part), "{}", doubt.what());
        }
    }
}
