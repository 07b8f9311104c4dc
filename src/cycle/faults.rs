//! Memory of the driver that may fault, in a program that handles such signals: a collector's write barrier, a region that is
//! filled when it is touched. A helper blocks every signal, so its fault is the program's death; the caller's goes to the
//! handler, as without us. In such a program the caller copies alone what lies where no copy of this phase has been yet. The
//! driver's staging buffers come round all the time: that is two chunks, and the few of host memory.

use crate::sys;

/// Places that are remembered; a device has two staging buffers.
const PLACES: usize = 8;

/// The driver's side of the copies of one phase.
pub(super) struct Faults {
    /// The program has a handler for faults.
    handled: bool,
    /// Where copies have been: first address and the one after the last.
    places: [(usize, usize); PLACES],
    next: usize,
}

impl Faults {
    /// Nothing is known to be touched, and no handler.
    pub const fn new() -> Self {
        Faults {
            handled: false,
            places: [(0, 0); PLACES],
            next: 0,
        }
    }

    /// How it is at the beginning of a phase.
    pub fn look() -> Self {
        Faults {
            handled: sys::is_handled(libc::SIGSEGV) || sys::is_handled(libc::SIGBUS),
            ..Faults::new()
        }
    }

    /// Whether only the caller may touch this range.
    pub fn are_possible(&self, start: usize, len: usize) -> bool {
        let within =
            |&(from, to): &(usize, usize)| from <= start && start.saturating_add(len) <= to;
        self.handled && !self.places.iter().any(within)
    }

    /// The caller has copied to or from all of a range.
    pub fn none_in(&mut self, start: usize, len: usize) {
        if let Some(place) = self.places.get_mut(self.next % PLACES) {
            *place = (start, start.saturating_add(len));
        }
        self.next = self.next.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_trusted_once_the_caller_has_been_everywhere_in_it() {
        let mut faults = Faults::new();
        assert!(!faults.are_possible(4096, 4096));
        faults.handled = true;
        assert!(faults.are_possible(4096, 4096));
        faults.none_in(4096, 4096);
        assert!(!faults.are_possible(4096, 4096) && !faults.are_possible(5000, 10));
        assert!(faults.are_possible(4095, 2) && faults.are_possible(8191, 2));
        for place in 2..2 + PLACES {
            faults.none_in(place << 20, 4096);
        }
        assert!(faults.are_possible(4096, 4096));
        assert!(faults.are_possible(usize::MAX - 1, 4096));
    }
}
