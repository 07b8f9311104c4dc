//! What is kept of the phases of a group: sums, and sketches for quantiles. Its size does not depend on how many phases there are.

use std::collections::BTreeMap;

use sketches_ddsketch::{Config, DDSketch};

use super::phase::{Phase, PIECES};
use crate::ab::stats;

/// Largest error of a quantile, as a share of its value.
pub const ERROR: f64 = 0.002;
/// At [`ERROR`], from a nanosecond to the age of the world.
const BINS: u32 = 16_384;
const LEAST: f64 = 1e-12;

/// So many numbers are kept as they are: their quantiles are exact.
pub const FEW: usize = 512;

/// Quantiles of numbers, of which only a few are kept.
#[derive(Clone)]
pub struct Sketch {
    all: DDSketch,
    /// All of them, or none when they are too many.
    few: Vec<f64>,
}

impl Default for Sketch {
    fn default() -> Self {
        Sketch {
            all: DDSketch::new(Config::new(ERROR, BINS, LEAST)),
            few: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Sketch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Sketch of {}", self.all.count())
    }
}

impl Sketch {
    /// Takes a number.
    pub fn add(&mut self, number: f64) {
        let all_kept = self.all_kept();
        self.all.add(number);
        self.keep(all_kept, &[number]);
    }

    fn all_kept(&self) -> bool {
        self.few.len() == self.all.count()
    }

    /// Keeps these too, if all were kept so far and there is room.
    fn keep(&mut self, all_kept: bool, more: &[f64]) {
        if all_kept && self.few.len() + more.len() <= FEW {
            self.few.extend_from_slice(more);
        } else {
            self.few = Vec::new();
        }
    }

    /// Takes all numbers of another one.
    pub fn merge(&mut self, other: &Sketch) {
        // Both have the same configuration, which is all that could be wrong.
        let all_kept = self.all_kept() && other.all_kept();
        let _ = self.all.merge(&other.all);
        self.keep(all_kept, &other.few);
    }

    /// The number below which this share of all lies; `None` without numbers.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        if self.all.count() == 0 {
            return None;
        }
        if self.all_kept() {
            return stats::quantile(&self.few, share);
        }
        let found = self.all.quantile(share).ok().flatten()?;
        // A bin's middle may lie outside of what was seen.
        let (least, most) = (self.all.min()?, self.all.max()?);
        Some(found.clamp(least, most))
    }
}

/// 5 %, the median, 95 %.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Spread {
    /// 5 % lie below.
    pub low: f64,
    /// Half lies below.
    pub median: f64,
    /// 95 % lie below.
    pub high: f64,
}

impl Sketch {
    /// The three; `None` without numbers.
    pub fn spread(&self) -> Option<Spread> {
        Some(Spread {
            low: self.quantile(0.05)?,
            median: self.quantile(0.5)?,
            high: self.quantile(0.95)?,
        })
    }
}

/// The phases of a group.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// How many.
    pub phases: u64,
    /// Bytes that the driver asked for.
    pub bytes: u64,
    /// Bytes that went through the library.
    pub copied: u64,
    /// GB/s.
    pub rates: Sketch,
    /// Seconds.
    pub seconds: Sketch,
    /// Phases in which the library was to make the copies and did not.
    pub ineffective: u64,
    /// Steps down, by reason.
    pub steps: BTreeMap<String, u64>,
    /// Nanoseconds of each piece, of phases whose bytes are in `timed`.
    pub pieces: [u64; PIECES.len()],
    /// Bytes copied in phases that took time.
    pub timed: u64,
}

impl Tally {
    /// Takes a phase, with the steps down that are new with it.
    pub fn add(&mut self, phase: &Phase<'_>, steps: &[(String, u64)]) {
        self.phases += 1;
        self.bytes = self.bytes.saturating_add(phase.bytes);
        self.copied = self.copied.saturating_add(phase.copied);
        self.ineffective += u64::from(is_ineffective(phase));
        for (name, count) in steps {
            *self.steps.entry(name.clone()).or_default() += count;
        }
        if phase.total_ns == 0 {
            return;
        }
        self.seconds.add(phase.total_ns as f64 / 1e9);
        if phase.copied > 0 {
            self.rates.add(rate(phase));
            self.timed = self.timed.saturating_add(phase.copied);
            for (sum, piece) in self.pieces.iter_mut().zip(phase.pieces()) {
                *sum = sum.saturating_add(piece);
            }
        }
    }

