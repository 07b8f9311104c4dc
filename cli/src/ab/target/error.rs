//! Why a program that was to be started is not there.

use std::fmt;

use crate::exit::Exit;
use crate::foreign_text::printable;
use crate::run::find::NotRunnable;
use crate::run::plan::Refusal;

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// This signal came meanwhile; the program was ended.
    Signal(i32),
    /// It was not started: an option is wrong, there is no such program, or the library cannot be active in it.
    NotStarted {
        /// The status that it means.
        exit: Exit,
        /// In sentences.
        lines: Vec<String>,
    },
    /// It ended before it was ready; how, and its last words.
    Died(String),
    /// It was not ready in time; what was missing.
    NotReady(String),
    /// Several processes use CUDA: their ids and names.
    Several(Vec<(i32, String)>),
    /// The system refuses something.
    Failed(String),
}

impl Error {
    /// The status that it means.
    pub fn exit(&self) -> Exit {
        match self {
            Error::Signal(number) => Exit::Signal(*number),
            Error::NotStarted { exit, .. } => *exit,
            Error::Several(_) => Exit::Refused,
            Error::Died(_) | Error::NotReady(_) | Error::Failed(_) => Exit::Failed,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Signal(number) => write!(out, "interrupted by signal {number}"),
            Error::NotStarted { lines, .. } => out.write_str(&printable(&lines.join("; "))),
            Error::Several(processes) => {
                write!(
                    out,
                    "{} processes below the program use CUDA:",
                    processes.len()
                )?;
                for (pid, name) in processes {
                    write!(out, " {pid} ({})", printable(name))?;
                }
                write!(out, "; start it by itself and give the PID of one of them")
            }
            Error::Died(text) | Error::NotReady(text) | Error::Failed(text) => out.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::NotStarted {
            exit: refusal.exit,
            lines: refusal.lines,
        }
    }
}

impl From<NotRunnable> for Error {
    fn from(not: NotRunnable) -> Self {
        Error::from(Refusal::from(not))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_processes_are_listed() {
        let error = Error::Several(vec![(7, "python3".into()), (8, "a\u{1b}b".into())]);
        let text = error.to_string();
        assert!(
            text.starts_with("2 processes below the program use CUDA: 7 (python3) 8 (a\\u{1b}b);"),
            "{text}"
        );
        assert_eq!(error.exit(), Exit::Refused);
        assert_eq!(Error::Signal(2).exit().status(), 130);
    }
}
