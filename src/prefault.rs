//! Populates a range ahead of the copies, unit by unit, with as many threads as come by. It never stores a value, so a
//! copy need not wait for it and a thread that comes late spoils nothing.

use crate::sync::{constructor, fence, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sys;

const HUGE: usize = 2 << 20;
const SMALL: usize = 4096;
/// Base pages come in units of what one page table maps: threads that fault in the same one fight over its lock (H200 host, 24 GiB,
/// 15 helpers: 6 GB/s with units of 64 KiB, 11 with 256 KiB, 18 with 2 MiB).
const SMALL_UNIT: usize = 2 << 20;
/// In steps of this the kernel populates base pages: some 100 us for which it holds what the driver's own `mmap` would wait for.
const SMALL_STEP: usize = 256 << 10;
/// What is freed at a time.
const FREE_UNIT: usize = 64 << 20;
/// A huge page that takes this much CPU time was compacted for (a plain one takes 0.1 to 0.3 ms).
const SLOW_CPU_NS: u64 = 10_000_000;
/// Or this much wall time, which may also be a busy machine: in a storm of forks on two CPUs 20 ms are common.
const SLOW_NS: u64 = 250_000_000;
/// So many slow ones and the advice is taken back.
const SLOW_MAX: u32 = 8;

/// How a range is populated.
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
}

/// The range, and how far it is. All words are shared by the threads of a crew.
pub struct Prefault {
    start: AtomicUsize,
    end: AtomicUsize,
    how: AtomicU32,
    unit: AtomicUsize,
    units: AtomicUsize,
    next: AtomicUsize,
    done: AtomicUsize,
    active: AtomicU32,
    /// Most threads that prefault while copies go on.
    limit: AtomicU32,
    /// Offset up to which copies have come.
    mark: AtomicUsize,
    bytes: AtomicU64,
    finished_ns: AtomicU64,
    /// Errno of the last refused population; 0 = none.
    refused: AtomicU32,
    slow: AtomicU32,
    /// Bytes from `start` on that get the advice together: the whole mapping, so that it stays one.
    advised: AtomicUsize,
}

impl Default for Prefault {
    fn default() -> Self {
        Self::new()
    }
}

impl Prefault {
    constructor! {
        /// Nothing to do.
        pub fn new() -> Self {
            Prefault {
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                how: AtomicU32::new(0),
                unit: AtomicUsize::new(HUGE),
                units: AtomicUsize::new(0),
                next: AtomicUsize::new(0),
                done: AtomicUsize::new(0),
                active: AtomicU32::new(0),
                limit: AtomicU32::new(0),
                mark: AtomicUsize::new(0),
                bytes: AtomicU64::new(0),
                finished_ns: AtomicU64::new(0),
                refused: AtomicU32::new(0),
                slow: AtomicU32::new(0),
                advised: AtomicUsize::new(0),
            }
        }
    }

    /// Sets a new range: the first `len` bytes of a mapping of `mapped`. No helper may live; `limit` threads at most prefault
    /// while copies go on.
    pub fn arm(&self, start: usize, len: usize, mapped: usize, how: How, limit: u32) {
        let unit = match how {
            How::TouchSmall => SMALL_UNIT,
            How::Free => FREE_UNIT,
            _ => HUGE,
        };
        self.units.store(0, Ordering::Relaxed);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(start + len, Ordering::Relaxed);
        self.how.store(how as u32, Ordering::Relaxed);
        self.unit.store(unit, Ordering::Relaxed);
        for word in [&self.next, &self.done, &self.mark] {
            word.store(0, Ordering::Relaxed);
        }
        // Not `active`: each thread takes itself out of it.
        self.refused.store(0, Ordering::Relaxed);
        self.slow.store(0, Ordering::Relaxed);
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
        self.slow.store(0, Ordering::Relaxed);
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

    /// Whether every unit was taken and finished.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) >= self.units.load(Ordering::Relaxed)
    }

