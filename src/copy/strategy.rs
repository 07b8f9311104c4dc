//! Pure: the ways to make the copies of a phase, which of them is taken, and which are worth a try.

use cudasnap_wire::{Choice, Strategy};

use super::kernel::{Copy, Flush, Kernel};
use super::plan::{PART, SHORTEST_PART, SHORT_PART};

/// Most ways that take turns in one phase.
pub const MOST: usize = 6;

/// What a phase copies between, as far as it decides how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// From the GPU into memory that is populated meanwhile.
    Fresh,
    /// From the GPU into memory that is there.
    Kept,
    /// To the GPU.
    Restore,
}

/// What is possible in a phase.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// The loops of this CPU are more than the portable one.
    pub streams: bool,
    /// It can flush lines.
    pub flushes: bool,
    /// It can send lines to the shared cache. By name that is taken anywhere: elsewhere it is a hint without effect.
    pub demotes: bool,
    /// A flush may come after its copy: nobody can take the source away unseen.
    pub late: bool,
    /// Threads that measured best on one machine, or were asked for; the caller included.
    pub threads: u32,
    /// The same where lines are sent to the shared cache.
    pub demoting_threads: u32,
    /// Threads that may be tried.
    pub most_threads: u32,
}

/// A way to make copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Loop and flush.
    pub strategy: Strategy,
    /// Threads that copy, the caller included.
    pub threads: u32,
}

impl Way {
    fn new(strategy: Strategy, means: &Means) -> Self {
        let threads = match strategy {
            Strategy::Demote => means.demoting_threads,
            _ => means.threads,
        };
        Way { strategy, threads }
    }
}

/// The ways of a phase; the first is the one that goes on when none is better.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    ways: [Way; MOST],
    count: usize,
}

impl Ways {
    /// The driver's own.
    pub const DRIVER: Way = Way {
        strategy: Strategy::Driver,
        threads: 1,
    };

    /// One way.
    pub const fn only(way: Way) -> Self {
        Ways {
            ways: [way; MOST],
            count: 1,
        }
    }

    /// The ways that are asked for and possible.
    pub fn new(choice: Choice, work: Work, means: &Means) -> Self {
        let strategy = match choice {
            Choice::Only(strategy) if fits(strategy, work, means) => strategy,
            _ => fixed(work, means),
        };
        let one = Ways::only(Way::new(strategy, means));
        match choice {
            Choice::Tune => one.with_others(work, means),
            _ => one,
        }
    }

    fn with_others(mut self, work: Work, means: &Means) -> Self {
        let first = self.get(0);
        for &strategy in others(first.strategy, work) {
            if strategy != first.strategy && fits(strategy, work, means) {
                self.push(Way::new(strategy, means));
            }
        }
        // While memory is populated, threads that do not copy have other work: their number is not the question.
        if work != Work::Fresh {
            for threads in [first.threads * 7 / 10, first.threads * 14 / 10] {
                let threads = threads.clamp(1, means.most_threads);
                if threads != first.threads {
                    self.push(Way { threads, ..first });
                }
            }
        }
        self
    }

    fn push(&mut self, way: Way) {
        if let Some(place) = self.ways.get_mut(self.count) {
            *place = way;
            self.count += 1;
        }
    }

    /// How many there are: at least 1.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// One of them; the first for a number that is none.
    pub fn get(&self, index: usize) -> Way {
        let [first, ..] = self.ways;
        self.ways.get(index).copied().unwrap_or(first)
    }

    /// Threads that the widest of them needs.
    pub fn most_threads(&self) -> u32 {
        let ways = self.ways.iter().take(self.count);
        ways.map(|way| way.threads).max().unwrap_or(1)
    }
}

/// What is tried beside the first.
const fn others(first: Strategy, work: Work) -> &'static [Strategy] {
    match (work, first) {
        (Work::Fresh, Strategy::Demote) => &[Strategy::FlushLate, Strategy::FlushWithin],
        (Work::Fresh, _) => &[Strategy::FlushWithin, Strategy::NoFlush],
        (Work::Kept, Strategy::Demote) => &[
            Strategy::FlushLate,
            Strategy::FlushLateAhead,
            Strategy::FlushWithin,
        ],
        (Work::Kept, _) => &[
            Strategy::FlushLateAhead,
            Strategy::FlushWithin,
            Strategy::NoFlush,
        ],
        (Work::Restore, Strategy::Demote) => &[Strategy::NonTemporal],
        (Work::Restore, _) => &[Strategy::Plain],
    }
}

/// What measured best on an H200 host; on another CPU a guess.
const fn fixed(work: Work, means: &Means) -> Strategy {
    match work {
        _ if !means.streams => Strategy::Plain,
        _ if means.demotes => Strategy::Demote,
        Work::Restore => Strategy::NonTemporal,
        _ if means.flushes && means.late => Strategy::FlushLate,
        _ if means.flushes => Strategy::FlushWithin,
        _ => Strategy::NoFlush,
    }
}

