//! Pure: cuts a copy into jobs, and a job into parts.

/// Longest part. About 20 us for one thread: so long waits a caller for a helper that has begun one. Where zeroing and copying
/// share the CPUs, shorter parts only cost (H200 host, 24 GiB: 31 to 35 GB/s end to end, 27 to 30 with parts of 32 KiB).
pub const PART: usize = 128 << 10;
/// Longest part where all threads copy and nothing else: evenly shared work counts (same host, buffer kept: 25 us for a chunk, 29 to 32
/// with 128 KiB).
pub const SHORT_PART: usize = 64 << 10;
/// Longest part where lines are sent to the shared cache: no part is held up by a flush or by another core's cache, so that evenly
/// shared work costs nothing (same host, 12 GiB: restores 45.9 to 46.4 GB/s, 44 to 45 with 64 or 128 KiB; with 16 KiB 45 to 45.7).
pub const SHORTEST_PART: usize = 32 << 10;
/// Most parts of one job: the room for their states.
pub const PARTS: usize = 64;
/// Copies below this length are done by the caller alone: waking nobody costs nothing.
pub const ALONE_BELOW: usize = 64 << 10;
/// Parts begin at multiples of this from the job's start, so that no cache line of an aligned staging buffer is shared.
const GRAIN: usize = 4096;

/// One job: a range that is copied as a whole before the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Offset in the copy.
    pub offset: usize,
    /// Length.
    pub len: usize,
    /// Length of every part but the last.
    pub part: usize,
    /// Number of parts.
    pub parts: usize,
}

impl Job {
    /// Offset (in the copy) and length of part `index`; `None` behind the end.
    pub const fn part(&self, index: usize) -> Option<(usize, usize)> {
        let Some(begin) = index.checked_mul(self.part) else {
            return None;
        };
        if begin >= self.len {
            return None;
        }
        let rest = self.len - begin;
        let len = if rest < self.part { rest } else { self.part };
        Some((self.offset + begin, len))
    }
}

/// Cuts a copy of `len` bytes for `threads` threads. Parts are small enough that every thread gets at least one, and never
/// longer than `longest`.
pub fn jobs(len: usize, threads: usize, longest: usize) -> impl Iterator<Item = Job> {
    let even = len.div_ceil(threads.max(1)).next_multiple_of(GRAIN);
    let part = even.clamp(GRAIN, longest.max(GRAIN));
    let most = part * PARTS;
    (0..len.div_ceil(most)).map(move |index| {
        let offset = index * most;
        let len = (len - offset).min(most);
        Job {
            offset,
            len,
            part,
            parts: len.div_ceil(part),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chunk_of_the_driver_is_one_job() {
        for (longest, parts) in [(PART, 16), (SHORT_PART, 32), (SHORTEST_PART, 64)] {
            let jobs: Vec<_> = jobs(2 << 20, 16, longest).collect();
            let whole = Job {
                offset: 0,
                len: 2 << 20,
                part: longest,
                parts,
            };
            assert_eq!(jobs, [whole]);
        }
        assert_eq!(super::jobs(0, 16, PART).count(), 0);
    }

    proptest! {
        #[test]
        fn parts_cover_every_byte_once_and_keep_their_bounds(len in 0usize..(40 << 20), threads in 0usize..70, longest in 1usize..40) {
            let longest = longest * GRAIN;
            let mut next = 0;
            for job in jobs(len, threads, longest) {
                prop_assert!(job.parts >= 1 && job.parts <= PARTS);
                prop_assert_eq!(job.offset, next);
                for index in 0..job.parts {
                    let (offset, part) = job.part(index).unwrap();
                    prop_assert_eq!(offset, next);
                    prop_assert!((1..=longest).contains(&part));
                    prop_assert_eq!(offset % GRAIN, 0);
                    next += part;
                }
                prop_assert_eq!(job.part(job.parts), None);
            }
            prop_assert_eq!(next, len);
        }

        #[test]
        fn every_thread_gets_a_part_of_a_long_copy(len in (1usize << 20)..(8 << 20), threads in 1usize..32) {
            let parts: usize = jobs(len, threads, PART).map(|job| job.parts).sum();
            prop_assert!(parts + threads / 8 + 1 >= threads.min(len / GRAIN));
        }
    }
}
