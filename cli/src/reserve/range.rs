//! A process's reserved range: what its record says of it, and what the kernel has put there.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::buffer::progress::{Interrupts, Progress};
use crate::process::identity::Identity;
use crate::process::observe::has_flag;
use crate::process::target::{Mapping, MemoryError};
use crate::record::view::{BufferView, RecordView};
use crate::record::{Located, RecordError};
use crate::reserve::fill::World;
use crate::reserve::halt::{Halt, Why};
use crate::reserve::populate::Populator;
use crate::reserve::pressure::{self, Margins};

/// The process's mappings are looked at this often; its record before each part.
const MAPPINGS_AGE: Duration = Duration::from_secs(1);
/// Populations of one part, until all of its pages are seen: one may be on its way between two places of memory.
const TRIES: u32 = 3;
const PAGE: u64 = 4096;

/// A reserved range that was found.
#[derive(Debug)]
pub struct Found {
    identity: Identity,
    record: Located,
    /// The range.
    pub buffer: BufferView,
    /// Most bytes of it that the process's own option allows; 0 = all.
    pub keep_max: u64,
    requests: u64,
}

/// Why there is no range to fill.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// The record could not be read.
    Record(RecordError),
    /// There is none, and what to do about it.
    None(String),
}

impl From<RecordError> for Missing {
    fn from(error: RecordError) -> Self {
        Missing::Record(error)
    }
}

impl From<MemoryError> for Missing {
    fn from(error: MemoryError) -> Self {
        Missing::Record(RecordError::Memory(error))
    }
}

impl Found {
    /// Looks for it.
    ///
    /// # Errors
    /// There is none, or it cannot be looked at.
    pub fn of(identity: &Identity) -> Result<Self, Missing> {
        let target = identity.target();
        let record = Located::find(target)?;
        let view = record.read()?;
        if view.pid != 0 && identity.own_pid() != view.pid as i32 {
            return Err(Missing::None(
                "it was forked from the process that has the range, and would not use it".into(),
            ));
        }
        if let Some(why) = why_none(&view) {
            return Err(Missing::None(why));
        }
        let Some((start, end)) = view.buffer.range() else {
            return Err(RecordError::Impossible.into());
        };
        if view.buffer.length == 0 || !is_plain(&target.mappings()?, start, end) {
            return Err(RecordError::Impossible.into());
        }
        // Whoever watches the memory would be asked for each page.
        if has_flag(target, start, end, &["um", "uw", "ui"])? {
            return Err(Missing::None("its memory is watched (userfaultfd)".into()));
        }
        Ok(Found {
            identity: identity.clone(),
            record,
            keep_max: view.options.keep_max,
            requests: view.counters.requests,
            buffer: view.buffer,
        })
    }

    /// Why the range is not to be filled any more, if so.
    fn changed(&self, view: &RecordView) -> Option<Halt> {
        let halt = |why, text: &str| Some(Halt::new(why, text));
        if view.counters.requests != self.requests {
            return halt(Why::Checkpoint, "a checkpoint began");
        }
        if view.drop != 0 || view.buffer != self.buffer {
            return halt(Why::Dropped, "the range was given back (cudasnap drop)");
        }
        if !view.mode.is("on") {
            return halt(
                Why::Dropped,
                "the library is not on any more (cudasnap mode)",
            );
        }
        None
    }
}

