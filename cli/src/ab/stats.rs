//! Statistics: pure. Why these and no others is in `docs/ab.md`.

/// Median; of an even number the mean of the middle two. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which this part of the values lies, between neighbours in proportion (Hyndman and Fan's type 7, the one of R and of
/// spreadsheets). `None` of nothing.
pub fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let sorted = sorted(values);
    let last = sorted.len().checked_sub(1)?;
    let at = part * last as f64;
    let below = sorted[at.floor() as usize];
    let above = sorted[at.ceil() as usize];
    Some(below + (above - below) * at.fract())
}

/// Median, and the middle half of the values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// First quartile.
    pub low: f64,
    /// Third quartile.
    pub high: f64,
    /// Values.
    pub count: usize,
}

impl Spread {
    /// Of these values; `None` of nothing.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Spread {
            median: median(values)?,
            low: quantile(values, 0.25)?,
            high: quantile(values, 0.75)?,
            count: values.len(),
        })
    }

    /// The middle half's width as a part of the median.
    pub fn relative(&self) -> f64 {
        (self.high - self.low) / self.median.abs().max(f64::MIN_POSITIVE)
    }
}

/// An interval that contains the true median with at least the confidence that was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Its real confidence, as a part of 1: never less than what was asked for.
    pub confidence: f64,
}

impl Interval {
    /// Whether it contains the value.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// The interval between two of the sorted values that contains the median of what they are drawn from, whatever their distribution:
/// each value is on either side of it with the same chance (the sign test, turned round). `None`: there are too few values for that
/// confidence.
pub fn interval(values: &[f64], confidence: f64) -> Option<Interval> {
    let sorted = sorted(values);
    let (rank, confidence) = rank(sorted.len(), confidence)?;
    Some(Interval {
        low: sorted[rank - 1],
        high: sorted[sorted.len() - rank],
        confidence,
    })
}

/// Fewest values of which [`interval`] makes one.
pub fn fewest(confidence: f64) -> usize {
    (1..1000)
        .find(|count| rank(*count, confidence).is_some())
        .unwrap_or(1000)
}

/// The largest rank, from 1 and from either end, whose interval has at least this confidence; and the confidence that it has.
fn rank(count: usize, confidence: f64) -> Option<(usize, f64)> {
    let allowed = (1.0 - confidence) / 2.0;
    // Chance that fewer than `rank` of the values lie below the median.
    let mut tail = 0.0;
    let mut found = None;
    for rank in 1..=count.div_ceil(2) {
        tail += chance(count, rank - 1);
        if tail > allowed {
            break;
        }
        found = Some((rank, 1.0 - 2.0 * tail));
    }
    found
}

/// Chance of exactly `heads` heads in `count` throws of a coin. By logarithms: 0.5 to the power of 1100 is 0.
fn chance(count: usize, heads: usize) -> f64 {
    let ways: f64 = (0..heads)
        .map(|at| ((count - at) as f64).ln() - ((at + 1) as f64).ln())
        .sum();
    (ways - count as f64 * std::f64::consts::LN_2).exp()
}

/// Beyond this many robust standard deviations a value is an outlier.
const FAR: f64 = 3.5;
/// Fewer values say nothing about what is usual.
const FEWEST_FOR_OUTLIERS: usize = 5;

/// Which values are outliers: Iglewicz and Hoaglin's modified z-score, 0.6745 (x - median) / MAD, beyond 3.5. Where more than half of the
/// values are equal, MAD is 0, and the mean absolute deviation takes its place.
pub fn outliers(values: &[f64]) -> Vec<bool> {
    let none = || vec![false; values.len()];
    if values.len() < FEWEST_FOR_OUTLIERS {
        return none();
    }
    let Some(middle) = median(values) else {
        return none();
    };
    let off: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    // 1.4826 and 1.2533 make both the standard deviation of normal values.
    let deviation = match median(&off) {
        Some(mad) if mad > 0.0 => 1.4826 * mad,
        _ => 1.2533 * off.iter().sum::<f64>() / off.len() as f64,
    };
    // All equal, but for rounding.
    if deviation <= middle.abs() * 1e-12 {
        return none();
    }
    off.iter().map(|off| off / deviation > FAR).collect()
}

/// A trend over values in their order of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Change from the first to the last value: the median of the slopes between all pairs (Theil and Sen), times their number.
    pub change: f64,
    /// Two-sided chance of so clear a trend without any (Mann and Kendall, normal approximation with continuity correction).
    pub chance: f64,
}

