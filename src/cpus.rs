//! How many threads a phase gets: the least of affinity, cgroup quota, the record's cap, and the option, or where there is
//! none a cap by use. Read anew in each phase. More threads than CPUs never pay: every chunk would wait for a descheduled one.

use crate::crew::HELPERS;
use crate::{cgroup, sys};

/// What the threads are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Copying into fresh memory: zeroing and copying share the CPUs. 15 helpers beat 8 by a quarter (H200 host, 16 CPUs).
    Fresh,
    /// Copying into memory that is there, the flush after the copy: 14 threads leave the GPU's rate alone and are done in half its time;
    /// with 16 of 16 CPUs the loop was 3 to 6 % slower, with 10 as much (same host).
    Kept,
    /// Copying out of memory that is there, by stores past the caches: 10 threads meet the GPU's rate, more only disturb it (12: 3 %, 16:
    /// 15 % slower).
    Ready,
    /// The same with lines sent to the shared cache: the GPU does not mind, and each copy waits longer for its target. 13, 14, 15, 16
    /// threads: 45.0 to 45.5, 46.3 to 46.4, 46.2 to 46.4, 45.9 to 46.1 GB/s, where the driver's own pace allows 47.
    Demoting,
    /// Giving memory back: 8 threads free 26 GB in 17 to 20 ms, one in 85; 16 are not faster (same host).
    Free,
}

impl Use {
    const fn cap(self) -> u32 {
        match self {
            Use::Fresh => 16,
            Use::Kept => 14,
            Use::Ready => 10,
            Use::Demoting => 14,
            Use::Free => 8,
        }
    }
}

/// Threads that copy, the caller included: at least 1.
pub fn threads(option: u32, record_cap: u32, usage: Use) -> u32 {
    // Helpers leave by the clock.
    let machine = match sys::now_ns() {
        0 => 1,
        _ => sys::allowed_cpus().min(cgroup::cpu_quota()),
    };
    choose(option, record_cap, machine, usage)
}

/// Threads that may be tried where nobody asked for a number: as many as there are CPUs for.
pub fn most_threads(option: u32, record_cap: u32) -> u32 {
    let most = if option > 0 {
        option
    } else {
        HELPERS as u32 + 1
    };
    threads(most, record_cap, Use::Fresh)
}

fn choose(option: u32, record_cap: u32, machine: u32, usage: Use) -> u32 {
    let wanted = if option > 0 { option } else { usage.cap() }.min(machine);
    let capped = if record_cap > 0 {
        wanted.min(record_cap)
    } else {
        wanted
    };
    capped.clamp(1, HELPERS as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_wins_and_the_option_wins_over_the_cap() {
        assert_eq!(choose(0, 0, 192, Use::Fresh), 16);
        assert_eq!(choose(0, 0, 192, Use::Ready), 10);
        assert_eq!(choose(0, 0, 3, Use::Ready), 3);
        assert_eq!(choose(0, 0, 192, Use::Demoting), 14);
        assert_eq!(choose(0, 0, 12, Use::Demoting), 12);
        assert_eq!(choose(0, 6, 192, Use::Demoting), 6);
        assert_eq!(choose(9, 0, 192, Use::Demoting), 9);
        assert_eq!(choose(0, 2, 8, Use::Fresh), 2);
        assert_eq!(choose(0, 0, 0, Use::Fresh), 1);
        assert_eq!(choose(20, 0, 2, Use::Ready), 2);
        assert_eq!(choose(20, 0, 24, Use::Ready), 20);
        assert_eq!(choose(20, 4, 24, Use::Ready), 4);
        assert_eq!(choose(64, 0, 192, Use::Ready), 32);
        assert!(threads(0, 0, Use::Fresh) >= 1);
    }
}
