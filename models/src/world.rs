//! The memory that the copies of one execution read and write, at addresses that nothing is mapped at. A part is one cell: who
//! copies it with the address of one job and the length of another, or twice, or at the same time as somebody else, is found.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use crate::cell::Tracked;
use crate::copy::plan::Job;
use crate::crew::Manner;

const DST: usize = 0x1000_0000;
const SRC: usize = 0x2000_0000;
/// Addresses of one job to those of the next.
const STRIDE: usize = 0x10_0000;
/// Length of a part: two are the shortest copy that the crew shares.
pub const PART: usize = 32 << 10;

/// Memory of some jobs.
pub struct World {
    from: Vec<Vec<Tracked>>,
    to: Vec<Vec<Tracked>>,
    /// How often each part was copied to its end.
    pub times: Vec<Vec<AtomicUsize>>,
    /// Called in the middle of each part.
    middle: Box<dyn Fn(usize, usize) + Send + Sync>,
}

thread_local! {
    static NOW: RefCell<Option<Arc<World>>> = const { RefCell::new(None) };
}

impl World {
    /// Memory for `jobs` jobs of `parts` parts, in this execution.
    pub fn new(jobs: usize, parts: usize) -> Arc<Self> {
        Self::with(jobs, parts, |_, _| {})
    }

    /// The same; `middle` is called with the job and the part in the middle of each copy.
    pub fn with(
        jobs: usize,
        parts: usize,
        middle: impl Fn(usize, usize) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let cells = || {
            (0..jobs)
                .map(|_| (0..parts).map(|_| Tracked::new(0)).collect())
                .collect()
        };
        let times = || (0..parts).map(|_| AtomicUsize::new(0)).collect();
        let world = Arc::new(World {
            from: cells(),
            to: cells(),
            times: (0..jobs).map(|_| times()).collect(),
            middle: Box::new(middle),
        });
        NOW.with(|now| *now.borrow_mut() = Some(world.clone()));
        world
    }

    /// Writes what job `job` is to copy, and says where it lies.
    pub fn prepare(&self, job: usize) -> (*mut u8, *const u8) {
        for (part, cell) in self.from[job].iter().enumerate() {
            cell.set(value(job, part));
        }
        (
            (DST + job * STRIDE) as *mut u8,
            (SRC + job * STRIDE) as *const u8,
        )
    }

    /// Looks at what a job has copied, then uses both ranges for something else, as the driver does.
    pub fn check(&self, job: usize) {
        for (part, cell) in self.to[job].iter().enumerate() {
            assert_eq!(cell.get(), value(job, part), "job {job}, part {part}");
            cell.set(0);
            self.from[job][part].set(0);
        }
    }

    /// Looks, when every thread has ended, that nobody wrote after the copies were checked.
    pub fn untouched(&self) {
        for (job, parts) in self.to.iter().enumerate() {
            for (part, cell) in parts.iter().enumerate() {
                assert_eq!(cell.get(), 0, "a late write to job {job}, part {part}");
            }
        }
    }

    /// As the plan would cut it.
    pub fn job(&self) -> Job {
        let parts = self.from[0].len();
        Job {
            offset: 0,
            len: parts * PART,
            part: PART,
            parts,
        }
    }

    /// A flush looks at its source, which must still be what it was copied from.
    fn flush(&self, src: usize, len: usize) {
        let from = src.wrapping_sub(SRC);
        assert_eq!(len, PART, "the length of another job");
        let (job, part) = (from / STRIDE, from % STRIDE / PART);
        assert_eq!(
            self.from[job][part].get(),
            value(job, part),
            "the source is gone"
        );
    }

    fn copy(&self, dst: usize, src: usize, len: usize) {
        let (to, from) = (dst.wrapping_sub(DST), src.wrapping_sub(SRC));
        assert_eq!(to, from, "addresses of two jobs");
        assert_eq!(len, PART, "the length of another job");
        let (job, part) = (to / STRIDE, to % STRIDE / PART);
        let bytes = self.from[job][part].get();
        (self.middle)(job, part);
        self.to[job][part].set(bytes);
        self.times[job][part].fetch_add(1, Ordering::Relaxed);
    }
}

fn value(job: usize, part: usize) -> u64 {
    (job * 100 + part + 1) as u64
}

/// What the crew is told of a copy in `threads` parts, with a flush that may come later or without.
pub fn manner(threads: usize, flushes: bool) -> Manner {
    Manner {
        threads,
        part: PART,
        copy,
        flush: flushes.then_some(flush),
    }
}

/// The flush of a model.
///
/// # Safety
/// None needed: the addresses are not followed.
unsafe fn flush(from: *const u8, len: usize) {
    let world = NOW.with(|now| now.borrow().clone()).expect("a world");
    world.flush(from as usize, len);
}

/// The copy loop of a model.
///
/// # Safety
/// None needed: the addresses are not followed.
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    let world = NOW.with(|now| now.borrow().clone()).expect("a world");
    world.copy(dst as usize, src as usize, len);
}
