//! Address ranges that could not be unmapped yet, because a helper that somebody stopped may still touch them: its stack, and
//! the pages that it was about to prefault. Their pages are freed at once, the addresses when the last helper is gone. A
//! table without a lock: it is also used by calls that find the state in use.

use core::sync::atomic::{fence, AtomicU32, AtomicUsize, Ordering};

use cudasnap_wire::{PageKind, Step};

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
    /// The thread that unmaps it, or is about to decide whether; 0 = nobody.
    by: AtomicU32,
}

static TABLE: [Place; PLACES] = [const {
    Place {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        by: AtomicU32::new(0),
    }
}; PLACES];

/// Unmaps memory that nobody but a helper could still touch; while one lives, only its pages are freed for now.
pub fn dispose(memory: &Memory) -> sys::SysResult {
    if CREW.alive() == 0 {
        // SAFETY: nobody uses it any more, and no helper lives.
        return unsafe { buffer::unmap(memory) };
    }
    free_pages(memory);
    keep_addresses(memory.start, memory.mapped, 0);
    Ok(0)
}

/// Frees what no late helper needs: all but the stacks. Of the pool's pages all but the one that they lie in: some kernels free a page of which
/// only a part is named (5.18 to 6.0).
fn free_pages(memory: &Memory) {
    let Some(stacks) = memory.stacks() else {
        return;
    };
    let end = match memory.pages {
        PageKind::Hugetlb => stacks & !(buffer::HUGE - 1),
        _ => stacks,
    };
    buffer::hollow(memory.start, end - memory.start);
}

/// The same of memory to whose addresses others may have come meanwhile: `is_ours` is asked when whoever maps over them already waits for
/// the answer, in [`wait_for`]. Where it says no, everything stays as it is.
pub fn dispose_if(memory: &Memory, is_ours: impl FnOnce() -> bool) {
    let Some(place) = keep_addresses(memory.start, memory.mapped, own_number()) else {
        // Stays mapped: addresses, and its pages.
        return;
    };
    // The one who maps over it takes away what `is_ours` asks about, and looks at the table afterwards.
    fence(Ordering::SeqCst);
    if is_ours() {
        if CREW.alive() > 0 {
            free_pages(memory);
            place.by.store(0, Ordering::Release);
            return;
        }
        // SAFETY: it is ours, nobody uses it any more, and no helper lives.
        let _ = unsafe { buffer::unmap(memory) };
    }
    place.leave();
}

/// The calling thread's number; one that no thread has where a filter forbids the question: then nobody dies in the middle.
fn own_number() -> u32 {
    match sys::gettid() {
        0 => u32::MAX,
        tid => tid,
    }
}

impl Place {
    /// Lets the calling thread alone unmap it.
    fn take(&self, tid: u32) -> bool {
        self.change_hands(0, tid)
    }

    fn change_hands(&self, from: u32, to: u32) -> bool {
        self.by
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// What waits here, if it shares a byte with a range.
    fn shared_with(&self, start: usize, len: usize) -> Option<(usize, usize)> {
        let from = self.start.load(Ordering::Acquire);
        let to = from.saturating_add(self.len.load(Ordering::Relaxed));
        let shares = from > BUSY && from < start.saturating_add(len) && start < to;
        shares.then_some((from, to))
    }

    /// Whether the calling thread is unmapping it: then this is a signal handler.
    fn is_ours(&self) -> bool {
        let by = self.by.load(Ordering::Relaxed);
        by != 0 && by == sys::gettid()
    }

    /// Nothing waits here any more.
    fn leave(&self) {
        self.start.store(0, Ordering::Release);
        self.by.store(0, Ordering::Release);
    }

    /// Of a thread that died while it unmapped it nobody knows whether it did: the addresses are left alone.
    fn leave_if_forsaken(&self) {
        let by = self.by.load(Ordering::Acquire);
        let is_forsaken = by != 0 && !sys::thread_exists(sys::getpid(), by);
        if is_forsaken && self.change_hands(by, own_number()) {
            self.leave();
        }
    }
}

/// The lowest range that waits here and shares a byte with this one.
fn overlapping(start: usize, len: usize) -> Option<(usize, usize)> {
    TABLE
        .iter()
        .filter_map(|place| place.shared_with(start, len))
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
        keep_addresses(at, to - at, 0);
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
        let mut sharing = TABLE
            .iter()
            .filter(|place| place.shared_with(start, len).is_some());
        if sharing.any(Place::is_ours) {
            // It goes on when the handler has returned, and not before.
            return;
        }
        TABLE.iter().for_each(Place::leave_if_forsaken);
        sys::sched_yield();
    }
}

