//! The threads of one phase: born, fed, gone.
//!
//! Helpers are made by the thread that copies, with plain `clone`, and live inside one phase. They call nothing of libc,
//! touch no thread-local storage (they share the caller's) and cannot panic. The caller can finish every job alone; it
//! waits only for a part that a live helper has begun. See docs/crew.md for the protocol and why no state is lost.

mod flush;
mod helper;

use cudasnap_wire::End;

use flush::PutOff;

use crate::board::{Board, Claim, Part, CALLER};
use crate::copy::kernel::{Copy, Flush};
use crate::copy::plan;
use crate::prefault::Prefault;
use crate::sync::{
    constructor, shared, spin_loop, words, AtomicPtr, AtomicU32, AtomicU64, Ordering,
};
use crate::sys;

/// Most helpers of a crew.
pub const HELPERS: usize = 31;
/// Stack of one helper. The deepest frame of a helper measured 1.2 KiB in a release build.
pub const STACK: usize = 16 << 10;
/// Bytes of stacks for a full crew; a multiple of the page size.
pub const STACKS: usize = HELPERS * STACK;

/// How long the end of a phase waits for helpers to be gone. They leave within some 50 us unless somebody stopped them.
const LEAVE_NS: u64 = 200_000_000;

/// Set in a helper's id word by the helper itself, once it has its name. The kernel clears all of the word.
const NAMED: u32 = 1 << 31;

/// The crew of this process.
pub struct Crew {
    /// A helper leaves when this is not the number it was born with.
    epoch: AtomicU32,
    board: Board,
    /// What to populate while there is nothing to copy.
    pub prefault: Prefault,
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

/// How a copy is made.
#[derive(Clone, Copy)]
pub struct Manner {
    /// How many threads its parts are cut for; with fewer than 2 the caller copies alone.
    pub threads: usize,
    /// Longest part.
    pub part: usize,
    /// The loop.
    pub copy: Copy,
    /// What is left to do with the source of a part, by its helper when it has reported the part: only where nobody can take the
    /// source's pages away before [`Crew::wait_for_flushes`].
    pub flush: Option<Flush>,
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
                prefault: Prefault::new(),
                flushes: flush::Flushes::new(),
                tids: words![AtomicU32::new(0); HELPERS],
                born_ns: AtomicU64::new(0),
                last_copy_ns: AtomicU64::new(0),
                copying: AtomicU32::new(0),
                copy_began_ns: AtomicU64::new(0),
                left: AtomicPtr::new(core::ptr::null_mut()),
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
        self.prefault.forget_threads();
        self.flushes.forget();
    }

