//! Axes: which numbers they reach over, where they have ticks, what is written at those.

/// Beyond this, numbers are drawn as this: sums of two must be finite.
const MOST: f64 = 1e300;
/// A ratio of the greatest to the least from which on an axis is logarithmic.
const WIDE: f64 = 200.0;

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    /// Whether equal lengths are equal ratios.
    pub logarithmic: bool,
    /// Ticks, rising.
    pub ticks: Vec<f64>,
}

impl Axis {
    /// An axis for amounts: it starts at 0, unless they go below it or differ so much that it has to be logarithmic. About `wanted` ticks.
    pub fn amounts(values: impl Iterator<Item = f64>, wanted: usize) -> Self {
        let values: Vec<f64> = finite(values).collect();
        let (low, high) = reach(&values).unwrap_or((0.0, 1.0));
        if low > 0.0 && high / low >= WIDE {
            return Self::decades(low, high, wanted);
        }
        Self::from_zero(low, high, wanted)
    }

    /// The same, never logarithmic, for what is drawn as a length.
    pub fn lengths(values: impl Iterator<Item = f64>, wanted: usize) -> Self {
        let values: Vec<f64> = finite(values).collect();
        let (low, high) = reach(&values).unwrap_or((0.0, 1.0));
        Self::from_zero(low.min(0.0), high, wanted)
    }

    /// An axis for what is counted: it reaches from the first to the last with half a step around them, and has whole ticks.
    pub fn counts(values: impl Iterator<Item = f64>, wanted: usize) -> Self {
        let values: Vec<f64> = finite(values).collect();
        let (low, high) = reach(&values).unwrap_or((1.0, 1.0));
        // Beyond this nobody counts, and half a step would be lost in rounding.
        if low.abs().max(high.abs()) > 1e9 {
            return Self::from_zero(low, high, wanted);
        }
        let step = round_step((high - low) / wanted.max(1) as f64).max(1.0);
        // Half a step is too little to be seen where there are many.
        let beside = 0.5f64.max((high - low) / 60.0);
        let (low, high) = (low - beside, high + beside);
        Axis {
            low,
            high,
            logarithmic: false,
            ticks: multiples(step, low, high),
        }
    }

    fn from_zero(low: f64, high: f64, wanted: usize) -> Self {
        let (low, high) = (low.min(0.0), high.max(0.0));
        // Too small to be divided.
        let tiny = high - low < 1e-300;
        let high = if tiny { 1.0 } else { high };
        let step = round_step((high - low) / wanted.max(1) as f64);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Axis {
            low,
            high,
            logarithmic: false,
            ticks: multiples(step, low, high),
        }
    }

    fn decades(low: f64, high: f64, wanted: usize) -> Self {
        let first = low.max(1.0 / MOST).log10().floor() as i32;
        let last = (high.log10().ceil() as i32).max(first + 1);
        let whole = |power: i32| 10f64.powi(power);
        // Every so many powers of ten, so that there is room for what is written at them.
        let every = (last - first)
            .unsigned_abs()
            .div_ceil(wanted.max(1) as u32)
            .max(1);
        let ticks = (first..=last).step_by(every as usize).map(whole).collect();
        Axis {
            low: whole(first),
            high: whole(last),
            logarithmic: true,
            ticks,
        }
    }

    /// Where a number is: 0 at the start of the axis, 1 at its end.
    pub fn place(&self, value: f64) -> f64 {
        let value = value.clamp(-MOST, MOST);
        let place = if self.logarithmic {
            let (low, high) = (self.low.log10(), self.high.log10());
            (value.max(self.low).log10() - low) / (high - low)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }

    /// What is written at a tick.
    pub fn label(&self, tick: f64) -> String {
        let step = match self.ticks[..] {
            [first, second, ..] if !self.logarithmic => second - first,
            _ => tick,
        };
        let size = tick.abs().max(step.abs());
        if tick == 0.0 {
            return "0".to_owned();
        }
        if size >= 1e7 || step.abs() < 1e-4 {
            return scientific(tick);
        }
        let decimals = decimals_of(step);
        format!("{tick:.decimals$}")
    }
}

/// Decimals that a step of 1, 2, 2.5 or 5 times a power of ten needs.
fn decimals_of(step: f64) -> usize {
    (0..6)
        .find(|decimals| {
            let scaled = step.abs() * 10f64.powi(*decimals);
            (scaled - scaled.round()).abs() < scaled.max(1.0) * 1e-6 && scaled.round() >= 1.0
        })
        .unwrap_or(6) as usize
}

fn scientific(value: f64) -> String {
    let text = format!("{value:.2e}");
    match text.split_once('e') {
        Some((digits, power)) => {
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            format!("{digits}e{power}")
        }
        None => text,
    }
}

fn finite(values: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    values
        .filter(|value| value.is_finite())
        .map(|value| value.clamp(-MOST, MOST))
}

fn reach(values: &[f64]) -> Option<(f64, f64)> {
    let first = *values.first()?;
    Some(values.iter().fold((first, first), |(low, high), value| {
        (low.min(*value), high.max(*value))
    }))
}

/// The next round number from `step` on: 1, 2, 2.5 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    if step.is_nan() || step <= f64::MIN_POSITIVE {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let rounds = [1.0, 2.0, 2.5, 5.0, 10.0].map(|round| round * power);
    let fits = rounds
        .into_iter()
        .find(|round| *round >= step * (1.0 - 1e-9));
    fits.unwrap_or(10.0 * power)
}

