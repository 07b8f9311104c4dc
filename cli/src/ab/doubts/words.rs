//! What was seen, in a sentence.

use std::fmt::Write;

use super::Doubt;
use crate::status::text::count;

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
                format!("verification said no after {}", numbered(cycles)),
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
