//! The threads of one phase: born, fed, gone.
//!
//! Helpers are made by the thread that copies, with plain `clone`, and live inside one phase. They call nothing of libc,
//! touch no thread-local storage (they share the caller's) and cannot panic. The caller can finish every job alone; it
//! waits only for a part that a live helper has begun. See docs/crew.md for the protocol and why no state is lost.
//!
//! Here: how they are born and sent away. `helper` is the life of one, `job` a copy with all of them, `units` their prefault or freeing, `flush` what they
//! put off, `death` the proof that one is gone.

mod death;
mod flush;
mod helper;
mod job;
mod units;

use cudasnap_wire::End;

use crate::board::Board;
use crate::pages::Pages;
use crate::sync::{constructor, shared, words, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::sys;

use death::{is_another, is_gone};
pub use job::Manner;

/// Most helpers of a crew.
pub const HELPERS: usize = 31;
/// Stack of one helper. The deepest frame of a helper measured 1.2 KiB in a release build.
pub const STACK: usize = 16 << 10;
/// Bytes of stacks for a full crew; a multiple of the page size.
pub const STACKS: usize = HELPERS * STACK;

/// How long the end of a phase waits for helpers to be gone. They leave within some 50 us unless somebody stopped them.
const LEAVE_NS: u64 = 200_000_000;

/// The crew of this process.
pub struct Crew {
    /// A helper leaves when this is not the number it was born with.
    epoch: AtomicU32,
    board: Board,
    /// What to prefault, or free, while there is nothing to copy.
    pub pages: Pages,
    flushes: flush::Flushes,
    tids: [AtomicU32; HELPERS],
    born_ns: AtomicU64,
    /// End of the last copy; 0 = none in this phase yet.
    last_copy_ns: AtomicU64,
    /// 1 while a copy goes on.
    copying: AtomicU32,
    /// When it began.
    copy_began_ns: AtomicU64,
    /// Where helpers that leave by themselves say why; null = nowhere.
    left: AtomicPtr<AtomicU32>,
    /// Helpers from this number on take no parts.
    team: AtomicU32,
    /// Helpers from this number on leave.
    stay: AtomicU32,
}

shared! {
    /// The one crew: a process copies one buffer at a time.
    pub static CREW: Crew = Crew::new();
}

/// The call that begins a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The request for a buffer.
    Request,
    /// A copy.
    Copy,
}

/// What came of recruiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recruited {
    /// Helpers started now.
    pub started: u32,
    /// Whether the kernel refused one.
    pub refused: bool,
}

impl Crew {
    constructor! {
        /// Nobody.
        pub fn new() -> Self {
            Crew {
                epoch: AtomicU32::new(0),
                board: Board::new(),
                pages: Pages::new(),
                flushes: flush::Flushes::new(),
                tids: words![AtomicU32::new(0); HELPERS],
                born_ns: AtomicU64::new(0),
                last_copy_ns: AtomicU64::new(0),
                copying: AtomicU32::new(0),
                copy_began_ns: AtomicU64::new(0),
                left: AtomicPtr::new(core::ptr::null_mut()),
                team: AtomicU32::new(u32::MAX),
                stay: AtomicU32::new(u32::MAX),
            }
        }
    }

    /// Begins a phase, or begins it anew after the crew left. `first` is the call that begins it: from a request on, the crew
    /// waits for prefault or a first copy; from a copy on, for the next. `left` is where a crew that leaves by itself writes
    /// why: [`End::Idle`] or [`End::NoCopy`] instead of [`End::Running`].
    pub fn begin(&self, now_ns: u64, first: First, left: &'static AtomicU32) {
        left.store(End::Running.number(), Ordering::Relaxed);
        self.left
            .store(core::ptr::from_ref(left).cast_mut(), Ordering::Relaxed);
        self.born_ns.store(now_ns, Ordering::Relaxed);
        let last_copy_ns = if first == First::Copy { now_ns } else { 0 };
        self.last_copy_ns.store(last_copy_ns, Ordering::Relaxed);
        self.copying.store(0, Ordering::Relaxed);
        self.team.store(u32::MAX, Ordering::Relaxed);
        self.stay.store(u32::MAX, Ordering::Relaxed);
    }

    /// Only so many helpers take parts of the next copies; a later one may still take parts of the next.
    pub fn copy_with(&self, helpers: u32) {
        self.team.store(helpers, Ordering::Relaxed);
    }

    /// Only so many stay; the others leave by themselves, soon. Until the next phase begins, or this one begins anew.
    pub fn reduce(&self, helpers: u32) {
        self.stay.store(helpers, Ordering::Relaxed);
    }

    /// Starts helpers until `wanted` are alive. Their stacks are the [`STACKS`] bytes at `stacks`.
    ///
    /// # Safety
    /// That memory is writable, 16-byte aligned, used by nobody else, and stays mapped until [`Crew::alive`] is 0.
    pub unsafe fn recruit(&'static self, wanted: u32, stacks: usize) -> Recruited {
        let wanted = (wanted as usize).min(HELPERS);
        let mut result = Recruited {
            started: 0,
            refused: false,
        };
        let missing = self
            .tids
            .iter()
            .take(wanted)
            .any(|tid| tid.load(Ordering::Acquire) == 0);
        if !missing {
            return result;
        }
        let epoch = self.epoch.load(Ordering::Relaxed);
        let Ok(mask) = sys::block_signals() else {
            result.refused = true;
            return result;
        };
        for (index, tid) in self.tids.iter().enumerate().take(wanted) {
            if tid.load(Ordering::Acquire) != 0 {
                continue;
            }
            self.flushes.clear(index);
            let top = stacks + (index + 1) * STACK;
            // SAFETY: the stack is the caller's promise; the tid word is static; the entry keeps the rules of helpers.
            let born =
                unsafe { sys::start_thread(top, tid, helper::live, index << 32 | epoch as usize) };
            if born.is_err() {
                result.refused = true;
                break;
            }
            result.started += 1;
        }
        sys::restore_signals(mask);
        result
    }

    /// Helpers that are not gone yet.
    pub fn alive(&self) -> u32 {
        self.tids
            .iter()
            .filter(|tid| tid.load(Ordering::Acquire) != 0)
            .count() as u32
    }

    /// Forgets helpers that fork did not bring along, and the copy that the parent's other thread was making.
    pub fn forget_all(&self) {
        self.board.forget();
        for tid in &self.tids {
            tid.store(0, Ordering::Relaxed);
        }
        self.pages.forget_threads();
        self.flushes.forget();
    }

    /// Sends all helpers away and waits, for a limited time, until they are gone. Returns how many are not: their stacks
    /// and whatever they may touch must stay mapped.
    pub fn dismiss(&self) -> u32 {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        let deadline = sys::now_ns().saturating_add(LEAVE_NS);
        for (helper, tid) in self.tids.iter().enumerate() {
            loop {
                let id = tid.load(Ordering::Acquire);
                if id == 0 || is_gone(tid, id) {
                    break;
                }
                if sys::is_past(deadline) {
                    is_another(helper, tid, id);
                    break;
                }
                sys::futex_wait(tid, id, 1_000_000);
            }
        }
        self.alive()
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri), not(cudasnap_portable)))]
mod tests;

/// The crew is one per process: tests take turns.
#[cfg(test)]
pub fn take_turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
