//! Finds, copies and steers the shim's record in another process.

pub mod elf;
mod limits;
pub mod view;

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cudasnap_wire::{Mode, Record, MAGIC, SYMBOL, VERSION};

use crate::process::target::{Mapping, Memory, MemoryError, Target};
use crate::record::elf::find_symbol;
use crate::record::limits::in_time;
use crate::record::view::RecordView;

/// Readings of a record before it is called busy. A block is written within microseconds.
const TRIES: u32 = 50;
/// Readings of a process's memory in the search for a record; an image needs one, a library some ten.
const READINGS: u32 = 1 << 20;
/// Pause after a reading that met a writer.
const PAUSE: Duration = Duration::from_micros(200);

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

/// The images of programs and libraries: files of which a part may be executed. Data that is mapped, such as the weights of a model,
/// is not looked into.
fn images(mappings: &[Mapping]) -> Vec<&Mapping> {
    let executed = mappings.iter().filter(|mapping| mapping.executable);
    let executed: HashSet<(u64, &str)> = executed
        .map(|mapping| (mapping.inode, mapping.path.as_str()))
        .collect();
    let images = mappings.iter().filter(|mapping| mapping.is_image());
    images
        .filter(|mapping| executed.contains(&(mapping.inode, mapping.path.as_str())))
        .collect()
}

/// Memory of which only so much is read: a process could have tens of thousands of images, each made to take long.
struct Metered {
    target: Target,
    left: Cell<u32>,
}

impl Metered {
    fn new(target: Target) -> Self {
        Metered {
            target,
            left: Cell::new(READINGS),
        }
    }
}

impl Memory for Metered {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let Some(left) = self.left.get().checked_sub(1) else {
            return Err(MemoryError::Unmapped(address));
        };
        self.left.set(left);
        self.target.read(address, into)
    }
}

/// Looks through images (address and path), in this order.
fn search(target: Target, images: Vec<(u64, String)>) -> Result<Located, RecordError> {
    let mut unsound = None;
    let memory = Metered::new(target);
    for (start, path) in images {
        let Some(symbol) = find_symbol(&memory, start, SYMBOL)? else {
            continue;
        };
        match check(&target, symbol.address, symbol.size) {
            Ok(()) => {
                return Ok(Located {
                    target,
                    address: symbol.address,
                    library: path,
                })
            }
            Err(RecordError::Memory(MemoryError::Gone)) => return Err(MemoryError::Gone.into()),
            Err(error) => unsound = unsound.or(Some(error)),
        }
    }
    Err(unsound.unwrap_or(RecordError::NotLoaded))
}

fn check(target: &Target, address: u64, size: u64) -> Result<(), RecordError> {
    if !address.is_multiple_of(align_of::<u64>() as u64) {
        return Err(RecordError::NotARecord);
    }
    if size < size_of::<Record>() as u64 {
        return Err(RecordError::Size(u32::try_from(size).unwrap_or(u32::MAX)));
    }
    check_head(&*copy_record(target, address)?)
}

pub(crate) fn check_head(record: &Record) -> Result<(), RecordError> {
    if record.magic.load(Relaxed) != MAGIC {
        return Err(RecordError::NotARecord);
    }
    let version = record.version.load(Relaxed);
    if version != VERSION {
        return Err(RecordError::Version(version));
    }
    // Longer is a newer shim with fields at the end that this build does not know.
    let size = record.size.load(Relaxed);
    if (size as usize) < size_of::<Record>() {
        return Err(RecordError::Size(size));
    }
    Ok(())
}

fn copy_record(target: &Target, address: u64) -> Result<Box<Record>, MemoryError> {
    let record = Box::new(Record::new(0));
    let into = (&raw const *record).cast::<u8>().cast_mut();
    // SAFETY: `into` is valid for a whole record, which consists of atomics (so it may be written through a shared
    // reference), and any bytes are a valid record.
    unsafe { target.read_raw(address, into, size_of::<Record>()) }?;
    Ok(record)
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
    fn only_files_that_are_executed_are_images() {
        let lines = [
            "1000-2000 r--p 00000000 fe:00 42 /x/lib.so",
            "2000-3000 r-xp 00001000 fe:00 42 /x/lib.so",
            "4000-5000 r--p 00000000 fe:00 43 /x/model.safetensors",
            "6000-7000 r-xp 00000000 fe:00 44 /x/old.so (deleted)",
            "8000-9000 r-xp 00000000 00:00 0 [vdso]",
        ];
        let mappings = lines.map(|line| Mapping::parse(line).unwrap());
        let starts: Vec<u64> = images(&mappings).iter().map(|image| image.start).collect();
        assert_eq!(starts, [0x1000, 0x6000]);
    }

    #[test]
    fn the_search_ends_after_so_many_readings() {
        let word = 7u64;
        let memory = Metered::new(own());
        memory.left.set(1);
        let mut bytes = [0; 8];
        let address = &raw const word as u64;
        memory.read(address, &mut bytes).unwrap();
        assert_eq!(
            memory.read(address, &mut bytes),
            Err(MemoryError::Unmapped(address))
        );
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
