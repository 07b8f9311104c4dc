//! Whether huge pages come too slowly: because the kernel compacts memory for them, or takes it from others, where base pages would be had at
//! once. Time alone does not say so. Where the machine itself is slow (a virtual one whose memory the host has not backed yet, an emulated
//! CPU) a page of either size takes as long, and base pages cost their own faults besides (seen on 2 virtual CPUs: pages of more than 10 ms,
//! and no wait counted). So the kernel's count of waits is looked at too.

use crate::sync::{constructor, AtomicU32, AtomicU64, Ordering};

/// CPU time that two MiB may take: huge pages take 0.1 to 0.3 ms, as many base pages some 1 ms.
const PLAIN_CPU_NS: u64 = 2_000_000;
/// Or wall time, which may also be a busy machine: in a storm of forks on two CPUs 20 ms are common.
const PLAIN_WALL_NS: u64 = 250_000_000;
/// Most of it that one unit counts for: whoever did it may have been stopped.
const MOST_WALL_NS: u64 = 20_000_000;
/// What units may take beyond that before the kernel is asked why.
const ENOUGH_NS: u64 = 80_000_000;
/// And on the average: what base pages take longer.
const DEARER_NS: u64 = 700_000;
/// So often [`ENOUGH_NS`] is doubled at most.
const MOST_DOUBLED: u32 = 16;
/// The kernel was asked and does not say.
const UNKNOWN: u64 = u64::MAX;

/// Times of a range's units, and what came of them. All words are shared by the threads of a crew.
pub(super) struct Slow {
    /// Beyond what is plain, since the kernel was last asked.
    excess_ns: AtomicU64,
    /// Units that were done by then.
    units: AtomicU64,
    /// Waits that it had counted by then, plus 1; 0 = not asked yet.
    waits: AtomicU64,
    /// How often it was asked in vain: the machine is slow, and each time it is asked half as often, since on a large one the counters of all
    /// CPUs are added up for the answer.
    in_vain: AtomicU32,
    /// Not 0 when pages come too slowly.
    found: AtomicU32,
}

impl Slow {
    constructor! {
        pub fn new() -> Self {
            Slow {
                excess_ns: AtomicU64::new(0),
                units: AtomicU64::new(0),
                waits: AtomicU64::new(0),
                in_vain: AtomicU32::new(0),
                found: AtomicU32::new(0),
            }
        }
    }

    /// For a new range.
    pub fn reset(&self) {
        for word in [&self.excess_ns, &self.units, &self.waits] {
            word.store(0, Ordering::Relaxed);
        }
        self.in_vain.store(0, Ordering::Relaxed);
        self.found.store(0, Ordering::Relaxed);
    }

    /// Whether they came too slowly.
    pub fn is_found(&self) -> bool {
        self.found.load(Ordering::Relaxed) != 0
    }

    /// Takes the time of a unit in. For helpers too: no call, no file.
    pub fn note(&self, wall_ns: u64, cpu_ns: u64) {
        let of_cpu = cpu_ns.saturating_sub(PLAIN_CPU_NS);
        let of_wall = wall_ns.saturating_sub(PLAIN_WALL_NS).min(MOST_WALL_NS);
        let excess = of_cpu.max(of_wall);
        if excess != 0 {
            self.excess_ns.fetch_add(excess, Ordering::Relaxed);
        }
    }

    /// Whether pages come too slowly, by what was noted until `units` units were done, and the kernel has counted waits meanwhile (`count`), or
    /// does not say. True once. For the caller, who may open files; one thread at a time.
    pub fn judge(&self, units: u64, count: impl Fn() -> Option<u64>) -> bool {
        let excess = self.excess_ns.load(Ordering::Relaxed);
        if excess == 0 || self.is_found() {
            return false;
        }
        let before = self.waits.load(Ordering::Relaxed);
        if before == 0 {
            // Of the waits until now nothing is known, of the next ones something.
            self.ask(units, &count);
            return false;
        }
        let since = units.saturating_sub(self.units.load(Ordering::Relaxed));
        let enough = ENOUGH_NS << self.in_vain.load(Ordering::Relaxed).min(MOST_DOUBLED);
        if excess < enough.max(since.saturating_mul(DEARER_NS)) {
            return false;
        }
        let now = self.ask(units, &count);
        if now == before && now != UNKNOWN {
            self.in_vain.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.found.store(1, Ordering::Relaxed);
        true
    }

    fn ask(&self, units: u64, count: impl Fn() -> Option<u64>) -> u64 {
        let waits = count().map_or(UNKNOWN, |waits| waits.saturating_add(1));
        self.waits.store(waits, Ordering::Relaxed);
        self.units.store(units, Ordering::Relaxed);
        self.excess_ns.store(0, Ordering::Relaxed);
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const MS: u64 = 1_000_000;

    /// After how many units of such a time it is found; `None`: not within 1000.
    fn found_after(wall_ms: u64, cpu_ms: u64, count: impl Fn() -> Option<u64>) -> Option<u64> {
        let slow = Slow::new();
        let found = (1..=1000).find(|&units| {
            slow.note(wall_ms * MS, cpu_ms * MS);
            slow.judge(units, &count)
        });
        assert_eq!(slow.is_found(), found.is_some());
        // Told once.
        assert!(found.is_none() || !slow.judge(2000, &count));
        slow.reset();
        assert!(!slow.is_found());
        found
    }

    fn rising() -> impl Fn() -> Option<u64> {
        let waits = Cell::new(7);
        move || {
            waits.set(waits.get() + 1);
            Some(waits.get())
        }
    }

    /// The first unit only makes the kernel be asked how much it has counted until then.
    #[test]
    fn pages_that_the_kernel_waits_for_are_found_by_their_time() {
        assert_eq!(found_after(12, 12, rising()), Some(1 + 8));
        assert_eq!(found_after(5, 5, rising()), Some(1 + 27));
        assert_eq!(found_after(300, 0, rising()), Some(1 + 4));
        assert_eq!(found_after(100, 2, rising()), None);
    }

    #[test]
    fn a_machine_that_is_slow_is_not_taken_for_one_without_memory() {
        assert_eq!(found_after(30, 30, || Some(1440)), None);
        // One that then runs out of it.
        let asked = Cell::new(0);
        let later = || {
            asked.set(asked.get() + 1);
            Some(asked.get() / 4)
        };
        assert_eq!(found_after(12, 12, later), Some(1 + 8 + 16 + 32));
    }

    #[test]
    fn where_the_kernel_does_not_say_time_decides() {
        assert_eq!(found_after(12, 12, || None), Some(1 + 8));
    }

    /// One unit in twenty: base pages would take longer.
    #[test]
    fn few_slow_ones_among_many_are_borne() {
        let (slow, count) = (Slow::new(), rising());
        let found = (1..=2000).find(|&units| {
            slow.note(0, if units % 20 == 0 { 12 * MS } else { 0 });
            slow.judge(units, &count)
        });
        assert_eq!(found, None);
    }
}