/// Leaves a range mapped until no helper lives, and until thread `by` is through with it, if that is one.
fn keep_addresses(start: usize, len: usize, by: u32) -> Option<&'static Place> {
    for place in &TABLE {
        let taken = place
            .start
            .compare_exchange(0, BUSY, Ordering::AcqRel, Ordering::Relaxed);
        // One that leaves it has not let go of it yet.
        if taken.is_ok() {
            if by != 0 && !place.take(by) {
                place.start.store(0, Ordering::Release);
                continue;
            }
            place.len.store(len, Ordering::Relaxed);
            place.start.store(start, Ordering::Release);
            return Some(place);
        }
    }
    // Stays mapped for good: addresses, but hardly any memory.
    record::step(Step::HelperLate);
    None
}

/// Unmaps what waits here, if no helper lives any more.
pub fn reclaim() {
    let waits = |place: &&Place| place.start.load(Ordering::Relaxed) > BUSY;
    if !TABLE.iter().any(|place| waits(&place)) || CREW.alive() > 0 {
        return;
    }
    let tid = own_number();
    for place in TABLE.iter().filter(waits).filter(|place| place.take(tid)) {
        // Read again: only who has taken the place lets it go, so from now on these stay as they are.
        let start = place.start.load(Ordering::Acquire);
        let len = place.len.load(Ordering::Relaxed);
        if start <= BUSY || CREW.alive() > 0 {
            place.by.store(0, Ordering::Release);
            continue;
        }
        // SAFETY: the range waited for helpers alone, and none lives. Whoever wants to map over it waits for this.
        let _ = unsafe { sys::munmap(start, len) };
        place.leave();
    }
}

/// Forgets what fork brought along.
pub fn forget() {
    for place in &TABLE {
        place.start.store(0, Ordering::Relaxed);
        place.by.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_waited_is_unmapped_when_no_helper_lives() {
        let memory = buffer::map(40 << 20, PageKind::Small, true, |_| {}).unwrap();
        let is_mapped = || crate::maps::writable(&[memory.start]) == [true];
        keep_addresses(memory.start, memory.mapped, 0);
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

    #[test]
    fn who_maps_over_it_waits_until_it_is_decided() {
        let _turn = crate::crew::take_turn();
        let memory = buffer::map(40 << 20, PageKind::Small, true, |_| {}).unwrap();
        let is_mapped = || crate::maps::writable(&[memory.start]) == [true];
        let may_map = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            dispose_if(&memory, || {
                assert!(is_awaited(memory.start, 1));
                scope.spawn(|| {
                    wait_for(memory.start, 4096);
                    assert!(!is_mapped());
                    may_map.store(true, Ordering::Release);
                });
                for _ in 0..1000 {
                    std::thread::yield_now();
                    // Not what another thread is about to unmap either.
                    reclaim();
                    assert!(is_mapped() && !may_map.load(Ordering::Acquire));
                }
                true
            });
        });
        assert!(may_map.load(Ordering::Acquire));
    }

    #[test]
    fn what_is_not_ours_by_now_stays() {
        let _turn = crate::crew::take_turn();
        let memory = buffer::map(40 << 20, PageKind::Small, true, |_| {}).unwrap();
        dispose_if(&memory, || false);
        assert!(crate::maps::writable(&[memory.start]) == [true]);
        assert!(!is_awaited(memory.start, memory.mapped));
        assert!(dispose(&memory).is_ok());
    }

    #[test]
    fn a_thread_that_died_in_the_middle_is_not_waited_for() {
        let _turn = crate::crew::take_turn();
        let (start, len) = (1 << 40, 4096);
        let gone = std::thread::spawn(sys::gettid).join().unwrap();
        let place = keep_addresses(start, len, gone).unwrap();
        wait_for(start, len);
        assert_eq!(place.start.load(Ordering::Relaxed), 0);
        assert_eq!(place.by.load(Ordering::Relaxed), 0);
    }
}
