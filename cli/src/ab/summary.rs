//! Numbers that are derived from what was measured.

use super::data::{Cycle, Limit, Measured, Phase, Seen, Variant, Workload};
use super::stats::{self, interval, median, outliers, Interval, Spread};

/// A call of the driver that moves device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the GPU.
    Checkpoint,
    /// To the GPU.
    Restore,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::Checkpoint, Direction::Restore];

    /// Its name at the start of a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Direction::Checkpoint => "Checkpoint",
            Direction::Restore => "Restore",
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Checkpoint => "checkpoint",
            Direction::Restore => "restore",
        }
    }

    /// Its phase of a cycle.
    pub fn of(self, cycle: &Cycle) -> Option<&Phase> {
        match self {
            Direction::Checkpoint => cycle.checkpoint.as_ref(),
            Direction::Restore => cycle.restore.as_ref(),
        }
    }

    /// The limit for it.
    pub fn limit(self, limit: &Limit) -> f64 {
        match self {
            Direction::Checkpoint => limit.to_host,
            Direction::Restore => limit.to_device,
        }
    }
}

/// Whether a cycle counts.
pub fn counts(cycle: &Cycle) -> bool {
    !cycle.warm_up && cycle.error.is_none()
}

/// The least confidence that intervals of this run have.
pub fn confidence(measured: &Measured) -> f64 {
    measured.confidence.unwrap_or(0.95)
}

/// A variant's calls in one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct Calls {
    /// Name of the variant.
    pub variant: String,
    /// Each that counts: number of the cycle, its round, the seconds.
    pub made: Vec<Call>,
    /// Median and quartiles of the seconds; `None` of nothing.
    pub seconds: Option<Spread>,
    /// The same of the rates; `None` where nobody knows the bytes.
    pub rate: Option<Spread>,
    /// The median rate as a part of the limit.
    pub of_limit: Option<f64>,
    /// Against the baseline; `None` for itself.
    pub ratio: Option<Comparison>,
    /// Where the time went: medians of each piece.
    pub pieces: Option<[f64; PIECES.len()]>,
}

/// One call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// Number of its cycle.
    pub cycle: u32,
    /// Its round.
    pub round: u32,
    /// Seconds.
    pub seconds: f64,
    /// GB/s, where the bytes are known.
    pub rate: Option<f64>,
    /// Whether it is an outlier among the variant's.
    pub outlier: bool,
}

/// A variant's seconds as parts of the baseline's, round by round.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Median of the ratios.
    pub ratio: f64,
    /// Interval that contains the true median; `None`: too few pairs.
    pub interval: Option<Interval>,
    /// Rounds in which both were measured.
    pub pairs: usize,
}

impl Comparison {
    /// Whether the interval leaves out "no difference".
    pub fn is_shown(&self) -> bool {
        self.interval
            .is_some_and(|interval| !interval.contains(1.0))
    }
}

/// Pieces of a call, one after the other.
pub const PIECES: [&str; 7] = [
    "mmap",
    "until the first copy",
    "copying",
    "waiting for the driver",
    "munmap",
    "the driver's rest",
    "not seen from inside",
];

/// All variants of a workload in one direction, the baseline first.
pub fn calls(workload: &Workload, direction: Direction, confidence: f64) -> Vec<Calls> {
    let usual = usual_bytes(workload, direction);
    let mut all: Vec<Calls> = workload
        .variants
        .iter()
        .map(|variant| of_variant(workload, direction, variant, usual))
        .collect();
    if let Some(baseline) = all.first().cloned() {
        for calls in all.iter_mut().skip(1) {
            calls.ratio = compare(&baseline, calls, confidence);
        }
    }
    all
}

