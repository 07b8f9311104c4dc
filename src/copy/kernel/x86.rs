//! Loops for x86-64, one per width of store, and the instructions that move cache lines.

use super::super::sparse::all_but_zeros;
use super::{nothing, Cpu, Isa, Kernel};
use core::arch::x86_64::{
    __cpuid, __cpuid_count, __m128i, __m256i, __m512i, _mm256_loadu_si256, _mm256_store_si256,
    _mm256_stream_si256, _mm512_loadu_si512, _mm512_store_si512, _mm512_stream_si512,
    _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_store_si128, _mm_stream_si128, _xgetbv,
    _MM_HINT_NTA, _MM_HINT_T1,
};

const LINE: usize = 64;
/// Bytes whose source lines are flushed right after they were copied: while they are still in the first-level cache.
const FLUSH_EVERY: usize = 4096;
/// Bytes that a source is prefetched ahead of its copy (H200 host, staging buffers: 0.5 to 4 KiB are the same).
const AHEAD: usize = 2048;
/// The same where it comes from memory, over the next page's border, where the CPU's own prefetch stops: restores 1 to 6 % faster than
/// without (same host; 4 and 16 KiB are less or the same).
const FAR_AHEAD: usize = 8192;
/// Bytes that a target is fetched ahead of ordinary stores, whose lines are in the shared cache.
const WRITE_AHEAD: usize = 512;

#[target_feature(enable = "xsave")]
unsafe fn enabled_state() -> u64 {
    // SAFETY: cpuid said OSXSAVE, checked by the caller.
    unsafe { _xgetbv(0) }
}

