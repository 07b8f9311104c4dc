//! The board on which a caller publishes one job at a time and threads claim its parts.
//!
//! A part's word holds the job's generation and a state: free, done, or who has begun it. Claiming is one compare-exchange
//! from "free in generation G", so a thread that slept through any number of jobs can claim nothing of the job it
//! remembers: that job is published no longer only when all its parts are done. The same argument makes the parameters
//! safe to read before the claim: a claim that succeeds proves that generation G was on the board all the while, and they
//! do not change while it is.
//!
//! The caller needs nobody: it claims what is free, waits for what has begun, and takes over what a dead thread began.

use crate::copy::kernel::{Copy, Flush};
use crate::copy::plan::{Job, PARTS};
use crate::sync::{constructor, words, AtomicU64, AtomicUsize, Ordering};

const FREE: u64 = 0;
const DONE: u64 = 0xff;
/// The caller's mark on parts that it does itself.
pub const CALLER: u8 = 0xfe;

/// State of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nobody has begun it.
    Free,
    /// Begun by this thread's mark.
    Begun(u8),
    /// Copied.
    Done,
}

/// A part that is the claimer's to copy.
#[derive(Clone, Copy)]
pub struct Claim {
    index: usize,
    generation: u64,
    dst: usize,
    src: usize,
    len: usize,
    copy: usize,
    flush: usize,
}

impl Claim {
    /// Copies the part.
    ///
    /// # Safety
    /// The published ranges are still valid: the caller of the job has not returned.
    pub unsafe fn copy(&self) {
        // SAFETY: only `publish` stores this word, from a value of type `Copy`.
        let copy = unsafe { core::mem::transmute::<usize, Copy>(self.copy) };
        // SAFETY: promised by the caller.
        unsafe { copy(self.dst as *mut u8, self.src as *const u8, self.len) };
    }

    /// What is left to do with the part's source, which may be done after [`Board::finish`].
    pub fn rest(&self) -> Option<Unflushed> {
        (self.flush != 0).then_some(Unflushed {
            flush: self.flush,
            src: self.src,
            len: self.len,
        })
    }
}

/// A part's source that is still in the caches.
#[derive(Clone, Copy)]
pub struct Unflushed {
    flush: usize,
    src: usize,
    len: usize,
}

impl Unflushed {
    /// Its first address, and the one after its last.
    pub const fn range(&self) -> (usize, usize) {
        (self.src, self.src.saturating_add(self.len))
    }

    /// Flushes it.
    ///
    /// # Safety
    /// The source is still mapped.
    pub unsafe fn flush(&self) {
        // SAFETY: only `publish` stores this word, from a value of type `Flush`.
        let flush = unsafe { core::mem::transmute::<usize, Flush>(self.flush) };
        // SAFETY: promised by the caller.
        unsafe { flush(self.src as *const u8, self.len) };
    }
}

/// The board.
pub struct Board {
    generation: AtomicU64,
    dst: AtomicUsize,
    src: AtomicUsize,
    len: AtomicUsize,
    part: AtomicUsize,
    count: AtomicUsize,
    copy: AtomicUsize,
    /// 0 = nothing is left to do after a part.
    flush: AtomicUsize,
    hint: AtomicUsize,
    parts: [AtomicU64; PARTS],
}

impl Board {
    constructor! {
        /// An empty board.
        pub fn new() -> Self {
            Board {
                generation: AtomicU64::new(0),
                dst: AtomicUsize::new(0),
                src: AtomicUsize::new(0),
                len: AtomicUsize::new(0),
                part: AtomicUsize::new(0),
                count: AtomicUsize::new(0),
                copy: AtomicUsize::new(0),
                flush: AtomicUsize::new(0),
                hint: AtomicUsize::new(0),
                parts: words![AtomicU64::new(DONE); PARTS],
            }
        }
    }

