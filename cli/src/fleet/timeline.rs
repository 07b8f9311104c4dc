//! Numbers over time, in as many bins as fit a plot: where they span more time, bins are joined in pairs. Lines may come in any order.

use std::collections::BTreeMap;

/// Most bins.
pub const BINS: usize = 48;

/// Numbers of a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bin {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// Least.
    pub least: f64,
    /// Most.
    pub most: f64,
}

impl Bin {
    /// Their mean.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn join(&mut self, other: Bin) {
        self.count += other.count;
        self.sum += other.sum;
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }
}

/// Numbers over time.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// Bins are `1 << shift` seconds long, and begin at multiples of that.
    shift: u32,
    bins: BTreeMap<u64, Bin>,
}

impl Timeline {
    /// Takes a number at a moment, in seconds since 1970.
    pub fn add(&mut self, second: u64, number: f64) {
        let bin = Bin {
            count: 1,
            sum: number,
            least: number,
            most: number,
        };
        self.put(second >> self.shift, bin);
        // The span, not the number of bins: an empty stretch has its room in the plot too.
        while self.span() > BINS as u64 {
            self.widen();
        }
    }

    fn put(&mut self, at: u64, bin: Bin) {
        let place = self.bins.entry(at);
        place.and_modify(|there| there.join(bin)).or_insert(bin);
    }

    fn span(&self) -> u64 {
        let ends = self.bins.keys().next().zip(self.bins.keys().next_back());
        ends.map_or(0, |(first, last)| last - first + 1)
    }

    fn widen(&mut self) {
        self.shift += 1;
        for (at, bin) in std::mem::take(&mut self.bins) {
            self.put(at >> 1, bin);
        }
    }

    /// Middles of the bins, in seconds since 1970, and what is in them.
    pub fn bins(&self) -> impl Iterator<Item = (f64, &Bin)> {
        let width = (1u64 << self.shift) as f64;
        self.bins
            .iter()
            .map(move |(at, bin)| ((*at as f64 + 0.5) * width, bin))
    }

    /// Seconds that a bin spans.
    pub fn width(&self) -> u64 {
        1 << self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_lost_and_bins_are_few(moments in proptest::collection::vec(0u64..1 << 34, 1..300)) {
            let mut line = Timeline::default();
            moments.iter().for_each(|second| line.add(*second, (second % 7) as f64));
            prop_assert!(line.bins().count() <= BINS);
            let counted: u64 = line.bins().map(|(_, bin)| bin.count).sum();
            prop_assert_eq!(counted, moments.len() as u64);
            let sum: f64 = line.bins().map(|(_, bin)| bin.sum).sum();
            prop_assert_eq!(sum, moments.iter().map(|second| (second % 7) as f64).sum::<f64>());
            // Each moment lies in a bin.
            for second in &moments {
                let half = line.width() as f64 / 2.0;
                prop_assert!(line.bins().any(|(middle, _)| (middle - *second as f64).abs() <= half));
            }
        }
    }

    #[test]
    fn bins_are_as_short_as_the_span_lets_them() {
        let mut line = Timeline::default();
        (0..48).for_each(|second| line.add(1000 + second, 1.0));
        assert_eq!((line.width(), line.bins().count()), (1, 48));
        line.add(1048, 3.0);
        assert_eq!(line.width(), 2);
        let last = line.bins().last().unwrap();
        assert_eq!((last.0, last.1.mean(), last.1.most), (1049.0, 3.0, 3.0));
    }
}
