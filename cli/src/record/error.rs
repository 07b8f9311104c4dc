//! Why there is no record to look at.

use std::fmt;
use std::mem::size_of;

use cudasnap_wire::{Record, SYMBOL, VERSION};

use crate::process::target::MemoryError;

/// Why there is no record to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordError {
    /// The process's memory cannot be read or written.
    Memory(MemoryError),
    /// No image in the process defines [`SYMBOL`]: the shim is not loaded.
    NotLoaded,
    /// The symbol is there, what it names is no record.
    NotARecord,
    /// The record has another layout, with this version.
    Version(u32),
    /// The record says that it is this long, which is shorter than this layout.
    Size(u32),
    /// A block was being written at every try.
    Busy,
    /// What it says of the buffer cannot be.
    Impossible,
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Memory(error) => write!(out, "{error}"),
            RecordError::NotLoaded => write!(out, "the library is not loaded in this process"),
            RecordError::NotARecord => write!(out, "{SYMBOL} is there but holds no record"),
            RecordError::Version(version) => {
                write!(
                    out,
                    "the record has layout {version}, this tool reads {VERSION}"
                )
            }
            RecordError::Size(size) => write!(
                out,
                "the record has {size} bytes, this tool needs {}",
                size_of::<Record>()
            ),
            RecordError::Impossible => {
                write!(
                    out,
                    "the record names a buffer that cannot be: nothing was done"
                )
            }
            RecordError::Busy => write!(out, "busy: the record was being written at every try"),
        }
    }
}

impl std::error::Error for RecordError {}

impl From<MemoryError> for RecordError {
    fn from(error: MemoryError) -> Self {
        RecordError::Memory(error)
    }
}