/// The trend; `None` of fewer than 8 values, for which the approximation is no good.
pub fn trend(values: &[f64]) -> Option<Trend> {
    let count = values.len();
    if count < 8 {
        return None;
    }
    let mut slopes = Vec::with_capacity(count * (count - 1) / 2);
    let mut score = 0i64;
    for later in 1..count {
        for earlier in 0..later {
            let rise = values[later] - values[earlier];
            slopes.push(rise / (later - earlier) as f64);
            score += i64::from(rise > 0.0) - i64::from(rise < 0.0);
        }
    }
    let n = count as f64;
    let variance = n * (n - 1.0) * (2.0 * n + 5.0) / 18.0;
    let z = (score.abs() - 1).max(0) as f64 / variance.sqrt();
    Some(Trend {
        change: median(&slopes)? * (n - 1.0),
        chance: two_sided(z),
    })
}

/// Chance that a normal value is at least so far from its mean (Abramowitz and Stegun 7.1.26, error below 1.5e-7).
fn two_sided(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let terms = [
        0.254_829_592,
        -0.284_496_736,
        1.421_413_741,
        -1.453_152_027,
        1.061_405_429,
    ];
    let sum = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    (sum * (-x * x).exp()).clamp(0.0, 1.0)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(value: f64, expected: f64, within: f64) {
        assert!(
            (value - expected).abs() <= within,
            "{value}, not {expected}"
        );
    }

    fn one_to(last: usize) -> Vec<f64> {
        (1..=last).map(|value| value as f64).collect()
    }

    #[test]
    fn medians_and_quartiles_are_those_of_r() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        // quantile(1:10, c(.25, .75)) of R: 3.25, 7.75.
        let spread = Spread::of(&one_to(10)).unwrap();
        assert_eq!((spread.low, spread.high, spread.count), (3.25, 7.75, 10));
        near(spread.relative(), 4.5 / 5.5, 1e-12);
        // quantile(c(6, 47, 49, 15, 42, 41, 7, 39, 43, 40, 36)): 25.5, 40, 42.5.
        let known = [6., 47., 49., 15., 42., 41., 7., 39., 43., 40., 36.];
        let spread = Spread::of(&known).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (25.5, 40.0, 42.5));
    }

    /// The table of the sign test (two-sided, 5 %: at most 0 of 6, 1 of 9, 2 of 12, 3 of 15, ... 39 of 100 on one side), each number plus 1.
    #[test]
    fn ranks_are_those_of_the_published_table() {
        for (count, expected) in [
            (6, 1),
            (7, 1),
            (8, 1),
            (9, 2),
            (10, 2),
            (11, 2),
            (12, 3),
            (13, 3),
            (14, 3),
            (15, 4),
            (16, 4),
            (17, 5),
            (18, 5),
            (19, 5),
            (20, 6),
            (25, 8),
            (30, 10),
            (40, 14),
            (50, 18),
            (60, 22),
            (100, 40),
        ] {
            assert_eq!(rank(count, 0.95).unwrap().0, expected, "{count}");
        }
        for count in 0..6 {
            assert_eq!(rank(count, 0.95), None);
        }
        assert_eq!((fewest(0.95), fewest(0.99), fewest(0.999)), (6, 8, 11));
    }

    /// From the binomial table: of ten, 1 - 2 * 11 / 1024; of six, 1 - 2 / 64.
    #[test]
    fn the_confidence_that_is_told_is_the_real_one() {
        let ten = interval(&one_to(10), 0.95).unwrap();
        assert_eq!((ten.low, ten.high), (2.0, 9.0));
        near(ten.confidence, 1.0 - 22.0 / 1024.0, 1e-12);
        near(
            interval(&one_to(6), 0.95).unwrap().confidence,
            1.0 - 2.0 / 64.0,
            1e-12,
        );
        // 1 - 2 * 0.0207 of the table for n = 20, 5 or fewer.
        near(
            interval(&one_to(20), 0.95).unwrap().confidence,
            0.9586,
            5e-5,
        );
        near(chance(2000, 1000), 0.017_839, 1e-6);
    }

    /// How often it contains the true median, over all 2^n outcomes that differ in what lies below it: exactly its confidence.
    #[test]
    fn it_contains_the_median_as_often_as_it_says() {
        for count in 6..14u32 {
            let mut right = 0u32;
            let mut confidence = 0.0;
            for signs in 0..1u32 << count {
                let values: Vec<f64> = (0..count)
                    .map(|at| {
                        let size = f64::from(at + 1);
                        if signs >> at & 1 == 1 {
                            size * size
                        } else {
                            -size
                        }
                    })
                    .collect();
                let found = interval(&values, 0.95).unwrap();
                right += u32::from(found.contains(0.0));
                confidence = found.confidence;
            }
            near(
                f64::from(right) / f64::from(1u32 << count),
                confidence,
                1e-12,
            );
        }
    }

    /// A faster variant's ratio turned upside down is the slower one's, interval and all.
    #[test]
    fn the_interval_of_the_inverse_is_the_inverse_interval() {
        let values = [0.31, 0.35, 0.29, 0.33, 0.30, 0.34, 0.36];
        let inverse: Vec<f64> = values.iter().map(|value| 1.0 / value).collect();
        let (one, other) = (
            interval(&values, 0.95).unwrap(),
            interval(&inverse, 0.95).unwrap(),
        );
        near(one.low, 1.0 / other.high, 1e-12);
        near(one.high, 1.0 / other.low, 1e-12);
    }

    /// Two that hide each other from a score by mean and standard deviation. By hand: median 2.45, MAD 0.15, so 2.1 has a score of 1.6 and
    /// 8.2 one of 25.9.
    #[test]
    fn outliers_do_not_hide_each_other() {
        let known = [2.1, 2.6, 2.4, 2.5, 2.3, 2.1, 2.3, 2.6, 8.2, 8.3];
        let marked = outliers(&known);
        assert_eq!(&marked[8..], [true, true]);
        assert!(!marked[..8].iter().any(|marked| *marked));
        assert!(!outliers(&[1.0, 1.0, 1.0, 1.0, 1.0]).contains(&true));
        assert_eq!(
            outliers(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0]),
            [false, false, false, false, false, false, false, true]
        );
        assert!(!outliers(&[1.0, 9.0, 1.0, 1.0]).contains(&true));
    }

    #[test]
    fn the_normal_tail_is_that_of_the_table() {
        for (z, chance) in [(0.0, 1.0), (1.0, 0.3173), (1.96, 0.05), (2.576, 0.01)] {
            near(two_sided(z), chance, 5e-5);
        }
    }

    #[test]
    fn a_trend_is_told_from_noise() {
        let rising = trend(&one_to(10)).unwrap();
        near(rising.change, 9.0, 1e-12);
        // S = 45, variance 125: z = 44 / sqrt(125) = 3.935.
        near(rising.chance, 8.3e-5, 1e-6);
        let noise = trend(&[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]).unwrap();
        assert!(noise.chance > 0.3, "{noise:?}");
        assert_eq!(trend(&one_to(7)), None);
    }

    proptest! {
        #[test]
        fn an_interval_holds_the_median_of_its_values(values in proptest::collection::vec(0.1..9.0f64, 6..80), asked in 0.5..0.96f64) {
            let found = interval(&values, asked).unwrap();
            prop_assert!(found.confidence >= asked && found.confidence < 1.0);
            prop_assert!(found.contains(median(&values).unwrap()));
        }
    }
}