/// Whether a strategy means something for this work and is possible.
fn fits(strategy: Strategy, work: Work, means: &Means) -> bool {
    let checkpoint = work != Work::Restore;
    match strategy {
        Strategy::Driver => false,
        Strategy::Plain => true,
        Strategy::Demote => means.streams,
        Strategy::NonTemporal => means.streams && !checkpoint,
        Strategy::NoFlush => means.streams && checkpoint,
        Strategy::FlushWithin => means.streams && means.flushes && checkpoint,
        Strategy::FlushLate | Strategy::FlushLateAhead => {
            means.streams && means.flushes && means.late && checkpoint
        }
    }
}

/// Longest part of a copy made this way; `all_copy`: into memory that is there, where no thread is away populating.
pub const fn longest_part(strategy: Strategy, all_copy: bool) -> usize {
    match strategy {
        Strategy::Demote => SHORTEST_PART,
        _ if all_copy => SHORT_PART,
        _ => PART,
    }
}

/// Of 16 threads so many may prefault at a time while copies go on; the others are left to the copies (H200 host, 16 CPUs, fresh memory).
pub const fn prefaulting(strategy: Strategy) -> u32 {
    match strategy {
        // 12 GiB, medians: 7, 8, 9, 10 of 16: 418, 414 to 425, 403 to 405, 403 to 441 ms.
        Strategy::Demote => 9,
        // 24 GiB: 0.83 to 0.88 s; with 8 or 9 0.87 to 0.94; 12 and 15 leave too few.
        _ => 10,
    }
}

/// The loop of a strategy for one copy of a checkpoint, and what is left to do after it. `late` is what a flush after the copy may be done
/// with: only where this very source may be flushed then. `sparse` leaves out what is zero anyway; how it stores does not depend on
/// the strategy, what it does with the source's lines does.
pub fn save(
    strategy: Strategy,
    kernel: &Kernel,
    late: Option<Flush>,
    sparse: bool,
) -> (Copy, Option<Flush>) {
    use Strategy::{Demote, FlushLate, FlushLateAhead, FlushWithin};
    let (copy, sparse_copy, flush) = match (strategy, late) {
        (Demote, _) => (kernel.demote_source, kernel.sparse_demote, None),
        (FlushLate, Some(_)) => (kernel.keep, kernel.sparse, late),
        (FlushLateAhead, Some(_)) => (kernel.ahead, kernel.sparse, late),
        (FlushLate | FlushLateAhead | FlushWithin, _) => (kernel.flush, kernel.sparse_flush, None),
        (Strategy::NoFlush | Strategy::NonTemporal, _) => (kernel.keep, kernel.sparse, None),
        (Strategy::Plain | Strategy::Driver, _) => (kernel.plain, kernel.sparse, None),
    };
    (if sparse { sparse_copy } else { copy }, flush)
}

