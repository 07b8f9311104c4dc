//! Somebody does something to a range besides the munmap of a buffer ([`super::release`]): moves it, maps over it, protects it, gives advice.
//! Late flushes of it are waited for; what was a buffer there is none any more.

use cudasnap_wire::{End, Step};

use crate::buffer::Memory;
use crate::crew::CREW;
use crate::record;
use crate::region::{self, Origin, Region};
use crate::{hollow, sys};

use super::{kept, staging, Call, State};

/// Whether the kernel refuses any such call on this range, or it covers nothing.
pub(super) fn changes_nothing(addr: usize, len: usize) -> bool {
    len == 0 || !addr.is_multiple_of(sys::page_size())
}

/// What is about to go away may be a staging buffer whose lines a helper still flushes. In a child of fork there is no helper.
pub fn wait_for_flushes(addr: usize, len: usize) {
    staging::changes();
    if CREW.is_flushing(addr, len) && super::is_about(sys::getpid()) {
        CREW.wait_for_flushes(addr, len);
    }
}

/// Whether something of ours lies in a range besides the buffers that the driver holds.
pub fn holds(addr: usize, len: usize) -> bool {
    kept::overlaps(addr, len) || hollow::is_awaited(addr, len) || CREW.is_flushing(addr, len)
}

/// libcuda gives advice about a range. Pages that go are waited for even where the next touch brings new ones: of the pool of 2 MiB
/// pages there may be none left, which is a SIGBUS.
pub fn advise(addr: usize, len: usize, advice: i32) {
    if takes_access(advice) {
        disturb(addr, len);
    } else if matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE) {
        wait_for_flushes(addr, len);
    }
}

/// Whether advice may make a touch of the range a signal. What is not known may.
const fn takes_access(advice: i32) -> bool {
    use libc::*;
    !matches!(
        advice,
        MADV_NORMAL..=MADV_DONTNEED
            | MADV_FREE
            | MADV_DONTFORK..=MADV_NOHUGEPAGE
            | MADV_DONTDUMP..=MADV_KEEPONFORK
            | MADV_COLD..=MADV_POPULATE_WRITE
    )
}

/// A call that moves, replaces or protects a range, by libcuda or by anybody, is about to happen.
pub fn disturb(addr: usize, len: usize) {
    let pid = sys::getpid();
    if changes_nothing(addr, len) || !super::is_about(pid) {
        return;
    }
    wait_for_flushes(addr, len);
    let call = Call::here();
    if kept::overlaps(addr, len) {
        if let Some(mut state) = super::enter_soon(pid, &call) {
            state.drop_kept();
        }
        // Where another thread uses the state it is only known to be spoiled.
        kept::forget();
    }
    let region = region::overlapping(addr, len).filter(|region| region.pid == pid);
    if region.is_none() && !hollow::is_awaited(addr, len) {
        return;
    }
    if let Some(region) = region {
        match super::enter_soon(pid, &call) {
            Some(mut state) => state.forget_all_in(addr, len),
            None => lose_while_busy(&region),
        }
    }
    // What comes there next may not be writable: a helper in the middle of a unit must be through before.
    CREW.wait_for_units();
    hollow::wait_for(addr, len);
}

/// The same after a panic, when the state means nothing any more. Apart from the exported functions, whose stack it would make deeper.
#[inline(never)]
pub fn disturb_when_off(addr: usize, len: usize) {
    wait_for_flushes(addr, len);
    let pid = sys::getpid();
    if changes_nothing(addr, len) || !super::is_about(pid) {
        return;
    }
    if kept::overlaps(addr, len) {
        kept::forget();
    }
    let mut waits = hollow::is_awaited(addr, len);
    while let Some(region) = region::overlapping(addr, len).filter(|region| region.pid == pid) {
        lose_while_busy(&region);
        waits = true;
    }
    if !waits {
        return;
    }
    CREW.wait_for_units();
    hollow::wait_for(addr, len);
}

/// The kernel has just given a range to somebody. A buffer of which it takes a byte has been unmapped behind our back, and its
/// tail may be somebody else's too.
pub fn given_anew(addr: usize, len: usize) {
    let pid = sys::getpid();
    let call = Call::here();
    while let Some(region) = region::overlapping(addr, len).filter(|region| region.pid == pid) {
        match super::enter_soon(pid, &call) {
            Some(mut state) => state.lose(&region),
            None => lose_while_busy(&region),
        }
    }
}

/// Another thread uses the state: the buffer is a buffer no longer all the same.
pub(super) fn lose_while_busy(region: &Region) {
    record::step(Step::Disturbed);
    region::remove(region.start);
    if CREW.alive() > 0 {
        CREW.dismiss();
    }
    // No helper begins anything on the range any more, whoever has the state.
    if CREW.pages.touches(region.start, region.mapped) {
        CREW.pages.disarm();
    }
}

impl State {
    /// Forgets every buffer of which the range takes a byte.
    pub(super) fn forget_all_in(&mut self, addr: usize, len: usize) {
        while let Some(region) = region::overlapping(addr, len) {
            self.forget(&region);
        }
    }

    /// No copy is made into the current buffer any more; it stays one until the driver unmaps it.
    pub(super) fn let_go_of(&mut self) {
        record::step(Step::Disturbed);
        self.end_phase(End::Disturbed);
        self.current = None;
        self.memory = None;
        record::buffer(record::BufferState::None, 0, 0, 0);
    }

    /// Forgets a buffer that is one no longer, without a touch.
    fn lose(&mut self, region: &Region) {
        record::step(Step::Disturbed);
        if self.current == Some(*region) {
            self.end_phase(End::Disturbed);
        }
        self.leave(region);
    }

    /// Forgets a buffer to which the driver does something that we do not follow. Its tail goes now: what is left is what
    /// the driver asked for.
    pub(super) fn forget(&mut self, region: &Region) {
        self.lose(region);
        let page_len = region.page_len();
        if region.origin == Origin::WithTail && region.mapped > page_len {
            let (start, mapped) = (region.start + page_len, region.mapped - page_len);
            let _ = hollow::dispose(&Memory::to_give_back(start, mapped, false));
        }
    }
}