    /// Copies with everybody who is there; all bytes are there when it returns. One thread calls this at a time. Returns how many
    /// parts had to be done again because a helper died.
    ///
    /// # Safety
    /// Both ranges are valid for `len` bytes and do not overlap; [`Manner::flush`] is what it says.
    pub unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize, manner: &Manner) -> u32 {
        self.copy_began_ns.store(sys::now_ns(), Ordering::Relaxed);
        self.copying.store(1, Ordering::Release);
        let mut redone = 0;
        if len < plan::ALONE_BELOW || manner.threads < 2 {
            // SAFETY: promised by the caller.
            unsafe { (manner.copy)(dst, src, len) };
            if let Some(flush) = manner.flush {
                // SAFETY: the same.
                unsafe { flush(src, len) };
            }
        } else {
            for job in plan::jobs(len, manner.threads, manner.part) {
                let generation = self
                    .board
                    .publish(dst, src, &job, manner.copy, manner.flush);
                // SAFETY: promised by the caller; this job's parts are all done before the next is published.
                redone += unsafe { self.finish_job(generation, job.parts) };
            }
        }
        self.last_copy_ns.store(sys::now_ns(), Ordering::Relaxed);
        self.copying.store(0, Ordering::Release);
        redone
    }

    /// Works at a job until all its parts are done.
    ///
    /// # Safety
    /// The published ranges are valid.
    unsafe fn finish_job(&self, generation: u64, parts: usize) -> u32 {
        // SAFETY: promised by the caller.
        unsafe { self.work(generation, CALLER) };
        let mut redone = 0;
        for index in 0..parts {
            let mut looks = 0u32;
            loop {
                let claim = match self.board.look(index) {
                    Part::Done => break,
                    Part::Free => self.board.claim_free(index, generation, CALLER),
                    Part::Begun(helper) => {
                        let claim = self.wait_for(index, generation, helper, &mut looks);
                        redone += u32::from(claim.is_some());
                        claim
                    }
                };
                if let Some(claim) = claim {
                    // SAFETY: promised by the caller.
                    unsafe { self.copy_part(&claim, CALLER, &mut PutOff::new()) };
                }
            }
        }
        redone
    }

    /// After a caller that left in the middle of a copy: nobody begins another part of it, and the parts that helpers have begun
    /// are over when this returns.
    pub fn settle(&self) {
        let generation = self.board.generation();
        for index in 0..plan::PARTS {
            let mut looks = 0;
            loop {
                let claim = match self.board.look(index) {
                    Part::Done => break,
                    // Of a job that was not published any more.
                    Part::Free => match self.board.claim_free(index, generation, CALLER) {
                        None if self.board.look(index) == Part::Free => break,
                        claim => claim,
                    },
                    Part::Begun(CALLER) => self.board.take_over(index, generation, CALLER, CALLER),
                    Part::Begun(helper) => self.wait_for(index, generation, helper, &mut looks),
                };
                if let Some(claim) = claim {
                    self.board.finish(&claim);
                }
            }
        }
        self.copying.store(0, Ordering::Release);
    }

    /// One wait for a part that a helper has begun; the claim to it when that helper is dead.
    fn wait_for(&self, index: usize, generation: u64, mark: u8, looks: &mut u32) -> Option<Claim> {
        let helper = usize::from(mark).wrapping_sub(1);
        let tid = self.tids.get(helper)?;
        let id = tid.load(Ordering::Acquire);
        if id == 0 {
            // The kernel clears the word after the helper's last instruction: it writes nothing any more.
            return self.board.take_over(index, generation, mark, CALLER);
        }
        *looks += 1;
        match *looks {
            0..4096 => spin_loop(),
            // Its CPU may be ours, or somebody has stopped it: the kernel wakes this when the helper dies.
            4096..8192 => sys::sched_yield(),
            _ if is_gone(tid, id) || is_another(helper, tid, id) => {}
            _ => sys::futex_wait(tid, id, 200_000),
        }
        None
    }

    /// Copies parts of a job until none is left to claim; whether there was any.
    ///
    /// # Safety
    /// A claim that succeeds proves that the job's caller still waits, hence that the ranges are valid.
    unsafe fn work(&self, generation: u64, mark: u8) -> bool {
        let mut any = false;
        let mut put_off = PutOff::new();
        while let Some(claim) = self.board.claim(generation, mark) {
            // SAFETY: see above.
            unsafe { self.copy_part(&claim, mark, &mut put_off) };
            any = true;
        }
        // SAFETY: nothing else was put off since.
        unsafe { self.flush_put_off(mark, &put_off) };
        any
    }

    /// # Safety
    /// The claimed ranges are valid.
    unsafe fn copy_part(&self, claim: &Claim, mark: u8, put_off: &mut PutOff) {
        // SAFETY: promised by the caller.
        unsafe {
            claim.copy();
            self.flush_or_put_off(claim, mark, put_off);
        }
        self.board.finish(claim);
    }

    /// Populates with the caller's own hands too, until every unit is done; for requests that must not be answered before. A
    /// helper that somebody stopped in the middle is not waited for.
    pub fn prefault_now(&self) {
        while self.prefault.step(false) {}
        let deadline = sys::now_ns().saturating_add(LEAVE_NS);
        while !self.prefault.is_done() && self.alive() > 0 && !sys::is_past(deadline) {
            sys::sched_yield();
        }
    }

    /// Whether a helper is in the middle of a unit of prefault. One that was ended there touches nothing any more.
    pub fn is_prefaulting(&self) -> bool {
        self.prefault.is_busy() && self.alive() > 0
    }

    /// Waits until no helper is in the middle of a unit of prefault: its addresses are about to become somebody else's. As long
    /// as it takes, if somebody has stopped such a helper; it could not be woken later without harm.
    pub fn wait_for_prefault(&self) {
        while self.prefault.is_busy() && (0..HELPERS).any(|helper| self.lives(helper)) {
            sys::sched_yield();
        }
    }

    /// Whether a helper is not gone; asks the kernel.
    fn lives(&self, helper: usize) -> bool {
        self.tids.get(helper).is_some_and(|tid| {
            let id = tid.load(Ordering::Acquire);
            id != 0 && !is_gone(tid, id) && !is_another(helper, tid, id)
        })
    }

    /// Forgets the units that dead helpers were in the middle of, when no helper lives. Only for who has the phase in hand:
    /// nobody else may be at a unit.
    pub fn forget_units(&self) {
        if self.alive() == 0 {
            self.prefault.forget_threads();
        }
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

/// Whether a helper does not exist, though the kernel has not cleared its id: then it is cleared here.
fn is_gone(tid: &AtomicU32, id: u32) -> bool {
    !sys::thread_exists(sys::getpid(), id & !NAMED) && forget(tid, id)
}

/// Whether a thread with a helper's number is another one: where a process checkpointer left the helper behind, the number may
/// have been given anew. Then the id is cleared here. Asks /proc: for those that are late.
fn is_another(helper: usize, tid: &AtomicU32, id: u32) -> bool {
    let named = id & NAMED != 0;
    named && !helper::may_be(helper, id & !NAMED) && forget(tid, id)
}

fn forget(tid: &AtomicU32, id: u32) -> bool {
    let _ = tid.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed);
    true
}

#[cfg(all(test, target_arch = "x86_64", not(miri), not(cudasnap_portable)))]
mod tests;

/// The crew is one per process: tests take turns.
#[cfg(test)]
pub fn take_turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
