//! Pure: which of several ways to copy is the fastest, found by letting them take turns over the first copies of a phase.
//!
//! What counts is the time from one copy's start to the next one's: the copy, and the driver's pause behind it, in which the GPU fills
//! or empties a staging buffer in the state that the copy left it in. That state acts a copy or two later (the driver has two such
//! buffers), so that each way has several copies in a row, of which the first do not count.

use super::strategy::MOST;

/// Copies in a row by one way.
const BLOCK: u32 = 16;
/// Of them, those that still feel the way before.
const UNCOUNTED: u32 = 4;
/// Copies before the first try: the crew wakes, the first pages are populated.
const WARM_UP: u32 = 64;
/// Most blocks of each way.
const ROUNDS: usize = 8;
/// Fewest: one forward, one backward, so that whatever changes steadily meets all alike.
const FEWEST_ROUNDS: usize = 2;
/// At most this part of a phase's copies is spent on trying.
const SHARE: u64 = 16;
/// A way so much slower than the best, in percent, is not tried again.
const HOPELESS: u64 = 125;
/// What the first way may be slower by, in percent, and still goes on: less is within what is measured from turn to turn.
const MARGIN: u64 = 102;

/// Finds the best way of one phase.
#[derive(Clone, Copy, Debug)]
pub struct Tuner {
    ways: usize,
    rounds: usize,
    round: usize,
    /// Bytes of a copy that counts: the driver's chunk.
    len: usize,
    /// Copies to go before the first try.
    warm_up: u32,
    way: usize,
    /// Copies begun in this block.
    begun: u32,
    counted_from_ns: u64,
    /// Nanoseconds of each way's blocks.
    took: [[u64; ROUNDS]; MOST],
    hopeless: [bool; MOST],
    /// A way had a block.
    tried: bool,
    chosen: bool,
}

impl Tuner {
    /// For this many ways; with one there is nothing to try.
    pub const fn new(ways: usize) -> Self {
        Tuner {
            ways: if ways < MOST { ways } else { MOST },
            rounds: 0,
            round: 0,
            len: 0,
            warm_up: WARM_UP,
            way: 0,
            begun: 0,
            counted_from_ns: 0,
            took: [[0; ROUNDS]; MOST],
            hopeless: [false; MOST],
            tried: false,
            chosen: ways < 2,
        }
    }

    /// The first way it is.
    pub const fn settled() -> Self {
        Tuner::new(1)
    }

    /// Whether no more is tried.
    pub const fn is_settled(&self) -> bool {
        self.chosen
    }

    /// How many ways were tried, or are being tried: 0 while, or where, there is no need or no time.
    pub const fn tried(&self) -> usize {
        if self.tried {
            self.ways
        } else {
            0
        }
    }

