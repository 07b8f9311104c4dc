//! Copies that leave out what changes nothing: blocks of zeros over zeros. New memory reads as zeros without a page of its own, so that a
//! buffer holds pages only for what is not zero. The target is looked at too, so nothing need be known about it: a kept buffer, a range that
//! is copied twice and bytes that somebody else has put there are right as well.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::kernel::{Copy, Flush};

/// What is looked at at a time: a base page, if the target is aligned to one.
const BLOCK: usize = 4096;
/// What is copied at a time, while it is still in the first-level cache.
const RUN: usize = 16 << 10;

/// Bytes that were left out.
static ZEROS: AtomicU64 = AtomicU64::new(0);
/// The address behind the last byte that was stored.
static STORED_TO: AtomicUsize = AtomicUsize::new(0);

/// What copies have done since the last call. One thread asks, between copies.
pub fn account() -> (u64, usize) {
    (ZEROS.swap(0, Relaxed), STORED_TO.swap(0, Relaxed))
}

/// Copies by `copy` what is not zero already; does `left_out` with the source of the rest.
///
/// # Safety
/// As [`super::kernel::Copy`]; `copy` and `left_out` are of this CPU.
pub(super) unsafe fn all_but_zeros(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    copy: Copy,
    left_out: Flush,
) {
    let (mut at, mut run, mut zeros, mut stored_to) = (0, 0, 0, 0);
    while at < len {
        let block = BLOCK.min(len - at);
        // SAFETY: inside both ranges.
        let nothing = unsafe { is_zero(src.add(at), block) && is_zero(dst.add(at), block) };
        let end = at + block;
        let upto = if nothing { at } else { end };
        if upto > run && (nothing || end == len || end - run >= RUN) {
            // SAFETY: inside both ranges.
            unsafe { copy(dst.add(run), src.add(run), upto - run) };
            stored_to = upto;
            run = upto;
        }
        if nothing {
            // SAFETY: inside the source.
            unsafe { left_out(src.add(at), block) };
            zeros += block as u64;
            run = end;
        }
        at = end;
    }
    ZEROS.fetch_add(zeros, Relaxed);
    if stored_to > 0 {
        STORED_TO.fetch_max(dst as usize + stored_to, Relaxed);
    }
}

/// Whether all bytes are zero. Words and bytes by hand: a helper must not call libc, which larger types would become.
///
/// # Safety
/// The range is mapped.
#[inline(always)]
unsafe fn is_zero(from: *const u8, len: usize) -> bool {
    const WORD: usize = size_of::<u64>();
    const GROUP: usize = 8 * WORD;
    let mut at = 0;
    while len - at >= GROUP {
        let mut any = 0;
        let mut word = 0;
        while word < GROUP {
            // SAFETY: inside the range.
            any |= unsafe { from.add(at + word).cast::<u64>().read_unaligned() };
            word += WORD;
        }
        if any != 0 {
            return false;
        }
        at += GROUP;
    }
    while at < len {
        // SAFETY: inside the range.
        if unsafe { *from.add(at) } != 0 {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::kernel::{Cpu, Kernel};
    use proptest::prelude::*;

    /// Runs of zeros and of other bytes.
    fn mixed() -> impl Strategy<Value = Vec<u8>> {
        let run = (0usize..9000, any::<bool>(), 1u8..=255);
        proptest::collection::vec(run, 0..8).prop_map(|runs| {
            let bytes = runs.into_iter();
            bytes
                .flat_map(|(len, zero, byte)| vec![if zero { 0 } else { byte }; len])
                .collect()
        })
    }

    fn kernel() -> Kernel {
        Kernel::of(Cpu::detect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        /// Whatever lies in the target, it is the source afterwards, and not a byte beyond is touched.
        #[test]
        fn the_target_is_the_source_afterwards(source in mixed(), before in mixed(), to in 0usize..70) {
            let _turn = crate::crew::take_turn();
            let len = source.len();
            let loops = [kernel().sparse, kernel().sparse_flush, kernel().sparse_demote, Kernel::PORTABLE.sparse];
            for copy in loops {
                let mut target: Vec<u8> = before.iter().copied().chain(std::iter::repeat(0)).take(len + 200).collect();
                target[..to].fill(0xee);
                target[to + len..].fill(0xee);
                account();
                // SAFETY: inside the vectors.
                unsafe { copy(target.as_mut_ptr().add(to), source.as_ptr(), len) };
                prop_assert!(target[to..to + len] == source[..]);
                prop_assert!(target[..to].iter().chain(&target[to + len..]).all(|&byte| byte == 0xee));
                let (zeros, stored_to) = account();
                let last = source.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
                prop_assert!(zeros <= len as u64);
                prop_assert!(last == 0 || stored_to >= target.as_ptr() as usize + to + last);
            }
        }
    }

    #[test]
    fn zeros_over_zeros_are_left_out_and_over_others_not() {
        let _turn = crate::crew::take_turn();
        let source = vec![0u8; 40 * BLOCK + 7];
        for (old, left_out) in [(0, source.len()), (1, 0)] {
            let mut target = vec![old; source.len()];
            account();
            // SAFETY: inside the vectors.
            unsafe { (kernel().sparse)(target.as_mut_ptr(), source.as_ptr(), source.len()) };
            assert!(target == source);
            assert_eq!(account().0, left_out as u64);
        }
        // One byte decides about its block alone.
        let mut source = source;
        source[10 * BLOCK + 4095] = 9;
        let mut target = vec![0u8; source.len()];
        // SAFETY: as above.
        unsafe { (kernel().sparse)(target.as_mut_ptr(), source.as_ptr(), source.len()) };
        assert!(target == source);
        let stored_to = target.as_ptr() as usize + 11 * BLOCK;
        assert_eq!(account(), ((source.len() - BLOCK) as u64, stored_to));
    }
}
