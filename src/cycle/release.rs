//! The driver lets its buffer go, or does something to it.

use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{End, PageKind, Step};

use crate::buffer::{self, Memory};
use crate::config::Config;
use crate::crew::CREW;
use crate::record::{self, BufferState};
use crate::region::{self, Origin, Region};
use crate::{hollow, phase, report, sys};

use super::{slots, State};

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
    let Some(mut state) = super::enter_soon(pid) else {
        return unmap_while_busy(&region, addr, len);
    };
    let alone = whole && len <= region.mapped;
    let fate = match (alone, region.origin) {
        (true, Origin::WithTail) => Fate::Done(state.release(&region, config)),
        (true, Origin::Driver) => {
            if state.current == Some(region) {
                state.end_phase(End::Unmapped);
            }
            Fate::PassAndTell(region)
        }
        (false, _) => {
            state.forget_all_in(addr, len);
            unmap_part(addr, len)
        }
    };
    hollow::reclaim();
    fate
}

/// A part of a buffer, or more than one: the driver's own call, unless a helper that somebody stopped is about to touch some of
/// it. Then only the pages go.
fn unmap_part(addr: usize, len: usize) -> Fate {
    if !CREW.is_prefaulting() {
        return Fate::Pass;
    }
    buffer::hollow(addr, len);
    hollow::keep_addresses(addr, len);
    Fate::Done(Ok(0))
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

/// Another thread has used the state for longer than a moment: it is in the middle of a copy of another buffer, or was
/// stopped. The address must not be taken for a buffer again, and no helper may be left on what goes away.
fn unmap_while_busy(region: &Region, addr: usize, len: usize) -> Fate {
    let whole = region.is_whole(addr, len);
    record::step(Step::Disturbed);
    region::remove(region.start);
    if CREW.alive() > 0 {
        CREW.dismiss();
    }
    if !whole || region.origin == Origin::Driver {
        return unmap_part(addr, len);
    }
    Fate::Done(hollow::dispose(&memory_of(region)))
}

/// The same after a panic, when the state means nothing any more.
pub fn unmap_when_off(addr: usize, len: usize) -> Fate {
    match region::overlapping(addr, len) {
        Some(region) if region.pid == sys::getpid() => unmap_while_busy(&region, addr, len),
        _ => Fate::Pass,
    }
}

const fn memory_of(region: &Region) -> Memory {
    Memory {
        start: region.start,
        mapped: region.mapped,
        pages: PageKind::Thp,
        tail: true,
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

/// A call that moves, replaces or protects a range, by libcuda or by anybody, is about to happen.
pub fn disturb(addr: usize, len: usize) {
    let pid = sys::getpid();
    let Some(region) = region::overlapping(addr, len).filter(|region| region.pid == pid) else {
        return;
    };
    match super::enter_soon(pid) {
        Some(mut state) => state.forget_all_in(addr, len),
        None => {
            record::step(Step::Disturbed);
            region::remove(region.start);
            if CREW.alive() > 0 {
                CREW.dismiss();
            }
        }
    }
    // What comes there next may not be writable: a helper in the middle of a unit must be through before.
    CREW.wait_for_prefault();
}

/// Frees a kept buffer: the tool has asked for it, or the driver's own request is about to take its room.
pub fn drop_kept() {
    let pid = sys::getpid();
    match super::enter(pid) {
        Some(mut state) => {
            record::get().drop.store(0, Relaxed);
            let kept = state.take_kept();
            // Unmapping takes its time: the driver must not find the state in use meanwhile.
            drop(state);
            if let Some(kept) = kept {
                let _ = hollow::dispose(&kept);
            }
            hollow::reclaim();
        }
        // A process without a request has nothing to drop, and its next mmap must not come here again.
        None if !super::is_about(pid) => record::get().drop.store(0, Relaxed),
        // Another thread uses the state: the next mmap tries again.
        None => {}
    }
}

impl State {
    /// The driver unmaps the whole of a buffer of ours, and nothing else.
    fn release(&mut self, region: &Region, config: &Config) -> sys::SysResult {
        let began_ns = sys::now_ns();
        if self.current != Some(*region) {
            // A buffer that a newer one has followed.
            self.leave(region);
            return hollow::dispose(&memory_of(region));
        }
        self.end_phase(End::Unmapped);
        let memory = self.memory;
        self.leave(region);
        let result = match memory {
            Some(memory) if config.keep => self.keep(memory, region.len, config.keep_max),
            Some(memory) => hollow::dispose(&memory),
            None => Ok(0),
        };
        phase::unmapped(sys::now_ns().saturating_sub(began_ns));
        report::write(config, self.number);
        result
    }

    fn keep(&mut self, memory: Memory, len: usize, keep_max: u64) -> sys::SysResult {
        let limit = if keep_max == 0 {
            len as u64
        } else {
            keep_max.min(len as u64)
        };
        // Hugetlb pages are kept whole or not at all.
        let whole_fits = keep_max == 0 || memory.mapped as u64 <= keep_max;
        if CREW.alive() > 0 || (memory.pages == PageKind::Hugetlb && !whole_fits) {
            return hollow::dispose(&memory);
        }
        buffer::trim(&memory, limit);
        self.kept = Some(memory);
        record::buffer(BufferState::Kept, memory.start, len, memory.mapped);
        Ok(0)
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
            slots::free();
        }
    }

    /// Forgets every buffer of which the range takes a byte.
    fn forget_all_in(&mut self, addr: usize, len: usize) {
        while let Some(region) = region::overlapping(addr, len) {
            self.forget(&region);
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
        let page_len = region.page_len();
        if region.origin == Origin::WithTail && region.mapped > page_len {
            let _ = hollow::dispose(&Memory {
                start: region.start + page_len,
                mapped: region.mapped - page_len,
                pages: PageKind::Thp,
                tail: false,
            });
        }
    }
}
