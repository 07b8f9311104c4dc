//! The driver copies.

use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{Direction, End, Mode, PageKind, Step, Strategy};

use crate::copy::plan::ALONE_BELOW;
use crate::copy::sparse;
use crate::copy::strategy::{self, Way, Work};
use crate::crew::{First, Manner, CREW};
use crate::phase::Phase;
use crate::region::{self, Origin, Region};
use crate::{config::Config, maps, record, sys};

use super::{Call, State};

/// Longest copy that can be a staging buffer's; the driver's have 2 MiB. More would not be put off whole.
const STAGING_MAX: usize = 8 << 20;

/// Where zeros are left out, prefault goes so far ahead of what is not zero (H200 host, 24 GiB, without zeros: bounds of 64 and 256 MiB
/// changed nothing).
pub(super) const SPARSE_AHEAD: usize = 64 << 20;

/// A copy function of libc's form, without its result.
pub type Next =
    unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;

/// A copy that has the buffer on one side.
#[derive(Clone, Copy)]
struct Chunk {
    direction: Direction,
    region: Region,
    dst: *mut u8,
    src: *const u8,
    len: usize,
}

impl Chunk {
    fn find(dst: *mut u8, src: *const u8, len: usize) -> Option<Self> {
        let to = region::containing(dst as usize, len);
        let from = region::containing(src as usize, len);
        let (direction, region) = match (to, from) {
            (Some(region), None) => (Direction::Checkpoint, region),
            (None, Some(region)) => (Direction::Restore, region),
            _ => return None,
        };
        let apart = (dst as usize).abs_diff(src as usize) >= len;
        apart.then_some(Chunk {
            direction,
            region,
            dst,
            src,
            len,
        })
    }

    fn offset(&self) -> usize {
        let side = match self.direction {
            Direction::Restore => self.src as usize,
            _ => self.dst as usize,
        };
        side - self.region.start
    }

    /// The address on the driver's side.
    fn other_side(&self) -> usize {
        match self.direction {
            Direction::Restore => self.dst as usize,
            _ => self.src as usize,
        }
    }
}

/// Makes a copy of the driver, if the buffer is on one side of it; false when the copy is still to be made. `entry` is an
/// address in our outermost frame.
///
/// # Safety
/// As `memmove`; `next` copies as `memmove` does.
pub unsafe fn copy(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    config: &Config,
    next: Next,
    entry: usize,
) -> bool {
    let Some(chunk) = Chunk::find(dst, src, len) else {
        record::get().counters.other_copies.fetch_add(1, Relaxed);
        return false;
    };
    let pid = sys::getpid();
    if chunk.region.pid != pid {
        return false;
    }
    let call = Call::from(entry);
    let Some(mut state) = super::enter(pid, &call) else {
        record::step(Step::CrewBusy);
        return false;
    };
    if state.current != Some(chunk.region) {
        record::get().counters.other_copies.fetch_add(1, Relaxed);
        return false;
    }
    // SAFETY: promised by the caller.
    unsafe { state.copy(&chunk, config, next) };
    true
}

impl State {
    /// # Safety
    /// The chunk's ranges are valid; `next` copies as `memmove` does.
    unsafe fn copy(&mut self, chunk: &Chunk, config: &Config, next: Next) {
        let from_ns = sys::now_ns();
        self.enter_phase(chunk, config, from_ns);
        if self.makes(chunk) {
            // SAFETY: promised by the caller; `Chunk::find` has seen that the ranges do not overlap.
            unsafe { self.copy_with_crew(chunk, from_ns) };
        } else {
            // SAFETY: promised by the caller.
            unsafe { next(chunk.dst.cast(), chunk.src.cast(), chunk.len) };
        }
        self.phase
            .copied_one(from_ns, sys::now_ns(), chunk.offset(), chunk.len);
        if self.phase.copied() >= chunk.region.len as u64 {
            self.end_phase(End::Covered);
        }
    }

    /// Whether copies of this buffer are made by us, and not only timed.
    fn makes(&self, chunk: &Chunk) -> bool {
        self.mode == Mode::On && chunk.region.origin == Origin::WithTail && !self.foreign
    }

