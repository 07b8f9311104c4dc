//! A phase of the record as plain values.

use std::sync::atomic::Ordering::Relaxed;

use cudasnap_wire as wire;
use serde::Serialize;

use super::word::{direction, end, mode, pages, strategy, Word};

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
    pub zeros: u64,
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
    pub(super) fn new(phase: &wire::Phase) -> Self {
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
            zeros: phase.zeros.load(Relaxed),
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

/// Phases that ended, oldest first.
pub(super) fn history(record: &wire::Record) -> Vec<PhaseView> {
    let written = record.history_count.load(Relaxed) as usize;
    let first = written.saturating_sub(wire::HISTORY);
    (first..written)
        .map(|number| PhaseView::new(&record.history[number % wire::HISTORY]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::view::RecordView;

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