/// Why the record names no range that can be filled, and what to do.
fn why_none(view: &RecordView) -> Option<String> {
    let state = view.buffer.state;
    let text = if !view.options.reserve {
        "it reserves nothing: start it with CUDASNAP_BUFFER=reserve (cudasnap run --buffer reserve); it then has a range after its \
         first checkpoint and restore"
    } else if !view.mode.is("on") {
        "its library is not on, and its next checkpoint would not use the range: cudasnap mode PID on"
    } else if view.drop != 0 {
        "its range was dropped (cudasnap drop); it has one again after its next checkpoint and restore"
    } else if state.is("reserved") {
        return None;
    } else if state.is("live") || state.is("observed") {
        "it is checkpointed, or in the middle of it: the range is there again after the restore"
    } else if view.counters.requests == 0 {
        "it was not checkpointed yet, and how long its range will be is not known: checkpoint and restore it once"
    } else {
        "it has no range now: it was dropped, or could not be reserved (cudasnap status -v tells the steps down); checkpoint and \
         restore it once"
    };
    Some(text.into())
}

/// Whether the whole range is plain private memory.
fn is_plain(mappings: &[Mapping], start: u64, end: u64) -> bool {
    let mut next = start;
    for mapping in mappings {
        if mapping.end <= next || mapping.start >= end {
            continue;
        }
        if mapping.start > next || !mapping.is_private_memory() || !mapping.path.is_empty() {
            return false;
        }
        next = mapping.end;
    }
    next >= end
}

/// The range while it is filled.
#[derive(Debug)]
pub struct Filling<'a> {
    found: &'a Found,
    pagemap: File,
    populator: &'a Populator,
    margins: Margins,
    interrupts: &'a Interrupts,
    progress: Progress,
    began: Instant,
    mappings_seen: Instant,
}

impl<'a> Filling<'a> {
    /// Begins.
    ///
    /// # Errors
    /// The process has ended, or what its pages are may not be seen.
    pub fn new(
        found: &'a Found,
        populator: &'a Populator,
        margins: Margins,
        interrupts: &'a Interrupts,
    ) -> Result<Self, MemoryError> {
        let pid = found.identity.pid;
        let now = Instant::now();
        Ok(Filling {
            found,
            pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
            populator,
            margins,
            interrupts,
            progress: Progress::begin(&format!("{pid} reserve"), found.buffer.length),
            began: now,
            mappings_seen: now,
        })
    }
}