    /// Why some unit could not be populated ([`How::Populate`] only).
    pub fn refusal(&self) -> Option<i32> {
        match self.refused.load(Ordering::Acquire) {
            0 => None,
            errno => Some(errno as i32),
        }
    }

    /// Whether huge pages came so slowly that the advice was taken back.
    pub fn was_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed) >= SLOW_MAX
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

    /// Bytes populated ahead of the copies.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// When the last unit was finished; 0 = not yet.
    pub fn finished_ns(&self) -> u64 {
        self.finished_ns.load(Ordering::Relaxed)
    }

    /// Populates the next unit; false when there is none, or enough threads do so already while `copying`.
    pub fn step(&self, copying: bool) -> bool {
        let units = self.units.load(Ordering::Acquire);
        if self.next.load(Ordering::Relaxed) >= units {
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
        let did = allowed && still && self.populate_next(units);
        self.active.fetch_sub(1, Ordering::Release);
        did
    }

    fn populate_next(&self, units: usize) -> bool {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index >= units {
            return false;
        }
        let unit = self.unit.load(Ordering::Relaxed);
        let from = self.start.load(Ordering::Relaxed) + index * unit;
        let to = (from + unit).min(self.end.load(Ordering::Relaxed));
        if (index + 1) * unit > self.mark.load(Ordering::Relaxed) && from < to {
            self.populate(from, to);
            self.bytes.fetch_add((to - from) as u64, Ordering::Relaxed);
        }
        if self.done.fetch_add(1, Ordering::AcqRel) + 1 == units {
            self.finished_ns.store(sys::now_ns(), Ordering::Relaxed);
        }
        true
    }

    fn populate(&self, from: usize, to: usize) {
        match self.how.load(Ordering::Relaxed) {
            how if how == How::Populate as u32 => self.populate_checked(from, to),
            how if how == How::TouchSmall as u32 => self.populate_small(from, to),
            how if how == How::Free as u32 => free(from, to),
            _ => {
                let before = (sys::now_ns(), sys::thread_cpu_ns());
                touch(from, to, HUGE);
                let took = (
                    sys::now_ns().saturating_sub(before.0),
                    sys::thread_cpu_ns().saturating_sub(before.1),
                );
                if took.0 > SLOW_NS || took.1 > SLOW_CPU_NS {
                    self.count_slow();
                }
            }
        }
    }

    fn count_slow(&self) {
        if self.slow.fetch_add(1, Ordering::Relaxed) + 1 == SLOW_MAX {
            let start = self.start.load(Ordering::Relaxed);
            let len = self.advised.load(Ordering::Relaxed);
            // The whole mapping, so that it stays one; pages that are huge already stay so.
            // SAFETY: changes how the range is faulted, no contents.
            let _ = unsafe { sys::madvise(start, len, libc::MADV_NOHUGEPAGE) };
        }
    }

    fn populate_small(&self, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            let next = (at + SMALL_STEP).min(to);
            let maps_itself = self.mark.load(Ordering::Relaxed) == 0;
            // SAFETY: populating changes no contents.
            let populate = || unsafe { sys::madvise(at, next - at, libc::MADV_POPULATE_WRITE) };
            // Kernels before 5.14 have no such advice.
            if maps_itself || populate().is_err() {
                touch(at, next, SMALL);
            }
            at = next;
        }
    }

    fn populate_checked(&self, from: usize, to: usize) {
        // SAFETY: populating changes no contents.
        let populate = || unsafe { sys::madvise(from, to - from, libc::MADV_POPULATE_WRITE) };
        if let Err(errno) = sys::again(populate) {
            self.refused.store(errno as u32, Ordering::Release);
        }
    }
}

/// Gives pages back. What the kernel does not take now it takes with the munmap that follows.
fn free(from: usize, to: usize) {
    // SAFETY: the driver has let the range go.
    let _ = unsafe { sys::madvise(from, to - from, libc::MADV_DONTNEED) };
}

