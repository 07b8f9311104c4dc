//! The record as plain values: what a tool shows, and what goes into JSON. `word` is a number that has a name, `phase` and `buffer` are
//! those blocks.

mod buffer;
mod phase;
mod word;

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use cudasnap_wire as wire;
use serde::Serialize;

pub use buffer::BufferView;
pub use phase::PhaseView;
pub use word::Word;
use word::{mode, pages, slot_state};

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
    pub sparse: bool,
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
            buffer: BufferView::new(&record.buffer),
            libcuda: record.slots.libcuda.load(Relaxed),
            slots: slots(&record.slots),
            counters: counters(&record.counters),
            current: PhaseView::new(&record.current),
            history: phase::history(record),
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
        sparse: options.sparse.load(Relaxed) != 0,
        report: options.report_len.load(Relaxed) != 0,
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
}
