//! Exit statuses: they are part of the interface and do not change.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything asked for was done.
    Done,
    /// The driver or the target process did not do it.
    Failed,
    /// The command line was not understood.
    Usage,
    /// Some of several processes failed.
    SomeFailed,
    /// Refused before anything was touched: no room, no right, or it could not work.
    Refused,
    /// `reserve`: stopped before all was done, with what was done in place; the same command goes on from there.
    Stopped,
    /// `run`: the program was found but cannot be executed.
    NotExecutable,
    /// `run`: there is no such program.
    NotFound,
    /// Interrupted by this signal, after the step that was under way had been finished or undone.
    Signal(i32),
}

impl Exit {
    /// The number that a shell sees.
    pub fn status(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::SomeFailed => 3,
            Exit::Refused => 4,
            Exit::Stopped => 5,
            Exit::NotExecutable => 126,
            Exit::NotFound => 127,
            Exit::Signal(number) => 128u8.saturating_add(u8::try_from(number).unwrap_or(127)),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_that_are_documented() {
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::SomeFailed,
            Exit::Refused,
            Exit::Stopped,
            Exit::NotExecutable,
            Exit::NotFound,
            Exit::Signal(2),
            Exit::Signal(15),
        ];
        assert_eq!(
            all.map(Exit::status),
            [0, 1, 2, 3, 4, 5, 126, 127, 130, 143]
        );
    }
}
