//! The reserved range of a process, filled from outside by the tool.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::watchdog::Watchdog;

/// What `cudasnap reserve` did.
#[derive(Debug, Clone, Serialize)]
pub struct Reserved {
    /// How long it ran, from its start to its end.
    pub seconds: f64,
    /// Its exit status; `None` when a signal ended it.
    pub status: Option<i32>,
    /// What it said.
    pub said: String,
}

impl Reserved {
    /// Fills the range of a process as fast as one thread goes.
    ///
    /// # Errors
    /// The tool could not be started.
    pub fn fill(tool: &Path, pid: i32, limit: Duration) -> io::Result<Self> {
        let start = Instant::now();
        // Who waits for memory elsewhere on the machine does not count: a range that is not full is no measurement.
        let (mut output, end) = io::pipe()?;
        let mut child = Command::new(tool)
            .args(["reserve", "--rate", "0", "--pressure", "100"])
            .arg(pid.to_string())
            .stdin(Stdio::null())
            .stdout(end.try_clone()?)
            .stderr(end)
            .spawn()
            .map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", tool.display()))
            })?;
        let watchdog = Watchdog::new("reserve", child.id() as i32, limit);
        let mut said = String::new();
        output.read_to_string(&mut said)?;
        // Called off before the child is waited for: until then its id is its own.
        drop(watchdog);
        let status = child.wait()?;
        Ok(Reserved {
            seconds: start.elapsed().as_secs_f64(),
            status: status.code(),
            said: said.trim().to_owned(),
        })
    }

    /// Why it did not come to its end; `None` when it did.
    pub fn problem(&self) -> Option<String> {
        match self.status {
            Some(0) => None,
            Some(status) => Some(format!("cudasnap reserve: status {status}: {}", self.said)),
            None => Some(format!("cudasnap reserve was killed: {}", self.said)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_before_the_end_is_a_problem() {
        let limit = Duration::from_secs(60);
        let fill = |tool: &str| Reserved::fill(Path::new(tool), 1, limit);
        // The words of the command are arguments of no use to them.
        assert_eq!(fill("/bin/true").unwrap().problem(), None);
        let failed = fill("/bin/false").unwrap();
        assert_eq!(failed.status, Some(1));
        assert!(failed.problem().unwrap().contains("status 1"));
        let missing = fill("/nowhere/cudasnap").unwrap_err().to_string();
        assert!(missing.contains("/nowhere/cudasnap"), "{missing}");
    }
}
