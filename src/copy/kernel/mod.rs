//! The copy loops, and what they do with the cache lines of a staging buffer. The only intrinsics of the shim are in its file for x86-64.
//!
//! Non-temporal stores: into the buffer they save reading lines that are written whole (measured with 8 threads: 65-80
//! GB/s against 40), into a staging buffer they leave no dirty lines for the GPU's read to snoop (36-41 GB/s against 20).
//! Flushing the source: after CPUs have read a staging buffer, the GPU's next write into it waits for their caches
//! (20 GB/s however many threads copy); `clflushopt` removes that (H200, driver 580.159.04).
//! Demoting: where the CPU has `cldemote`, lines that are sent to the shared cache right after they were used are no private cache's
//! for the GPU to wait for, and the staging buffer never goes through memory: two processes on two GPUs copy a third faster.

#[cfg(all(target_arch = "x86_64", not(cudasnap_portable)))]
mod x86;

/// Copies `len` bytes from `src` to `dst`; the ranges do not overlap. All bytes are visible to other threads and to devices when the
/// call has returned and they have seen a later store of this thread, whatever kind of memory the target is: in a restore the driver
/// has one block copied into a mapping of the device, which may be write-combining, where even ordinary stores wait in the core's buffers.
pub type Copy = unsafe fn(dst: *mut u8, src: *const u8, len: usize);

/// Flushes the cache lines of a range that is mapped; changes no value.
pub type Flush = unsafe fn(from: *const u8, len: usize);

/// Loops for one phase, chosen by what the CPU has now.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// Stores past the caches; the source stays in them.
    pub keep: Copy,
    /// The same, and leaves no line of the source in any cache.
    pub flush: Copy,
    /// As `keep`, and the source does not go through the second-level cache.
    pub ahead: Copy,
    /// As `keep`, and the source is fetched far ahead: it comes from memory.
    pub fetch: Copy,
    /// As `keep`, and each line of the source goes to the shared cache when it was read.
    pub demote_source: Copy,
    /// Ordinary stores, and each line of the target goes to the shared cache when it was written.
    pub demote_target: Copy,
    /// Ordinary stores.
    pub plain: Copy,
    /// As `keep`, without zeros over zeros.
    pub sparse: Copy,
    /// As `flush`, without zeros over zeros.
    pub sparse_flush: Copy,
    /// As `demote_source`, without zeros over zeros.
    pub sparse_demote: Copy,
    /// Whether `keep` has stores past the caches.
    pub streams: bool,
    /// Whether demoting is more than a hint that the CPU does not know.
    pub demotes: bool,
    /// What `keep` leaves undone of `flush`; `None` where the CPU has no flush that is worth it.
    pub rest: Option<Flush>,
}

/// An instruction set that a loop needs.
#[cfg_attr(any(not(target_arch = "x86_64"), cudasnap_portable), allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// 64-byte stores.
    Avx512,
    /// 32-byte stores.
    Avx2,
    /// 16-byte stores: every x86-64 CPU.
    Sse2,
    /// No intrinsics.
    Portable,
}

/// What a CPU offers, as far as copies go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The widest loop.
    pub isa: Isa,
    /// Lines can be flushed without an order among them.
    pub clflushopt: bool,
    /// Lines can be sent to the shared cache.
    pub cldemote: bool,
}

impl Cpu {
    /// Nothing is known.
    pub const PORTABLE: Cpu = Cpu {
        isa: Isa::Portable,
        clflushopt: false,
        cldemote: false,
    };

    /// The CPU of this moment. Asked anew in each phase with raw cpuid: std remembers its answer, and a process may have been
    /// moved to another CPU since.
    pub fn detect() -> Self {
        #[cfg(all(target_arch = "x86_64", not(cudasnap_portable)))]
        return x86::detect();
        #[cfg(not(all(target_arch = "x86_64", not(cudasnap_portable))))]
        Cpu::PORTABLE
    }
}

impl Kernel {
    /// Loops without intrinsics.
    pub const PORTABLE: Kernel = Kernel {
        keep: portable,
        flush: portable,
        ahead: portable,
        fetch: portable,
        demote_source: portable,
        demote_target: portable,
        plain: portable,
        sparse: portable_sparse,
        sparse_flush: portable_sparse,
        sparse_demote: portable_sparse,
        streams: false,
        demotes: false,
        rest: None,
    };

    /// The loops for a CPU; the portable ones where the target has no others.
    pub fn of(cpu: Cpu) -> Self {
        #[cfg(all(target_arch = "x86_64", not(cudasnap_portable)))]
        return x86::kernel(cpu);
        #[cfg(not(all(target_arch = "x86_64", not(cudasnap_portable))))]
        {
            let _ = cpu;
            Kernel::PORTABLE
        }
    }
}

/// Loops for other architectures; there only the caller runs them, which may call libc's memcpy.
///
/// # Safety
/// Both ranges are valid for `len` bytes and do not overlap.
unsafe fn portable(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: promised by the caller.
    unsafe { core::ptr::copy_nonoverlapping(src, dst, len) };
}

/// # Safety
/// As [`portable`].
unsafe fn portable_sparse(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: promised by the caller.
    unsafe { super::sparse::all_but_zeros(dst, src, len, portable, nothing) };
}

