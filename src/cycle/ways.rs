//! Which way the copies of a phase are made: chosen when it opens, or found while it copies.

use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{Choice, Strategy};

use crate::config::Config;
use crate::copy::strategy::{Means, Way, Ways, Work};
use crate::copy::tune::Tuner;
use crate::cpus::{self, Use};
use crate::crew::CREW;
use crate::phase::Phase;
use crate::record;

use super::State;

impl State {
    /// Chooses threads and ways for a phase that opens. `told_of_all` and the loops are known. Unless `copies` come to us the
    /// threads only prefault, and the driver copies.
    pub(super) fn choose_ways(&mut self, work: Work, copies: bool, config: &Config) {
        let cap = record::get().thread_cap.load(Relaxed);
        let usage = match work {
            Work::Fresh => Use::Fresh,
            Work::Kept => Use::Kept,
            Work::Restore => Use::Ready,
        };
        let demoting = match work {
            Work::Restore => Use::Demoting,
            _ => usage,
        };
        let threads = cpus::threads(config.threads, cap, usage);
        let demoting_threads = cpus::threads(config.threads, cap, demoting);
        let means = Means {
            streams: self.kernel.streams,
            flushes: self.kernel.rest.is_some(),
            demotes: self.kernel.demotes,
            late: self.told_of_all,
            threads,
            demoting_threads,
            most_threads: match config.strategy {
                Choice::Tune => cpus::most_threads(config.threads, cap),
                _ => threads.max(demoting_threads),
            },
        };
        self.ways = match copies {
            true => Ways::new(config.strategy, work, &means),
            false => Ways::only(Way {
                strategy: Strategy::Driver,
                threads,
            }),
        };
        self.threads = self.ways.most_threads();
        self.tuner = Tuner::new(self.ways.count());
    }

    /// What a checkpoint into the buffer that was asked for copies into.
    pub(super) fn work_of_request(&self) -> Work {
        match self.from_kept {
            true => Work::Kept,
            false => Work::Fresh,
        }
    }

    /// A copy comes to us that was not expected: the function of somebody else in its slot goes on to ours.
    pub(super) fn choose_ways_after_all(&mut self, config: &Config) {
        // No more than the kernel gave.
        let threads = self.threads;
        self.choose_ways(self.work_of_request(), true, config);
        self.threads = self.threads.min(threads);
        self.begin_ways();
    }

    /// The driver copies by itself.
    pub(super) fn leave_ways_to_driver(&mut self) {
        self.threads = 1;
        self.ways = Ways::only(Ways::DRIVER);
        self.tuner = Tuner::settled();
    }

    /// Says in the record, and to the crew, how the first copy of the open phase will be made.
    pub(super) fn begin_ways(&mut self) {
        self.take_way(self.ways.get(0));
    }

    /// The way to make a copy of `len` bytes that begins now, with `rest` bytes of the phase to go.
    pub(super) fn way_now(&mut self, now_ns: u64, len: usize, rest: u64) -> Way {
        let was_settled = self.tuner.is_settled();
        let way = self.ways.get(self.tuner.begins(now_ns, len, rest));
        if way != self.way {
            self.take_way(way);
        }
        if self.tuner.is_settled() && !was_settled {
            self.keep_way(way);
        }
        way
    }

    fn take_way(&mut self, way: Way) {
        self.way = way;
        CREW.copy_with(way.threads.saturating_sub(1));
        Phase::set_strategy(way.strategy, self.tuner.tried() as u32);
    }

    /// No more is tried: who is not needed leaves.
    fn keep_way(&mut self, way: Way) {
        self.threads = self.threads.min(way.threads);
        CREW.reduce(self.threads.saturating_sub(1));
        Phase::set_threads(self.threads);
        self.take_way(way);
        log::debug!(
            "{} with {} threads, {} ways tried",
            way.strategy.word(),
            self.threads,
            self.tuner.tried()
        );
    }
}
