//! What the benches (`benches/`) measure of the library's inside. Nothing else uses it.

pub use crate::copy::kernel;
pub use crate::pages::{How, Pages};

use core::sync::atomic::AtomicU32;

use crate::copy::plan;
use crate::crew::{First, Manner, CREW, STACKS};
use crate::sys;

/// Cuts a copy as the crew does; the last part's offset and length.
pub fn cut(len: usize, threads: usize) -> (usize, usize) {
    let mut last = (0, 0);
    for job in plan::jobs(len, threads, plan::PART) {
        for index in 0..job.parts {
            last = job.part(index).unwrap_or(last);
        }
    }
    last
}

/// New anonymous memory, in huge pages where asked for and where the kernel grants them; unmapped on drop.
#[derive(Debug)]
pub struct Memory {
    mapping: usize,
    mapped: usize,
    start: usize,
    len: usize,
}

const HUGE: usize = 2 << 20;

impl Memory {
    /// `len` bytes at a multiple of 2 MiB, not touched yet.
    ///
    /// # Panics
    /// Without memory.
    pub fn new(len: usize, huge: bool) -> Self {
        let mapped = len + HUGE;
        // SAFETY: a new mapping anywhere.
        let mapping =
            unsafe { sys::mmap(0, mapped, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }
                .expect("memory");
        let advice = if huge {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        // SAFETY: changes how the range is faulted, no contents.
        let _ = unsafe { sys::madvise(mapping, mapped, advice) };
        Memory {
            mapping,
            mapped,
            start: mapping.next_multiple_of(HUGE),
            len,
        }
    }

    /// Address of its first byte.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Its length.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made by `new`; who uses it borrows it.
        let _ = unsafe { sys::munmap(self.mapping, self.mapped) };
    }
}

/// The crew in a phase with copies, as in a restore. One at a time in a process.
#[derive(Debug)]
pub struct Crew {
    stacks: Memory,
    helpers: u32,
}

/// Where a crew that leaves by itself says so.
static LEFT: AtomicU32 = AtomicU32::new(0);

impl Crew {
    /// A phase begins, with so many helpers.
    ///
    /// # Panics
    /// When the kernel refuses a thread.
    pub fn begin(helpers: u32) -> Self {
        let crew = Crew {
            stacks: Memory::new(STACKS, false),
            helpers,
        };
        CREW.pages.disarm();
        crew.again();
        crew
    }

    /// Calls back helpers that left because no copy came for 20 ms; returns when all are there.
    ///
    /// # Panics
    /// When the kernel refuses a thread.
    pub fn again(&self) {
        CREW.begin(sys::now_ns(), First::Copy, &LEFT);
        // SAFETY: writable memory of that size, unmapped only after the crew is gone.
        let recruited = unsafe { CREW.recruit(self.helpers, self.stacks.start()) };
        assert!(!recruited.refused, "the kernel refused a thread");
    }

    /// Helpers that are alive.
    pub fn alive(&self) -> u32 {
        CREW.alive()
    }

    /// One copy, shared with the helpers.
    ///
    /// # Safety
    /// Both ranges are valid for `len` bytes and do not overlap, as far as `copy` touches them.
    pub unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize, copy: kernel::Copy) {
        let manner = Manner {
            threads: self.helpers as usize + 1,
            part: plan::PART,
            copy,
            flush: None,
        };
        // SAFETY: promised by the caller.
        unsafe { CREW.copy(dst, src, len, &manner) };
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Nothing may touch the stacks any more. A helper that somebody stopped keeps this waiting.
        while CREW.dismiss() > 0 {}
    }
}

/// CPUs that this process may use.
pub fn cpus() -> u32 {
    sys::allowed_cpus()
}