impl World for Filling<'_> {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn signal(&self) -> Option<i32> {
        self.interrupts.came()
    }

    fn standing(&mut self) -> Result<(), Halt> {
        let found = self.found;
        let ended = || Halt::new(Why::Ended, "the process has ended");
        let failed = |error: RecordError| match error {
            RecordError::Memory(MemoryError::Gone) => ended(),
            error => Halt::new(Why::Failed, error.to_string()),
        };
        found.identity.check().map_err(|_| ended())?;
        if self.mappings_seen.elapsed() >= MAPPINGS_AGE {
            let mappings = found.identity.target().mappings();
            let mappings = mappings.map_err(|error| failed(error.into()))?;
            let buffer = &found.buffer;
            let end = buffer.address + buffer.mapped;
            if !is_plain(&mappings, buffer.address, end) {
                return Err(Halt::new(
                    Why::Dropped,
                    "other memory lies in the range by now",
                ));
            }
            self.mappings_seen = Instant::now();
        }
        let view = found.record.read().map_err(failed)?;
        found.changed(&view).map_or(Ok(()), Err)
    }

    fn look(&mut self, bytes: u64) -> Result<(), Halt> {
        pressure::look(self.found.identity.target(), self.margins, bytes)
    }

    fn resident(&mut self, offset: u64, length: u64) -> Result<u64, Halt> {
        let start = self.found.buffer.address + offset;
        let pages = length.div_ceil(PAGE);
        let mut entries = vec![0u8; usize::try_from(pages).unwrap_or(0) * 8];
        // A process that has ended has no pages: what is read is less.
        let got = self.pagemap.read_at(&mut entries, start / PAGE * 8);
        let got = got.map_err(|error| Halt::new(Why::Failed, format!("pagemap: {error}")))?;
        let present = entries[..got]
            .chunks_exact(8)
            .filter(|entry| entry[7] & 0x80 != 0)
            .count() as u64;
        Ok((present * PAGE).min(length))
    }

    fn populate(&mut self, offset: u64, length: u64) -> Result<(), Halt> {
        let target = self.found.identity.target();
        let address = self.found.buffer.address + offset;
        for _ in 0..TRIES {
            let done = self.populator.populate(target, address, length);
            done.map_err(|error| match error {
                MemoryError::Gone => Halt::new(Why::Ended, "the process has ended"),
                error => Halt::new(Why::Failed, error.to_string()),
            })?;
            if self.resident(offset, length)? >= length {
                break;
            }
        }
        Ok(())
    }

    fn progress(&mut self, bytes: u64) {
        self.progress.add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudasnap_wire::{Record, Rest};
    use std::sync::atomic::Ordering::Relaxed;

    fn record(state: u32, requests: u64) -> Record {
        let record = Record::new(0);
        record.options.keep.store(Rest::Reserve.number(), Relaxed);
        record.buffer.state.store(state, Relaxed);
        record.buffer.address.store(1 << 21, Relaxed);
        record.counters.requests.store(requests, Relaxed);
        record
    }

    #[test]
    fn each_reason_says_what_to_do() {
        let why = |record: &Record| why_none(&RecordView::new(record)).unwrap_or_default();
        assert_eq!(why(&record(4, 1)), "");
        let keeps = record(2, 1);
        keeps.options.keep.store(Rest::Keep.number(), Relaxed);
        assert!(why(&keeps).contains("CUDASNAP_BUFFER=reserve"));
        assert!(why(&record(1, 1)).contains("after the restore"));
        assert!(why(&record(0, 0)).contains("not checkpointed yet"));
        assert!(why(&record(0, 3)).contains("no range now"));
        let dropped = record(4, 1);
        dropped.drop.store(1, Relaxed);
        assert!(why(&dropped).contains("was dropped"));
        let off = record(4, 1);
        off.mode.store(2, Relaxed);
        assert!(why(&off).contains("mode PID on"));
    }

    #[test]
    fn every_change_of_the_record_ends_it() {
        let before = RecordView::new(&record(4, 1));
        let found = Found {
            identity: Identity::of(std::process::id() as i32).unwrap(),
            record: Located::nowhere(),
            buffer: before.buffer.clone(),
            keep_max: 0,
            requests: 1,
        };
        let why = |record: &Record| found.changed(&RecordView::new(record)).map(|halt| halt.why);
        assert_eq!(why(&record(4, 1)), None);
        assert_eq!(why(&record(1, 2)), Some(Why::Checkpoint));
        // A whole cycle between two looks.
        assert_eq!(why(&record(4, 2)), Some(Why::Checkpoint));
        assert_eq!(why(&record(0, 1)), Some(Why::Dropped));
        let moved = record(4, 1);
        moved.buffer.address.store(1 << 22, Relaxed);
        assert_eq!(why(&moved), Some(Why::Dropped));
        let dropped = record(4, 1);
        dropped.drop.store(1, Relaxed);
        assert_eq!(why(&dropped), Some(Why::Dropped));
    }

    #[test]
    fn only_plain_memory_is_filled() {
        let is = |lines: &[&str]| {
            let mappings: Vec<Mapping> = lines
                .iter()
                .map(|line| Mapping::parse(line).unwrap())
                .collect();
            is_plain(&mappings, 0x2000, 0x6000)
        };
        assert!(is(&["1000-9000 rw-p 00000000 00:00 0"]));
        for other in [
            "2000-6000 rw-p 00000000 00:0f 99 /anon_hugepage (deleted)",
            "2000-6000 rw-s 00000000 00:00 0",
            "2000-6000 r--p 00000000 00:00 0",
            "2000-5000 rw-p 00000000 00:00 0",
            "2000-6000 rw-p 00000000 00:00 0 [heap]",
        ] {
            assert!(!is(&[other]), "{other}");
        }
        assert!(!is(&[]));
    }
}
