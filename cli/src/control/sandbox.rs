//! Whether a thread may make a call that is not its own: a seccomp filter could end its whole process for it, or let it wait for
//! a supervisor that never answers.
//!
//! What is asked for here, madvise, the library does itself on the driver's threads. So a thread that is not more confined than
//! the driver's thread may do it.

use crate::process::cuda::CudaUse;
use crate::process::identity::number_of;
use crate::process::target::{MemoryError, Target};

/// How a thread is confined (`Seccomp` and `Seccomp_filters` in its `status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sandbox {
    /// 0 not at all, 1 strict, 2 by filters.
    mode: u32,
    /// Number of filters; 0 where the kernel does not say (before 5.9).
    filters: u32,
}

impl Sandbox {
    /// That of a thread of the process.
    ///
    /// # Errors
    /// It has ended.
    pub fn of(target: Target, tid: i32) -> Result<Self, MemoryError> {
        Ok(Self::parse(
            &target.proc_file(&format!("task/{tid}/status"))?,
        ))
    }

    /// That of the driver's thread; of the first thread where there is none.
    ///
    /// # Errors
    /// The process has ended.
    pub fn of_driver(target: Target) -> Result<Self, MemoryError> {
        match CudaUse::of(target)? {
            CudaUse::Initialised { restore_thread } => Self::of(target, restore_thread),
            CudaUse::None | CudaUse::Loaded => Self::of(target, target.pid()),
        }
    }

    fn parse(status: &str) -> Self {
        let number = |name| number_of(status, name).unwrap_or(0);
        Sandbox {
            mode: number("Seccomp"),
            filters: number("Seccomp_filters"),
        }
    }

    /// Whether a thread that is confined like this may do what one that is confined like the other one does.
    pub fn allows_what(self, other: Self) -> bool {
        match self.mode {
            0 => true,
            2 => other.mode == 2 && self.filters <= other.filters,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_more_confined_is_not_taken() {
        let sandbox = |mode, filters| {
            Sandbox::parse(&format!("Seccomp:\t{mode}\nSeccomp_filters:\t{filters}\n"))
        };
        for (thread, driver, allowed) in [
            ((0, 0), (0, 0), true),
            ((0, 0), (2, 3), true),
            ((1, 0), (0, 0), false),
            ((1, 0), (1, 0), false),
            ((2, 1), (0, 0), false),
            ((2, 1), (2, 1), true),
            ((2, 2), (2, 1), false),
        ] {
            let thread = sandbox(thread.0, thread.1);
            let driver = sandbox(driver.0, driver.1);
            assert_eq!(thread.allows_what(driver), allowed, "{thread:?} {driver:?}");
        }
        assert!(Sandbox::parse("").allows_what(Sandbox::parse("")));
    }
}
