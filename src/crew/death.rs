//! Whether a helper is dead: a thread that the kernel did not clear is proved gone by asking it, or by bearing another name than a helper's.

use super::helper::name;
use super::Crew;
use crate::sync::{AtomicU32, Ordering};
use crate::sys;

/// Set in a helper's id word by the helper itself, once it has its name; never where the kernel refuses names. The kernel clears
/// all of the word.
pub(super) const NAMED: u32 = 1 << 31;

impl Crew {
    /// Whether a helper is not gone; asks the kernel.
    pub(super) fn lives(&self, helper: usize) -> bool {
        self.tids.get(helper).is_some_and(|tid| {
            let id = tid.load(Ordering::Acquire);
            id != 0 && !is_gone(tid, id) && !is_another(helper, tid, id)
        })
    }
}

/// Whether a helper does not exist, though the kernel has not cleared its id: then it is cleared here.
pub(super) fn is_gone(tid: &AtomicU32, id: u32) -> bool {
    !sys::thread_exists(sys::getpid(), id & !NAMED) && forget(tid, id)
}

/// Whether a thread with a helper's number is another one: where a process checkpointer left the helper behind, the number may
/// have been given anew. Then the id is cleared here. Asks /proc: for those that are late.
pub(super) fn is_another(helper: usize, tid: &AtomicU32, id: u32) -> bool {
    let named = id & NAMED != 0;
    named && !may_be(helper, id & !NAMED) && forget(tid, id)
}

fn forget(tid: &AtomicU32, id: u32) -> bool {
    let _ = tid.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed);
    true
}

/// Whether a thread may be that helper: it has its name, or the kernel does not tell.
pub(super) fn may_be(index: usize, tid: u32) -> bool {
    sys::name_of_thread(tid).is_none_or(|found| found == name(index))
}
