//! What a cycle has been seen to hold, from the record: the proof that what was planned happened.

use cudasnap_cli::record::view::RecordView;
use cudasnap_wire::{Mode, PageKind};

use super::cycle::Cycle;
use super::faults::Fault;
use super::kinds::Kind;

impl Cycle<'_> {
    pub(super) fn note_pages(&mut self, after: &RecordView, kept: bool) {
        let pages = after.current.pages;
        let special = [
            (kept, Kind::Kept),
            (
                kept && self.host.keep.is_some_and(|most| most > 0),
                Kind::KeepMax,
            ),
            (
                pages.is("4k") && self.host.pages == PageKind::Small,
                Kind::SmallPages,
            ),
            (pages.is("4k") && self.plan.no_huge_pages, Kind::NoHugePages),
            (self.host.pages == PageKind::Hugetlb, Kind::Hugetlb),
            (self.host.threads > 0, Kind::ThreadsOption),
        ];
        let seen = special
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, kind)| kind);
        self.seen.extend(seen);
    }

    pub(super) fn note_mode(&mut self, after: &RecordView) {
        let special = [
            (
                self.plan.mode == Mode::Observe && after.current.mode.is("observe"),
                Kind::Observe,
            ),
            (self.plan.mode == Mode::Off, Kind::Off),
            (
                self.plan.mode == Mode::On && self.plan.caps != [0; 2],
                Kind::ThreadCap,
            ),
            (
                self.host.devices == 2 && after.current.expected > 92 << 20,
                Kind::TwoDevices,
            ),
            (self.host.pinned_mib > 0, Kind::Pinned),
            (self.plan.dma == 0, Kind::FastDma),
            ((1..1000).contains(&self.plan.dma), Kind::SlowDma),
            (
                matches!(
                    self.plan.fault,
                    Fault::Calm | Fault::Affinity(..) | Fault::Quota(..)
                ),
                self.plan.fault.kind(),
            ),
        ];
        let seen = special
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, kind)| kind);
        self.seen.extend(seen);
    }

    /// Pauses and bytes that the driver copied itself leave their mark in the phase.
    pub(super) fn note_pause(&mut self, after: &RecordView) {
        let phase = &after.current;
        let paused = |ms: u64| phase.longest_wait_ns >= ms * 1_000_000;
        let struck = match self.plan.fault {
            Fault::Pause(ms, _) | Fault::DevicePause(ms) => paused(ms),
            Fault::Withheld(kib) => phase.expected - phase.copied == kib << 10,
            _ => return,
        };
        if struck {
            self.seen.insert(self.plan.fault.kind());
        } else {
            self.problems
                .push(format!("{:?} left no mark: {phase:?}", self.plan.fault));
        }
    }
}
