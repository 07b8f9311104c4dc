//! The account of one phase: opened by its first call, told of each copy, closed by whatever ends it first. Its storage is
//! the record itself, so that a tool can watch it grow.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use cudasnap_wire::{Direction, End, Mode, PageKind, Phase as Block, Step, Strategy, HISTORY};

use crate::copy::cover::Cover;
use crate::{record, sys};

/// What is known when a phase opens.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Which way it copies.
    pub direction: Direction,
    /// Mode that was latched with the buffer.
    pub mode: Mode,
    /// Pages of the buffer.
    pub pages: PageKind,
    /// Threads that will copy, the caller included.
    pub threads: u32,
    /// Number of the buffer in this process.
    pub buffer: u32,
    /// Whether the buffer was kept from before.
    pub kept: bool,
    /// Bytes that the driver asked for.
    pub expected: usize,
    /// `CLOCK_MONOTONIC` of its first call.
    pub started_ns: u64,
}

/// The account.
pub struct Phase {
    open: bool,
    direction: Direction,
    started_ns: u64,
    first_copy_ns: u64,
    last_copy_ns: u64,
    cover: Cover,
}

impl Phase {
    /// No phase.
    pub const fn new() -> Self {
        Phase {
            open: false,
            direction: Direction::None,
            started_ns: 0,
            first_copy_ns: 0,
            last_copy_ns: 0,
            cover: Cover::new(),
        }
    }

    /// Whether a phase in this direction is open.
    pub fn is_open(&self, direction: Direction) -> bool {
        self.open && self.direction == direction
    }

    /// Whether any phase is open.
    pub const fn is_any_open(&self) -> bool {
        self.open
    }

    /// Where a crew that leaves by itself says why.
    pub fn end_word() -> &'static AtomicU32 {
        &record::get().current.end
    }

    /// Whether the crew left by itself since the last copy.
    pub fn was_left(&self) -> bool {
        Self::end_word().load(Relaxed) != End::Running.number()
    }

    /// Bytes copied so far.
    pub fn copied(&self) -> u64 {
        record::get().current.copied.load(Relaxed)
    }

    /// Opens a phase.
    pub fn open(&mut self, opening: &Opening) {
        *self = Phase {
            open: true,
            direction: opening.direction,
            started_ns: opening.started_ns,
            ..Phase::new()
        };
        let block = &record::get().current;
        block.seq.write(|| {
            clear(block);
            block.direction.store(opening.direction.number(), Relaxed);
            block.mode.store(opening.mode.number(), Relaxed);
            block.pages.store(opening.pages.number(), Relaxed);
            block.threads.store(opening.threads, Relaxed);
            block.buffer.store(opening.buffer, Relaxed);
            block.kept.store(opening.kept.into(), Relaxed);
            block.expected.store(opening.expected as u64, Relaxed);
            block.started_unix_ns.store(sys::unix_ns(), Relaxed);
        });
    }

    /// Notes that other than the planned number of threads copy.
    pub fn set_threads(threads: u32) {
        record::get().current.threads.store(threads, Relaxed);
    }

    /// Notes how the copies are made, and how many ways were tried.
    pub fn set_strategy(strategy: Strategy, tried: u32) {
        let block = &record::get().current;
        block.strategy.store(strategy.number(), Relaxed);
        block.tried.store(tried, Relaxed);
    }

    /// Notes bytes that were left out because they were zero.
    pub fn left_out(zeros: u64) {
        add(&record::get().current.zeros, zeros);
    }

    /// Notes how long the buffer's mmap took.
    pub fn mapped(&self, now_ns: u64) {
        let took = now_ns.saturating_sub(self.started_ns);
        record::get().current.mmap_ns.store(took, Relaxed);
    }

    /// Notes a copy of the buffer's `bytes` bytes at `offset`.
    pub fn copied_one(&mut self, from_ns: u64, to_ns: u64, offset: usize, bytes: usize) {
        let block = &record::get().current;
        if self.first_copy_ns == 0 {
            self.first_copy_ns = from_ns;
            let first = from_ns.saturating_sub(self.started_ns);
            block.first_copy_ns.store(first, Relaxed);
        } else {
            let wait = from_ns.saturating_sub(self.last_copy_ns);
            add(&block.waiting_ns, wait);
            block.longest_wait_ns.fetch_max(wait, Relaxed);
        }
        self.last_copy_ns = to_ns;
        add(&block.copying_ns, to_ns.saturating_sub(from_ns));
        let whole = to_ns.saturating_sub(self.first_copy_ns);
        block.loop_ns.store(whole, Relaxed);
        add(&block.copies, 1);
        let new = self.cover.add(offset, offset + bytes);
        add(&block.copied, new as u64);
    }

    /// When the phase did its last work. Not when it was closed: that may be much later, even on another host.
    fn useful_until(&self, end: End, prefault_done_ns: u64) -> u64 {
        let block = &record::get().current;
        if end == End::Covered {
            sys::now_ns()
        } else if self.last_copy_ns != 0 {
            self.last_copy_ns
        } else {
            let mapped_ns = self.started_ns + block.mmap_ns.load(Relaxed);
            prefault_done_ns.max(mapped_ns)
        }
    }

    /// Closes the phase and files it in the history. A crew that left by itself has said why before; but when the copies cover
    /// the buffer, that is how the phase ended: a caller that lost its CPU after the last of them finds a crew that waited in vain.
    pub fn close(&mut self, end: End, prefaulted: u64, prefault_done_ns: u64) {
        if !core::mem::take(&mut self.open) {
            return;
        }
        let block = &record::get().current;
        block.seq.write(|| {
            let running = End::Running.number();
            let by_itself = block
                .end
                .compare_exchange(running, end.number(), Relaxed, Relaxed)
                .is_err();
            if by_itself && end == End::Covered {
                block.end.store(end.number(), Relaxed);
            }
            block.prefaulted.store(prefaulted, Relaxed);
            if prefault_done_ns != 0 {
                let took = prefault_done_ns.saturating_sub(self.started_ns);
                block.prefault_ns.store(took, Relaxed);
            }
            let until = self.useful_until(end, prefault_done_ns);
            block
                .total_ns
                .store(until.saturating_sub(self.started_ns), Relaxed);
        });
        if !went_through(block) {
            record::step(Step::NotEffective);
        }
        file(block);
        report_end(block);
    }
}