/// Makes the kernel map a writable page at every `stride` of the range.
fn touch(from: usize, to: usize, stride: usize) {
    let mut at = from;
    while at < to {
        // SAFETY: the range is mapped writable while any helper lives (a buffer is not unmapped before its helpers are
        // gone), and the operation leaves every byte as it is.
        unsafe { touch_byte(at as *mut u8) };
        at += stride;
    }
}

/// A locked "or" with zero: a write to the kernel, no change to the bytes. By hand, because compilers turn it into a load.
///
/// # Safety
/// The byte is mapped writable.
#[cfg(target_arch = "x86_64")]
unsafe fn touch_byte(at: *mut u8) {
    // SAFETY: promised by the caller.
    unsafe { core::arch::asm!("lock or byte ptr [{}], 0", in(reg) at, options(nostack)) };
}

/// As above: adding zero by compare-exchange cannot be turned into a load.
///
/// # Safety
/// The byte is mapped writable.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn touch_byte(at: *mut u8) {
    // SAFETY: promised by the caller.
    let byte = unsafe { core::sync::atomic::AtomicU8::from_ptr(at) };
    let mut value = byte.load(Ordering::Relaxed);
    while let Err(now) = byte.compare_exchange(value, value, Ordering::Relaxed, Ordering::Relaxed) {
        value = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(len: usize) -> usize {
        // SAFETY: a new mapping anywhere.
        unsafe { sys::mmap(0, len, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }.unwrap()
    }

    fn resident(start: usize, len: usize) -> usize {
        let mut vector = vec![0u8; len / SMALL];
        // SAFETY: the vector has a byte per page of the mapping.
        let status = unsafe { libc::mincore(start as *mut _, len, vector.as_mut_ptr()) };
        assert_eq!(status, 0);
        vector.iter().filter(|&&page| page & 1 != 0).count() * SMALL
    }

    #[test]
    fn every_page_is_there_and_no_byte_has_changed() {
        let len = 3 * SMALL_UNIT + SMALL;
        for how in [How::TouchSmall, How::Populate] {
            let start = mapping(len);
            // SAFETY: inside the mapping.
            unsafe { *((start + SMALL + 5) as *mut u8) = 42 };
            let prefault = Prefault::new();
            assert!(!prefault.step(false));
            prefault.arm(start, len, len, how, 1);
            assert!(!prefault.is_done());
            while prefault.step(false) {}
            assert!(prefault.is_done() && prefault.refusal().is_none());
            assert_eq!(prefault.bytes(), len as u64);
            assert!(prefault.finished_ns() > 0);
            assert_eq!(resident(start, len), len);
            // SAFETY: inside the mapping.
            assert_eq!(unsafe { *((start + SMALL + 5) as *const u8) }, 42);
            // SAFETY: nothing uses it any more.
            unsafe { sys::munmap(start, len) }.unwrap();
        }
    }

    #[test]
    fn what_was_copied_is_not_touched() {
        let len = 4 * SMALL_UNIT;
        let start = mapping(len);
        let prefault = Prefault::new();
        prefault.arm(start, len, len, How::TouchSmall, 1);
        prefault.copied_up_to(3 * SMALL_UNIT);
        while prefault.step(false) {}
        assert!(prefault.is_done());
        assert_eq!(resident(start, len), SMALL_UNIT);
        // SAFETY: nothing uses it any more.
        unsafe { sys::munmap(start, len) }.unwrap();
    }

    #[test]
    fn a_refused_population_is_told() {
        let prefault = Prefault::new();
        prefault.arm(1 << 12, 4096, 4096, How::Populate, 1);
        assert!(prefault.step(false));
        assert!(prefault.refusal() == Some(libc::ENOMEM) && prefault.is_done());
    }

    #[test]
    fn copies_come_first_beyond_the_limit() {
        let prefault = Prefault::new();
        prefault.arm(1 << 12, 4096, 4096, How::Populate, 0);
        assert!(!prefault.step(true));
        assert!(prefault.step(false));
    }
}
