//! `cudasnap drop`: asks the library to free a kept or reserved buffer, and frees its pages at once where ptrace is allowed.

use serde::Serialize;

use crate::process::identity::Identity;
use crate::process::observe::resident_bytes;
use crate::process::target::MemoryError;
use crate::record::view::BufferView;
use crate::record::{Control, Located, RecordError};
use crate::units;

/// What was done for one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// State of the buffer before: only a `kept` or `reserved` one can be dropped.
    pub state: String,
    /// Bytes that the driver had asked for.
    pub length: u64,
    /// Resident bytes of the buffer before.
    pub before: u64,
    /// Resident bytes after.
    pub after: u64,
    /// Why the pages were not freed at once, or not all; the library frees the rest at the process's next mmap.
    pub not_at_once: Option<String>,
}

impl Dropped {
    /// For people.
    pub fn text(&self) -> String {
        let length = units::bytes(self.length);
        let freed = units::bytes(self.before.saturating_sub(self.after));
        let kind = &self.state;
        match &self.not_at_once {
            _ if kind != "kept" && kind != "reserved" => {
                format!("no buffer is kept (state: {kind}), nothing to free")
            }
            None if self.before == 0 => {
                format!("the {kind} buffer of {length} holds no memory any more; its addresses go at the process's next mmap")
            }
            None => format!("freed {freed} of a {kind} buffer of {length}"),
            Some(why) if self.before > self.after => format!(
                "freed {freed} of a {kind} buffer of {length}, the rest at the process's next mmap: {why}"
            ),
            Some(why) => format!(
                "the {kind} buffer of {length} will be freed at the process's next mmap; not at once: {why}"
            ),
        }
    }
}

/// Drops the kept buffer of a process.
///
/// # Errors
/// The record cannot be found, read or written.
pub fn kept_buffer(identity: &Identity) -> Result<Dropped, RecordError> {
    let target = identity.target();
    let record = Located::find(target)?;
    let buffer = record.read()?.buffer;
    let mut dropped = Dropped {
        state: buffer.state.to_string(),
        length: buffer.length,
        before: 0,
        after: 0,
        not_at_once: None,
    };
    if !buffer.is_waiting() {
        return Ok(dropped);
    }
    let Some((start, end)) = buffer.range() else {
        return Err(RecordError::Impossible);
    };
    let resident = || resident_bytes(target, start, end);
    dropped.before = resident()?;
    identity
        .check()
        .map_err(|_| RecordError::Memory(MemoryError::Gone))?;
    // First, so that the library frees the buffer before it is used again, whatever becomes of the rest.
    record.write(Control::Drop)?;
    if dropped.before > 0 {
        dropped.not_at_once = free_now(identity, &record, &buffer).err();
    }
    // An mmap of the process may have taken the range away, and something else may lie there by now.
    let kept = record.read()?.buffer == buffer;
    dropped.after = if kept { resident()? } else { 0 };
    if !kept {
        dropped.not_at_once = None;
    }
    Ok(dropped)
}

/// In a process of its own: see [`super::apart`].
#[cfg(target_arch = "x86_64")]
fn free_now(identity: &Identity, record: &Located, buffer: &BufferView) -> Result<(), String> {
    super::apart::run(|go_on| {
        super::free::pages(identity, record, buffer, go_on).map_err(|why| why.to_string())
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn free_now(_identity: &Identity, _record: &Located, _buffer: &BufferView) -> Result<(), String> {
    Err("that is written for x86-64 only".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_words() {
        let dropped = |state: &str, before, after, why: Option<&str>| Dropped {
            state: state.into(),
            length: 1_000_000,
            before,
            after,
            not_at_once: why.map(str::to_owned),
        };
        for (dropped, text) in [
            (dropped("live", 0, 0, None), "no buffer is kept (state: live), nothing to free"),
            (dropped("kept", 1_000_000, 0, None), "freed 1.00 MB of a kept buffer of 1.00 MB"),
            (dropped("reserved", 1_000_000, 0, None), "freed 1.00 MB of a reserved buffer of 1.00 MB"),
            (
                dropped("kept", 0, 0, None),
                "the kept buffer of 1.00 MB holds no memory any more; its addresses go at the process's next mmap",
            ),
            (
                dropped("kept", 5, 5, Some("why")),
                "the kept buffer of 1.00 MB will be freed at the process's next mmap; not at once: why",
            ),
            (
                dropped("kept", 9, 5, Some("why")),
                "freed 4 B of a kept buffer of 1.00 MB, the rest at the process's next mmap: why",
            ),
        ] {
            assert_eq!(dropped.text(), text);
        }
    }
}
