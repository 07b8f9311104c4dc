//! The world around a host: its other threads running or stopped, the CPUs that its driver's thread may use, the options of the
//! simulated driver's calling side.

use std::io;

use crate::freeze::Freeze;

use super::groups::quota_around_us;

/// The process's other threads.
#[derive(Debug)]
pub enum World {
    /// Running.
    Free,
    /// Stopped.
    Frozen(Freeze),
}

impl World {
    /// Lets the restore thread run while `action` goes on.
    ///
    /// # Errors
    /// The kernel's, or that the thread has ended.
    pub fn with_restore_thread<T>(&mut self, action: impl FnOnce() -> T) -> io::Result<T> {
        match self {
            World::Free => Ok(action()),
            World::Frozen(freeze) => freeze.with_restore_thread(action),
        }
    }
}

/// CPUs that this process may use.
fn allowed() -> Vec<usize> {
    // SAFETY: all zeroes is a mask, and the kernel writes no more than its length.
    let mask = unsafe {
        let mut mask: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut mask);
        mask
    };
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: the number is below the mask's size.
    all.filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &mask) })
        .collect()
}

/// How many CPUs' worth a process of ours can have.
#[must_use]
pub fn cpus() -> u32 {
    let allowed = allowed().len() as u32;
    quota_around_us()
        .map_or(allowed, |quota| quota.min(allowed))
        .max(1)
}

/// Lets a thread use so many CPUs, beginning with one that depends on `turn`; 0 = all.
///
/// # Errors
/// The kernel's.
pub fn set_cpus(tid: i32, count: u32, turn: u64) -> Result<(), String> {
    let all = allowed();
    let count = if count == 0 {
        all.len()
    } else {
        count as usize
    };
    let from = turn as usize % all.len().max(1);
    // SAFETY: all zeroes is a mask; the numbers come from such a mask; the kernel only reads it.
    let set = unsafe {
        let mut mask: libc::cpu_set_t = std::mem::zeroed();
        let chosen = all.iter().cycle().skip(from).take(count.min(all.len()));
        chosen.for_each(|cpu| libc::CPU_SET(*cpu, &mut mask));
        libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &mask)
    };
    match set {
        0 => Ok(()),
        _ => Err(format!("affinity: {}", io::Error::last_os_error())),
    }
}

/// Sets what the simulated driver reads in the calling process at each step: rate of the DMA in hundredths of GB/s, faults.
/// Only the thread that calls the driver may do this, and no other reads the environment meanwhile.
pub fn set_driver_options(dma: u64, fault: &str) {
    std::env::set_var("CUDASIM_DMA_GBPS", format!("{}", dma as f64 / 100.0));
    // A restore begins on new device memory that is zero: a byte that does not come back is seen as well as over noise, which
    // takes a fifth of a cycle.
    std::env::set_var("CUDASIM_NOISE", "0");
    if fault.is_empty() {
        std::env::remove_var("CUDASIM_FAULT");
    } else {
        std::env::set_var("CUDASIM_FAULT", fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_put_on_one_cpu_and_back() {
        std::thread::spawn(|| {
            let before = allowed();
            // SAFETY: no arguments.
            let tid = unsafe { libc::gettid() };
            set_cpus(tid, 1, 1).unwrap();
            assert_eq!(allowed().len(), 1);
            // What is allowed is what this thread has: put back by hand.
            assert!(before.contains(&allowed()[0]));
        })
        .join()
        .unwrap();
    }
}
