//! Why nothing was done for a process, in a sentence, and the exit status that it means.

use std::fmt::Display;

use crate::exit::Exit;
use crate::process::rights;
use crate::process::target::MemoryError;
use crate::record::RecordError;
use crate::selection::SelectionError;

/// Why nothing was done for a process: one sentence, and the status that it means.
#[derive(Debug)]
pub struct Refusal {
    /// For people.
    pub text: String,
    /// The status that it means.
    pub exit: Exit,
}

/// Something went wrong.
pub fn failed(error: &dyn Display) -> Refusal {
    Refusal {
        text: error.to_string(),
        exit: Exit::Failed,
    }
}

/// There is no such process to do it for.
pub fn not_selected(error: &SelectionError) -> Refusal {
    let denied = matches!(error, SelectionError::NoCudaBelow { denied, .. } if *denied > 0);
    Refusal {
        text: error.to_string(),
        exit: if denied { Exit::Refused } else { Exit::Failed },
    }
}

/// Why there is no record to work on.
pub fn refusal(pid: i32, error: &RecordError) -> Refusal {
    if *error == RecordError::Memory(MemoryError::Denied) {
        return Refusal {
            text: rights::missing(pid).to_string(),
            exit: Exit::Refused,
        };
    }
    let hint = match error {
        RecordError::NotLoaded => "; start it with cudasnap run",
        _ => "",
    };
    failed(&format_args!("process {pid}: {error}{hint}"))
}
