//! The process that a file was made from, so that it is not put into another one by mistake.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::stop::Stop;
use crate::foreign_text::printable;
use crate::process::identity::Identity;

/// A process, told apart from every other one on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its id.
    pub pid: i32,
    /// Its start, in clock ticks since boot.
    pub started: u64,
    /// The boot that those ticks count from.
    pub boot_id: String,
    /// Its name.
    pub name: String,
}

impl Origin {
    /// Of this process.
    pub fn of(identity: &Identity) -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Origin {
            pid: identity.pid,
            started: identity.started,
            boot_id: boot_id.unwrap_or_default().trim().to_owned(),
            name: identity.name.clone(),
        }
    }

    /// Whether it is this very process. Its name may have changed.
    ///
    /// # Errors
    /// It is another one, also when that has the same id.
    pub fn check(&self, now: &Origin) -> Result<(), Stop> {
        let key = |origin: &Origin| (origin.pid, origin.started, origin.boot_id.clone());
        if key(self) == key(now) {
            return Ok(());
        }
        let reused = if self.pid == now.pid {
            ", which had the same id,"
        } else {
            ""
        };
        Err(Stop::refused(format!(
            "the file is of another process, {self}{reused} and this is {now}: --other-process does it nevertheless"
        )))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.pid, printable(&self.name))
    }
}

/// Now, in milliseconds since 1970.
pub fn unix_milliseconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_whatever_its_name_and_nobody_else() {
        let own = Origin::of(&Identity::of(std::process::id() as i32).unwrap());
        assert!(!own.boot_id.is_empty());
        let change = |alter: fn(&mut Origin)| {
            let mut other = own.clone();
            alter(&mut other);
            own.check(&other)
        };
        change(|_| {}).unwrap();
        change(|other| other.name = "x".into()).unwrap();
        let reused = change(|other| other.started += 1).unwrap_err();
        assert!(reused.text.unwrap().contains("had the same id"));
        assert!(change(|other| other.pid += 1).is_err());
        assert!(change(|other| other.boot_id.clear()).is_err());
    }
}