fn of_variant(
    workload: &Workload,
    direction: Direction,
    variant: &Variant,
    usual: Option<f64>,
) -> Calls {
    let cycles = workload.cycles.iter();
    let cycles = cycles.filter(|cycle| counts(cycle) && cycle.variant == variant.name);
    let phases: Vec<(&Cycle, &Phase)> = cycles
        .filter_map(|cycle| Some((cycle, direction.of(cycle)?)))
        .collect();
    let seconds: Vec<f64> = phases.iter().map(|(_, phase)| phase.seconds).collect();
    let made = phases.iter().zip(outliers(&seconds));
    let made: Vec<Call> = made
        .map(|((cycle, phase), outlier)| Call {
            cycle: cycle.number,
            round: cycle.round,
            seconds: phase.seconds,
            rate: rate(phase, usual),
            outlier,
        })
        .collect();
    let rates: Vec<f64> = made.iter().filter_map(|call| call.rate).collect();
    let rate = Spread::of(&rates);
    let limit = workload.limit.as_ref().map(|limit| direction.limit(limit));
    let of_limit = rate.zip(limit.filter(|limit| *limit > 0.0));
    Calls {
        variant: variant.name.clone(),
        seconds: Spread::of(&seconds),
        rate,
        of_limit: of_limit.map(|(rate, limit)| rate.median / limit),
        ratio: None,
        pieces: pieces(&phases),
        made,
    }
}

/// The bytes that the driver's buffer usually has: for cycles in which nobody saw its request, since the same program holds the same.
pub fn usual_bytes(workload: &Workload, direction: Direction) -> Option<f64> {
    let phases = workload.cycles.iter().filter(|cycle| counts(cycle));
    let phases = phases.filter_map(|cycle| direction.of(cycle));
    let bytes: Vec<f64> = phases
        .filter(|phase| phase.bytes > 0)
        .map(|phase| phase.bytes as f64)
        .collect();
    median(&bytes)
}

fn rate(phase: &Phase, usual: Option<f64>) -> Option<f64> {
    let bytes = match phase.bytes {
        0 => usual?,
        bytes => bytes as f64,
    };
    (phase.seconds > 0.0).then(|| bytes / phase.seconds / 1e9)
}

fn compare(baseline: &Calls, other: &Calls, confidence: f64) -> Option<Comparison> {
    let ratios: Vec<f64> = other
        .made
        .iter()
        .filter_map(|call| {
            let pair = baseline.made.iter().find(|base| base.round == call.round)?;
            (pair.seconds > 0.0).then(|| call.seconds / pair.seconds)
        })
        .collect();
    Some(Comparison {
        ratio: median(&ratios)?,
        interval: interval(&ratios, confidence),
        pairs: ratios.len(),
    })
}

/// Medians of the pieces. They need not add up to the median of the whole, and seldom miss it by much.
fn pieces(phases: &[(&Cycle, &Phase)]) -> Option<[f64; PIECES.len()]> {
    let all: Vec<[f64; PIECES.len()]> = phases.iter().map(|(_, phase)| pieces_of(phase)).collect();
    let mut medians = [0.0; PIECES.len()];
    for (at, piece) in medians.iter_mut().enumerate() {
        let values: Vec<f64> = all.iter().map(|pieces| pieces[at]).collect();
        *piece = median(&values)?;
    }
    Some(medians)
}

/// The pieces of one call; together they are its seconds.
pub fn pieces_of(phase: &Phase) -> [f64; PIECES.len()] {
    let Some(seen) = &phase.seen else {
        return [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, phase.seconds];
    };
    let Seen {
        mmap,
        first_copy,
        copying,
        waiting,
        munmap,
        ..
    } = *seen;
    let until = (first_copy - mmap).max(0.0);
    let known = mmap + until + copying + waiting + munmap;
    let rest = (phase.seconds - known).max(0.0);
    [mmap, until, copying, waiting, munmap, rest, 0.0]
}