/// Leaves lines where they are.
///
/// # Safety
/// None.
unsafe fn nothing(_: *const u8, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every loop that this CPU can run.
    fn loops() -> Vec<(String, Copy)> {
        let Cpu {
            isa: best,
            clflushopt,
            ..
        } = Cpu::detect();
        let order = [Isa::Avx512, Isa::Avx2, Isa::Sse2, Isa::Portable];
        let from = order.iter().position(|&isa| isa == best).unwrap();
        let mut all = Vec::new();
        for &isa in &order[from..] {
            for clflushopt in [false, clflushopt] {
                // A CPU that does not know the hint passes it by.
                let kernel = Kernel::of(Cpu {
                    isa,
                    clflushopt,
                    cldemote: true,
                });
                let named = [
                    ("keep", kernel.keep),
                    ("flush", kernel.flush),
                    ("ahead", kernel.ahead),
                    ("fetch", kernel.fetch),
                    ("demote source", kernel.demote_source),
                    ("demote target", kernel.demote_target),
                    ("plain", kernel.plain),
                    ("sparse", kernel.sparse),
                    ("sparse flush", kernel.sparse_flush),
                    ("sparse demote", kernel.sparse_demote),
                ];
                all.extend(named.map(|(name, copy)| {
                    (format!("{isa:?} {name}, clflushopt {clflushopt}"), copy)
                }));
            }
        }
        all
    }

    #[test]
    fn of_nothing_not_even_the_address_is_touched() {
        let mut target = [7u8; 64];
        for (name, copy) in loops() {
            for from in [1, 63, 64] {
                // SAFETY: no bytes.
                unsafe { copy(target.as_mut_ptr(), std::ptr::without_provenance(from), 0) };
            }
            assert_eq!(target, [7; 64], "{name}");
        }
        if let Some(flush) = Kernel::of(Cpu::detect()).rest {
            // SAFETY: no bytes.
            unsafe { flush(std::ptr::without_provenance(1), 0) };
        }
    }

    const LINE: usize = 64;

    /// Whole pages between two that nobody may touch; unmapped on drop.
    struct Guarded {
        from: usize,
        pages: usize,
    }

    impl Guarded {
        const PAGE: usize = 4096;

        fn new(pages: usize) -> Self {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let all = (pages + 2) * Self::PAGE;
            // SAFETY: new memory, of which only the middle becomes accessible.
            let from =
                unsafe { libc::mmap(std::ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
            assert_ne!(from, libc::MAP_FAILED);
            let from = from as usize + Self::PAGE;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: inside that mapping.
            let done = unsafe { libc::mprotect(from as *mut _, pages * Self::PAGE, access) };
            assert_eq!(done, 0);
            Guarded { from, pages }
        }

        fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: the accessible part, borrowed for as long.
            unsafe { std::slice::from_raw_parts_mut(self.from as *mut u8, self.pages * Self::PAGE) }
        }
    }

    impl Drop for Guarded {
        fn drop(&mut self) {
            let all = (self.pages + 2) * Self::PAGE;
            // SAFETY: nobody uses it any more.
            unsafe { libc::munmap((self.from - Self::PAGE) as *mut _, all) };
        }
    }

    /// Neither is a byte read before or behind the source nor one written before or behind the target, by hints neither.
    #[test]
    fn nothing_outside_of_either_range_is_needed() {
        let (mut source, mut target) = (Guarded::new(3), Guarded::new(3));
        let longest = 3 * Guarded::PAGE;
        for (at, byte) in source.bytes().iter_mut().enumerate() {
            *byte = (at as u8).wrapping_mul(31).wrapping_add(7);
        }
        let lengths = (0..140).chain([511, 513, 577, 4095, 4097, longest - 65]);
        for len in lengths {
            for (name, copy) in loops() {
                // Each range at the begin and at the end of what is accessible, and near it.
                for offset in [0, 1, 17, 63, 64]
                    .into_iter()
                    .filter(|offset| len + offset <= longest)
                {
                    let places = [offset, longest - len - offset];
                    for (from, to) in [(places[0], places[1]), (places[1], places[0])] {
                        let around = to.saturating_sub(LINE)..(to + len + LINE).min(longest);
                        target.bytes()[around.clone()].fill(0xee);
                        let (dst, src) = (target.bytes().as_mut_ptr(), source.bytes().as_ptr());
                        // SAFETY: inside both.
                        unsafe { copy(dst.add(to), src.add(from), len) };
                        let (written, read) = (target.bytes(), source.bytes());
                        let is_right = written[to..to + len] == read[from..from + len];
                        assert!(is_right, "{name}: {len} bytes");
                        let spared = &[&written[around.start..to], &written[to + len..around.end]];
                        let is_spared = spared
                            .iter()
                            .all(|bytes| bytes.iter().all(|&byte| byte == 0xee));
                        assert!(is_spared, "{name}: {len} bytes");
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn exactly_the_asked_bytes_are_copied(len in 0usize..20_000, to in 0usize..130, from in 0usize..130, seed in any::<u8>()) {
            let source: Vec<u8> = (0..len + 300).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect();
            for (name, copy) in loops() {
                let mut target = vec![0xeeu8; len + 300];
                // SAFETY: both ranges lie inside their vectors.
                unsafe { copy(target.as_mut_ptr().add(to), source.as_ptr().add(from), len) };
                prop_assert!(target[to..to + len] == source[from..from + len], "{} wrong bytes", name);
                prop_assert!(target[..to].iter().all(|&byte| byte == 0xee), "{} wrote before", name);
                prop_assert!(target[to + len..].iter().all(|&byte| byte == 0xee), "{} wrote behind", name);
            }
        }
    }
}
