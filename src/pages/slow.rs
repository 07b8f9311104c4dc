//! Whether huge pages come too slowly: because the kernel compacts memory for them, or takes it from others, where base pages would be had at
//! once. Time alone does not say so. Where the machine itself is slow (a virtual one whose memory the host has not backed yet, an emulated
//! CPU) a page of either size takes as long, and base pages cost their own faults besides (2 CPUs, 3 GiB of memory that the host had to find first:
//! checkpoint 6.9 s when the advice was taken back, 3.3 s when it was not, 4.0 and 4.3 s by the driver alone in the same runs). So the kernel's count of waits is looked at too.

use crate::sync::{constructor, AtomicU32, AtomicU64, Ordering};

/// CPU time that two MiB may take: huge pages take 0.1 to 0.3 ms, as many base pages some 1 ms.
const PLAIN_CPU_NS: u64 = 2_000_000;
/// Or wall time, which may also be a busy machine: in a storm of forks on two CPUs 20 ms are common.
const PLAIN_WALL_NS: u64 = 250_000_000;
/// What all units of a range may take beyond that before the kernel is asked why.
const ENOUGH_NS: u64 = 80_000_000;
/// So often it is doubled at most.
const MOST_DOUBLED: u32 = 16;

/// Times of a range's units, and what came of them. All words are shared by the threads of a crew.
pub(super) struct Slow {
    /// Beyond what is plain, since the kernel was last asked.
    excess_ns: AtomicU64,
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
                waits: AtomicU64::new(0),
                in_vain: AtomicU32::new(0),
                found: AtomicU32::new(0),
            }
        }
    }

    /// For a new range.
    pub fn reset(&self) {
        self.excess_ns.store(0, Ordering::Relaxed);
        self.waits.store(0, Ordering::Relaxed);
        self.in_vain.store(0, Ordering::Relaxed);
        self.found.store(0, Ordering::Relaxed);
    }

    /// Whether they came too slowly.
    pub fn is_found(&self) -> bool {
        self.found.load(Ordering::Relaxed) != 0
    }

    /// Takes the time of a unit in. True, once, when pages come too slowly and the kernel has counted waits meanwhile (`count`), or does not
    /// say.
    pub fn note(&self, wall_ns: u64, cpu_ns: u64, count: impl Fn() -> Option<u64>) -> bool {
        let beyond = |took: u64, plain: u64| took.saturating_sub(plain);
        let excess = beyond(cpu_ns, PLAIN_CPU_NS).max(beyond(wall_ns, PLAIN_WALL_NS));
        if excess == 0 || self.is_found() {
            return false;
        }
        if self.waits.load(Ordering::Relaxed) == 0 {
            // Of the waits of this unit nothing is known, of the next ones something.
            self.ask(&count);
        }
        let sum = self.excess_ns.fetch_add(excess, Ordering::Relaxed);
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if sum.saturating_add(excess) < ENOUGH_NS << in_vain.min(MOST_DOUBLED) {
            return false;
        }
        self.excess_ns.store(0, Ordering::Relaxed);
        let before = self.waits.load(Ordering::Relaxed);
        if self.ask(&count).is_some_and(|now| now == before) {
            self.in_vain.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.found.fetch_add(1, Ordering::Relaxed) == 0
    }

    fn ask(&self, count: impl Fn() -> Option<u64>) -> Option<u64> {
        let waits = count()?.saturating_add(1);
        self.waits.store(waits, Ordering::Relaxed);
        Some(waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const MS: u64 = 1_000_000;

    /// After how many units of such a time it is found; `None`: not within 1000.
    fn found_after(wall_ms: u64, cpu_ms: u64, count: impl Fn() -> Option<u64>) -> Option<usize> {
        let slow = Slow::new();
        let found = (1..=1000).find(|_| slow.note(wall_ms * MS, cpu_ms * MS, &count));
        assert_eq!(slow.is_found(), found.is_some());
        // Told once.
        assert!(found.is_none() || !slow.note(10_000 * MS, 10_000 * MS, &count));
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

    #[test]
    fn pages_that_the_kernel_waits_for_are_found_by_their_time() {
        assert_eq!(found_after(12, 12, rising()), Some(8));
        assert_eq!(found_after(5, 5, rising()), Some(27));
        assert_eq!(found_after(300, 0, rising()), Some(2));
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
        assert_eq!(found_after(12, 12, later), Some(8 + 16 + 32));
    }

    #[test]
    fn where_the_kernel_does_not_say_time_decides() {
        assert_eq!(found_after(12, 12, || None), Some(8));
    }
}
