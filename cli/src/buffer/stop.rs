//! Why a command ends before it has done everything: what to tell people, and the exit status.

use std::fmt::Display;
use std::io;
use std::path::Path;

use crate::exit::Exit;
use crate::process::identity::IdentityError;
use crate::process::rights;
use crate::process::target::MemoryError;

/// An early end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// Status.
    pub exit: Exit,
    /// What to say on stderr; `None` when there is nobody to tell (the reader of stdout has gone).
    pub text: Option<String>,
}

impl Stop {
    /// Refused before anything was touched.
    pub fn refused(text: impl Display) -> Self {
        Self::with(Exit::Refused, text)
    }

    /// Something did not work.
    pub fn failed(text: impl Display) -> Self {
        Self::with(Exit::Failed, text)
    }

    /// A status and its words.
    pub fn with(exit: Exit, text: impl Display) -> Self {
        Stop {
            exit,
            text: Some(text.to_string()),
        }
    }

    /// The process's memory could not be read or written; a missing right is named.
    pub fn memory(pid: i32, error: &MemoryError) -> Self {
        match error {
            MemoryError::Denied => Self::refused(rights::missing(pid)),
            error => Self::failed(format!("process {pid}: {error}")),
        }
    }

    /// A file could not be read or written.
    pub fn file(path: &Path, error: &io::Error) -> Self {
        Self::failed(format!("{}: {error}", path.display()))
    }

    /// Standard output could not be written. That nobody reads it any more is no failure.
    pub fn stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Stop {
                exit: Exit::Done,
                text: None,
            };
        }
        Self::failed(format!("standard output: {error}"))
    }

    /// Adds a sentence to what is said.
    pub fn and(self, more: impl Display) -> Self {
        Stop {
            text: self.text.map(|text| format!("{text}; {more}")),
            ..self
        }
    }
}

impl From<IdentityError> for Stop {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::Unreadable(pid, MemoryError::Denied) => {
                Self::refused(rights::missing(pid))
            }
            error => Self::failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let gone = Stop::stdout(&io::ErrorKind::BrokenPipe.into());
        assert_eq!((gone.exit, gone.text), (Exit::Done, None));
        let full = Stop::stdout(&io::ErrorKind::StorageFull.into());
        assert_eq!(full.exit, Exit::Failed);
    }

    #[test]
    fn sentences_are_joined() {
        let stop = Stop::refused("no").and("do this");
        assert_eq!(stop.text.as_deref(), Some("no; do this"));
    }
}
