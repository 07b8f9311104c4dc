//! Pure: which bytes of the buffer were copied. A driver may copy a chunk twice, and one that counts twice would hide one that
//! never came.

/// Most separate ranges that are remembered. The recorded drivers' copies make nine at most.
const RANGES: usize = 64;

/// The bytes that were copied, as ranges in rising order that do not touch.
pub struct Cover {
    ranges: [(usize, usize); RANGES],
    used: usize,
}

impl Cover {
    /// None yet.
    pub const fn new() -> Self {
        Cover {
            ranges: [(0, 0); RANGES],
            used: 0,
        }
    }

    /// Adds `from..to`; returns how many of these bytes are new. Where there are too many holes to remember, all of them.
    pub fn add(&mut self, from: usize, to: usize) -> usize {
        let known = self.ranges.get(..self.used).unwrap_or_default();
        let first = known.partition_point(|range| range.1 < from);
        let behind = known.partition_point(|range| range.0 <= to);
        let merged = known.get(first..behind).unwrap_or_default();
        let from_all = merged.first().map_or(from, |range| range.0.min(from));
        let to_all = merged.last().map_or(to, |range| range.1.max(to));
        let old: usize = merged.iter().map(|range| range.1 - range.0).sum();
        let new = to_all - from_all - old;
        let used = self.used + 1 - merged.len();
        if used > RANGES {
            return new;
        }
        self.ranges.copy_within(behind..self.used, first + 1);
        if let Some(range) = self.ranges.get_mut(first) {
            *range = (from_all, to_all);
        }
        self.used = used;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn new_bytes_are_counted_once(copies in proptest::collection::vec((0usize..600, 0usize..40), 0..200)) {
            let mut cover = Cover::new();
            let mut seen = [false; 700];
            for (from, len) in copies {
                let before = seen.iter().filter(|seen| **seen).count();
                seen[from..from + len].fill(true);
                let new = seen.iter().filter(|seen| **seen).count() - before;
                prop_assert_eq!(cover.add(from, from + len), new);
            }
        }
    }

    #[test]
    fn beyond_the_last_place_every_byte_counts_as_new() {
        let mut cover = Cover::new();
        for index in 0..RANGES {
            assert_eq!(cover.add(index * 10, index * 10 + 5), 5);
        }
        assert_eq!(cover.add(RANGES * 10, RANGES * 10 + 5), 5);
        assert_eq!(cover.add(RANGES * 10, RANGES * 10 + 5), 5);
        // What closes holes finds a place again.
        assert_eq!(cover.add(0, RANGES * 10), RANGES * 5);
        assert_eq!(cover.add(3, RANGES * 10), 0);
    }
}
