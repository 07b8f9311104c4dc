//! The record as plain values: what a tool shows, and what goes into JSON.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU8};

use cudasnap_wire as wire;
use serde::{Serialize, Serializer};

/// A numbered name: the word when this build knows the number, the number itself otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// The number in the record.
    pub number: u32,
    /// Its word, if known.
    pub word: Option<&'static str>,
}

impl Word {
    fn new(cell: &AtomicU32, name: impl Fn(u32) -> Option<&'static str>) -> Self {
        let number = cell.load(Relaxed);
        Word {
            number,
            word: name(number),
        }
    }

    /// Whether it is this word.
    pub fn is(&self, word: &str) -> bool {
        self.word == Some(word)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.word {
            Some(word) => out.pad(word),
            None => write!(out, "unknown number {}", self.number),
        }
    }
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.word {
            Some(word) => to.serialize_str(word),
            None => to.serialize_u32(self.number),
        }
    }
}

macro_rules! words {
    ($($function:ident: $name:ident),*) => {
        $(fn $function(cell: &AtomicU32) -> Word {
            Word::new(cell, |number| wire::$name::from_number(number).map(wire::$name::word))
        })*
    };
}

words!(mode: Mode, strategy: Strategy, pages: PageKind, direction: Direction, end: End, slot_state: SlotState);

/// A phase; see [`wire::Phase`] for the meaning of each field. Times are nanoseconds, sizes bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(
    missing_docs,
    reason = "the fields are those of wire::Phase, documented there"
)]
pub struct PhaseView {
    pub direction: Word,
    pub end: Word,
    pub mode: Word,
    pub pages: Word,
    pub threads: u32,
    pub buffer: u32,
    pub kept: bool,
    pub strategy: Word,
    pub tried: u32,
    pub expected: u64,
    pub copied: u64,
    pub copies: u64,
    pub prefaulted: u64,
    pub started_unix_ns: u64,
    pub mmap_ns: u64,
    pub prefault_ns: u64,
    pub first_copy_ns: u64,
    pub copying_ns: u64,
    pub waiting_ns: u64,
    pub longest_wait_ns: u64,
    pub loop_ns: u64,
    pub total_ns: u64,
    pub munmap_ns: u64,
}

impl PhaseView {
    fn new(phase: &wire::Phase) -> Self {
        PhaseView {
            direction: direction(&phase.direction),
            end: end(&phase.end),
            mode: mode(&phase.mode),
            pages: pages(&phase.pages),
            threads: phase.threads.load(Relaxed),
            buffer: phase.buffer.load(Relaxed),
            kept: phase.kept.load(Relaxed) != 0,
            strategy: strategy(&phase.strategy),
            tried: phase.tried.load(Relaxed),
            expected: phase.expected.load(Relaxed),
            copied: phase.copied.load(Relaxed),
            copies: phase.copies.load(Relaxed),
            prefaulted: phase.prefaulted.load(Relaxed),
            started_unix_ns: phase.started_unix_ns.load(Relaxed),
            mmap_ns: phase.mmap_ns.load(Relaxed),
            prefault_ns: phase.prefault_ns.load(Relaxed),
            first_copy_ns: phase.first_copy_ns.load(Relaxed),
            copying_ns: phase.copying_ns.load(Relaxed),
            waiting_ns: phase.waiting_ns.load(Relaxed),
            longest_wait_ns: phase.longest_wait_ns.load(Relaxed),
            loop_ns: phase.loop_ns.load(Relaxed),
            total_ns: phase.total_ns.load(Relaxed),
            munmap_ns: phase.munmap_ns.load(Relaxed),
        }
    }

    /// Whether at least 99 % of the expected bytes went through the shim: the proof that the hook was effective.
    pub fn is_effective(&self) -> bool {
        self.expected > 0
            && u128::from(self.copied) * 100 >= u128::from(self.expected) * 99
            && self.copied <= self.expected
    }
}

/// The buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BufferView {
    /// `none`, `live`, `kept`, `observed` or `reserved`.
    pub state: Word,
    /// Address of the first byte.
    pub address: u64,
    /// Bytes that the driver asked for.
    pub length: u64,
    /// Bytes mapped.
    pub mapped: u64,
}

impl BufferView {
    /// Whether it waits for the next checkpoint, and can be dropped.
    pub fn is_waiting(&self) -> bool {
        self.state.is("kept") || self.state.is("reserved")
    }

    /// Whether the driver has no buffer that the library knows of.
    pub fn is_idle(&self) -> bool {
        self.state.is("none") || self.is_waiting()
    }