    /// Generation of the newest job; 0 = none yet.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Publishes a job of a copy from `src` to `dst` and returns its generation. All parts of the job before are done, and
    /// one thread publishes at a time.
    pub fn publish(
        &self,
        dst: *mut u8,
        src: *const u8,
        job: &Job,
        copy: Copy,
        flush: Option<Flush>,
    ) -> u64 {
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        self.dst
            .store((dst as usize).wrapping_add(job.offset), Ordering::Relaxed);
        self.src
            .store((src as usize).wrapping_add(job.offset), Ordering::Relaxed);
        self.len.store(job.len, Ordering::Relaxed);
        self.part.store(job.part, Ordering::Relaxed);
        self.count.store(job.parts, Ordering::Relaxed);
        self.copy.store(copy as usize, Ordering::Relaxed);
        let flush = flush.map_or(0, |flush| flush as usize);
        self.flush.store(flush, Ordering::Relaxed);
        self.hint.store(0, Ordering::Relaxed);
        for word in self.parts.iter().take(job.parts) {
            word.store(generation << 8 | FREE, Ordering::Release);
        }
        self.generation.store(generation, Ordering::Release);
        generation
    }

    /// Ends the job that is published, whatever became of its parts: fork may have come in the middle of it, and the child's
    /// helpers would copy between addresses that are somebody else's there. No other thread may be at the board.
    pub fn forget(&self) {
        // Two on: fork may also have come in the middle of the next job's publication.
        let generation = self.generation.load(Ordering::Relaxed) + 2;
        for word in &self.parts {
            word.store(generation << 8 | DONE, Ordering::Relaxed);
        }
        self.generation.store(generation, Ordering::Release);
    }

    /// Claims the next part that nobody was given yet; `None` when the job has no more, or is not `generation` any longer.
    pub fn claim(&self, generation: u64, me: u8) -> Option<Claim> {
        let count = self.count.load(Ordering::Relaxed).min(PARTS);
        loop {
            let index = self.hint.load(Ordering::Relaxed);
            if index >= count {
                return None;
            }
            // A plain counter may be moved by a thread that remembers an older job: the part it skips is found by the
            // caller's last look over all parts.
            let index = self.hint.fetch_add(1, Ordering::Relaxed);
            if let Some(claim) = self.swap(index, generation, FREE, me) {
                return Some(claim);
            }
            if self.generation.load(Ordering::Relaxed) != generation {
                return None;
            }
        }
    }

    /// Claims part `index` if nobody has begun it.
    pub fn claim_free(&self, index: usize, generation: u64, me: u8) -> Option<Claim> {
        self.swap(index, generation, FREE, me)
    }

    /// Takes over a part that `dead` began. Only when that thread is proved to be gone: a live one would write old bytes
    /// over newer ones.
    pub fn take_over(&self, index: usize, generation: u64, dead: u8, me: u8) -> Option<Claim> {
        self.swap(index, generation, u64::from(dead), me)
    }

    fn swap(&self, index: usize, generation: u64, from: u64, me: u8) -> Option<Claim> {
        let job = Job {
            offset: 0,
            len: self.len.load(Ordering::Relaxed),
            part: self.part.load(Ordering::Relaxed),
            parts: PARTS,
        };
        let (begin, len) = job.part(index)?;
        let claim = Claim {
            index,
            generation,
            dst: self.dst.load(Ordering::Relaxed).wrapping_add(begin),
            src: self.src.load(Ordering::Relaxed).wrapping_add(begin),
            len,
            copy: self.copy.load(Ordering::Relaxed),
            flush: self.flush.load(Ordering::Relaxed),
        };
        let word = self.parts.get(index)?;
        let (from, to) = (generation << 8 | from, generation << 8 | u64::from(me));
        // Release keeps the reads above before the exchange; acquire orders the copy behind it.
        word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        Some(claim)
    }

    /// Marks a claimed part as copied; its bytes are visible to whoever sees [`Part::Done`].
    pub fn finish(&self, claim: &Claim) {
        if let Some(word) = self.parts.get(claim.index) {
            word.store(claim.generation << 8 | DONE, Ordering::Release);
        }
    }