    /// A copy of `len` bytes begins, of a phase with `rest` bytes to go. Returns the way to make it.
    pub fn begins(&mut self, now_ns: u64, len: usize, rest: u64) -> usize {
        if self.chosen {
            return self.way;
        }
        if len != self.len {
            self.begun = 0;
            if len < self.len {
                return self.way;
            }
            self.start_over(len, rest);
        }
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return self.way;
        }
        if self.begun == BLOCK {
            self.end_block(now_ns);
        }
        if self.begun == UNCOUNTED {
            self.counted_from_ns = now_ns;
        }
        self.begun += 1;
        self.way
    }

    /// The driver's chunk has this length: as many rounds as its number allows.
    fn start_over(&mut self, len: usize, rest: u64) {
        let copies = rest / len.max(1) as u64 / SHARE;
        let rounds = copies / (u64::from(BLOCK) * self.ways as u64);
        *self = Tuner {
            len,
            rounds: rounds.min(ROUNDS as u64) as usize,
            ..Tuner::new(self.ways)
        };
        self.chosen |= self.rounds < FEWEST_ROUNDS;
    }

    fn end_block(&mut self, now_ns: u64) {
        let took = now_ns.saturating_sub(self.counted_from_ns);
        let places = self.took.get_mut(self.way);
        if let Some(place) = places.and_then(|places| places.get_mut(self.round)) {
            *place = took;
        }
        self.begun = 0;
        self.tried = true;
        let Some(next) = self.next_in_round() else {
            self.end_round();
            return;
        };
        self.way = next;
    }

    /// Even rounds go up, odd ones down.
    fn next_in_round(&self) -> Option<usize> {
        let is_tried = |way: &usize| self.hopeless.get(*way) == Some(&false);
        match self.round.is_multiple_of(2) {
            true => (self.way + 1..self.ways).find(is_tried),
            false => (0..self.way).rev().find(is_tried),
        }
    }

    fn end_round(&mut self) {
        self.round += 1;
        let (best, least) = self.best();
        if self.round >= FEWEST_ROUNDS {
            for way in 0..self.ways {
                let is_slow = self.median(way).saturating_mul(100) > least.saturating_mul(HOPELESS);
                if let Some(hopeless) = self.hopeless.get_mut(way) {
                    *hopeless |= is_slow;
                }
            }
        }
        let left = self.hopeless.iter().take(self.ways);
        if self.round == self.rounds || left.filter(|hopeless| !**hopeless).count() < 2 {
            self.chosen = true;
            let first = self.median(0).saturating_mul(100);
            self.way = if first <= least.saturating_mul(MARGIN) {
                0
            } else {
                best
            };
            return;
        }
        // The next round begins where this one ended, at the outermost way that is still tried.
        let outermost = match self.round.is_multiple_of(2) {
            true => (0..self.ways).find(|&way| self.hopeless.get(way) == Some(&false)),
            false => (0..self.ways).rfind(|&way| self.hopeless.get(way) == Some(&false)),
        };
        self.way = outermost.unwrap_or(0);
    }

    fn best(&self) -> (usize, u64) {
        let ways = (0..self.ways).filter(|&way| self.hopeless.get(way) == Some(&false));
        let timed = ways.map(|way| (way, self.median(way)));
        timed.min_by_key(|(_, took)| *took).unwrap_or((0, 0))
    }

    /// The middle of a way's blocks so far, or the mean of the two middle ones: a pause of the driver spoils one block only.
    fn median(&self, way: usize) -> u64 {
        let mut took = self.took.get(way).copied().unwrap_or_default();
        let Some(took) = took.get_mut(..self.round) else {
            return u64::MAX;
        };
        // A way that was given up has no later blocks: what it has decides.
        took.sort_unstable();
        let from = took.iter().position(|&took| took != 0);
        let took = from.and_then(|from| took.get(from..)).unwrap_or_default();
        let middle = |at: usize| took.get(at).copied().unwrap_or(u64::MAX / 2);
        (middle(took.len().saturating_sub(1) / 2) + middle(took.len() / 2)) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = 2 << 20;

    /// A phase in which way `w` needs `cost(w, copy)` from start to start; what was chosen, how many copies it took to know, and what
    /// all took.
    fn phase(ways: usize, copies: u64, cost: impl Fn(usize, u64) -> u64) -> (usize, u64, u64) {
        let mut tuner = Tuner::new(ways);
        let (mut now, mut way, mut settled) = (1_000_000, 0, copies);
        for copy in 0..copies {
            way = tuner.begins(now, CHUNK, (copies - copy) * CHUNK as u64);
            if tuner.is_settled() {
                settled = settled.min(copy);
            }
            now += cost(way, copy);
        }
        (way, settled, now - 1_000_000)
    }

    /// The same number for the same copy, between 0 and `most`.
    fn noise(copy: u64, most: u64) -> u64 {
        let mixed = (copy + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 33) % most
    }

    #[test]
    fn the_fastest_way_goes_on() {
        let costs = [45_000, 60_000, 40_000, 95_000, 44_000, 47_000];
        let cost = |way: usize, copy| costs[way] + noise(copy, 8_000);
        let (way, settled, took) = phase(6, 12_500, cost);
        assert_eq!(way, 2);
        assert!(settled <= WARM_UP as u64 + 12_500 / SHARE + 1, "{settled}");
        // Against the best way alone: what trying costs.
        let best: u64 = (0..12_500).map(|copy| cost(2, copy)).sum();
        assert!(took * 1000 < best * 1015, "{took} {best}");
    }

    #[test]
    fn a_difference_within_the_margin_changes_nothing() {
        let (way, ..) = phase(3, 12_500, |way, _| [45_000, 44_300, 60_000][way]);
        assert_eq!(way, 0);
        let (way, ..) = phase(3, 12_500, |way, _| [45_000, 43_500, 60_000][way]);
        assert_eq!(way, 1);
    }

    #[test]
    fn what_changes_steadily_meets_all_alike() {
        // The machine gets faster by half while ways are tried: the last would win if each had one turn.
        let drift = |way: usize, copy: u64| [40_000, 43_000, 43_000][way] + 60_000 / (copy + 1);
        assert_eq!(phase(3, 12_500, drift).0, 0);
        let steady =
            |way: usize, copy: u64| [44_000, 41_000, 44_000][way] + 20_000 - copy.min(784) * 20;
        assert_eq!(phase(3, 12_500, steady).0, 1);
    }

    #[test]
    fn a_pause_of_the_driver_decides_nothing() {
        let pause = |way: usize, copy: u64| {
            [45_000, 42_000][way]
                + if copy == 150 || copy == 300 {
                    4_100_000
                } else {
                    0
                }
        };
        assert_eq!(phase(2, 12_500, pause).0, 1);
    }

    /// The state of a staging buffer acts on the next copies: with the way before, the first of a block are as slow as its.
    #[test]
    fn the_way_before_does_not_count() {
        let mut tuner = Tuner::new(2);
        let (mut now, mut before, mut earlier, mut way) = (1, 0, 0, 0);
        for copy in 0..12_500u64 {
            now += [45_000, 30_000][earlier];
            way = tuner.begins(now, CHUNK, (12_500 - copy) * CHUNK as u64);
            (earlier, before) = (before, way);
        }
        assert_eq!(way, 1);
    }

    #[test]
    fn a_short_phase_and_a_single_way_try_nothing() {
        assert_eq!(phase(4, 2_000, |way, _| [9, 1, 1, 1][way]), (0, 0, 18_000));
        assert_eq!(phase(1, 12_500, |_, _| 9).0, 0);
        for (ways, rest, tried) in [(4, 2_000, 0), (1, 12_500, 0), (4, 12_500, 4)] {
            let mut tuner = Tuner::new(ways);
            (1..200).for_each(|now| {
                tuner.begins(now, CHUNK, rest * CHUNK as u64);
            });
            assert_eq!(tuner.tried(), tried);
        }
    }

    #[test]
    fn copies_of_other_lengths_spoil_no_block() {
        let mut tuner = Tuner::new(2);
        let (mut now, mut way) = (1, 0);
        for copy in 0..12_500u64 {
            let len = if copy % 40 == 7 { 4096 } else { CHUNK };
            way = tuner.begins(now, len, (12_500 - copy) * CHUNK as u64);
            now += if len == CHUNK {
                [45_000, 40_000][way]
            } else {
                900_000
            };
        }
        assert_eq!(way, 1);
        // A longer chunk is another driver's: all is tried anew.
        let mut tuner = Tuner::new(2);
        tuner.begins(1, 64 << 10, 1 << 40);
        tuner.begins(2, CHUNK, 1 << 40);
        assert_eq!(
            (tuner.len, tuner.warm_up, tuner.rounds),
            (CHUNK, WARM_UP - 1, ROUNDS)
        );
    }
}
