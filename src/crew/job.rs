//! One copy with everybody who is there: it is cut into jobs, their parts are claimed, copied, reported, and those that a helper has begun are
//! waited for. The caller can finish every job alone.

use super::death::{is_another, is_gone};
use super::flush::PutOff;
use super::Crew;
use crate::board::{Claim, Part, CALLER};
use crate::copy::kernel::{Copy, Flush};
use crate::copy::plan;
use crate::sync::{spin_loop, Ordering};
use crate::sys;

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

impl Crew {
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
    pub(super) unsafe fn work(&self, generation: u64, mark: u8) -> bool {
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
}