    /// Takes all of another group.
    pub fn merge(&mut self, other: &Tally) {
        self.phases += other.phases;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.copied = self.copied.saturating_add(other.copied);
        self.rates.merge(&other.rates);
        self.seconds.merge(&other.seconds);
        self.ineffective += other.ineffective;
        for (name, count) in &other.steps {
            *self.steps.entry(name.clone()).or_default() += count;
        }
        for (sum, piece) in self.pieces.iter_mut().zip(other.pieces) {
            *sum = sum.saturating_add(piece);
        }
        self.timed = self.timed.saturating_add(other.timed);
    }

    /// Milliseconds that each piece took for a GB; zeros when nothing was timed.
    pub fn milliseconds_per_gb(&self) -> [f64; PIECES.len()] {
        let gb = self.timed as f64 / 1e9;
        self.pieces.map(|sum| match self.timed {
            0 => 0.0,
            _ => sum as f64 / 1e6 / gb,
        })
    }

    /// Steps down, all together.
    pub fn steps_down(&self) -> u64 {
        self.steps.values().sum()
    }
}

/// GB/s of a phase that took time: bytes per nanosecond.
pub fn rate(phase: &Phase<'_>) -> f64 {
    phase.copied as f64 / phase.total_ns as f64
}

/// Whether the library was to make the copies and did not.
pub fn is_ineffective(phase: &Phase<'_>) -> bool {
    phase.mode == "on" && !phase.effective
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn within(found: f64, exact: f64) -> bool {
        (found - exact).abs() <= exact * ERROR * 1.01
    }

    proptest! {
        /// Between the numbers beside the rank, or as near to one of them as promised.
        #[test]
        fn quantiles_are_as_near_as_promised(
            mut numbers in proptest::collection::vec(1e-6f64..1e4, 1..1200), share in 0.0f64..1.0
        ) {
            let mut sketch = Sketch::default();
            numbers.iter().for_each(|number| sketch.add(*number));
            numbers.sort_by(f64::total_cmp);
            let found = sketch.quantile(share).unwrap();
            let rank = share * (numbers.len() - 1) as f64;
            let (below, above) = (numbers[rank.floor() as usize], numbers[rank.ceil() as usize]);
            let near = within(found, below) || within(found, above);
            let few = numbers.len() <= FEW && (below..=above).contains(&found);
            prop_assert!(if numbers.len() <= FEW { few } else { near }, "{found} {below} {above}");
        }

        #[test]
        fn two_sketches_make_one(
            left in proptest::collection::vec(1e-3f64..1e3, 0..400), right in proptest::collection::vec(1e-3f64..1e3, 1..400)
        ) {
            let of = |numbers: &[f64]| {
                let mut sketch = Sketch::default();
                numbers.iter().for_each(|number| sketch.add(*number));
                sketch
            };
            let mut merged = of(&left);
            merged.merge(&of(&right));
            prop_assert_eq!(merged.spread(), of(&[left, right].concat()).spread());
        }
    }

    #[test]
    fn nothing_has_no_quantiles() {
        assert_eq!(Sketch::default().spread(), None);
        assert_eq!(Tally::default().milliseconds_per_gb(), [0.0; 5]);
    }

    #[test]
    fn of_three_the_middle_and_nearly_the_ends() {
        let mut sketch = Sketch::default();
        for number in [3.0, 1.0, 2.0] {
            sketch.add(number);
        }
        let spread = sketch.spread().unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (1.1, 2.0, 2.9));
    }

    #[test]
    fn a_sketch_stays_small() {
        let mut sketch = Sketch::default();
        let mut number = 1e-9;
        while number < 1e9 {
            sketch.add(number);
            number *= 1.001;
        }
        assert!(sketch.few.is_empty());
        let length = sketch.all.length();
        assert!(length < BINS as usize, "{length}");
        assert!(within(sketch.quantile(1.0).unwrap(), 1e9));
        assert!(within(sketch.quantile(0.0).unwrap(), 1e-9));
    }
}
