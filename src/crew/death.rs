//! Whether a helper is dead: a thread that the kernel did not clear is proved gone by asking it, or by /proc that tells of another one.

use super::helper::{name, NAME};
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
    let (named, number) = (id & NAMED != 0, id & !NAMED);
    named && is_proved_another(helper, number, &sys::told_of_thread(number)) && forget(tid, id)
}

/// Whether what is told of the thread with this number can be of no living helper with this index that has its name. The /proc that is
/// mounted may be of an outer pid namespace, and tell of another thread of ours. Whoever renames threads leaves their blocked signals as
/// they are: all of a helper's are, from before its first instruction on; other programs hardly block those that libc keeps for itself.
pub(super) fn is_proved_another(helper: usize, number: u32, told: &sys::Told) -> bool {
    let (Some(id), Some(found), Some(blocked)) = (told.id, told.name, told.blocked) else {
        return false;
    };
    // Another helper blocks them too.
    let is_no_such = found.starts_with(NAME) || blocked != sys::ALL_BLOCKED;
    id == number && found != name(helper) && is_no_such
}

fn forget(tid: &AtomicU32, id: u32) -> bool {
    let _ = tid.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed);
    true
}
