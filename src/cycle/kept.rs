//! Where the kept or reserved buffer lies, for calls that map over it: between its munmap and the next checkpoint its addresses are free to
//! the driver and to the program, and what they map there must neither be used as a buffer nor unmapped.

use core::sync::atomic::{AtomicUsize, Ordering};

use cudasnap_wire::PageKind;

use crate::buffer::Memory;
use crate::{hollow, maps};

/// 0 = nothing is kept, or something else may lie in it.
static START: AtomicUsize = AtomicUsize::new(0);
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Notes what is kept.
pub(super) fn note(memory: &Memory) {
    MAPPED.store(memory.mapped, Ordering::Relaxed);
    START.store(memory.start, Ordering::Release);
}

/// Nothing is kept any more, or it is spoiled.
pub(super) fn forget() {
    START.store(0, Ordering::Release);
}

/// Whether a range takes a byte of it.
pub(super) fn overlaps(addr: usize, len: usize) -> bool {
    let start = START.load(Ordering::Acquire);
    start != 0
        && addr < start.saturating_add(MAPPED.load(Ordering::Relaxed))
        && start < addr.saturating_add(len)
}

/// Whether it is what it was when it was kept. Fixed maps come to us; a system call of the program's own does not, so the
/// kernel is asked too.
pub(super) fn is_sound(memory: &Memory) -> bool {
    let noted = START.load(Ordering::Acquire) == memory.start;
    noted
        && maps::is_whole(
            memory.start,
            memory.mapped,
            memory.pages == PageKind::Hugetlb,
        )
}

/// Gives it back, unless something else lies in it: then all of it stays where it is.
pub(super) fn dispose(memory: &Memory) {
    if is_sound(memory) {
        let _ = hollow::dispose(memory);
    }
    // Another may be kept by now.
    let _ = START.compare_exchange(memory.start, 0, Ordering::AcqRel, Ordering::Relaxed);
}
