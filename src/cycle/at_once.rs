//! All pages of a range at once, by a crew that lives for that alone, before anything else goes on: given back ([`super::give_back`]) or
//! taken from the pool of 2 MiB pages ([`super::memory`]).

use cudasnap_wire::Step;

use crate::crew::{First, CREW};
use crate::sync::{AtomicU32, Ordering};
use crate::{record, sys};

/// Why the helpers left: of no interest, no phase is open.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// Does the units that were armed, with `threads` threads, the caller among them. All are done and the crew is gone when this
/// returns, but for a helper that somebody stopped: it is counted as late, and the unit it may be in the middle of is not waited for.
///
/// # Safety
/// As for the stacks of [`crate::crew::Crew::recruit`].
pub(super) unsafe fn do_units(threads: u32, stacks: usize) {
    CREW.begin(sys::now_ns(), First::Request, &LEFT);
    // SAFETY: promised by the caller.
    let recruited = unsafe { CREW.recruit(threads.saturating_sub(1), stacks) };
    let started = &record::get().counters.helpers_started;
    started.fetch_add(recruited.started.into(), Ordering::Relaxed);
    CREW.finish_units();
    (0..CREW.dismiss()).for_each(|_| record::step(Step::HelperLate));
    CREW.forget_units();
}
