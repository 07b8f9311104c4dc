//! libcuda's slots through the life of a buffer: taken with the request, looked after, put back with the last buffer.

use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{Slot, SlotState, Step};

use crate::crew::CREW;
use crate::got::{self, Libcuda, LIBCUDA};
use crate::{hooks, own, record, region, startup, sys};

use super::{Call, State};

/// Which of libcuda's slots are ours now.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    /// Copies come to us.
    pub copies: bool,
    /// So do the calls that end a buffer.
    pub unmaps: bool,
    /// So does every call of libcuda that may take pages away, its own maps among them, with which it replaces what lies at an
    /// address.
    pub all: bool,
}

/// Takes libcuda's slots. Copies are ours only when the end of the buffer will be told to us too.
pub(super) fn hold(libcuda: &Libcuda) -> Slots {
    let record = record::get();
    record.slots.libcuda.store(libcuda.base() as u64, Relaxed);
    let take = |slot: Slot| {
        let state = libcuda.hold(slot, hooks::replacement(slot));
        record::slot(slot, state);
        log::debug!("{LIBCUDA}: slot {} {}", slot.word(), state.word());
        state
    };
    let unmaps = take(Slot::Munmap) == SlotState::Held;
    let moves = matches!(take(Slot::Mremap), SlotState::Held | SlotState::Missing);
    let unmaps = unmaps && moves;
    // A page that helpers may no longer write would be a signal to them. Not all drivers import these.
    let access = [take(Slot::Mprotect), take(Slot::Madvise)]
        .iter()
        .all(|state| matches!(state, SlotState::Held | SlotState::Missing));
    let copies = unmaps && {
        let memcpy = take(Slot::Memcpy);
        let memmove = take(Slot::Memmove);
        memcpy == SlotState::Held || memmove == SlotState::Held
    };
    Slots {
        copies,
        unmaps,
        all: unmaps && access && maps_come(libcuda),
    }
}

/// Whether libcuda's calls of `mmap` reach the exported functions first: no other preload in front of us, no binding of its own.
fn maps_come(libcuda: &Libcuda) -> bool {
    startup::get().is_some_and(|started| {
        let ours = own::memory();
        libcuda.leads_to(Slot::Mmap, &ours, started.first_mmap)
            && libcuda.leads_to(Slot::Mmap64, &ours, started.first_mmap64)
    })
}

/// Puts libcuda's slots back, unless there is a buffer. While a helper lives that somebody stopped, those stay through which
/// libcuda could take away what it is about to touch.
pub(super) fn free_unless_needed() {
    if region::any() {
        return;
    }
    let late = CREW.alive() > 0;
    let stays = |slot| late && !matches!(slot, Slot::Memcpy | Slot::Memmove);
    got::release_all(stays, record::slot);
}

/// Looks whether a lazy resolution in another thread has overwritten a held slot. Called at the restore thread's own mmaps;
/// that they come at all shows that libcuda is still loaded.
pub fn look_after() {
    if !super::is_requester() || got::intact() {
        return;
    }
    let call = Call::here();
    if let Some(mut state) = super::enter(sys::getpid(), &call) {
        state.retake_slots();
    };
}

impl State {
    /// Takes slots again that the loader overwrote. Where somebody else's function stays in one, not all is told to us any more.
    pub(super) fn retake_slots(&mut self) {
        if got::intact() {
            return;
        }
        let libcuda = Libcuda::at(self.libcuda);
        if let Some(libcuda) = &libcuda {
            (0..libcuda.retake()).for_each(|_| record::step(Step::SlotRetaken));
        }
        // Without a libcuda there is nothing that could be told.
        self.told_of_all &= libcuda.is_some_and(|libcuda| libcuda.holds_all());
    }
}