/// The loop of a strategy for one copy of a restore.
pub fn load(strategy: Strategy, kernel: &Kernel) -> Copy {
    match strategy {
        Strategy::Demote => kernel.demote_target,
        Strategy::Plain | Strategy::Driver => kernel.plain,
        _ => kernel.fetch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_shares_are_those_that_measured_best() {
        for all_copy in [false, true] {
            assert_eq!(longest_part(Strategy::Demote, all_copy), 32 << 10);
        }
        assert_eq!(longest_part(Strategy::FlushLate, true), 64 << 10);
        assert_eq!(longest_part(Strategy::FlushLate, false), 128 << 10);
        assert_eq!(prefaulting(Strategy::Demote), 9);
        assert_eq!(prefaulting(Strategy::FlushLate), 10);
    }

    const ALL: Means = Means {
        streams: true,
        flushes: true,
        demotes: false,
        late: true,
        threads: 10,
        demoting_threads: 14,
        most_threads: 16,
    };

    const DEMOTES: Means = Means {
        demotes: true,
        ..ALL
    };

    fn words(choice: Choice, work: Work, means: &Means) -> Vec<(&'static str, u32)> {
        let ways = Ways::new(choice, work, means);
        let ways = (0..ways.count()).map(|index| ways.get(index));
        ways.map(|way| (way.strategy.word(), way.threads)).collect()
    }

    #[test]
    fn without_a_wish_there_is_one_way_and_it_is_possible() {
        let fixed = |work, means: &Means| words(Choice::Fixed, work, means);
        assert_eq!(fixed(Work::Fresh, &ALL), [("flush-late", 10)]);
        assert_eq!(fixed(Work::Restore, &ALL), [("non-temporal", 10)]);
        let told_late = Means { late: false, ..ALL };
        assert_eq!(fixed(Work::Kept, &told_late), [("flush-within", 10)]);
        let no_flush = Means {
            flushes: false,
            ..ALL
        };
        assert_eq!(fixed(Work::Kept, &no_flush), [("no-flush", 10)]);
        for work in [Work::Fresh, Work::Kept, Work::Restore] {
            assert_eq!(fixed(work, &DEMOTES), [("demote", 14)]);
        }
        let portable = Means {
            streams: false,
            ..DEMOTES
        };
        assert_eq!(fixed(Work::Fresh, &portable), [("plain", 10)]);
        assert_eq!(fixed(Work::Restore, &portable), [("plain", 10)]);
    }

    #[test]
    fn one_strategy_holds_for_its_direction_and_where_it_is_possible() {
        let only = |strategy, work, means: &Means| words(Choice::Only(strategy), work, means);
        assert_eq!(
            only(Strategy::NoFlush, Work::Fresh, &ALL),
            [("no-flush", 10)]
        );
        assert_eq!(
            only(Strategy::NoFlush, Work::Restore, &ALL),
            [("non-temporal", 10)]
        );
        assert_eq!(only(Strategy::Plain, Work::Kept, &ALL), [("plain", 10)]);
        // A hint, on any CPU.
        assert_eq!(
            only(Strategy::Demote, Work::Restore, &ALL),
            [("demote", 14)]
        );
        assert_eq!(
            only(Strategy::NonTemporal, Work::Restore, &DEMOTES),
            [("non-temporal", 10)]
        );
        let no_flush = Means {
            flushes: false,
            ..ALL
        };
        assert_eq!(
            only(Strategy::FlushLate, Work::Kept, &no_flush),
            [("no-flush", 10)]
        );
    }

    #[test]
    fn what_is_tried_begins_with_what_is_fixed_and_is_possible() {
        let tuned = |work, means: &Means| words(Choice::Tune, work, means);
        assert_eq!(
            tuned(Work::Fresh, &ALL),
            [("flush-late", 10), ("flush-within", 10), ("no-flush", 10)]
        );
        assert_eq!(
            tuned(Work::Kept, &ALL),
            [
                ("flush-late", 10),
                ("flush-late-ahead", 10),
                ("flush-within", 10),
                ("no-flush", 10),
                ("flush-late", 7),
                ("flush-late", 14)
            ]
        );
        assert_eq!(
            tuned(Work::Fresh, &DEMOTES),
            [("demote", 14), ("flush-late", 10), ("flush-within", 10)]
        );
        assert_eq!(
            tuned(Work::Kept, &DEMOTES),
            [
                ("demote", 14),
                ("flush-late", 10),
                ("flush-late-ahead", 10),
                ("flush-within", 10),
                ("demote", 9),
                ("demote", 16)
            ]
        );
        assert_eq!(
            tuned(Work::Restore, &DEMOTES),
            [
                ("demote", 14),
                ("non-temporal", 10),
                ("demote", 9),
                ("demote", 16)
            ]
        );
        // A restore on 16 CPUs.
        let all_cpus = Means {
            demoting_threads: 16,
            ..DEMOTES
        };
        assert_eq!(
            tuned(Work::Restore, &all_cpus),
            [("demote", 16), ("non-temporal", 10), ("demote", 11)]
        );
        let small = Means {
            threads: 2,
            demoting_threads: 2,
            most_threads: 2,
            ..ALL
        };
        assert_eq!(
            tuned(Work::Restore, &small),
            [("non-temporal", 2), ("plain", 2), ("non-temporal", 1)]
        );
        let portable = Means {
            streams: false,
            threads: 1,
            most_threads: 1,
            ..ALL
        };
        assert_eq!(tuned(Work::Kept, &portable), [("plain", 1)]);
        assert_eq!(Ways::new(Choice::Tune, Work::Kept, &ALL).most_threads(), 14);
    }

    #[test]
    fn no_source_is_flushed_late_that_may_not_be() {
        let kernel = Kernel::PORTABLE;
        for &strategy in Strategy::ALL {
            for sparse in [false, true] {
                assert!(save(strategy, &kernel, None, sparse).1.is_none());
            }
        }
        unsafe fn flush(_: *const u8, _: usize) {}
        assert!(save(Strategy::Demote, &kernel, Some(flush), false)
            .1
            .is_none());
        assert!(save(Strategy::FlushLate, &kernel, Some(flush), true)
            .1
            .is_some());
    }

    /// A loop that a test can tell from others.
    #[test]
    fn each_strategy_has_the_loop_that_its_name_says() {
        let kernel = Kernel::of(crate::copy::kernel::Cpu::detect());
        if !kernel.streams {
            return;
        }
        let same = |one: Copy, other: Copy| core::ptr::fn_addr_eq(one, other);
        let saved = |strategy, sparse| save(strategy, &kernel, None, sparse).0;
        assert!(same(saved(Strategy::Demote, false), kernel.demote_source));
        assert!(same(saved(Strategy::Demote, true), kernel.sparse_demote));
        assert!(same(saved(Strategy::FlushLate, true), kernel.sparse_flush));
        assert!(same(saved(Strategy::NoFlush, false), kernel.keep));
        assert!(same(load(Strategy::Demote, &kernel), kernel.demote_target));
        assert!(same(load(Strategy::NonTemporal, &kernel), kernel.fetch));
        assert!(same(load(Strategy::Plain, &kernel), kernel.plain));
    }
}
