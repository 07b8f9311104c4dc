//! Work on the pages of a range, unit by unit, with as many threads as come by: prefault ahead of the copies, freeing when the driver has let
//! the range go. Here a unit is handed out, once, and never again when the range is given up; what is done to it says `prefault` or `free`, and
//! `slow` whether that takes too long.

mod free;
mod prefault;
mod slow;

use crate::sync::{constructor, fence, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sys;

/// What is done to the pages of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum How {
    /// One atomic no-op per huge page. Where the kernel grants only a base page, the copies fault the rest.
    TouchHuge = 0,
    /// Base pages: one atomic no-op each as long as the driver still maps memory of its own, which population would hold up
    /// (measured: the first copy came 0.45 s late); from the first copy on by the kernel, a third cheaper.
    TouchSmall = 1,
    /// `MADV_POPULATE_WRITE` per huge page: the only safe way for hugetlb, whose touch can be a SIGBUS.
    Populate = 2,
    /// Not populated but given back: what the driver has let go.
    Free = 3,
    /// As [`How::TouchSmall`] where pages between base and huge may come too: slow ones are looked for.
    TouchMixed = 4,
}

/// The range, and how far it is. All words are shared by the threads of a crew.
pub struct Pages {
    start: AtomicUsize,
    end: AtomicUsize,
    how: AtomicU32,
    unit: AtomicUsize,
    units: AtomicUsize,
    next: AtomicUsize,
    done: AtomicUsize,
    active: AtomicU32,
    /// Most threads that do so while copies go on.
    limit: AtomicU32,
    /// Offset up to which copies have come.
    mark: AtomicUsize,
    /// Units that begin at this offset or behind it are not begun yet.
    wanted: AtomicUsize,
    bytes: AtomicU64,
    finished_ns: AtomicU64,
    /// Errno of the last refused population; 0 = none.
    refused: AtomicU32,
    slow: slow::Slow,
    /// Bytes from `start` on that get the advice together: the whole mapping, so that it stays one.
    advised: AtomicUsize,
}

impl Default for Pages {
    fn default() -> Self {
        Self::new()
    }
}

impl Pages {
    constructor! {
        /// Nothing to do.
        pub fn new() -> Self {
            Pages {
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                how: AtomicU32::new(0),
                unit: AtomicUsize::new(prefault::UNIT),
                units: AtomicUsize::new(0),
                next: AtomicUsize::new(0),
                done: AtomicUsize::new(0),
                active: AtomicU32::new(0),
                limit: AtomicU32::new(0),
                mark: AtomicUsize::new(0),
                wanted: AtomicUsize::new(usize::MAX),
                bytes: AtomicU64::new(0),
                finished_ns: AtomicU64::new(0),
                refused: AtomicU32::new(0),
                slow: slow::Slow::new(),
                advised: AtomicUsize::new(0),
            }
        }
    }

    /// Sets a new range: the first `len` bytes of a mapping of `mapped`. No helper may live; `limit` threads at most do a
    /// unit while copies go on.
    pub fn arm(&self, start: usize, len: usize, mapped: usize, how: How, limit: u32) {
        let unit = match how {
            How::Free => free::UNIT,
            _ => prefault::UNIT,
        };
        self.units.store(0, Ordering::Relaxed);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(start + len, Ordering::Relaxed);
        self.how.store(how as u32, Ordering::Relaxed);
        self.unit.store(unit, Ordering::Relaxed);
        for word in [&self.next, &self.done, &self.mark] {
            word.store(0, Ordering::Relaxed);
        }
        self.wanted.store(usize::MAX, Ordering::Relaxed);
        // Not `active`: each thread takes itself out of it.
        self.refused.store(0, Ordering::Relaxed);
        self.slow.reset();
        self.advised.store(mapped, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.finished_ns.store(0, Ordering::Relaxed);
        self.units.store(len.div_ceil(unit), Ordering::Release);
    }

    /// Sets the range to nothing, and the account too. A range that was given up and is then found idle is touched no more.
    pub fn disarm(&self) {
        self.units.store(0, Ordering::Release);
        // Before any look at `active`: see `step`.
        fence(Ordering::SeqCst);
        self.refused.store(0, Ordering::Relaxed);
        self.slow.reset();
        self.bytes.store(0, Ordering::Relaxed);
        self.finished_ns.store(0, Ordering::Relaxed);
    }

    /// Forgets threads that were in the middle of a unit and are no more: dead, left behind by a process checkpointer, or not
    /// brought along by fork.
    pub fn forget_threads(&self) {
        self.active.store(0, Ordering::Relaxed);
    }

    /// Tells that copies have come up to `offset`: what lies before needs no touch.
    pub fn copied_up_to(&self, offset: usize) {
        self.mark.fetch_max(offset, Ordering::Relaxed);
    }

    /// Begins no unit from this offset on, after [`Pages::arm`] or to move the bound on.
    pub fn want_up_to(&self, offset: usize) {
        self.wanted.store(offset, Ordering::Relaxed);
    }

    /// Whether every unit was taken and finished.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) >= self.units.load(Ordering::Relaxed)
    }