    /// # Safety
    /// The chunk's ranges are valid and do not overlap.
    unsafe fn copy_with_crew(&mut self, chunk: &Chunk, now_ns: u64) {
        let rest = (chunk.region.len as u64).saturating_sub(self.phase.copied());
        let way = self.way_now(now_ns, chunk.len, rest);
        if chunk.len >= ALONE_BELOW {
            self.recruit();
        }
        let alone = self.faults.are_possible(chunk.other_side(), chunk.len);
        let mut manner = self.manner(chunk, way);
        if alone {
            manner.threads = 1;
        }
        // SAFETY: promised by the caller; the source's pages are only taken away through calls that wait for flushes.
        let redone = unsafe { CREW.copy(chunk.dst, chunk.src, chunk.len, &manner) };
        (0..redone).for_each(|_| record::step(Step::HelperDead));
        if alone {
            self.faults.none_in(chunk.other_side(), chunk.len);
        }
        if chunk.direction == Direction::Checkpoint {
            CREW.pages.copied_up_to(chunk.offset() + chunk.len);
            CREW.pages.look_whether_slow();
            self.account_for_zeros(chunk);
        }
    }

    /// What was left out; and prefault goes on only behind what is not zero.
    fn account_for_zeros(&self, chunk: &Chunk) {
        if !self.sparse {
            return;
        }
        let (zeros, stored_to) = sparse::account();
        Phase::left_out(zeros);
        let ahead = match stored_to.checked_sub(chunk.region.start) {
            Some(offset) => offset + SPARSE_AHEAD,
            None => 0,
        };
        CREW.pages.want_up_to(ahead);
    }

    /// How to make a copy. A flush may come after it only where nobody can take the source away unseen.
    fn manner(&mut self, chunk: &Chunk, way: Way) -> Manner {
        let is_checkpoint = chunk.direction == Direction::Checkpoint;
        let may_be =
            is_checkpoint && self.told_of_all && (ALONE_BELOW..=STAGING_MAX).contains(&chunk.len);
        let late = self
            .kernel
            .rest
            .filter(|_| may_be && self.is_staging(chunk.other_side(), chunk.len));
        let (copy, flush) = match is_checkpoint {
            true => strategy::save(way.strategy, &self.kernel, late, self.sparse),
            false => (strategy::load(way.strategy, &self.kernel), None),
        };
        Manner {
            threads: self.threads.min(way.threads) as usize,
            part: strategy::longest_part(way.strategy, is_checkpoint && self.from_kept),
            copy,
            flush,
        }
    }

    #[inline(never)]
    fn is_staging(&mut self, start: usize, len: usize) -> bool {
        let is_shared = || maps::is_shared(start, len);
        self.staging.comes_round(start, len, is_shared)
    }

    /// Opens the phase that this copy belongs to, unless it is the one that goes on. A second copy to or from the buffer's
    /// start begins a phase anew: the driver may try a failed restore again.
    fn enter_phase(&mut self, chunk: &Chunk, config: &Config, now_ns: u64) {
        let at_start = chunk.offset() == 0;
        if !self.phase.is_open(chunk.direction) || (at_start && self.start_copied) {
            self.end_phase(End::Turned);
            self.open_phase(chunk, config, now_ns);
            self.start_copied = false;
        } else if self.phase.was_left() {
            // The crew left for want of copies, and here is one: the phase goes on with a new crew.
            CREW.begin(now_ns, First::Copy, Phase::end_word());
            CREW.copy_with(self.way.threads.saturating_sub(1));
        }
        if self.phase.copied() == 0 {
            self.retake_slots();
            if self.way.strategy == Strategy::Driver && self.makes(chunk) {
                self.choose_ways_after_all(config);
            }
        }
        self.start_copied |= at_start;
    }

    fn open_phase(&mut self, chunk: &Chunk, config: &Config, now_ns: u64) {
        self.look_around();
        let work = match chunk.direction {
            Direction::Restore => Work::Restore,
            _ => Work::Kept,
        };
        match self.makes(chunk) {
            true => self.choose_ways(work, true, config),
            false => self.leave_ways_to_driver(),
        }
        let pages = self.memory.map_or(PageKind::Driver, |memory| memory.pages);
        let len = chunk.region.len;
        self.begin_phase(First::Copy, chunk.direction, pages, len, now_ns);
    }
}