/// Whether at least 99 % of the buffer went through the shim.
pub fn went_through(block: &Block) -> bool {
    block.copied.load(Relaxed) >= block.expected.load(Relaxed) / 100 * 99
}

fn add(word: &AtomicU64, more: u64) {
    // One writer: a plain sum is enough, and cheaper than a locked one.
    word.store(word.load(Relaxed).wrapping_add(more), Relaxed);
}

fn report_end(block: &Block) {
    log::info!(
        "{} {}: {} of {} bytes, {} ms",
        Direction::from_number(block.direction.load(Relaxed)).map_or("?", Direction::word),
        End::from_number(block.end.load(Relaxed)).map_or("?", End::word),
        block.copied.load(Relaxed),
        block.expected.load(Relaxed),
        block.total_ns.load(Relaxed) / 1_000_000
    );
}

/// Pairs of words, in the order of the layout: `(32-bit words, 64-bit words)`.
fn words(block: &Block) -> ([&AtomicU32; 9], [&AtomicU64; 15]) {
    (
        [
            &block.direction,
            &block.end,
            &block.mode,
            &block.pages,
            &block.threads,
            &block.buffer,
            &block.kept,
            &block.strategy,
            &block.tried,
        ],
        [
            &block.expected,
            &block.copied,
            &block.copies,
            &block.prefaulted,
            &block.zeros,
            &block.started_unix_ns,
            &block.mmap_ns,
            &block.prefault_ns,
            &block.first_copy_ns,
            &block.copying_ns,
            &block.waiting_ns,
            &block.longest_wait_ns,
            &block.loop_ns,
            &block.total_ns,
            &block.munmap_ns,
        ],
    )
}

fn clear(block: &Block) {
    let (small, large) = words(block);
    small.iter().for_each(|word| word.store(0, Relaxed));
    large.iter().for_each(|word| word.store(0, Relaxed));
}

/// Copies a phase to the next place of the ring.
fn file(block: &Block) {
    let record = record::get();
    let count = record.history_count.load(Relaxed);
    let Some(place) = record.history.get(count as usize % HISTORY) else {
        return;
    };
    place.seq.write(|| {
        let ((small, large), (small_to, large_to)) = (words(block), words(place));
        for (from, to) in small.iter().zip(small_to) {
            to.store(from.load(Relaxed), Relaxed);
        }
        for (from, to) in large.iter().zip(large_to) {
            to.store(from.load(Relaxed), Relaxed);
        }
    });
    record.history_count.store(count.wrapping_add(1), Relaxed);
    record.counters.phases.fetch_add(1, Relaxed);
}

/// Notes how long the buffer's munmap took, in the phase that was filed last.
pub fn unmapped(took_ns: u64) {
    let record = record::get();
    let count = record.history_count.load(Relaxed);
    let last = record.history.get(count.wrapping_sub(1) as usize % HISTORY);
    if let (Some(last), true) = (last, count > 0) {
        last.seq.write(|| last.munmap_ns.store(took_ns, Relaxed));
    }
    record.current.munmap_ns.store(took_ns, Relaxed);
}

/// Calls `each` for the filed phases of one buffer, oldest first.
pub fn of_buffer(number: u32, mut each: impl FnMut(&Block)) {
    let record = record::get();
    let count = record.history_count.load(Relaxed) as usize;
    for index in count.saturating_sub(HISTORY)..count {
        if let Some(block) = record.history.get(index % HISTORY) {
            if block.buffer.load(Relaxed) == number {
                each(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end that the newest phase was filed with, when its crew had said `said` before it was closed with `end`.
    fn filed(said: End, end: End) -> u32 {
        let _turn = crate::fuzz::take_turn();
        let mut phase = Phase::new();
        phase.open(&Opening {
            direction: Direction::Checkpoint,
            mode: Mode::On,
            pages: PageKind::Thp,
            threads: 2,
            buffer: 1,
            kept: false,
            expected: 100,
            started_ns: 1,
        });
        phase.copied_one(2, 3, 0, 100);
        Phase::end_word().store(said.number(), Relaxed);
        phase.close(end, 0, 0);
        record::get().current.end.load(Relaxed)
    }

    #[test]
    fn a_covered_phase_is_covered_whatever_a_late_helper_says() {
        assert_eq!(filed(End::Running, End::Covered), End::Covered.number());
        assert_eq!(filed(End::Idle, End::Covered), End::Covered.number());
        assert_eq!(filed(End::Idle, End::Unmapped), End::Idle.number());
        assert_eq!(filed(End::Running, End::Unmapped), End::Unmapped.number());
    }
}
