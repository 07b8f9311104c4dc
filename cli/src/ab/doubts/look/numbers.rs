//! Doubts about the numbers themselves.

use super::Look;
use crate::ab::doubts::Doubt;
use crate::ab::stats::{interval, median, trend};
use crate::ab::summary::{calls, fewest_pairs, residuals, Calls, Direction};

/// A middle half wider than this part of the median is called noisy.
const NOISY: f64 = 0.10;
/// Difference of bytes: a driver's context may grow by some pages.
const BYTES: f64 = 0.01;
/// Effects of order and time below this are not worth a word, however sure they are.
const WORTH: f64 = 0.03;
/// How sure effects of order and time must be: many are looked for.
const SURE: f64 = 0.99;
/// Rates a little above the limit are noise of both.
const ABOVE: f64 = 1.02;

impl Look<'_> {
    pub(super) fn of_direction(&self, direction: Direction) -> Vec<Doubt> {
        let all = calls(self.workload, direction, self.confidence);
        let mut found = Vec::new();
        for calls in &all {
            found.extend(self.of_variant(direction, calls));
        }
        found.extend(self.unequal_bytes(direction));
        found.extend(self.over_time(direction));
        found
    }

    fn of_variant(&self, direction: Direction, calls: &Calls) -> Vec<Doubt> {
        let workload = || self.name.clone();
        let variant = || calls.variant.clone();
        let mut found = Vec::new();
        let pairs = calls.ratio.as_ref();
        // Said once: both directions have the same pairs.
        if let Some(ratio) =
            pairs.filter(|ratio| ratio.interval.is_none() && direction == Direction::Checkpoint)
        {
            found.push(Doubt::FewPairs {
                workload: workload(),
                variant: variant(),
                pairs: ratio.pairs,
                fewest: fewest_pairs(self.confidence),
            });
        }
        let spread = calls.seconds.filter(|spread| spread.count >= 4);
        if let Some(spread) = spread.filter(|spread| spread.relative() > NOISY) {
            found.push(Doubt::Noisy {
                workload: workload(),
                direction,
                variant: variant(),
                spread: spread.relative(),
            });
        }
        let outliers = calls.made.iter().filter(|call| call.outlier);
        let cycles: Vec<u32> = outliers.map(|call| call.cycle).collect();
        if !cycles.is_empty() {
            found.push(Doubt::Outliers {
                workload: workload(),
                direction,
                variant: variant(),
                cycles,
            });
        }
        found.extend(self.above_limit(direction, calls));
        found
    }

    fn above_limit(&self, direction: Direction, calls: &Calls) -> Option<Doubt> {
        let limit = direction.limit(self.workload.limit.as_ref()?);
        let rate = calls.rate?.median;
        (rate > limit * ABOVE).then(|| Doubt::AboveLimit {
            workload: self.name.clone(),
            direction,
            variant: calls.variant.clone(),
            rate,
            limit,
        })
    }

    fn unequal_bytes(&self, direction: Direction) -> Option<Doubt> {
        let phases = self.counted().filter_map(|cycle| direction.of(cycle));
        let bytes: Vec<u64> = phases
            .map(|phase| phase.bytes)
            .filter(|bytes| *bytes > 0)
            .collect();
        let (least, most) = (*bytes.iter().min()?, *bytes.iter().max()?);
        ((most - least) as f64 > most as f64 * BYTES).then(|| Doubt::UnequalBytes {
            workload: self.name.clone(),
            direction,
            least,
            most,
        })
    }

    fn over_time(&self, direction: Direction) -> Vec<Doubt> {
        let residuals = residuals(self.workload, direction);
        let factors: Vec<f64> = residuals.iter().map(|(_, _, factor)| *factor).collect();
        let mut found = Vec::new();
        if let Some(trend) = trend(&factors) {
            if trend.chance < 1.0 - SURE && trend.change.abs() > WORTH {
                found.push(Doubt::Drift {
                    workload: self.name.clone(),
                    direction,
                    change: trend.change,
                });
            }
        }
        let of = |wanted: bool| -> Vec<f64> {
            let of_kind = residuals.iter().filter(|(_, first, _)| *first == wanted);
            of_kind.map(|(_, _, factor)| *factor).collect()
        };
        let others = median(&of(false));
        let against: Vec<f64> = others.map_or(Vec::new(), |others| {
            of(true).iter().map(|factor| factor / others).collect()
        });
        let slower = interval(&against, SURE).zip(median(&against));
        if let Some((sure, factor)) = slower {
            if sure.low > 1.0 && factor > 1.0 + WORTH {
                found.push(Doubt::FirstOfRound {
                    workload: self.name.clone(),
                    direction,
                    factor,
                });
            }
        }
        found
    }
}