pub fn detect() -> Cpu {
    if __cpuid(0).eax < 7 {
        return Cpu {
            isa: Isa::Sse2,
            ..Cpu::PORTABLE
        };
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
    let cldemote = extended.ecx & (1 << 25) != 0;
    Cpu {
        isa,
        clflushopt,
        cldemote,
    }
}

pub fn kernel(cpu: Cpu) -> Kernel {
    macro_rules! kernel {
        ($isa:ident) => {
            Kernel {
                keep: $isa::stream::<KEEP, 0, _MM_HINT_NTA>,
                flush: $isa::stream::<FLUSH, 0, _MM_HINT_NTA>,
                ahead: $isa::stream::<KEEP, AHEAD, _MM_HINT_NTA>,
                fetch: $isa::stream::<KEEP, FAR_AHEAD, _MM_HINT_T1>,
                demote_source: $isa::stream::<DEMOTE, 0, _MM_HINT_NTA>,
                demote_target: $isa::store,
                plain,
                sparse: |dst, src, len| {
                    // SAFETY: promised by the caller; the loop is of this CPU.
                    unsafe { all_but_zeros(dst, src, len, $isa::stream::<KEEP, 0, _MM_HINT_NTA>, nothing) }
                },
                sparse_flush: |dst, src, len| {
                    // SAFETY: the same; all of the source's lines are flushed, whatever was done with them.
                    unsafe {
                        all_but_zeros(dst, src, len, $isa::stream::<KEEP, 0, _MM_HINT_NTA>, nothing);
                        flush_lines(src, len);
                    }
                },
                sparse_demote: |dst, src, len| {
                    // SAFETY: the same.
                    unsafe {
                        all_but_zeros(dst, src, len, $isa::stream::<DEMOTE, 0, _MM_HINT_NTA>, demote_range)
                    }
                },
                streams: true,
                demotes: cpu.cldemote,
                rest: Some(flush_range),
            }
        };
    }
    let kernel = match cpu.isa {
        Isa::Avx512 => kernel!(avx512),
        Isa::Avx2 => kernel!(avx2),
        Isa::Sse2 => kernel!(sse2),
        Isa::Portable => return Kernel::PORTABLE,
    };
    if cpu.clflushopt {
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

/// Sends the line that holds an address to the shared cache: a hint, which a CPU that does not know it passes by.
///
/// # Safety
/// The address is mapped.
#[inline(always)]
unsafe fn demote_line(at: *const u8) {
    // SAFETY: it changes no value. It has no intrinsic.
    unsafe { core::arch::asm!("cldemote [{}]", in(reg) at, options(nostack, preserves_flags)) };
}

/// Every line that holds a byte of the range.
///
/// # Safety
/// The range is mapped.
#[inline(always)]
unsafe fn demote_lines(from: *const u8, len: usize) {
    let mut at = 0;
    while at < len {
        // SAFETY: inside the range.
        unsafe { demote_line(from.add(at)) };
        at += LINE;
    }
    if len > 0 {
        // SAFETY: the same. Where the range does not begin with a line, its end may lie in one more.
        unsafe { demote_line(from.add(len - 1)) };
    }
}

/// # Safety
/// As [`demote_lines`].
unsafe fn demote_range(from: *const u8, len: usize) {
    // SAFETY: promised by the caller.
    unsafe { demote_lines(from, len) };
}

/// Fetches a line that will be written. It has no intrinsic that is sure to become it.
#[inline(always)]
fn fetch_to_write(at: *const u8) {
    // SAFETY: a hint: it changes no value, and any address will do.
    unsafe { core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags)) };
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
    unsafe {
        few(dst, src, len);
        _mm_sfence();
    }
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

/// What becomes of the source's lines.
const KEEP: u8 = 0;
const FLUSH: u8 = 1;
const DEMOTE: u8 = 2;

macro_rules! loops {
    ($(#[$meta:meta])* $isa:ident, $features:literal, $vector:ty, $load:ident, $stream:ident, $store:ident) => {
        $(#[$meta])*
        mod $isa {
            use super::*;

            const WIDTH: usize = size_of::<$vector>();

            /// Stores past the caches.
            ///
            /// # Safety
            /// As [`super::super::Copy`], on a CPU with these features, and `clflushopt` where lines are flushed.
            #[target_feature(enable = $features)]
            pub unsafe fn stream<const LINES: u8, const AHEAD: usize, const HINT: i32>(
                dst: *mut u8,
                src: *const u8,
                len: usize,
            ) {
                // SAFETY: every address stays within the two ranges that the caller vouches for; streaming stores are
                // aligned after the head.
                unsafe {
                    let mut at = head(dst, src, len);
                    let mut flushed = 0;
                    if LINES == DEMOTE {
                        demote_lines(src, at);
                    }
                    while len - at >= LINE {
                        let (to, from) = (dst.add(at), src.add(at));
                        if AHEAD > 0 {
                            // A hint: an address behind the range does no harm.
                            _mm_prefetch::<HINT>(from.wrapping_add(AHEAD).cast());
                        }
                        let mut within = 0;
                        while within < LINE {
                            let value = $load(from.add(within).cast::<$vector>());
                            $stream(to.add(within).cast::<$vector>(), value);
                            within += WIDTH;
                        }
                        if LINES == DEMOTE {
                            // The line that the bytes begin in: of one more, the rest comes next.
                            demote_line(from);
                        }
                        at += LINE;
                        if LINES == FLUSH && at - flushed >= FLUSH_EVERY {
                            flush_lines(src.add(flushed), at - flushed);
                            flushed = at;
                        }
                    }
                    few(dst.add(at), src.add(at), len - at);
                    match LINES {
                        FLUSH => flush_lines(src.add(flushed), len - flushed),
                        // With it, the line that the last whole ones end in.
                        DEMOTE => demote_lines(src.add(at.saturating_sub(1)), len - at.saturating_sub(1)),
                        _ => {}
                    }
                    _mm_sfence();
                }
            }

            /// Ordinary stores into lines that were sent to the shared cache, and go there again.
            ///
            /// # Safety
            /// As [`super::super::Copy`], on a CPU with these features.
            #[target_feature(enable = $features)]
            pub unsafe fn store(dst: *mut u8, src: *const u8, len: usize) {
                // SAFETY: every address stays within the two ranges that the caller vouches for, but for those of hints; stores are
                // aligned after the head.
                unsafe {
                    let mut at = head(dst, src, len);
                    demote_lines(dst, at);
                    while len - at >= LINE {
                        let (to, from) = (dst.add(at), src.add(at));
                        _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(FAR_AHEAD).cast());
                        if len - at > WRITE_AHEAD {
                            // Not behind the range: there another helper writes.
                            fetch_to_write(to.add(WRITE_AHEAD));
                        }
                        let mut within = 0;
                        while within < LINE {
                            let value = $load(from.add(within).cast::<$vector>());
                            $store(to.add(within).cast::<$vector>(), value);
                            within += WIDTH;
                        }
                        demote_line(to);
                        at += LINE;
                    }
                    few(dst.add(at), src.add(at), len - at);
                    demote_lines(dst.add(at), len - at);
                    // For a target that is write-combining: without it stores wait in the core's buffers, for ever maybe.
                    _mm_sfence();
                }
            }
        }
    };
}

loops!(
    /// 64 bytes at a time.
    avx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512, _mm512_store_si512
);
loops!(
    /// 32 bytes at a time.
    avx2, "avx2", __m256i, _mm256_loadu_si256, _mm256_stream_si256, _mm256_store_si256
);
loops!(
    /// 16 bytes at a time.
    sse2, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128, _mm_store_si128
);