    /// First address, and first address after it; `None` when no buffer can lie there: it begins and ends at a page, and is at
    /// least as long as what the driver asked for.
    pub fn range(&self) -> Option<(u64, u64)> {
        const PAGE: u64 = 4096;
        let end = self.address.checked_add(self.mapped)?;
        let sound = self.mapped > 0
            && self.mapped >= self.length
            && self.address.is_multiple_of(PAGE)
            && end.is_multiple_of(PAGE);
        sound.then_some((self.address, end))
    }
}

/// A named count or state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named<T> {
    /// Name.
    pub name: &'static str,
    /// Value.
    pub value: T,
}

/// Counters since the library was loaded; see [`wire::Counters`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(
    missing_docs,
    reason = "the fields are those of wire::Counters, documented there"
)]
pub struct CountersView {
    pub requests: u64,
    pub answered: u64,
    pub phases: u64,
    pub helpers_started: u64,
    pub other_copies: u64,
    /// Steps down that happened at least once.
    pub steps: Vec<Named<u32>>,
}

/// An option value that the shim did not understand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComplaintView {
    /// Name of the option; `None` for an option of a newer shim.
    pub option: Option<&'static str>,
    /// The value, cut to what the record holds.
    pub value: String,
}

/// The options in force; see [`wire::Options`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(
    missing_docs,
    reason = "the fields are those of wire::Options, documented there"
)]
pub struct OptionsView {
    pub mode: Word,
    pub threads: u32,
    pub pages: Word,
    pub keep: bool,
    /// Whether the addresses of the buffer are kept, and its memory is not.
    pub reserve: bool,
    pub keep_max: u64,
    pub log: u32,
    pub strategy: Word,
    pub report: bool,
}

/// A whole record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordView {
    /// Version of the library, `major.minor.patch`.
    pub library_version: String,
    /// Build id of the library whose data this is, in hexadecimal; empty when it had none.
    pub build_id: String,
    /// Process that ran the library's constructor.
    pub pid: u32,
    /// Mode of the next buffer request.
    pub mode: Word,
    /// Upper limit for threads that copy, 0 = none.
    pub thread_cap: u32,
    /// Not 0: a kept buffer is to be freed.
    pub drop: u32,
    /// Options in force.
    pub options: OptionsView,
    /// The buffer.
    pub buffer: BufferView,
    /// Load address of the libcuda that made the last request; 0 = none yet.
    pub libcuda: u64,
    /// State of libcuda's slots.
    pub slots: Vec<Named<Word>>,
    /// Counters.
    pub counters: CountersView,
    /// The phase that goes on, or the last one.
    pub current: PhaseView,
    /// Phases that ended, oldest first.
    pub history: Vec<PhaseView>,
    /// Option values that were not understood.
    pub complaints: Vec<ComplaintView>,
}

impl RecordView {
    /// The values of a record, which must be a copy at rest.
    pub fn new(record: &wire::Record) -> Self {
        let version = record.library_version.load(Relaxed);
        RecordView {
            library_version: format!("{}.{}.{}", version >> 16, version >> 8 & 255, version & 255),
            build_id: build_id(&record.build_id),
            pid: record.pid.load(Relaxed),
            mode: mode(&record.mode),
            thread_cap: record.thread_cap.load(Relaxed),
            drop: record.drop.load(Relaxed),
            options: options(&record.options),
            buffer: buffer(&record.buffer),
            libcuda: record.slots.libcuda.load(Relaxed),
            slots: slots(&record.slots),
            counters: counters(&record.counters),
            current: PhaseView::new(&record.current),
            history: history(record),
            complaints: record.complaints.iter().filter_map(complaint).collect(),
        }
    }

    /// The newest ended phase in this direction (`checkpoint` or `restore`).
    pub fn last(&self, direction: &str) -> Option<&PhaseView> {
        self.history
            .iter()
            .rev()
            .find(|phase| phase.direction.is(direction))
    }

    /// How often a step down happened.
    pub fn steps(&self, step: wire::Step) -> u32 {
        let found = self
            .counters
            .steps
            .iter()
            .find(|named| named.name == step.word());
        found.map_or(0, |named| named.value)
    }
}

fn build_id(bytes: &[AtomicU8]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|byte| byte.load(Relaxed)).collect();
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    // A build id may end in zero bytes; SHA-1's 20 is the usual length.
    let length = if used > 0 && used < 20 { 20 } else { used };
    bytes[..length]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn options(options: &wire::Options) -> OptionsView {
    OptionsView {
        mode: mode(&options.mode),
        threads: options.threads.load(Relaxed),
        pages: pages(&options.pages),
        keep: options.keep.load(Relaxed) == wire::Rest::Keep.number(),
        reserve: options.keep.load(Relaxed) == wire::Rest::Reserve.number(),
        keep_max: options.keep_max.load(Relaxed),
        log: options.log.load(Relaxed),
        strategy: Word::new(&options.strategy, |number| {
            wire::Choice::from_number(number).map(wire::Choice::word)
        }),
        report: options.report_len.load(Relaxed) != 0,
    }
}

