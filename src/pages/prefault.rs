//! Makes the kernel map a range's pages ahead of the copies. No value is ever stored, so a copy need not wait and a thread that comes late
//! spoils nothing.

use super::Pages;
use crate::sync::Ordering;
use crate::{stalls, sys};

const HUGE: usize = 2 << 20;
const SMALL: usize = 4096;
/// A huge page. Base pages come in units of what one page table maps: threads that fault in the same one fight over its lock (H200 host, 24 GiB,
/// 15 helpers: 6 GB/s with units of 64 KiB, 11 with 256 KiB, 18 with 2 MiB).
pub(super) const UNIT: usize = HUGE;
/// In steps of this the kernel populates base pages: some 100 us for which it holds what the driver's own `mmap` would wait for.
const SMALL_STEP: usize = 256 << 10;
impl Pages {
    /// Why some unit could not be populated ([`super::How::Populate`] only).
    pub fn refusal(&self) -> Option<i32> {
        match self.refused.load(Ordering::Acquire) {
            0 => None,
            errno => Some(errno as i32),
        }
    }

    /// Whether all of a range is there whose units were all begun ([`super::How::Populate`] only), and nobody has given it up. Where somebody
    /// has stopped a thread in the middle of one, the caller asks for the range itself.
    pub fn is_populated(&self) -> bool {
        let units = self.units.load(Ordering::Relaxed);
        if units == 0 {
            return false;
        }
        if !self.is_done() {
            let (start, end) = (&self.start, &self.end);
            let (start, end) = (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
            if Self::populate(start, end).is_err() {
                return false;
            }
            // Nobody need be born for what is done.
            self.done.store(units, Ordering::Relaxed);
            self.finished_ns.store(sys::now_ns(), Ordering::Relaxed);
        }
        // Afterwards: who has refused a unit says so before it is done.
        self.refusal().is_none()
    }

    /// Whether huge pages came so slowly that the advice was taken back.
    pub fn was_slow(&self) -> bool {
        self.slow.is_found()
    }

    pub(super) fn touch_huge(&self, from: usize, to: usize) {
        self.watched(|| touch(from, to, HUGE));
    }

    /// Where pages of some other size may come, for which the kernel may compact memory as it does for 2 MiB.
    pub(super) fn populate_mixed(&self, from: usize, to: usize) {
        self.watched(|| self.populate_small(from, to));
    }

    /// Does one unit, and looks how long the kernel took for its pages.
    fn watched(&self, unit: impl FnOnce()) {
        let before = (sys::now_ns(), sys::thread_cpu_ns());
        unit();
        let took = (
            sys::now_ns().saturating_sub(before.0),
            sys::thread_cpu_ns().saturating_sub(before.1),
        );
        self.slow.note(took.0, took.1);
    }

    /// Takes the advice back where huge pages come too slowly. For the caller, between two copies.
    pub fn look_whether_slow(&self) {
        let units = self.done.load(Ordering::Relaxed) as u64;
        if self.slow.judge(units, stalls::count) {
            self.take_advice_back();
        }
    }

    fn take_advice_back(&self) {
        let start = self.start.load(Ordering::Relaxed);
        let len = self.advised.load(Ordering::Relaxed);
        // The whole mapping, so that it stays one; pages that are huge already stay so.
        // SAFETY: changes how the range is faulted, no contents.
        let _ = unsafe { sys::madvise(start, len, libc::MADV_NOHUGEPAGE) };
    }

    pub(super) fn populate_small(&self, from: usize, to: usize) {
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

    pub(super) fn populate_checked(&self, from: usize, to: usize) {
        if let Err(errno) = Self::populate(from, to) {
            self.refused.store(errno as u32, Ordering::Release);
        }
    }

    /// Has the kernel map writable pages to a range. What cannot be had is an error here, where at a touch it may be a SIGBUS.
    pub fn populate(from: usize, to: usize) -> sys::SysResult {
        // SAFETY: populating changes no contents.
        sys::again(|| unsafe { sys::madvise(from, to - from, libc::MADV_POPULATE_WRITE) })
    }
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
    use super::super::tests::{mapping, resident};
    use super::super::How;
    use super::*;

    #[test]
    fn every_page_is_there_and_no_byte_has_changed() {
        let len = 3 * UNIT + SMALL;
        for how in [How::TouchSmall, How::TouchMixed, How::Populate] {
            let start = mapping(len);
            // SAFETY: inside the mapping.
            unsafe { *((start + SMALL + 5) as *mut u8) = 42 };
            let pages = Pages::new();
            assert!(!pages.step(false));
            pages.arm(start, len, len, how, 1);
            assert!(!pages.is_done());
            while pages.step(false) {}
            assert!(pages.is_done() && pages.refusal().is_none());
            assert_eq!(pages.bytes(), len as u64);
            assert!(pages.finished_ns() > 0);
            assert_eq!(resident(start, len), len);
            // SAFETY: inside the mapping.
            assert_eq!(unsafe { *((start + SMALL + 5) as *const u8) }, 42);
            // SAFETY: nothing uses it any more.
            unsafe { sys::munmap(start, len) }.unwrap();
        }
    }

    #[test]
    fn what_was_copied_is_not_touched() {
        let len = 4 * UNIT;
        let start = mapping(len);
        let pages = Pages::new();
        pages.arm(start, len, len, How::TouchSmall, 1);
        pages.copied_up_to(3 * UNIT);
        while pages.step(false) {}
        assert!(pages.is_done());
        assert_eq!(resident(start, len), UNIT);
        // SAFETY: nothing uses it any more.
        unsafe { sys::munmap(start, len) }.unwrap();
    }

    #[test]
    fn a_refused_population_is_told() {
        let pages = Pages::new();
        pages.arm(1 << 12, 4096, 4096, How::Populate, 1);
        assert!(pages.step(false));
        assert!(pages.refusal() == Some(libc::ENOMEM) && pages.is_done());
        assert!(!pages.is_populated());
    }

    #[test]
    fn a_unit_whose_thread_was_stopped_is_populated_all_the_same() {
        let len = 3 * UNIT;
        let start = mapping(len);
        let pages = Pages::new();
        pages.arm(start, len, len, How::Populate, 1);
        // Begun by somebody who does not come to do it.
        pages.next.fetch_add(1, Ordering::Relaxed);
        while pages.step(false) {}
        assert!(!pages.is_done());
        assert_eq!(resident(start, len), 2 * UNIT);
        assert!(pages.is_populated() && pages.is_done() && pages.finished_ns() > 0);
        assert_eq!(resident(start, len), len);
        pages.disarm();
        assert!(!pages.is_populated());
        // SAFETY: nothing uses it any more.
        unsafe { sys::munmap(start, len) }.unwrap();
    }
}
