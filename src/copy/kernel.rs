//! The copy loops, one per instruction set, and the flush of the source's cache lines. The only intrinsics of the shim.
//!
//! Non-temporal stores: into the buffer they save reading lines that are written whole (measured with 8 threads: 65-80
//! GB/s against 40), into a staging buffer they leave no dirty lines for the GPU's read to snoop (36-41 GB/s against 20).
//! Flushing the source: after CPUs have read a staging buffer, the GPU's next write into it waits for their caches
//! (20 GB/s however many threads copy); `clflushopt` removes that (H200, driver 580.159.04).

/// Copies `len` bytes from `src` to `dst`; the ranges do not overlap. All bytes are visible to other threads when the
/// call has returned and they have seen a later store of this thread.
pub type Copy = unsafe fn(dst: *mut u8, src: *const u8, len: usize);

/// Flushes the cache lines of a range that is mapped; changes no value.
pub type Flush = unsafe fn(from: *const u8, len: usize);

/// Loops for one phase, chosen by what the CPU has now.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// Copies; the source stays in the caches.
    pub keep: Copy,
    /// Copies, and leaves no line of the source in any cache.
    pub flush: Copy,
    /// As `keep`, and the source does not go through the second-level cache.
    pub ahead: Copy,
    /// Ordinary stores.
    pub plain: Copy,
    /// As `keep`, without zeros over zeros.
    pub sparse: Copy,
    /// As `flush`, without zeros over zeros.
    pub sparse_flush: Copy,
    /// Whether `keep` has stores past the caches.
    pub streams: bool,
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

/// What the CPU of this moment offers: `(loop, clflushopt)`. Asked anew in each phase with raw cpuid: std remembers its
/// answer, and a process may have been moved to another CPU since.
pub fn detect() -> (Isa, bool) {
    #[cfg(all(target_arch = "x86_64", not(cudasnap_portable)))]
    return x86::detect();
    #[cfg(not(all(target_arch = "x86_64", not(cudasnap_portable))))]
    (Isa::Portable, false)
}

/// The loops for an instruction set; the portable ones where the target has no others.
pub fn choose(isa: Isa, clflushopt: bool) -> Kernel {
    #[cfg(all(target_arch = "x86_64", not(cudasnap_portable)))]
    return x86::choose(isa, clflushopt);
    #[cfg(not(all(target_arch = "x86_64", not(cudasnap_portable))))]
    {
        let _ = (isa, clflushopt);
        Kernel::PORTABLE
    }
}

impl Kernel {
    /// Loops without intrinsics.
    pub const PORTABLE: Kernel = Kernel {
        keep: portable,
        flush: portable,
        ahead: portable,
        plain: portable,
        sparse: portable_sparse,
        sparse_flush: portable_sparse,
        streams: false,
        rest: None,
    };
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
    unsafe { super::sparse::all_but_zeros(dst, src, len, portable) };
}

#[cfg(all(target_arch = "x86_64", not(cudasnap_portable)))]
mod x86 {
    use super::super::sparse::all_but_zeros;
    use super::{Isa, Kernel};
    use core::arch::x86_64::{
        __cpuid, __cpuid_count, __m128i, __m256i, __m512i, _mm256_loadu_si256, _mm256_stream_si256,
        _mm512_loadu_si512, _mm512_stream_si512, _mm_loadu_si128, _mm_prefetch, _mm_sfence,
        _mm_stream_si128, _xgetbv, _MM_HINT_NTA,
    };

    const LINE: usize = 64;
    /// Bytes whose source lines are flushed right after they were copied: while they are still in the first-level cache.
    const FLUSH_EVERY: usize = 4096;
    /// Bytes that a source is prefetched ahead of its copy (H200 host, staging buffers: 0.5 to 4 KiB are the same).
    const AHEAD: usize = 2048;