fn buffer(buffer: &wire::Buffer) -> BufferView {
    const STATES: [&str; 5] = ["none", "live", "kept", "observed", "reserved"];
    BufferView {
        state: Word::new(&buffer.state, |number| STATES.get(number as usize).copied()),
        address: buffer.address.load(Relaxed),
        length: buffer.length.load(Relaxed),
        mapped: buffer.mapped.load(Relaxed),
    }
}

fn slots(slots: &wire::Slots) -> Vec<Named<Word>> {
    let states = wire::Slot::ALL.iter().zip(&slots.state);
    states
        .map(|(slot, state)| Named {
            name: slot.word(),
            value: slot_state(state),
        })
        .collect()
}

fn counters(counters: &wire::Counters) -> CountersView {
    let steps = wire::Step::ALL.iter().zip(&counters.steps);
    CountersView {
        requests: counters.requests.load(Relaxed),
        answered: counters.answered.load(Relaxed),
        phases: counters.phases.load(Relaxed),
        helpers_started: counters.helpers_started.load(Relaxed),
        other_copies: counters.other_copies.load(Relaxed),
        steps: steps
            .map(|(step, count)| Named {
                name: step.word(),
                value: count.load(Relaxed),
            })
            .filter(|named| named.value > 0)
            .collect(),
    }
}

fn history(record: &wire::Record) -> Vec<PhaseView> {
    let written = record.history_count.load(Relaxed) as usize;
    let first = written.saturating_sub(wire::HISTORY);
    (first..written)
        .map(|number| PhaseView::new(&record.history[number % wire::HISTORY]))
        .collect()
}

fn complaint(complaint: &wire::Complaint) -> Option<ComplaintView> {
    let option = complaint.option.load(Relaxed).checked_sub(1)?;
    let length = (complaint.length.load(Relaxed) as usize).min(complaint.value.len());
    let value: Vec<u8> = complaint.value[..length]
        .iter()
        .map(|byte| byte.load(Relaxed))
        .collect();
    Some(ComplaintView {
        option: wire::OPTIONS.get(option as usize).map(|option| option.name),
        value: String::from_utf8_lossy(&value).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_numbers_stay_numbers() {
        let record = wire::Record::new(0);
        record.mode.store(77, Relaxed);
        record.current.end.store(1, Relaxed);
        record.complaints[0].option.store(900, Relaxed);
        record.complaints[0].length.store(u32::MAX, Relaxed);
        let view = RecordView::new(&record);
        assert_eq!(view.mode.to_string(), "unknown number 77");
        assert!(view.complaints[0].option.is_none());
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(
            (&json["mode"], &json["current"]["end"]),
            (&77.into(), &"covered".into())
        );
    }

    #[test]
    fn a_buffer_that_cannot_be_has_no_range() {
        let range = |address, length, mapped| {
            let record = wire::Record::new(0);
            record.buffer.address.store(address, Relaxed);
            record.buffer.length.store(length, Relaxed);
            record.buffer.mapped.store(mapped, Relaxed);
            RecordView::new(&record).buffer.range()
        };
        assert_eq!(range(0x20_0000, 100, 0x2000), Some((0x20_0000, 0x20_2000)));
        for (address, length, mapped) in [
            (0x20_0000, 0, 0),
            (0x20_0000, 0x3000, 0x2000),
            (0x20_0001, 100, 0x2000),
            (0x20_0000, 100, 0x2001),
            (0x7f00_0000_0000, 100, 0u64.wrapping_sub(0x1000)),
            (u64::MAX - 0xfff, 100, 0x1000),
            (u64::MAX - 0xfff, 100, 0x2000),
        ] {
            assert_eq!(
                range(address, length, mapped),
                None,
                "{address:#x} {mapped:#x}"
            );
        }
    }

    #[test]
    fn history_is_told_oldest_first_from_the_ring() {
        let record = wire::Record::new(0);
        record.history_count.store(11, Relaxed);
        for (place, phase) in record.history.iter().enumerate() {
            phase.buffer.store(place as u32, Relaxed);
        }
        let order: Vec<u32> = RecordView::new(&record)
            .history
            .iter()
            .map(|phase| phase.buffer)
            .collect();
        assert_eq!(order, [3, 4, 5, 6, 7, 0, 1, 2]);
    }

    #[test]
    fn effective_means_nearly_all_and_not_more() {
        let record = wire::Record::new(0);
        for (copied, effective) in [
            (0, false),
            (989, false),
            (990, true),
            (1000, true),
            (1001, false),
        ] {
            record.current.expected.store(1000, Relaxed);
            record.current.copied.store(copied, Relaxed);
            assert_eq!(
                RecordView::new(&record).current.is_effective(),
                effective,
                "{copied}"
            );
        }
    }
}