    /// Whether some thread has begun a unit and not finished it: one that lives is in the middle of it. None begins another when
    /// the range is nothing.
    pub fn is_busy(&self) -> bool {
        self.active.load(Ordering::Acquire) != 0
    }

    /// Whether a range takes a byte of the one that was set last.
    pub fn touches(&self, addr: usize, len: usize) -> bool {
        addr < self.end.load(Ordering::Relaxed)
            && self.start.load(Ordering::Relaxed) < addr.saturating_add(len)
    }

    /// As if a thread were in the middle of a unit.
    #[cfg(test)]
    pub fn pretend_busy(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of units that were done: not those that copies had come to before.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// When the last unit was finished; 0 = not yet.
    pub fn finished_ns(&self) -> u64 {
        self.finished_ns.load(Ordering::Relaxed)
    }

    /// Does the next unit; false when there is none, or enough threads do so already while `copying`.
    pub fn step(&self, copying: bool) -> bool {
        let units = self.units.load(Ordering::Acquire);
        let next = self.next.load(Ordering::Relaxed);
        if next >= units || self.is_too_far(next) {
            return false;
        }
        let limit = if copying {
            self.limit.load(Ordering::Relaxed)
        } else {
            u32::MAX
        };
        // Looked at before it is changed: threads that may not prefault should not fight over the word.
        if self.active.load(Ordering::Relaxed) >= limit {
            return false;
        }
        let allowed = self.active.fetch_add(1, Ordering::Relaxed) < limit;
        // Looked at once more, now that others can see us: between the first look and here this thread may have been stopped,
        // the range given up, found idle and made somebody else's.
        fence(Ordering::SeqCst);
        let still = self.units.load(Ordering::Acquire) == units;
        let did = allowed && still && self.do_next(units);
        self.active.fetch_sub(1, Ordering::Release);
        did
    }

    /// A thread more or less may begin one that was asked about before: a hint.
    fn is_too_far(&self, index: usize) -> bool {
        let wanted = self.wanted.load(Ordering::Relaxed);
        index.saturating_mul(self.unit.load(Ordering::Relaxed)) >= wanted
    }

    fn do_next(&self, units: usize) -> bool {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index >= units {
            return false;
        }
        let unit = self.unit.load(Ordering::Relaxed);
        let from = self.start.load(Ordering::Relaxed) + index * unit;
        let to = (from + unit).min(self.end.load(Ordering::Relaxed));
        if (index + 1) * unit > self.mark.load(Ordering::Relaxed) && from < to {
            self.do_unit(from, to);
            self.bytes.fetch_add((to - from) as u64, Ordering::Relaxed);
        }
        if self.done.fetch_add(1, Ordering::AcqRel) + 1 == units {
            self.finished_ns.store(sys::now_ns(), Ordering::Relaxed);
        }
        true
    }
    fn do_unit(&self, from: usize, to: usize) {
        match self.how.load(Ordering::Relaxed) {
            how if how == How::Populate as u32 => self.populate_checked(from, to),
            how if how == How::TouchSmall as u32 => self.populate_small(from, to),
            how if how == How::TouchMixed as u32 => self.populate_mixed(from, to),
            how if how == How::Free as u32 => free::free(from, to),
            _ => self.touch_huge(from, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub const PAGE: usize = 4096;

    /// New memory.
    pub fn mapping(len: usize) -> usize {
        // SAFETY: a new mapping anywhere.
        unsafe { sys::mmap(0, len, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }.unwrap()
    }

    /// Bytes of a mapping that have pages.
    pub fn resident(start: usize, len: usize) -> usize {
        let mut vector = vec![0u8; len / PAGE];
        // SAFETY: the vector has a byte per page of the mapping.
        let status = unsafe { libc::mincore(start as *mut _, len, vector.as_mut_ptr()) };
        assert_eq!(status, 0);
        vector.iter().filter(|&&page| page & 1 != 0).count() * PAGE
    }

    #[test]
    fn nothing_is_begun_beyond_what_is_wanted() {
        let len = 10 * prefault::UNIT;
        let start = mapping(len);
        let pages = Pages::new();
        pages.arm(start, len, len, How::Populate, 1);
        pages.want_up_to(3 * prefault::UNIT);
        while pages.step(false) {}
        assert_eq!(resident(start, len), 3 * prefault::UNIT);
        assert!(!pages.is_done());
        // Copies have come further: what they have passed is not populated any more.
        pages.copied_up_to(6 * prefault::UNIT);
        pages.want_up_to(7 * prefault::UNIT);
        while pages.step(false) {}
        assert_eq!(resident(start, len), 4 * prefault::UNIT);
        pages.arm(start, len, len, How::Populate, 1);
        while pages.step(false) {}
        assert_eq!(resident(start, len), len);
        // SAFETY: nothing uses it any more.
        unsafe { sys::munmap(start, len) }.unwrap();
    }

    #[test]
    fn copies_come_first_beyond_the_limit() {
        let pages = Pages::new();
        pages.arm(1 << 12, 4096, 4096, How::Populate, 0);
        assert!(!pages.step(true));
        assert!(pages.step(false));
    }
}
