//! Random numbers that depend on nothing but a seed and a name: any cycle's can be had without those of the cycles before.

/// A stream of numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed for one purpose and one number.
    #[must_use]
    pub fn new(seed: u64, purpose: &str, number: u64) -> Self {
        let mut random = Random(seed);
        for byte in purpose.bytes() {
            random.0 = random.number() ^ u64::from(byte);
        }
        random.0 = random.number() ^ number;
        // Neighbouring numbers must not give neighbouring streams.
        random.0 = random.number();
        random
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // So small against 2^64 that no bias can be seen.
        self.number().checked_rem(bound).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// The same cards in another order.
    #[must_use]
    pub fn shuffled<T: Copy>(&mut self, cards: &[T]) -> Vec<T> {
        let mut cards = cards.to_vec();
        for last in (1..cards.len()).rev() {
            cards.swap(last, self.below(last as u64 + 1) as usize);
        }
        cards
    }
}

/// The card for a number: every card comes once in each round of as many numbers as there are cards, in a new order.
///
/// # Panics
/// When there is none.
pub fn dealt<T: Copy>(seed: u64, purpose: &str, cards: &[T], number: u64) -> T {
    let (round, place) = (number / cards.len() as u64, number % cards.len() as u64);
    Random::new(seed, purpose, round).shuffled(cards)[place as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let first = |seed, purpose, number| Random::new(seed, purpose, number).number();
        assert_eq!(first(1, "a", 2), first(1, "a", 2));
        let all = [
            first(1, "a", 2),
            first(1, "a", 3),
            first(1, "b", 2),
            first(2, "a", 2),
        ];
        assert_eq!(
            all.iter().collect::<std::collections::HashSet<_>>().len(),
            4
        );
    }

    #[test]
    fn every_card_comes_once_in_each_round() {
        let cards = [1, 2, 3, 4, 5];
        for round in 0..20 {
            let mut round: Vec<i32> = (0..5)
                .map(|at| dealt(7, "x", &cards, round * 5 + at))
                .collect();
            round.sort_unstable();
            assert_eq!(round, cards);
        }
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut random = Random::new(3, "bounds", 0);
        let numbers: Vec<u64> = (0..1000).map(|_| random.between(4, 7)).collect();
        assert_eq!(
            (numbers.iter().min(), numbers.iter().max()),
            (Some(&4), Some(&7))
        );
    }
}