    #[target_feature(enable = "xsave")]
    unsafe fn enabled_state() -> u64 {
        // SAFETY: cpuid said OSXSAVE, checked by the caller.
        unsafe { _xgetbv(0) }
    }

    pub fn detect() -> (Isa, bool) {
        if __cpuid(0).eax < 7 {
            return (Isa::Sse2, false);
        }
        let basic = __cpuid(1);
        let extended = __cpuid_count(7, 0);
        let clflushopt = extended.ebx & (1 << 23) != 0;
        let osxsave = basic.ecx & (1 << 27) != 0;
        let state = if osxsave {
            // SAFETY: only with OSXSAVE is xgetbv there.
            unsafe { enabled_state() }
        } else {
            0
        };
        let avx2 = extended.ebx & (1 << 5) != 0 && state & 0b110 == 0b110;
        let avx512 = extended.ebx & (1 << 16) != 0 && state & 0b1110_0110 == 0b1110_0110;
        let isa = match (avx512, avx2) {
            (true, _) => Isa::Avx512,
            (_, true) => Isa::Avx2,
            _ => Isa::Sse2,
        };
        (isa, clflushopt)
    }

    pub fn choose(isa: Isa, clflushopt: bool) -> Kernel {
        macro_rules! kernel {
            ($name:ident) => {
                Kernel {
                    keep: $name::<false, 0>,
                    flush: $name::<true, 0>,
                    ahead: $name::<false, AHEAD>,
                    plain,
                    sparse: |dst, src, len| {
                        // SAFETY: promised by the caller; the loop is of this CPU.
                        unsafe { all_but_zeros(dst, src, len, $name::<false, 0>) }
                    },
                    sparse_flush: |dst, src, len| {
                        // SAFETY: the same; all of the source's lines are flushed, whatever was done with them.
                        unsafe {
                            all_but_zeros(dst, src, len, $name::<false, 0>);
                            flush_lines(src, len);
                        }
                    },
                    streams: true,
                    rest: Some(flush_range),
                }
            };
        }
        let kernel = match isa {
            Isa::Avx512 => kernel!(avx512),
            Isa::Avx2 => kernel!(avx2),
            Isa::Sse2 => kernel!(sse2),
            Isa::Portable => return Kernel::PORTABLE,
        };
        if clflushopt {
            return kernel;
        }
        Kernel {
            flush: kernel.keep,
            sparse_flush: kernel.sparse,
            rest: None,
            ..kernel
        }
    }

    /// # Safety
    /// As [`flush_lines`].
    unsafe fn flush_range(from: *const u8, len: usize) {
        // SAFETY: promised by the caller.
        unsafe { flush_lines(from, len) };
    }

