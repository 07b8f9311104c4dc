//! Address ranges that could not be unmapped yet, because a helper that somebody stopped may still touch them: its stack, and
//! the pages that it was about to prefault. Their pages are freed at once, the addresses when the last helper is gone. A
//! table without a lock: it is also used by calls that find the state in use.

use core::sync::atomic::{AtomicUsize, Ordering};

use cudasnap_wire::Step;

use crate::buffer::{self, Memory};
use crate::crew::CREW;
use crate::{record, sys};

const PLACES: usize = 16;
/// A place that is being written.
const BUSY: usize = 1;

struct Place {
    /// 0 = free.
    start: AtomicUsize,
    len: AtomicUsize,
}

static TABLE: [Place; PLACES] = [const {
    Place {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
    }
}; PLACES];

/// Unmaps memory that nobody but a helper could still touch; while one lives, only its pages are freed for now.
pub fn dispose(memory: &Memory) -> sys::SysResult {
    if CREW.alive() == 0 {
        // SAFETY: nobody uses it any more, and no helper lives.
        return unsafe { buffer::unmap(memory) };
    }
    if let Some(stacks) = memory.stacks() {
        buffer::hollow(memory.start, stacks - memory.start);
    }
    keep_addresses(memory.start, memory.mapped);
    Ok(0)
}

/// The lowest range that waits here and shares a byte with this one.
fn overlapping(start: usize, len: usize) -> Option<(usize, usize)> {
    let ranges = TABLE.iter().map(|place| {
        let start = place.start.load(Ordering::Acquire);
        (
            start,
            start.saturating_add(place.len.load(Ordering::Relaxed)),
        )
    });
    ranges
        .filter(|&(from, to)| from > BUSY && from < start.saturating_add(len) && start < to)
        .min()
}

/// Whether a helper that somebody stopped may still touch some of a range that is no buffer any more.
pub fn is_awaited(start: usize, len: usize) -> bool {
    let in_unit = CREW.is_at_a_unit() && CREW.pages.touches(start, len);
    in_unit || overlapping(start, len).is_some()
}

/// Frees the pages of a range, and leaves it mapped until no helper lives. What waits already is left as it is: stacks may be
/// in it.
pub fn keep_for_helpers(start: usize, len: usize) {
    let end = start.saturating_add(len).next_multiple_of(sys::page_size());
    let mut at = start;
    while at < end {
        let next = overlapping(at, end - at);
        if let Some((_, to)) = next.filter(|&(from, _)| from <= at) {
            at = to;
            continue;
        }
        let to = next.map_or(end, |(from, _)| from);
        buffer::hollow(at, to - at);
        keep_addresses(at, to - at);
        at = to;
    }
}

/// Waits until nothing of a range waits here any more: something else is about to lie there. As long as it takes.
pub fn wait_for(start: usize, len: usize) {
    while overlapping(start, len).is_some() {
        if CREW.alive() > 0 {
            CREW.dismiss();
        }
        reclaim();
    }
}

/// Leaves a range mapped until no helper lives.
fn keep_addresses(start: usize, len: usize) {
    for place in &TABLE {
        let taken = place
            .start
            .compare_exchange(0, BUSY, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            place.len.store(len, Ordering::Relaxed);
            place.start.store(start, Ordering::Release);
            return;
        }
    }
    // Stays mapped for good: addresses, but hardly any memory.
    record::step(Step::HelperLate);
}

/// Unmaps what waits here, if no helper lives any more.
pub fn reclaim() {
    let waits = |place: &&Place| place.start.load(Ordering::Relaxed) > BUSY;
    if !TABLE.iter().any(|place| waits(&place)) || CREW.alive() > 0 {
        return;
    }
    for place in TABLE.iter().filter(waits) {
        let start = place.start.load(Ordering::Acquire);
        let len = place.len.load(Ordering::Relaxed);
        let taken = place
            .start
            .compare_exchange(start, BUSY, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            // SAFETY: the range waited for helpers alone, and none lives.
            let _ = unsafe { sys::munmap(start, len) };
            place.start.store(0, Ordering::Release);
        }
    }
}

/// Forgets what fork brought along.
pub fn forget() {
    for place in &TABLE {
        place.start.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudasnap_wire::PageKind;

    #[test]
    fn a_range_that_waited_is_unmapped_when_no_helper_lives() {
        let memory = buffer::map(40 << 20, PageKind::Small, true, |_| {}).unwrap();
        let is_mapped = || crate::maps::writable(&[memory.start]) == [true];
        keep_addresses(memory.start, memory.mapped);
        assert!(is_mapped() && is_awaited(memory.start + memory.mapped - 1, 1));
        assert!(!is_awaited(memory.start + memory.mapped, 4096));
        // Crews of other tests come and go.
        while is_mapped() {
            reclaim();
            std::thread::yield_now();
        }
        assert!(TABLE
            .iter()
            .all(|place| place.start.load(Ordering::Relaxed) != memory.start));
    }
}
