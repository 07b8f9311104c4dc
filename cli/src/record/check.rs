//! Copies what should be a record out of a process, and looks whether it is one.

use std::mem::size_of;
use std::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{Record, MAGIC, VERSION};

use super::RecordError;
use crate::process::target::{MemoryError, Target};

/// Whether a record lies at the address, where its symbol says that so many bytes are.
pub fn check(target: &Target, address: u64, size: u64) -> Result<(), RecordError> {
    if !address.is_multiple_of(align_of::<u64>() as u64) {
        return Err(RecordError::NotARecord);
    }
    if size < size_of::<Record>() as u64 {
        return Err(RecordError::Size(u32::try_from(size).unwrap_or(u32::MAX)));
    }
    check_head(&*copy_record(target, address)?)
}

/// Whether a copy is a record of this layout.
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

/// Copies a record, whatever it is.
pub fn copy_record(target: &Target, address: u64) -> Result<Box<Record>, MemoryError> {
    let record = Box::new(Record::new(0));
    let into = (&raw const *record).cast::<u8>().cast_mut();
    // SAFETY: `into` is valid for a whole record, which consists of atomics (so it may be written through a shared
    // reference), and any bytes are a valid record.
    unsafe { target.read_raw(address, into, size_of::<Record>()) }?;
    Ok(record)
}