/// How far each counted cycle of a workload is from its variant's median, as a factor, in the order of time: number of the cycle, whether
/// it is the first of its round, the factor.
pub fn residuals(workload: &Workload, direction: Direction) -> Vec<(u32, bool, f64)> {
    let all = calls(workload, direction, 0.95);
    let mut found: Vec<(u32, bool, f64)> = Vec::new();
    for calls in &all {
        let Some(usual) = calls.seconds.filter(|spread| spread.median > 0.0) else {
            continue;
        };
        for call in &calls.made {
            let first = first_of_round(workload, call.round) == Some(call.cycle);
            found.push((call.cycle, first, call.seconds / usual.median));
        }
    }
    found.sort_by_key(|(cycle, _, _)| *cycle);
    found
}

fn first_of_round(workload: &Workload, round: u32) -> Option<u32> {
    let cycles = workload.cycles.iter();
    let of_round = cycles.filter(|cycle| cycle.round == round && !cycle.warm_up);
    of_round.map(|cycle| cycle.number).min()
}

/// Fewest pairs for an interval of this confidence.
pub fn fewest_pairs(confidence: f64) -> usize {
    stats::fewest(confidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab::made_up;

    #[test]
    fn the_ratio_is_that_of_pairs_and_its_interval_contains_it() {
        let run = made_up::run(10, 3.0);
        let all = calls(&run.workloads[0], Direction::Checkpoint, 0.95);
        assert_eq!(all[0].ratio, None);
        let ratio = all[1].ratio.clone().unwrap();
        assert_eq!(ratio.pairs, 10);
        let interval = ratio.interval.unwrap();
        assert!(interval.contains(1.0 / 3.0) && interval.contains(ratio.ratio));
        assert!(ratio.is_shown());
        // Bytes 1e9 in some 3 s of a limit of 50 GB/s.
        let rate = all[0].rate.unwrap().median;
        assert!((0.3..0.36).contains(&rate), "{rate}");
        assert!((all[0].of_limit.unwrap() - rate / 50.0).abs() < 1e-12);
    }

    #[test]
    fn warm_ups_and_failed_cycles_do_not_count() {
        let mut run = made_up::run(10, 3.0);
        let cycles = &mut run.workloads[0].cycles;
        let warm_ups = cycles.iter().filter(|cycle| cycle.warm_up).count();
        assert_eq!(warm_ups, 2);
        let spoiled = cycles.last_mut().unwrap();
        spoiled.error = Some("why".into());
        let name = spoiled.variant.clone();
        let all = calls(&run.workloads[0], Direction::Restore, 0.95);
        let of = all.iter().find(|calls| calls.variant == name).unwrap();
        assert_eq!(of.made.len(), 9);
        assert_eq!(all[1].ratio.clone().unwrap().pairs, 9);
    }

    #[test]
    fn too_few_pairs_have_no_interval() {
        let run = made_up::run(5, 3.0);
        let all = calls(&run.workloads[0], Direction::Checkpoint, 0.95);
        let ratio = all[1].ratio.clone().unwrap();
        assert!(ratio.interval.is_none() && !ratio.is_shown());
    }

    #[test]
    fn pieces_are_the_whole_call() {
        let run = made_up::run(3, 3.0);
        for cycle in &run.workloads[0].cycles {
            let phase = cycle.checkpoint.as_ref().unwrap();
            let sum: f64 = pieces_of(phase).iter().sum();
            assert!((sum - phase.seconds).abs() < 1e-9);
        }
        let unseen = Phase {
            seconds: 2.0,
            ..Phase::default()
        };
        assert_eq!(pieces_of(&unseen)[6], 2.0);
    }

    #[test]
    fn bytes_that_nobody_saw_are_the_usual_ones() {
        let mut run = made_up::run(3, 3.0);
        let workload = &mut run.workloads[0];
        for cycle in &mut workload.cycles {
            if cycle.variant == "observe" {
                cycle.checkpoint.as_mut().unwrap().bytes = 0;
            }
        }
        let all = calls(workload, Direction::Checkpoint, 0.95);
        assert!(all[0].rate.is_some());
    }
}
