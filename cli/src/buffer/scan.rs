//! Searches contents for a pattern with all CPUs. Slices overlap by one byte less than the pattern, so each place where it
//! begins belongs to exactly one slice.

use std::collections::BTreeSet;
use std::sync::Mutex;

use memchr::memmem::Finder;
use rayon::prelude::*;

use super::opened::Contents;
use super::stop::Stop;

/// Bytes of a slice: fits a core's cache, and makes the system call's own cost small. The rate of a search was flat from 64 KiB to
/// 4 MiB (1 GiB, 2 CPUs) and fell beyond.
pub const SLICE: usize = 512 << 10;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hits {
    /// Offsets of the first places, in order.
    pub first: BTreeSet<u64>,
    /// Number of all places; overlapping ones count.
    pub count: u64,
}

impl Hits {
    fn add(&mut self, found: &Hits, limit: usize) {
        self.count += found.count;
        for offset in &found.first {
            let fits = self.first.len() < limit;
            if !fits && self.first.last().is_none_or(|last| offset > last) {
                break;
            }
            self.first.insert(*offset);
            if !fits {
                self.first.pop_last();
            }
        }
    }
}

/// Searches everything, in slices of `slice` bytes; remembers the first `limit` places. After each slice `done` is told its
/// bytes, and may stop the search. Memory: one slice and one pattern for each thread, and the places.
///
/// # Errors
/// The contents cannot be read, or `done` said stop.
pub fn scan(
    contents: &impl Contents,
    pattern: &[u8],
    limit: usize,
    slice: usize,
    done: &(impl Fn(u64) -> Result<(), Stop> + Sync),
) -> Result<Hits, Stop> {
    let length = contents.length();
    let finder = Finder::new(pattern);
    let hits = Mutex::new(Hits::default());
    let slices = length.div_ceil(slice as u64);
    (0..slices).into_par_iter().try_for_each_init(
        || vec![0; slice + pattern.len()],
        |buffer, number| {
            let start = number * slice as u64;
            let own = (length - start).min(slice as u64) as usize;
            let overlap = (pattern.len() as u64 - 1).min(length - start - own as u64) as usize;
            let bytes = &mut buffer[..own + overlap];
            contents.read_at(start, bytes)?;
            let found = in_slice(&finder, bytes, start, limit);
            if found.count > 0 {
                // A thread that panicked has ended the search; what the others found is sound.
                let mut hits = hits.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                hits.add(&found, limit);
            }
            done(own as u64)
        },
    )?;
    Ok(hits
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner()))
}

fn in_slice(finder: &Finder, bytes: &[u8], start: u64, limit: usize) -> Hits {
    let mut hits = Hits::default();
    let mut from = 0;
    while let Some(at) = bytes.get(from..).and_then(|rest| finder.find(rest)) {
        let offset = from + at;
        hits.count += 1;
        if hits.first.len() < limit {
            hits.first.insert(start + offset as u64);
        }
        from = offset + 1;
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(bytes: &[u8], pattern: &[u8]) -> Vec<u64> {
        let places = bytes.windows(pattern.len()).enumerate();
        places
            .filter(|(_, window)| *window == pattern)
            .map(|(at, _)| at as u64)
            .collect()
    }

    proptest! {
        #[test]
        fn slices_find_what_a_naive_search_finds(
            bytes in proptest::collection::vec(0u8..3, 0..400),
            pattern in proptest::collection::vec(0u8..3, 1..9),
            slice in 1usize..40,
            limit in 0usize..20,
        ) {
            let expected = naive(&bytes, &pattern);
            let hits = scan(&bytes, &pattern, limit, slice, &|_| Ok(())).unwrap();
            prop_assert_eq!(hits.count, expected.len() as u64);
            let first: Vec<u64> = hits.first.into_iter().collect();
            prop_assert_eq!(first, &expected[..expected.len().min(limit)]);
        }
    }

    #[test]
    fn a_pattern_longer_than_everything_is_not_found() {
        let hits = scan(&vec![1u8; 3], &[1; 8], 10, 2, &|_| Ok(())).unwrap();
        assert_eq!(hits, Hits::default());
        let none: Vec<u8> = Vec::new();
        assert_eq!(scan(&none, &[1], 10, 2, &|_| Ok(())).unwrap().count, 0);
    }

    #[test]
    fn it_stops_when_told() {
        let stop = scan(&vec![0u8; 100], &[1], 10, 2, &|_| {
            Err(Stop::failed("enough"))
        });
        assert_eq!(stop.unwrap_err().text.as_deref(), Some("enough"));
    }
}
