//! What becomes of a driver's request for a buffer, and of the buffer when the driver gives it back.

use cudasnap_cli::record::view::PhaseView;
use cudasnap_wire::{Mode, PageKind, Step};

use super::ledger::Ledger;
use super::{expect_equal, Problems, Setting};
use crate::soak::faults::Fault;

/// A buffer that the shim keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Bytes that the driver asked for when it was last used.
    pub length: u64,
    /// Bytes mapped.
    pub mapped: u64,
    /// Its pages, as the record calls them.
    pub pages: String,
}

/// What a host's shim remembers from the cycle before.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// A kept buffer.
    pub kept: Option<Kept>,
    /// The driver has forgotten the buffer that the shim thinks is in use.
    pub forgotten: bool,
    /// Buffers of this process that the driver has forgotten, by the shim's count: they hold its slots.
    pub left: u32,
    /// Whether the driver has forgotten any buffer, also one that the shim did not know: the process has lost that memory.
    pub lost: bool,
}

impl Setting<'_> {
    /// Pages of a buffer that is made now: those that are right.
    fn fresh_pages(&self) -> &'static [&'static str] {
        let huge = || match self.huge_pages {
            Some(true) => &["thp"][..],
            Some(false) => &["4k"],
            None => &["thp", "4k"],
        };
        match self.host.pages {
            PageKind::Small => &["4k"],
            // The pool is the machine's: it may have pages or not.
            PageKind::Hugetlb => match self.huge_pages {
                Some(true) => &["hugetlb", "thp"],
                _ => &["hugetlb", "thp", "4k"],
            },
            _ => huge(),
        }
    }

    /// Counts the steps down of a request that the kernel refuses.
    pub fn refused(&self, memory: &mut Memory, ledger: &mut Ledger) {
        let mode = self.plan.mode;
        let kept = memory.kept.take();
        if mode == Mode::Off {
            return;
        }
        ledger.expect(Step::SecondBuffer, u32::from(memory.forgotten));
        memory.forgotten = false;
        if mode == Mode::Observe {
            return;
        }
        // A kept buffer that does not fit goes before anything is asked for.
        ledger.expect(Step::KeptUnfit, u32::from(kept.is_some()));
        ledger.expect(
            Step::NoHugetlb,
            u32::from(self.host.pages == PageKind::Hugetlb),
        );
        // No machine has so much: nothing of ours is asked for.
        ledger.expect(Step::LowMemory, 1);
    }

    /// Counts the steps down of a request that was answered, and looks at its pages and whether it was rightly one that was
    /// kept. Returns that.
    pub fn answered(
        &self,
        memory: &mut Memory,
        phase: &PhaseView,
        ledger: &mut Ledger,
        problems: &mut Problems,
    ) -> bool {
        ledger.expect(Step::SecondBuffer, u32::from(memory.forgotten));
        memory.forgotten = false;
        let kept = memory.kept.take();
        if let (Some(kept), true) = (&kept, phase.kept) {
            expect_equal(
                problems,
                "pages of the kept buffer",
                phase.pages.word,
                Some(kept.pages.as_str()),
            );
            if phase.expected > kept.mapped {
                problems.push(format!(
                    "a buffer of {} bytes was kept for {}",
                    kept.mapped, phase.expected
                ));
            }
            return true;
        }
        if phase.kept {
            problems.push("the buffer is said to be a kept one, and none was kept".into());
        }
        if let Some(kept) = kept {
            ledger.expect(Step::KeptUnfit, 1);
            if phase.expected <= kept.length {
                problems.push(format!(
                    "a kept buffer of {} bytes was not used for {}",
                    kept.length, phase.expected
                ));
            }
        }
        self.count_fresh_pages(phase, ledger, problems);
        false
    }

    fn count_fresh_pages(&self, phase: &PhaseView, ledger: &mut Ledger, problems: &mut Problems) {
        let pages = phase.pages.word.unwrap_or_default();
        if !self.fresh_pages().contains(&pages) {
            problems.push(format!(
                "pages are {pages}, should be {:?}",
                self.fresh_pages()
            ));
        }
        let wanted = self.host.pages;
        ledger.expect(
            Step::NoHugetlb,
            u32::from(wanted == PageKind::Hugetlb && pages != "hugetlb"),
        );
        ledger.expect(
            Step::NoHugePages,
            u32::from(wanted != PageKind::Small && pages == "4k"),
        );
    }

    /// Whether the shim must keep the buffer that the driver has just unmapped; `None` when either is right.
    #[must_use]
    pub fn keeps(&self, pages: &str) -> Option<bool> {
        let Some(most) = self.host.keep else {
            return Some(false);
        };
        match self.plan.fault {
            _ if self.plan.mode != Mode::On => Some(false),
            // With a helper that somebody holds the memory goes.
            Fault::Helpers(..) => None,
            // Hugetlb pages are kept whole or not at all, and none of the limits holds a whole buffer.
            _ => Some(pages != "hugetlb" || most == 0),
        }
    }
}
