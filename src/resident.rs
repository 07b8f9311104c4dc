//! How much of a reserved buffer is in memory already: another process populates it (`cudasnap reserve`), and may have been
//! stopped anywhere.

use crate::sys;

/// Pages that are asked about at once. Their answer lies on the caller's stack, which may be a small one.
const PAGES: usize = 1024;

/// What of a range is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Bytes from its start on without a gap.
    pub from_start: usize,
    /// Bytes in all.
    pub total: usize,
}

/// Asks the kernel. What it does not tell counts as absent: it is then populated as new memory is. 48 GiB take some 5 ms on
/// huge pages.
#[inline(never)]
pub fn of(start: usize, len: usize) -> Resident {
    let mut found = Resident {
        from_start: 0,
        total: 0,
    };
    let mut vector = [0u8; PAGES];
    let (page, mut at) = (sys::page_size(), 0);
    while at < len {
        let part = (PAGES * page).min(len - at);
        let Some(answer) = vector.get_mut(..part.div_ceil(page)) else {
            break;
        };
        if sys::mincore(start + at, part, answer).is_err() {
            break;
        }
        for (index, _) in answer.iter().enumerate().filter(|(_, &byte)| byte & 1 != 0) {
            let from = at + index * page;
            let bytes = page.min(len - from);
            found.total += bytes;
            if found.from_start == from {
                found.from_start += bytes;
            }
        }
        at += part;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_touched_is_resident() {
        let page = sys::page_size();
        let len = (PAGES + 3) * page + 5;
        // SAFETY: a new mapping anywhere.
        let start = unsafe { sys::mmap(0, len, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }
            .unwrap();
        // SAFETY: advice about page sizes.
        let _ = unsafe { sys::madvise(start, len, libc::MADV_NOHUGEPAGE) };
        // SAFETY: the page is inside the mapping.
        let touch = |index: usize| unsafe { *((start + index * page) as *mut u8) = 1 };
        let is = |from_start, total| assert_eq!(of(start, len), Resident { from_start, total });
        is(0, 0);
        touch(2);
        is(0, page);
        (0..2).for_each(touch);
        is(3 * page, 3 * page);
        (4..PAGES + 4).for_each(touch);
        is(3 * page, len - page);
        touch(3);
        is(len, len);
        // SAFETY: nothing uses it any more.
        unsafe { sys::munmap(start, len) }.unwrap();
        is(0, 0);
    }
}
