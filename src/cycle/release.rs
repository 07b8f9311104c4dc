//! The driver lets its buffer go: it is freed, kept or reserved. Whatever else is done to it: [`super::disturb`].

use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{End, PageKind, Rest, Step};

use crate::buffer::{self, Memory};
use crate::config::Config;
use crate::crew::CREW;
use crate::record::{self, BufferState};
use crate::region::{self, Origin, Region};
use crate::{hollow, phase, report, sys};

use super::disturb::{changes_nothing, lose_while_busy, wait_for_flushes};
use super::{kept, memory, slots, Call, State};

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
pub fn unmap(addr: usize, len: usize, config: &Config, entry: usize) -> Fate {
    if changes_nothing(addr, len) {
        return Fate::Pass;
    }
    wait_for_flushes(addr, len);
    let Some(region) = region::overlapping(addr, len) else {
        return unmap_rest(addr, len, entry);
    };
    let whole = region.is_whole(addr, len);
    let pid = sys::getpid();
    if region.pid != pid {
        return unmap_in_child(&region, whole, len);
    }
    let call = Call::from(entry);
    let Some(mut state) = super::enter_soon(pid, &call) else {
        return unmap_while_busy(&region, addr, len);
    };
    if region::overlapping(addr, len) != Some(region) {
        // Forgotten by now: who used the state before has left it in the middle.
        state.forget_all_in(addr, len);
        return unmap_part(addr, len);
    }
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
    if !hollow::is_awaited(addr, len) {
        return Fate::Pass;
    }
    hollow::keep_for_helpers(addr, len);
    Fate::Done(Ok(0))
}

/// No buffer, but perhaps the rest of one that was given up in part.
fn unmap_rest(addr: usize, len: usize, entry: usize) -> Fate {
    let pid = sys::getpid();
    if !super::is_about(pid) {
        return Fate::Pass;
    }
    hollow::reclaim();
    // Some slots are held on for such calls alone, as long as a helper lives.
    if !region::any() && CREW.alive() == 0 {
        if let Some(_state) = super::enter(pid, &Call::from(entry)) {
            slots::free_unless_needed();
        }
    }
    unmap_part(addr, len)
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
    lose_while_busy(region);
    if !whole || region.origin == Origin::Driver {
        return unmap_part(addr, len);
    }
    Fate::Done(hollow::dispose(&memory_of(region)))
}

/// The same after a panic, when the state means nothing any more.
pub fn unmap_when_off(addr: usize, len: usize) -> Fate {
    wait_for_flushes(addr, len);
    match region::overlapping(addr, len) {
        Some(region) if region.pid == sys::getpid() => unmap_while_busy(&region, addr, len),
        _ => Fate::Pass,
    }
}

const fn memory_of(region: &Region) -> Memory {
    Memory::to_give_back(region.start, region.mapped, true)
}

/// The driver's own munmap of a watched buffer has returned.
pub fn unmapped_by_driver(region: &Region, began_ns: u64, config: &Config) {
    let call = Call::here();
    let Some(mut state) = super::enter(sys::getpid(), &call) else {
        region::remove(region.start);
        return;
    };
    state.leave(region);
    phase::unmapped(sys::now_ns().saturating_sub(began_ns));
    report::write(config, state.number);
}

/// Frees a kept or reserved buffer: the tool has asked for it, or the driver's own request is about to take its room.
pub fn drop_kept() {
    let pid = sys::getpid();
    let call = Call::here();
    let state = super::enter(pid, &call);
    match state {
        // The next mmap tries again.
        Some(state) if state.kept_cannot_be_looked_at() => {}
        Some(mut state) => {
            record::get().drop.store(0, Relaxed);
            let memory = state.take_kept();
            // Unmapping takes its time: the driver must not find the state in use meanwhile.
            drop(state);
            if let Some(memory) = memory {
                kept::dispose(&memory);
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
        let result = match (memory, config.buffer) {
            (Some(memory), Rest::Keep) => self.keep(memory, region.len, config.keep_max),
            (Some(memory), Rest::Reserve) => self.reserve(memory, region.len, config),
            (Some(memory), Rest::Fresh) => self.give_back(&memory, config),
            (None, _) => Ok(0),
        };
        phase::unmapped(sys::now_ns().saturating_sub(began_ns));
        report::write(config, self.number);
        result
    }

    fn kept_cannot_be_looked_at(&self) -> bool {
        let found = self.kept.as_ref().map(kept::look);
        found == Some(kept::Found::Unknown)
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
        if !buffer::trim(&memory, limit) {
            record::step(Step::NotKept);
            return hollow::dispose(&memory);
        }
        self.keep_in_place_of(memory);
        record::buffer(BufferState::Kept, memory.start, len, memory.mapped);
        Ok(0)
    }

    /// Gives all pages back and keeps the addresses, for `cudasnap reserve` to populate. Never with hugetlb pages: they might not be
    /// had again, and that is a SIGBUS.
    fn reserve(&mut self, mut memory: Memory, len: usize, config: &Config) -> sys::SysResult {
        self.free_if_large(&memory, config);
        if CREW.alive() > 0 || memory.pages == PageKind::Hugetlb {
            return hollow::dispose(&memory);
        }
        let wanted = memory::pages_for_thp(config.pages);
        // The advice now, since it is the tool that faults: prefault may have taken it back.
        let ready = buffer::hollow(memory.start, memory.mapped)
            && buffer::ask_for_pages(&mut memory, wanted, |_| {}).is_ok();
        if !ready {
            record::step(Step::NotKept);
            return hollow::dispose(&memory);
        }
        self.keep_in_place_of(memory);
        record::buffer(BufferState::Reserved, memory.start, len, memory.mapped);
        Ok(0)
    }

    /// Keeps it, and nothing else: what could not be looked at when it was wanted may still be there.
    fn keep_in_place_of(&mut self, memory: Memory) {
        self.drop_kept();
        kept::note(&memory);
        self.kept = Some(memory);
    }

    /// Takes a region out of all books.
    pub(super) fn leave(&mut self, region: &Region) {
        region::remove(region.start);
        if self.current == Some(*region) {
            self.current = None;
            self.memory = None;
            record::buffer(BufferState::None, 0, 0, 0);
        }
        slots::free_unless_needed();
    }
}
