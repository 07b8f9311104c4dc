//! The buffer of a checkpointed process, to be read and written by offset.

use super::locate::{covered, Looked, Place, Recorded};
use super::stop::Stop;
use super::verdict::{Stamp, Verdict};
use super::words::Span;
use crate::process::identity::Identity;
use crate::process::target::{Memory, MemoryError, Target};

/// Bytes that are read by offset, by several threads at once.
pub trait Contents: Sync {
    /// How many there are.
    fn length(&self) -> u64;

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// They cannot be read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Stop>;
}

/// A buffer. Holding one stops nothing: the process may be restored, or end, at any time.
#[derive(Debug)]
pub struct Buffer {
    /// The process.
    pub identity: Identity,
    /// Where it lies.
    pub span: Span,
    /// What the record said at the first look.
    pub record: Option<Recorded>,
    stamp: Option<Stamp>,
}

impl Buffer {
    /// The buffer of this process. Doubts are told on stderr.
    ///
    /// # Errors
    /// There is none, or it is not known where it is.
    pub fn open(pid: i32, place: &Place) -> Result<Self, Stop> {
        let looked = Looked::at(pid)?;
        let found = looked.buffer(place)?;
        for doubt in &found.doubts {
            crate::output::complain(format!("note: {doubt}"));
        }
        Ok(Buffer {
            identity: looked.identity,
            span: found.span,
            record: looked.record.ok(),
            stamp: found.stamp,
        })
    }

    /// The process as it is named to people.
    pub fn process(&self) -> String {
        format!(
            "process {} ({})",
            self.identity.pid,
            self.identity.shown_name()
        )
    }

    /// The range from `offset` on, when it lies inside.
    ///
    /// # Errors
    /// It does not; the buffer's length is told.
    pub fn range(&self, offset: u64, length: u64) -> Result<(), Stop> {
        let total = self.length();
        let end = offset.checked_add(length);
        if end.is_some_and(|end| end <= total) {
            return Ok(());
        }
        Err(Stop::refused(format!(
            "{length} bytes from offset {offset:#x} on do not lie inside the buffer, which has {total} bytes ({total:#x})"
        )))
    }

    /// Whether it is still there and of the same checkpoint.
    ///
    /// # Errors
    /// What became of it.
    pub fn check(&self) -> Result<(), Stop> {
        self.identity.check()?;
        let pid = self.identity.pid;
        let mappings = self.target().mappings();
        let mappings = mappings.map_err(|error| Stop::memory(pid, &error))?;
        let same = match (&self.stamp, &self.record) {
            (Some(stamp), Some(record)) => {
                let view = record.located.read().map_err(|error| {
                    Stop::failed(format!(
                        "process {pid}: the record can no longer be read: {error}"
                    ))
                })?;
                is_same(&Verdict::of(&view), self.span, *stamp)
            }
            _ => true,
        };
        if same && covered(&mappings, self.span) {
            return Ok(());
        }
        Err(Stop::failed(format!(
            "process {pid} was restored meanwhile: its buffer is gone"
        )))
    }

    /// Writes `bytes` from `offset` on, by the rights of the mapping; nothing is forced.
    ///
    /// # Errors
    /// They cannot be written; some of them may have been.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Stop> {
        self.range(offset, bytes.len() as u64)?;
        let written = self.target().write(self.span.start + offset, bytes);
        written.map_err(|error| self.explained(&error))
    }

    fn target(&self) -> Target {
        self.identity.target()
    }

    /// Memory that cannot be reached has a reason: the process has ended, or was restored.
    fn explained(&self, error: &MemoryError) -> Stop {
        match (error, self.check()) {
            (MemoryError::Denied, _) | (_, Ok(())) => Stop::memory(self.identity.pid, error),
            (_, Err(reason)) => reason,
        }
    }
}

fn is_same(verdict: &Verdict, place: Span, mark: Stamp) -> bool {
    matches!(verdict, Verdict::There { span, stamp, .. } if *span == place && *stamp == mark)
}

impl Contents for Buffer {
    fn length(&self) -> u64 {
        self.span.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Stop> {
        self.range(offset, into.len() as u64)?;
        let read = self.target().read(self.span.start + offset, into);
        read.map_err(|error| self.explained(&error))
    }
}

/// Memory of this process stands for a buffer in tests.
#[cfg(test)]
impl Contents for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Stop> {
        let start = usize::try_from(offset).map_err(Stop::failed)?;
        let from = self.get(start..start + into.len());
        into.copy_from_slice(from.ok_or_else(|| Stop::failed("outside"))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(bytes: &[u8]) -> Buffer {
        let start = bytes.as_ptr() as u64;
        Buffer {
            identity: Identity::of(std::process::id() as i32).unwrap(),
            span: Span {
                start,
                end: start + bytes.len() as u64,
            },
            record: None,
            stamp: None,
        }
    }

    #[test]
    fn ranges_outside_are_refused_with_the_length() {
        let bytes = [0u8; 100];
        let buffer = own(&bytes);
        buffer.range(0, 100).unwrap();
        buffer.range(100, 0).unwrap();
        for (offset, length) in [
            (0, 101),
            (100, 1),
            (u64::MAX, 1),
            (1, u64::MAX),
            (u64::MAX, u64::MAX),
        ] {
            let text = buffer.range(offset, length).unwrap_err().text.unwrap();
            assert!(text.contains("which has 100 bytes"), "{text}");
        }
    }

    #[test]
    fn bytes_are_read_and_written_by_offset() {
        let bytes = vec![7u8; 64];
        let buffer = own(&bytes);
        buffer.write_at(60, &[1, 2, 3, 4]).unwrap();
        let mut back = [0; 5];
        buffer.read_at(59, &mut back).unwrap();
        assert_eq!(back, [7, 1, 2, 3, 4]);
        assert!(buffer.write_at(61, &[0; 4]).is_err());
    }
}
