//! What self-tuning costs or gives: its cycles in pairs with those of the best fixed way, which took turns with it in one run.

use super::cycles::Run;
use super::data::{Call, Measured};
use crate::table::median;

/// Kinds of steps in which strategies take turns, and in words what the copies go to.
const KINDS: [(&str, &str); 2] = [("tunekept", "kept buffer"), ("tunefresh", "fresh memory")];

/// Fewer pairs say nothing.
const FEWEST_PAIRS: usize = 6;

/// One call of one process, with all its ways.
#[derive(Debug, PartialEq)]
pub struct Tuning {
    /// Size of the process in MiB.
    pub mib: u64,
    /// `checkpoint, kept buffer` and the like.
    pub what: String,
    /// Fixed ways and the median of their seconds.
    pub fixed: Vec<(String, f64)>,
    /// Median of the seconds with tuning.
    pub tuned: f64,
    /// What the tuned cycles took more than those of the best fixed way, of the same round: median and the interval that contains it
    /// with 95 % confidence or more; as a part of 1.
    pub loss: (f64, f64, f64),
    /// Pairs.
    pub pairs: usize,
    /// Ways that tuning went on with, and in how many cycles.
    pub chosen: Vec<(String, usize)>,
}

/// All that was measured.
///
/// # Errors
/// Text, when a result cannot be read.
pub fn tunings(measured: &Measured) -> Result<Vec<Tuning>, String> {
    let mut found = Vec::new();
    for (kind, memory) in KINDS {
        for (mib, run) in measured.runs(kind)? {
            for (call, name) in [(Call::Checkpoint, "checkpoint"), (Call::Restore, "restore")] {
                found.extend(tuning(mib, &run, call, format!("{name}, {memory}")));
            }
        }
    }
    Ok(found)
}

fn tuning(mib: u64, run: &Run, call: Call, what: String) -> Option<Tuning> {
    let arms: Vec<&str> = run.arms().collect();
    let tuned_arm = arms.iter().find(|arm| arm.ends_with(":tune"))?;
    let tuned = run.seconds(tuned_arm, call);
    let mut fixed = Vec::new();
    for arm in arms.iter().filter(|arm| *arm != tuned_arm) {
        let (_, way) = arm.split_once(':')?;
        let seconds = run.seconds(arm, call);
        fixed.push((way.to_string(), median(seconds.iter().copied())?, seconds));
    }
    let best = fixed
        .iter()
        .min_by(|one, other| one.1.total_cmp(&other.1))?;
    let losses: Vec<f64> = tuned
        .iter()
        .zip(&best.2)
        .map(|(tuned, best)| tuned / best - 1.0)
        .collect();
    let (low, high) = interval(&losses)?;
    Some(Tuning {
        mib,
        what,
        tuned: median(tuned)?,
        loss: (median(losses.iter().copied())?, low, high),
        pairs: losses.len(),
        fixed: fixed
            .into_iter()
            .map(|(way, median, _)| (way, median))
            .collect(),
        chosen: run.ways(tuned_arm, call),
    })
}

/// The interval between two of the sorted values that contains the median of what they are drawn from with at least 95 % confidence,
/// whatever their distribution: each value is on either side of it with the same chance. `None` of too few.
fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len();
    if count < FEWEST_PAIRS {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // Chance that at most `below` of all values lie below the median.
    let (mut below, mut chance, mut term) = (0, 0.0, 0.5f64.powi(i32::try_from(count).ok()?));
    loop {
        chance += term;
        if chance > 0.025 {
            break;
        }
        term *= (count - below) as f64 / (below + 1) as f64;
        below += 1;
    }
    let at = below.checked_sub(1)?;
    Some((sorted[at], sorted[count - 1 - at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_ten_is_from_the_second_to_the_ninth() {
        // 1 - 2 * 11 / 1024 = 97.9 %; from the third to the eighth it would be 89 %.
        let ten: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        assert_eq!(interval(&ten), Some((2.0, 9.0)));
        let six: Vec<f64> = (1..=6).map(f64::from).collect();
        assert_eq!(interval(&six), Some((1.0, 6.0)));
        assert_eq!(interval(&six[1..]), None);
        // The table of the sign test: from the 10th to the 21st of 30.
        let thirty: Vec<f64> = (1..=30).map(f64::from).collect();
        assert_eq!(interval(&thirty), Some((10.0, 21.0)));
    }
}
