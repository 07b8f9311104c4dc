//! The driver copies.

use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{Direction, End, Mode, PageKind, Step};

use crate::copy::plan::{ALONE_BELOW, PART, SHORT_PART};
use crate::cpus::{self, Use};
use crate::crew::{First, Manner, CREW};
use crate::phase::{Opening, Phase};
use crate::region::{self, Origin, Region};
use crate::{config::Config, maps, record, sys};

use super::{Call, State};

/// Longest copy that can be a staging buffer's; the driver's have 2 MiB. More would not be put off whole.
const STAGING_MAX: usize = 8 << 20;

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
        let ours =
            self.mode == Mode::On && chunk.region.origin == Origin::WithTail && !self.foreign;
        if ours {
            // SAFETY: promised by the caller; `Chunk::find` has seen that the ranges do not overlap.
            unsafe { self.copy_with_crew(chunk) };
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

    /// # Safety
    /// The chunk's ranges are valid and do not overlap.
    unsafe fn copy_with_crew(&mut self, chunk: &Chunk) {
        if chunk.len >= ALONE_BELOW {
            self.recruit();
        }
        let alone = self.faults.are_possible(chunk.other_side(), chunk.len);
        let mut manner = self.manner(chunk);
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
            CREW.prefault.copied_up_to(chunk.offset() + chunk.len);
        }
    }

    /// How to make a copy. Of a checkpoint no line of the source stays in a cache, or the GPU's next write there would wait for it;
    /// the flush may come after the copy only where nobody can take the source away unseen.
    fn manner(&mut self, chunk: &Chunk) -> Manner {
        let threads = self.threads as usize;
        if chunk.direction != Direction::Checkpoint {
            return Manner {
                threads,
                part: PART,
                copy: self.kernel.keep,
                flush: None,
            };
        }
        let may_be = self.told_of_all && chunk.len <= STAGING_MAX && chunk.len >= ALONE_BELOW;
        let later = self
            .kernel
            .rest
            .filter(|_| may_be && self.is_staging(chunk.other_side(), chunk.len));
        Manner {
            threads,
            part: if self.from_kept { SHORT_PART } else { PART },
            copy: match later {
                Some(_) => self.kernel.keep,
                None => self.kernel.flush,
            },
            flush: later,
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
        }
        if self.phase.copied() == 0 {
            self.retake_slots();
        }
        self.start_copied |= at_start;
    }

    fn open_phase(&mut self, chunk: &Chunk, config: &Config, now_ns: u64) {
        self.look_around();
        let cap = record::get().thread_cap.load(Relaxed);
        let ours =
            self.mode == Mode::On && chunk.region.origin == Origin::WithTail && !self.foreign;
        self.threads = if ours {
            cpus::threads(config.threads, cap, Use::Ready)
        } else {
            1
        };
        CREW.begin(now_ns, First::Copy, Phase::end_word());
        self.phase.open(&Opening {
            direction: chunk.direction,
            mode: self.mode,
            pages: self.memory.map_or(PageKind::Driver, |memory| memory.pages),
            threads: self.threads,
            buffer: self.number,
            kept: self.from_kept,
            expected: chunk.region.len,
            started_ns: now_ns,
        });
    }
}
