//! Clocks, asked of the kernel: a process may have been moved since any other source was set up.

use super::call6;

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec to a local.
    let result = unsafe {
        call6(
            libc::SYS_clock_gettime,
            id as usize,
            &raw mut time as usize,
            0,
            0,
            0,
            0,
        )
    };
    match result {
        Ok(_) => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        Err(_) => 0,
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds; 0 when the kernel refuses.
pub fn now_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Whether a moment of [`now_ns`] is over. Without a clock it is: nothing may be waited for.
pub fn is_past(deadline_ns: u64) -> bool {
    let now = now_ns();
    now == 0 || now > deadline_ns
}

/// CPU time of the calling thread in nanoseconds; 0 when the kernel refuses.
pub fn thread_cpu_ns() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Wall-clock time in nanoseconds since 1970; 0 when the kernel refuses.
pub fn unix_ns() -> u64 {
    clock(libc::CLOCK_REALTIME)
}
