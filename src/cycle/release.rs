//! The driver lets its buffer go, or does something to it.

use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{End, PageKind, Step};

use crate::buffer::{self, Memory};
use crate::config::Config;
use crate::crew::CREW;
use crate::got::{self, Libcuda};
use crate::record::{self, BufferState};
use crate::region::{self, Origin, Region};
use crate::{phase, report, sys};

use super::State;

/// Puts libcuda's slots back.
pub fn free_slots() {
    got::release_all(record::slot);
}

/// What to do with a call of libcuda that takes addresses away.
pub enum Fate {
    /// It has been done; this is its result.
    Done(sys::SysResult),
    /// It is to be passed on.
    Pass,
    /// It is to be passed on, and [`unmapped_by_driver`] to be told.
    PassAndTell(Region),
}

/// libcuda unmaps a range.
pub fn unmap(addr: usize, len: usize, config: &Config) -> Fate {
    let Some(region) = region::overlapping(addr, len) else {
        return Fate::Pass;
    };
    let whole = region.is_whole(addr, len);
    let pid = sys::getpid();
    if region.pid != pid {
        return unmap_in_child(&region, whole, len);
    }
    let Some(mut state) = super::enter(pid) else {
        return unmap_while_busy(&region, whole, len);
    };
    match (whole, region.origin) {
        (true, Origin::WithTail) => Fate::Done(state.release(&region, len, config)),
        (true, Origin::Driver) => {
            if state.current == Some(region) {
                state.end_phase(End::Unmapped);
            }
            Fate::PassAndTell(region)
        }
        (false, _) => {
            state.forget(&region);
            Fate::Pass
        }
    }
}

/// In a child of fork the state is the parent's: only the addresses are right. The tail goes with the rest.
fn unmap_in_child(region: &Region, whole: bool, len: usize) -> Fate {
    if !whole {
        return Fate::Pass;
    }
    region::remove(region.start);
    if region.origin == Origin::Driver {
        return Fate::Pass;
    }
    // SAFETY: the driver gives the range up, the tail is ours, and no helper lives in this process.
    Fate::Done(unsafe { sys::munmap(region.start, region.mapped.max(len)) })
}

/// Another thread of the driver is in the middle of a copy. The address must not be taken for a buffer again, and no helper
/// may be left on what goes away.
fn unmap_while_busy(region: &Region, whole: bool, len: usize) -> Fate {
    record::step(Step::Disturbed);
    if CREW.alive() > 0 && CREW.dismiss() > 0 {
        region::remove(region.start);
        record::step(Step::HelperLate);
        buffer::hollow(region.start, region.page_len());
        return Fate::Done(Ok(0));
    }
    unmap_in_child(region, whole, len)
}

/// The same after a panic, when the state means nothing any more.
pub fn unmap_when_off(addr: usize, len: usize) -> Fate {
    match region::overlapping(addr, len) {
        Some(region) if region.pid == sys::getpid() => {
            unmap_while_busy(&region, region.is_whole(addr, len), len)
        }
        _ => Fate::Pass,
    }
}

/// The driver's own munmap of a watched buffer has returned.
pub fn unmapped_by_driver(region: &Region, began_ns: u64, config: &Config) {
    let Some(mut state) = super::enter(sys::getpid()) else {
        region::remove(region.start);
        return;
    };
    state.leave(region);
    phase::unmapped(sys::now_ns().saturating_sub(began_ns));
    report::write(config, state.number);
}

/// A call that moves or replaces a range, by libcuda or by anybody, is about to happen.
pub fn disturb(addr: usize, len: usize) {
    let Some(region) = region::overlapping(addr, len) else {
        return;
    };
    let pid = sys::getpid();
    if region.pid != pid {
        return;
    }
    match super::enter(pid) {
        Some(mut state) => state.forget(&region),
        None => region::remove(region.start),
    }
}

