//! The driver's calls behind a trait, so that order, undoing and signals are tested without a driver.

use std::time::Duration;

use super::plan::Step;
use crate::driver::{Driver, DriverError, GpuPair, State};

/// What the verbs need of the driver. Each call may last, and may hang for ever.
pub trait Calls: Send + Sync {
    /// Makes a step. `timeout` is for the lock.
    ///
    /// # Errors
    /// What the driver returned.
    fn step(
        &self,
        pid: i32,
        step: Step,
        timeout: Duration,
        map: &[GpuPair],
    ) -> Result<(), DriverError>;

    /// State of the process.
    ///
    /// # Errors
    /// What the driver returned.
    fn state(&self, pid: i32) -> Result<State, DriverError>;

    /// The driver's words for an error number, without a call that returned it.
    fn words(&self, code: u32) -> String;
}

impl Calls for Driver {
    fn step(
        &self,
        pid: i32,
        step: Step,
        timeout: Duration,
        map: &[GpuPair],
    ) -> Result<(), DriverError> {
        match step {
            Step::Lock => self.lock(pid, milliseconds(timeout)),
            Step::Checkpoint => self.checkpoint(pid),
            Step::Restore => self.restore_to(pid, map),
            Step::Unlock => self.unlock(pid),
        }
    }

    fn state(&self, pid: i32) -> Result<State, DriverError> {
        Driver::state(self, pid)
    }

    fn words(&self, code: u32) -> String {
        match self.error("", code) {
            DriverError::Refused { name, text, .. } => format!("error {code} {name} \"{text}\""),
            other => other.to_string(),
        }
    }
}

/// At least 1, since the driver takes 0 as "for ever".
fn milliseconds(timeout: Duration) -> u32 {
    let rounded_up = timeout.as_nanos().div_ceil(1_000_000);
    u32::try_from(rounded_up).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_timeout_does_not_become_for_ever() {
        for (timeout, expected) in [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(1500), 1500),
            (Duration::from_secs(1 << 40), u32::MAX),
        ] {
            assert_eq!(milliseconds(timeout), expected);
        }
    }
}
