//! Finds, copies and steers the shim's record in another process.

mod check;
pub mod elf;
mod error;
mod limits;
mod search;
pub mod view;

use std::mem::{offset_of, size_of};
use std::time::Duration;

use cudasnap_wire::{Mode, Record};

use crate::process::target::{Mapping, Target};

use check::{check, copy_record};
use limits::in_time;
use search::{images, search};
use view::RecordView;

pub(crate) use check::check_head;
pub use error::RecordError;

/// Readings of a record before it is called busy. A block is written within microseconds.
const TRIES: u32 = 50;
/// Pause after a reading that met a writer.
const PAUSE: Duration = Duration::from_micros(200);

/// One of the words that a tool may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// What the shim does with the next buffer request.
    Mode(Mode),
    /// Upper limit for threads that copy; 0 = none.
    ThreadCap(u32),
    /// Free a kept or reserved buffer at the next mmap.
    Drop,
}

/// A record's place in a process. It stays valid as long as the process lives and the library is not unloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    target: Target,
    address: u64,
    library: String,
}

impl Located {
    /// Looks through the images mapped in the process for one that defines the record, and checks what it finds.
    ///
    /// # Errors
    /// [`RecordError::NotLoaded`] when no image has it; what was wrong with the first candidate when none is sound.
    pub fn find(target: Target) -> Result<Self, RecordError> {
        Self::find_in(target, &target.mappings()?)
    }

    /// The same, with the process's mappings at hand. An image whose file is named after the library is looked at first.
    ///
    /// # Errors
    /// As [`Located::find`].
    pub fn find_in(target: Target, mappings: &[Mapping]) -> Result<Self, RecordError> {
        let mut images: Vec<(u64, String)> = images(mappings)
            .into_iter()
            .map(|mapping| (mapping.start, mapping.path.clone()))
            .collect();
        images.sort_by_key(|(_, path)| !path.contains("cudasnap"));
        in_time(move || search(target, images))
    }

    /// A record that cannot be read.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        Located {
            target: Target::new(1),
            address: 0,
            library: String::new(),
        }
    }

    /// Path of the library as the process's mappings name it. It may lie in another mount namespace.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Address of the record in the process.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Copies the record out, each block consistent in itself.
    ///
    /// # Errors
    /// [`RecordError::Busy`] when a writer was met at every try.
    pub fn read(&self) -> Result<RecordView, RecordError> {
        let place = self.clone();
        in_time(move || place.read_now())
    }

    fn read_now(&self) -> Result<RecordView, RecordError> {
        let mut before = self.copy()?;
        for _ in 0..TRIES {
            let record = self.copy()?;
            let after = self.copy()?;
            // The middle copy lies between two readings of each counter: equal and even means that nobody wrote.
            if sequences(&before)
                .zip(sequences(&after))
                .all(|(first, last)| first == last && first % 2 == 0)
            {
                return Ok(RecordView::new(&record));
            }
            before = after;
            std::thread::sleep(PAUSE);
        }
        Err(RecordError::Busy)
    }

    /// Writes a control word.
    pub fn write(&self, control: Control) -> Result<(), RecordError> {
        let (offset, word) = match control {
            Control::Mode(mode) => (offset_of!(Record, mode), mode.number()),
            Control::ThreadCap(cap) => (offset_of!(Record, thread_cap), cap),
            Control::Drop => (offset_of!(Record, drop), 1),
        };
        let (target, address) = (self.target, self.address);
        in_time(move || {
            // Looked at again: the library may have been unloaded and its place be something else's by now.
            check(&target, address, size_of::<Record>() as u64)?;
            Ok(target.write(address + offset as u64, &word.to_ne_bytes())?)
        })
    }

    fn copy(&self) -> Result<Box<Record>, RecordError> {
        let record = copy_record(&self.target, self.address)?;
        check_head(&record)?;
        Ok(record)
    }
}

/// The sequence counters of all blocks, in a fixed order.
fn sequences(record: &Record) -> impl Iterator<Item = u32> + '_ {
    let phases = record.history.iter().map(|phase| phase.seq.read());
    [
        record.options.seq.read(),
        record.buffer.seq.read(),
        record.current.seq.read(),
    ]
    .into_iter()
    .chain(phases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::target::MemoryError;
    use cudasnap_wire::VERSION;
    use std::sync::atomic::Ordering::Relaxed;

    fn own() -> Target {
        Target::new(std::process::id() as i32)
    }

    fn located(record: &Record) -> Located {
        Located {
            target: own(),
            address: std::ptr::from_ref(record) as u64,
            library: "test".into(),
        }
    }

    #[test]
    fn a_sound_record_is_copied_and_steered() {
        let record = Record::new(0x0001_0203);
        record.current.expected.store(1 << 40, Relaxed);
        let place = located(&record);
        place.write(Control::Mode(Mode::Observe)).unwrap();
        place.write(Control::ThreadCap(5)).unwrap();
        place.write(Control::Drop).unwrap();
        let view = place.read().unwrap();
        assert_eq!(view.mode.to_string(), "observe");
        assert_eq!((view.thread_cap, view.drop), (5, 1));
        assert_eq!(view.current.expected, 1 << 40);
        assert_eq!(view.library_version, "1.2.3");
    }

    #[test]
    fn a_record_in_the_middle_of_a_write_is_busy() {
        let record = Record::new(0);
        let place = located(&record);
        record.buffer.seq.write(|| {
            assert_eq!(place.read().unwrap_err(), RecordError::Busy);
        });
        place.read().unwrap();
    }

    #[test]
    fn foreign_heads_are_refused() {
        let record = Record::new(0);
        record.version.store(99, Relaxed);
        assert_eq!(
            located(&record).read().unwrap_err(),
            RecordError::Version(99)
        );
        record.version.store(VERSION, Relaxed);
        record.size.store(16, Relaxed);
        assert_eq!(located(&record).read().unwrap_err(), RecordError::Size(16));
        record.magic.store(1, Relaxed);
        let place = located(&record);
        assert_eq!(place.read().unwrap_err(), RecordError::NotARecord);
        // A control word is not written over something that is no record.
        assert_eq!(
            place.write(Control::Drop).unwrap_err(),
            RecordError::NotARecord
        );
        assert_eq!(record.drop.load(Relaxed), 0);
    }

    #[test]
    fn this_process_has_no_shim() {
        assert_eq!(Located::find(own()).unwrap_err(), RecordError::NotLoaded);
    }

    #[test]
    fn unmapped_memory_is_an_error_value() {
        let place = Located {
            target: own(),
            address: 64,
            library: String::new(),
        };
        assert_eq!(
            place.read().unwrap_err(),
            RecordError::Memory(MemoryError::Unmapped(64))
        );
    }
}