    /// State of part `index` of the job that is published now.
    pub fn look(&self, index: usize) -> Part {
        let word = self
            .parts
            .get(index)
            .map_or(DONE, |word| word.load(Ordering::Acquire));
        match word & 0xff {
            FREE => Part::Free,
            DONE => Part::Done,
            mark => Part::Begun(mark as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::kernel::Kernel;
    use crate::copy::plan::{jobs, PART};

    fn published(source: &[u8], target: &mut [u8]) -> (Board, Job, u64) {
        let board = Board::new();
        let job = jobs(source.len(), 4, PART).next().unwrap();
        let copy = Kernel::PORTABLE.keep;
        let generation = board.publish(target.as_mut_ptr(), source.as_ptr(), &job, copy, None);
        (board, job, generation)
    }

    #[test]
    fn claims_cover_the_job_once() {
        let source: Vec<u8> = (0..300_000).map(|at| at as u8).collect();
        let mut target = vec![0; source.len()];
        let (board, job, generation) = published(&source, &mut target);
        let mut claims = 0;
        while let Some(claim) = board.claim(generation, 1) {
            // SAFETY: both vectors are alive.
            unsafe { claim.copy() };
            board.finish(&claim);
            claims += 1;
        }
        assert_eq!(claims, job.parts);
        assert!((0..job.parts).all(|index| board.look(index) == Part::Done));
        assert!(target == source);
    }

    #[test]
    fn an_old_generation_claims_nothing() {
        let source = vec![1; 300_000];
        let mut target = vec![0; source.len()];
        let (board, job, old) = published(&source, &mut target);
        while let Some(claim) = board.claim(old, 1) {
            board.finish(&claim);
        }
        let copy = Kernel::PORTABLE.keep;
        let new = board.publish(target.as_mut_ptr(), source.as_ptr(), &job, copy, None);
        assert!(board.claim(old, 2).is_none());
        assert!((0..job.parts).all(|index| board.claim_free(index, old, 2).is_none()));
        assert!((0..job.parts).all(|index| board.look(index) == Part::Free));
        assert!(board.claim_free(0, new, 2).is_some());
    }

    #[test]
    fn a_forgotten_job_has_nothing_to_claim() {
        let source = vec![1; 300_000];
        let mut target = vec![0; source.len()];
        let (board, job, old) = published(&source, &mut target);
        assert!(board.claim(old, 3).is_some());
        board.forget();
        for generation in old..=board.generation() {
            assert!(board.claim(generation, 2).is_none());
            assert!((0..job.parts).all(|index| board.claim_free(index, generation, 2).is_none()));
        }
        assert!((0..PARTS).all(|index| board.look(index) == Part::Done));
        let copy = Kernel::PORTABLE.keep;
        let new = board.publish(target.as_mut_ptr(), source.as_ptr(), &job, copy, None);
        assert!(board.claim(old, 2).is_none() && board.claim(new, 2).is_some());
    }

    #[test]
    fn only_the_named_dead_thread_loses_its_part() {
        let source = vec![1; 300_000];
        let mut target = vec![0; source.len()];
        let (board, _, generation) = published(&source, &mut target);
        let claim = board.claim(generation, 3).unwrap();
        assert_eq!(board.look(0), Part::Begun(3));
        assert!(board.take_over(0, generation, 4, CALLER).is_none());
        assert!(board.claim_free(0, generation, CALLER).is_none());
        assert!(board.take_over(0, generation, 3, CALLER).is_some());
        board.finish(&claim);
        assert!(board.take_over(0, generation, 3, CALLER).is_none());
    }

    #[test]
    fn threads_share_many_jobs_without_losing_a_byte() {
        use std::sync::atomic::AtomicBool;
        let board = Board::new();
        let copy = Kernel::PORTABLE.keep;
        let rounds = if cfg!(miri) { 3 } else { 400 };
        let len = if cfg!(miri) { 20_000 } else { 70_000 };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for me in 1..=2u8 {
                let (board, stop) = (&board, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let generation = board.generation();
                        while let Some(claim) = board.claim(generation, me) {
                            // SAFETY: the publisher waits for all parts before it lets go of the vectors.
                            unsafe { claim.copy() };
                            board.finish(&claim);
                        }
                        std::thread::yield_now();
                    }
                });
            }
            for round in 0..rounds {
                let source: Vec<u8> = (0..len).map(|at| (at * 7 + round) as u8).collect();
                let mut target = vec![0u8; len];
                for job in jobs(len, 16, PART) {
                    let generation =
                        board.publish(target.as_mut_ptr(), source.as_ptr(), &job, copy, None);
                    for index in 0..job.parts {
                        if let Some(claim) = board.claim_free(index, generation, CALLER) {
                            // SAFETY: both vectors are alive.
                            unsafe { claim.copy() };
                            board.finish(&claim);
                        }
                        while board.look(index) != Part::Done {
                            std::thread::yield_now();
                        }
                    }
                }
                assert!(target == source, "round {round}");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
