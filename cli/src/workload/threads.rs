//! The same work on many chunks, by as many threads as the machine has CPUs, up to eight: one makes 3 to 5 GB of contents in a second,
//! a GPU takes 50. They are plain threads, and gone when the work is done: a checkpoint in between finds one thread of ours, waiting
//! for a line.

use std::sync::atomic::{AtomicUsize, Ordering};

/// More are not faster than a PCIe link of today.
const MOST: usize = 8;

/// How many threads to use for so many chunks.
pub fn count(chunks: usize) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    cpus.min(MOST).min(chunks).max(1)
}

/// Calls `work` once for each chunk number, from several threads, this one among them; each has a state of its own, from `start`. What
/// the threads return is handed back, in no order. A thread that the kernel refuses is done without.
pub fn share<T: Send>(
    chunks: usize,
    work: impl Fn(&mut dyn Iterator<Item = usize>) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let numbers = || {
        std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < chunks))
    };
    std::thread::scope(|scope| {
        let started: Vec<_> = (1..count(chunks))
            .filter_map(|number| {
                let name = format!("contents-{number}");
                let builder = std::thread::Builder::new().name(name);
                builder.spawn_scoped(scope, || work(&mut numbers())).ok()
            })
            .collect();
        let mut all = vec![work(&mut numbers())];
        for thread in started {
            match thread.join() {
                Ok(result) => all.push(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_done_once() {
        for chunks in [0, 1, 2, 1000] {
            let mut done: Vec<usize> =
                share(chunks, |numbers| numbers.collect::<Vec<_>>()).concat();
            done.sort_unstable();
            assert_eq!(done, (0..chunks).collect::<Vec<_>>());
        }
    }

    #[test]
    fn there_are_no_more_threads_than_chunks() {
        assert_eq!((count(0), count(1)), (1, 1));
        assert!(count(usize::MAX) <= MOST);
    }
}
