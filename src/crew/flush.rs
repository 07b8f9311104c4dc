//! Flushes of the source that outlive their copies. A helper reports its part as done, the caller returns to the driver, and the
//! lines are flushed while the GPU still fills the other staging buffer: that hides the flush (H200 host, 24 GiB, buffer kept: 51 us
//! for a chunk with the flush inside, 25 without). A flush of a page that is gone is a SIGSEGV, so whoever is about to take pages away
//! from such a source waits here first.

use super::{Crew, HELPERS};
use crate::board::{Claim, Unflushed, CALLER};
use crate::sync::{constructor, spin_loop, words, AtomicU32, AtomicUsize, Ordering};
use crate::sys;

/// Sources that one helper can put off; a job has 64 parts for usually more than a dozen threads.
pub(super) const PUT_OFF: usize = 8;

/// Looks before a waiting caller offers its CPU: a flush of all that one helper may have put off takes some 50 us.
const LOOKS: u32 = 4096;

/// Whole pages: who takes a byte of one away takes all of it.
const PAGE: usize = 4096;

/// Who is at it, and where.
pub(super) struct Flushes {
    /// A bit per helper that has put some off.
    pub(super) by: AtomicU32,
    /// Where, for each of these.
    places: [Place; HELPERS],
}

/// The pages that hold all that one helper has put off: parts of one job.
struct Place {
    from: AtomicUsize,
    to: AtomicUsize,
}

const _: () = assert!(HELPERS < 32);

impl Place {
    fn touches(&self, addr: usize, len: usize) -> bool {
        addr < self.to.load(Ordering::Relaxed)
            && self.from.load(Ordering::Relaxed) < addr.saturating_add(len)
    }
}

impl Flushes {
    constructor! {
        /// None.
        pub fn new() -> Self {
            Flushes {
                by: AtomicU32::new(0),
                places: words![
                    Place {
                        from: AtomicUsize::new(0),
                        to: AtomicUsize::new(0),
                    };
                    HELPERS
                ],
            }
        }
    }

    /// A helper has put off what lies in this range, and nothing else.
    pub fn announce(&self, helper: usize, (from, to): (usize, usize)) {
        if let Some(place) = self.places.get(helper) {
            place.from.store(from / PAGE * PAGE, Ordering::Relaxed);
            place.to.store(to.next_multiple_of(PAGE), Ordering::Relaxed);
        }
        self.by.fetch_or(1 << helper, Ordering::AcqRel);
    }

    /// A helper is not, or no longer, at it.
    pub fn clear(&self, helper: usize) {
        self.by.fetch_and(!(1 << helper), Ordering::AcqRel);
    }

    /// Forgets helpers that fork did not bring along.
    pub fn forget(&self) {
        self.by.store(0, Ordering::Relaxed);
    }

    /// Whether a range takes a byte of what some helper may still flush.
    fn touches(&self, addr: usize, len: usize) -> bool {
        let by = self.by.load(Ordering::Acquire);
        let at_it =
            |(helper, place): (usize, &Place)| by & 1 << helper != 0 && place.touches(addr, len);
        by != 0 && self.places.iter().enumerate().any(at_it)
    }
}

/// What one thread has put off.
pub(super) struct PutOff {
    rests: [Option<Unflushed>; PUT_OFF],
    count: usize,
    /// The first address of it all, and the one after the last.
    range: (usize, usize),
}

impl PutOff {
    pub const fn new() -> Self {
        PutOff {
            rests: [None; PUT_OFF],
            count: 0,
            range: (usize::MAX, 0),
        }
    }

    /// False when there is no more room.
    fn push(&mut self, rest: Unflushed) -> bool {
        let Some(place) = self.rests.get_mut(self.count) else {
            return false;
        };
        let (from, to) = rest.range();
        *place = Some(rest);
        self.count += 1;
        self.range = (self.range.0.min(from), self.range.1.max(to));
        true
    }
}

impl Crew {
    /// Flushes a part's source, or puts that off. Before the part is reported: who sees it done must see that somebody is at it.
    ///
    /// # Safety
    /// The claimed ranges are valid.
    pub(super) unsafe fn flush_or_put_off(&self, claim: &Claim, mark: u8, put_off: &mut PutOff) {
        let Some(rest) = claim.rest() else {
            return;
        };
        // The caller returns to the driver when it is through.
        if mark != CALLER && put_off.push(rest) {
            self.flushes.announce(usize::from(mark) - 1, put_off.range);
            return;
        }
        // SAFETY: promised by the caller.
        unsafe { rest.flush() };
    }

    /// Does what was put off.
    ///
    /// # Safety
    /// `put_off` is what [`Crew::flush_or_put_off`] was given for this mark since the last call.
    pub(super) unsafe fn flush_put_off(&self, mark: u8, put_off: &PutOff) {
        if put_off.count == 0 {
            return;
        }
        for rest in put_off.rests.iter().flatten() {
            // SAFETY: the source is mapped: who takes it away waits for this helper's bit.
            unsafe { rest.flush() };
        }
        self.flushes.clear(usize::from(mark) - 1);
    }

    /// Whether somebody who takes a range away has to wait.
    pub fn is_flushing(&self, addr: usize, len: usize) -> bool {
        self.flushes.touches(addr, len)
    }

    /// Waits until no helper will flush a line of a range that is about to go away: some microseconds, or as long as somebody keeps
    /// such a helper stopped.
    pub fn wait_for_flushes(&self, addr: usize, len: usize) {
        let mut looks = 0;
        while self.flushes.touches(addr, len) {
            looks += 1;
            if looks < LOOKS {
                spin_loop();
                continue;
            }
            let by = self.flushes.by.load(Ordering::Acquire);
            let at_it = (0..HELPERS).filter(|helper| by & 1 << helper != 0);
            for helper in at_it.filter(|&helper| !self.lives(helper)) {
                self.flushes.clear(helper);
            }
            sys::sched_yield();
        }
    }
}
