//! Why filling stops before the range is full.

use serde::Serialize;

/// Why it stopped before the range was full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Halt {
    /// What it was.
    pub why: Why,
    /// For people.
    pub text: String,
}

impl Halt {
    /// A reason and its words.
    pub fn new(why: Why, text: impl Into<String>) -> Self {
        Halt {
            why,
            text: text.into(),
        }
    }
}

/// The reasons. The words are part of the interface (`--json`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// As much as `--limit`, or the library's own limit, allows is there.
    Limit,
    /// Less memory than the margin would be left.
    Memory,
    /// Processes wait for memory.
    Pressure,
    /// A checkpoint took the range.
    Checkpoint,
    /// The range is to be given back, or was.
    Dropped,
    /// The kernel did not give pages.
    NotGiven,
    /// The process ended.
    Ended,
    /// The process, or the kernel, did not let us go on.
    Failed,
    /// This signal came.
    Signal(i32),
}
