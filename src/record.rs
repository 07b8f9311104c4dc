//! The record in the library's data segment, and what the shim writes to it besides phases.

use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{Complaint, Mode, OptionSpec, Record, Slot, SlotState, Step, OPTIONS};

use crate::{own, sys};

const fn version_part(text: &str) -> u32 {
    let bytes = text.as_bytes();
    let mut number = 0;
    let mut at = 0;
    while at < bytes.len() {
        number = number * 10 + (bytes[at] - b'0') as u32;
        at += 1;
    }
    number
}

const VERSION: u32 = version_part(env!("CARGO_PKG_VERSION_MAJOR")) << 16
    | version_part(env!("CARGO_PKG_VERSION_MINOR")) << 8
    | version_part(env!("CARGO_PKG_VERSION_PATCH"));

/// The record; its name is what tools look for.
#[allow(non_upper_case_globals)]
#[cfg_attr(all(feature = "preload", not(test)), no_mangle)]
pub static cudasnap_record: Record = Record::new(VERSION);

/// The record.
pub fn get() -> &'static Record {
    &cudasnap_record
}

/// Counts a step down, and says it where messages are asked for.
pub fn step(step: Step) {
    if let Some(counter) = get().counters.steps.get(step as usize) {
        counter.fetch_add(1, Relaxed);
    }
    log::warn!("step down: {}", step.word());
}

/// The mode that the next request will get.
pub fn mode() -> Mode {
    Mode::from_number(get().mode.load(Relaxed)).unwrap_or(Mode::On)
}

/// Options whose values were not understood, and these.
pub fn complaints() -> impl Iterator<Item = (&'static OptionSpec, &'static Complaint)> {
    get().complaints.iter().filter_map(|complaint| {
        let number = complaint.option.load(Relaxed) as usize;
        Some((OPTIONS.get(number.checked_sub(1)?)?, complaint))
    })
}

/// Publishes what became of a slot.
pub fn slot(slot: Slot, state: SlotState) {
    if let Some(word) = get().slots.state.get(slot as usize) {
        word.store(state.number(), Relaxed);
    }
}

/// States of the buffer in the record.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum BufferState {
    /// No buffer.
    None = 0,
    /// The driver holds it.
    Live = 1,
    /// Kept for the next checkpoint.
    Kept = 2,
    /// The driver's own mapping.
    Observed = 3,
    /// Its addresses wait for the next checkpoint.
    Reserved = 4,
}

/// Publishes the buffer.
pub fn buffer(state: BufferState, address: usize, length: usize, mapped: usize) {
    let buffer = &get().buffer;
    buffer.seq.write(|| {
        buffer.state.store(state as u32, Relaxed);
        buffer.address.store(address as u64, Relaxed);
        buffer.length.store(length as u64, Relaxed);
        buffer.mapped.store(mapped as u64, Relaxed);
    });
}

/// A child of fork uses the library itself from now on: what its record says is its own.
pub fn own() {
    get().pid.store(sys::getpid(), Relaxed);
}

/// Writes identity: the constructor's part. Written words make the page private, so that a process checkpointer moves it as
/// data and does not map it anew from the file.
pub fn identify() {
    let record = get();
    record.pid.store(sys::getpid(), Relaxed);
    for (cell, byte) in record.build_id.iter().zip(own::build_id()) {
        cell.store(byte, Relaxed);
    }
}

/// Whether the text that runs is of the build that this data comes from. It is not when the process was moved to a host
/// that has another build of the library at the same path.
pub fn text_is_ours() -> bool {
    let text = own::build_id();
    let data = &get().build_id;
    data.iter()
        .zip(text)
        .all(|(cell, byte)| cell.load(Relaxed) == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_package() {
        let [major, minor, patch] = [VERSION >> 16, VERSION >> 8 & 0xff, VERSION & 0xff];
        assert_eq!(
            format!("{major}.{minor}.{patch}"),
            env!("CARGO_PKG_VERSION")
        );
    }

    #[test]
    fn a_changed_build_id_is_noticed() {
        identify();
        assert!(text_is_ours());
        let cell = &get().build_id[0];
        let before = cell.load(Relaxed);
        cell.store(before ^ 1, Relaxed);
        assert!(!text_is_ours());
        cell.store(before, Relaxed);
        assert!(text_is_ours());
    }
}
