//! States of a process, as the driver counts them.

use std::fmt;

use serde::{Serialize, Serializer};

/// State of a process, as the driver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// CUDA calls work.
    Running,
    /// CUDA calls wait.
    Locked,
    /// The device memory lies in the process's own memory, and the device is let go.
    Checkpointed,
    /// A step failed in a way that cannot be repeated.
    Failed,
    /// A number that this build does not know.
    Unknown(u32),
}

impl From<u32> for State {
    fn from(number: u32) -> Self {
        match number {
            0 => State::Running,
            1 => State::Locked,
            2 => State::Checkpointed,
            3 => State::Failed,
            other => State::Unknown(other),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Running => out.pad("running"),
            State::Locked => out.pad("locked"),
            State::Checkpointed => out.pad("checkpointed"),
            State::Failed => out.pad("failed"),
            State::Unknown(number) => write!(out, "unknown state {number}"),
        }
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_words_of_nvidias_tool() {
        let words: Vec<String> = (0..5)
            .map(|number| State::from(number).to_string())
            .collect();
        assert_eq!(
            words,
            [
                "running",
                "locked",
                "checkpointed",
                "failed",
                "unknown state 4"
            ]
        );
    }
}
