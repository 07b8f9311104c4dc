//! Prefault by the crew: done at once, or waited for, where helpers may be in the middle of a unit.

use super::{Crew, HELPERS, LEAVE_NS};
use crate::sys;

impl Crew {
    /// Populates with the caller's own hands too, until every unit is done; for requests that must not be answered before. A
    /// helper that somebody stopped in the middle is not waited for.
    pub fn prefault_now(&self) {
        while self.prefault.step(false) {}
        let deadline = sys::now_ns().saturating_add(LEAVE_NS);
        while !self.prefault.is_done() && self.alive() > 0 && !sys::is_past(deadline) {
            sys::sched_yield();
        }
    }

    /// Whether a helper is in the middle of a unit of prefault. One that was ended there touches nothing any more.
    pub fn is_prefaulting(&self) -> bool {
        self.prefault.is_busy() && self.alive() > 0
    }

    /// Waits until no helper is in the middle of a unit of prefault: its addresses are about to become somebody else's. As long
    /// as it takes, if somebody has stopped such a helper; it could not be woken later without harm.
    pub fn wait_for_prefault(&self) {
        while self.prefault.is_busy() && (0..HELPERS).any(|helper| self.lives(helper)) {
            sys::sched_yield();
        }
    }

    /// Forgets the units that dead helpers were in the middle of, when no helper lives. Only for who has the phase in hand:
    /// nobody else may be at a unit.
    pub fn forget_units(&self) {
        if self.alive() == 0 {
            self.prefault.forget_threads();
        }
    }
}