/// Looks whether a lazy resolution in another thread has overwritten a held slot. Called at the restore thread's own mmaps.
pub fn look_after_slots() {
    if got::intact() || !super::is_requester() {
        return;
    }
    let Some(state) = super::enter(sys::getpid()) else {
        return;
    };
    if let Some(libcuda) = Libcuda::at(state.libcuda) {
        (0..libcuda.retake()).for_each(|_| record::step(Step::SlotRetaken));
    }
}

/// Frees a kept buffer: the tool has asked for it, or the driver's own request is about to take its room.
pub fn drop_kept() {
    let pid = sys::getpid();
    match super::enter(pid) {
        Some(mut state) => {
            record::get().drop.store(0, Relaxed);
            state.reclaim();
            state.drop_kept();
        }
        // A process without a request has nothing to drop, and its next mmap must not come here again.
        None if !super::is_about(pid) => record::get().drop.store(0, Relaxed),
        // Another thread uses the state: the next mmap tries again.
        None => {}
    }
}

impl State {
    /// The driver unmaps the whole of a buffer of ours.
    fn release(&mut self, region: &Region, len: usize, config: &Config) -> sys::SysResult {
        let began_ns = sys::now_ns();
        if self.current != Some(*region) {
            return self.release_old(region);
        }
        self.end_phase(End::Unmapped);
        let memory = self.memory;
        self.leave(region);
        // A range longer than ours: the driver means its neighbour too.
        let behind = len.saturating_sub(region.mapped);
        if behind > 0 {
            // SAFETY: the driver's own range, beyond what is ours.
            let _ = unsafe { sys::munmap(region.start + region.mapped, behind) };
        }
        let result = match memory {
            Some(memory) if config.keep && behind == 0 => {
                self.keep(memory, region.len, config.keep_max);
                Ok(0)
            }
            Some(memory) => self.dispose(memory),
            None => Ok(0),
        };
        phase::unmapped(sys::now_ns().saturating_sub(began_ns));
        report::write(config, self.number);
        result
    }

    /// A buffer that a newer one has followed.
    fn release_old(&mut self, region: &Region) -> sys::SysResult {
        region::remove(region.start);
        if !region::any() {
            free_slots();
        }
        self.dispose(Memory {
            start: region.start,
            mapped: region.mapped,
            pages: PageKind::Thp,
            tail: true,
        })
    }

    fn keep(&mut self, memory: Memory, len: usize, keep_max: u64) {
        let limit = if keep_max == 0 {
            len as u64
        } else {
            keep_max.min(len as u64)
        };
        // Hugetlb pages are kept whole or not at all.
        let whole_fits = keep_max == 0 || memory.mapped as u64 <= keep_max;
        if CREW.alive() == 0 && (memory.pages != PageKind::Hugetlb || whole_fits) {
            buffer::trim(&memory, limit);
            self.kept = Some(memory);
            record::buffer(BufferState::Kept, memory.start, len, memory.mapped);
        } else {
            let _ = self.dispose(memory);
        }
    }

    /// Takes a region out of all books.
    fn leave(&mut self, region: &Region) {
        region::remove(region.start);
        if self.current == Some(*region) {
            self.current = None;
            self.memory = None;
            record::buffer(BufferState::None, 0, 0, 0);
        }
        if !region::any() {
            free_slots();
        }
    }

    /// Forgets a buffer to which the driver does something that we do not follow. Its tail goes now: what is left is what
    /// the driver asked for.
    fn forget(&mut self, region: &Region) {
        record::step(Step::Disturbed);
        if self.current == Some(*region) {
            self.end_phase(End::Disturbed);
        }
        self.leave(region);
        let tail = Memory {
            start: region.start + region.page_len(),
            mapped: region.mapped - region.page_len(),
            pages: PageKind::Thp,
            tail: false,
        };
        if region.origin == Origin::WithTail && tail.mapped > 0 {
            let _ = self.dispose(tail);
        }
    }
}