    /// Flushes every line that holds a byte of the range. `clflushopt` is encoded by hand: it has no intrinsic.
    ///
    /// # Safety
    /// The CPU has `clflushopt`; the range is mapped.
    #[inline(always)]
    unsafe fn flush_lines(from: *const u8, len: usize) {
        let end = from as usize + len;
        // Of nothing not even the line that its address lies in: nobody says that it is mapped.
        let mut line = if len == 0 {
            end
        } else {
            from as usize & !(LINE - 1)
        };
        while line < end {
            // SAFETY: flushing a line changes no value.
            unsafe {
                core::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags))
            };
            line += LINE;
        }
    }

    /// Copies a few bytes. A helper must not call libc's memcpy, which is what any other form becomes: an interposed one would
    /// run with the thread-local storage of another thread.
    ///
    /// # Safety
    /// As [`super::Copy`].
    #[inline(always)]
    unsafe fn few(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: promised by the caller; the direction flag is clear by the calling convention.
        unsafe {
            core::arch::asm!(
                "rep movsb",
                inout("rcx") len => _, inout("rdi") dst => _, inout("rsi") src => _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// Ordinary stores, in the CPU's own way.
    ///
    /// # Safety
    /// As [`super::Copy`].
    unsafe fn plain(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: promised by the caller.
        unsafe { few(dst, src, len) };
    }

    /// Brings `dst` to a multiple of a cache line with ordinary stores; returns the bytes taken.
    ///
    /// # Safety
    /// As [`super::Copy`].
    #[inline(always)]
    unsafe fn head(dst: *mut u8, src: *const u8, len: usize) -> usize {
        let ahead = dst.align_offset(LINE).min(len);
        // SAFETY: promised by the caller.
        unsafe { few(dst, src, ahead) };
        ahead
    }

    macro_rules! streaming_loop {
        ($(#[$meta:meta])* $name:ident, $features:literal, $vector:ty, $load:ident, $store:ident) => {
            $(#[$meta])*
            ///
            /// # Safety
            /// As [`super::Copy`], on a CPU with these features, and `clflushopt` where `FLUSH`.
            #[target_feature(enable = $features)]
            unsafe fn $name<const FLUSH: bool, const AHEAD: usize>(dst: *mut u8, src: *const u8, len: usize) {
                const WIDTH: usize = size_of::<$vector>();
                // SAFETY: every address stays within the two ranges that the caller vouches for; streaming stores are
                // aligned after the head.
                unsafe {
                    let mut at = head(dst, src, len);
                    let mut flushed = 0;
                    while len - at >= 4 * LINE {
                        let (to, from) = (dst.add(at), src.add(at));
                        let mut within = 0;
                        while within < 4 * LINE {
                            if AHEAD > 0 && within.is_multiple_of(LINE) {
                                // A hint: an address behind the range does no harm.
                                _mm_prefetch::<_MM_HINT_NTA>(from.wrapping_add(within + AHEAD).cast());
                            }
                            let value = $load(from.add(within).cast::<$vector>());
                            $store(to.add(within).cast::<$vector>(), value);
                            within += WIDTH;
                        }
                        at += 4 * LINE;
                        if FLUSH && at - flushed >= FLUSH_EVERY {
                            flush_lines(src.add(flushed), at - flushed);
                            flushed = at;
                        }
                    }
                    few(dst.add(at), src.add(at), len - at);
                    if FLUSH {
                        flush_lines(src.add(flushed), len - flushed);
                    }
                    _mm_sfence();
                }
            }
        };
    }

    streaming_loop!(
        /// 64-byte streaming stores.
        avx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512
    );
    streaming_loop!(
        /// 32-byte streaming stores.
        avx2, "avx2", __m256i, _mm256_loadu_si256, _mm256_stream_si256
    );
    streaming_loop!(
        /// 16-byte streaming stores.
        sse2, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every loop that this CPU can run.
    fn loops() -> Vec<(String, Copy)> {
        let (best, clflushopt) = detect();
        let order = [Isa::Avx512, Isa::Avx2, Isa::Sse2, Isa::Portable];
        let from = order.iter().position(|&isa| isa == best).unwrap();
        let mut all = Vec::new();
        for isa in &order[from..] {
            for flush in [false, clflushopt] {
                let kernel = choose(*isa, flush);
                all.push((format!("{isa:?} keep, clflushopt {flush}"), kernel.keep));
                all.push((format!("{isa:?} flush, clflushopt {flush}"), kernel.flush));
                all.push((format!("{isa:?} ahead, clflushopt {flush}"), kernel.ahead));
                all.push((format!("{isa:?} plain, clflushopt {flush}"), kernel.plain));
                all.push((format!("{isa:?} sparse, clflushopt {flush}"), kernel.sparse));
                all.push((
                    format!("{isa:?} sparse flush, clflushopt {flush}"),
                    kernel.sparse_flush,
                ));
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
        let (isa, clflushopt) = detect();
        if let Some(flush) = choose(isa, clflushopt).rest {
            // SAFETY: no bytes.
            unsafe { flush(std::ptr::without_provenance(1), 0) };
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
