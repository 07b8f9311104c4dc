//! The crew at units of pages, prefaulted or freed: finished at once, or waited for where somebody's addresses are at stake.

use super::{Crew, HELPERS, LEAVE_NS};
use crate::sys;

impl Crew {
    /// Works with the caller's own hands too, until every unit is done; for what must not be answered before. A
    /// helper that somebody stopped in the middle is not waited for.
    pub fn finish_units(&self) {
        while self.pages.step(false) {}
        let deadline = sys::now_ns().saturating_add(LEAVE_NS);
        while !self.pages.is_done() && self.alive() > 0 && !sys::is_past(deadline) {
            sys::sched_yield();
        }
    }

    /// Whether a helper is in the middle of a unit. One that was ended there touches nothing any more.
    pub fn is_at_a_unit(&self) -> bool {
        self.pages.is_busy() && self.alive() > 0
    }

    /// Waits until no helper is in the middle of a unit: its addresses are about to become somebody else's. As long
    /// as it takes, if somebody has stopped such a helper; it could not be woken later without harm.
    pub fn wait_for_units(&self) {
        while self.pages.is_busy() && (0..HELPERS).any(|helper| self.lives(helper)) {
            sys::sched_yield();
        }
    }

    /// Forgets the units that dead helpers were in the middle of, when no helper lives. Only for who has the phase in hand:
    /// nobody else may be at a unit.
    pub fn forget_units(&self) {
        if self.alive() == 0 {
            self.pages.forget_threads();
        }
    }
}