fn multiples(step: f64, low: f64, high: f64) -> Vec<f64> {
    let first = (low / step - 1e-9).ceil();
    let count = ((high / step + 1e-9).floor() - first).clamp(0.0, 1000.0) as u32;
    (0..=count)
        .map(|number| (first + f64::from(number)) * step)
        .filter(|tick| *tick <= high + step * 1e-6)
        .collect()
}

/// A number with three digits, as tables have it: `0.00123`, `1.23`, `12.3`, `12345`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e7).contains(&size) {
        return scientific(value);
    }
    // 9.995 would be shown as 10.00.
    let digits = (2 - (size * 1.0005).log10().floor() as i32).max(0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|tick| axis.label(*tick)).collect()
    }

    #[test]
    fn ticks_are_round() {
        let axis = Axis::amounts([21.3, 55.2].into_iter(), 6);
        assert_eq!(labels(&axis), ["0", "10", "20", "30", "40", "50", "60"]);
        let axis = Axis::amounts([0.031, 0.012].into_iter(), 4);
        assert_eq!(labels(&axis), ["0", "0.01", "0.02", "0.03", "0.04"]);
        let axis = Axis::lengths([0.9].into_iter(), 4);
        assert_eq!(labels(&axis), ["0", "0.25", "0.50", "0.75", "1.00"]);
        let axis = Axis::counts((1..=20).map(f64::from), 5);
        assert_eq!(labels(&axis), ["5", "10", "15", "20"]);
        let axis = Axis::counts([3.0].into_iter(), 5);
        assert_eq!(labels(&axis), ["3"]);
    }

    #[test]
    fn numbers_far_apart_are_shown_by_ratio() {
        let axis = Axis::amounts([1e-3, 1e5].into_iter(), 9);
        assert!(axis.logarithmic);
        assert_eq!(
            labels(&axis),
            ["0.001", "0.01", "0.1", "1", "10", "100", "1000", "10000", "100000"]
        );
        assert!((axis.place(10.0) - 0.5).abs() < 1e-9);
        assert!(!Axis::lengths([1e-3, 1e5].into_iter(), 8).logarithmic);
        assert!(!Axis::amounts([0.0, 1e5].into_iter(), 8).logarithmic);
    }

    #[test]
    fn nothing_and_all_alike_have_an_axis() {
        for values in [vec![], vec![0.0; 3], vec![f64::NAN, f64::INFINITY]] {
            let axis = Axis::amounts(values.into_iter(), 5);
            assert_eq!((axis.low, axis.high), (0.0, 1.0));
        }
        let axis = Axis::amounts([7.0; 4].into_iter(), 5);
        assert!(axis.low == 0.0 && axis.high >= 7.0 && axis.ticks.len() > 2);
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.001_234, "0.00123"),
            (0.999_9, "1.00"),
            (1.234, "1.23"),
            (9.999, "10.0"),
            (55.25, "55.2"),
            (99.97, "100"),
            (123_456.0, "123456"),
            (1.0e-9, "1e-9"),
            (2.5e12, "2.5e12"),
            (-3.0, "-3.00"),
            (f64::NAN, "?"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    proptest! {
        #[test]
        fn every_axis_holds_its_values(
            values in prop::collection::vec(prop_oneof![any::<f64>(), 1e-3..1e5f64, Just(0.0)], 0..20),
            wanted in 1usize..12,
        ) {
            for axis in [
                Axis::amounts(values.iter().copied(), wanted),
                Axis::lengths(values.iter().copied(), wanted),
                Axis::counts(values.iter().copied(), wanted),
            ] {
                prop_assert!(axis.low.is_finite() && axis.high.is_finite() && axis.low < axis.high, "{axis:?}");
                prop_assert!(axis.ticks.len() <= 2 * wanted + 3, "{} ticks", axis.ticks.len());
                prop_assert!(axis.ticks.windows(2).all(|pair| pair[0] < pair[1]), "{axis:?}");
                for value in values.iter().filter(|value| value.is_finite()) {
                    let value = value.clamp(-MOST, MOST);
                    let slack = (axis.high - axis.low) * 1e-9;
                    prop_assert!(value >= axis.low - slack && value <= axis.high + slack, "{value} {axis:?}");
                    prop_assert!((0.0..=1.0).contains(&axis.place(value)));
                }
            }
        }
    }
}
