//! Where the kept or reserved buffer lies, for calls that map over it: between its munmap and the next checkpoint its addresses are free to
//! the driver and to the program, and what they map there must neither be used as a buffer nor unmapped.

use core::sync::atomic::{fence, AtomicUsize, Ordering};

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

/// Nothing is kept any more, or it is spoiled. Who is about to give it back sees that, or is seen in [`hollow`] from now on.
pub(super) fn forget() {
    START.store(0, Ordering::Release);
    fence(Ordering::SeqCst);
}

/// Whether a range takes a byte of it.
pub(super) fn overlaps(addr: usize, len: usize) -> bool {
    let start = START.load(Ordering::Acquire);
    start != 0
        && addr < start.saturating_add(MAPPED.load(Ordering::Relaxed))
        && start < addr.saturating_add(len)
}

/// What has become of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is what it was.
    Sound,
    /// Something else lies in it, or did.
    Spoiled,
    /// The kernel's list of mappings cannot be read now: no descriptor, say.
    Unknown,
}

/// Looks at it. Fixed maps come to us; a system call of the program's own does not, so the kernel is asked too.
pub(super) fn look(memory: &Memory) -> Found {
    let is_hugetlb = memory.pages == PageKind::Hugetlb;
    if START.load(Ordering::Acquire) != memory.start {
        return Found::Spoiled;
    }
    match maps::is_whole(memory.start, memory.mapped, is_hugetlb) {
        Some(true) => Found::Sound,
        Some(false) => Found::Spoiled,
        None => Found::Unknown,
    }
}

/// Gives it back, unless something else lies in it, or may: then all of it stays where it is.
pub(super) fn dispose(memory: &Memory) {
    hollow::dispose_if(memory, || look(memory) == Found::Sound);
    // Another may be kept by now.
    let _ = START.compare_exchange(memory.start, 0, Ordering::AcqRel, Ordering::Relaxed);
}
