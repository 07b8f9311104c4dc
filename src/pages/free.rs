//! Gives the pages of a range back that the driver has let go: `src/cycle/give_back.rs` says when.

use crate::sys;

/// What is freed at a time.
pub(super) const UNIT: usize = 64 << 20;

/// What the kernel does not take now it takes with the munmap that follows.
pub(super) fn free(from: usize, to: usize) {
    // SAFETY: the driver has let the range go.
    let _ = unsafe { sys::madvise(from, to - from, libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::super::tests::{mapping, resident, PAGE};
    use super::super::{How, Pages};
    use super::*;

    #[test]
    fn no_page_is_left_in_any_unit() {
        let len = 2 * UNIT + PAGE;
        let start = mapping(len);
        for page in [0, UNIT - PAGE, UNIT, len - PAGE] {
            // SAFETY: inside the mapping.
            unsafe { *((start + page) as *mut u8) = 1 };
        }
        assert!(resident(start, len) >= 4 * PAGE);
        let pages = Pages::new();
        pages.arm(start, len, len, How::Free, 1);
        while pages.step(false) {}
        assert!(pages.is_done());
        assert_eq!((resident(start, len), pages.bytes()), (0, len as u64));
        // SAFETY: nothing uses it any more.
        unsafe { sys::munmap(start, len) }.unwrap();
    }
}
