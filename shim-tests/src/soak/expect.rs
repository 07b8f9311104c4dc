//! What the record must show after each step of a cycle. Pure: plan and records in, complaints out.

use std::collections::BTreeMap;

use cudasnap_cli::record::view::{PhaseView, RecordView};
use cudasnap_wire::{Mode, PageKind, Step};

use super::faults::Fault;
use super::hosts::HostPlan;
use super::plan::CyclePlan;

/// What is wrong, in words.
pub type Problems = Vec<String>;

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

/// What a cycle meets.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    /// The host.
    pub host: &'a HostPlan,
    /// The cycle.
    pub plan: &'a CyclePlan,
    /// CPUs that checkpoint and restore may use.
    pub cpus: [u32; 2],
    /// Whether the kernel grants huge pages to who asks for them; `None` when somebody changed that meanwhile.
    pub huge_pages: Option<bool>,
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

/// Steps down that must or may have been taken.
#[derive(Debug, Default)]
pub struct Ledger(BTreeMap<&'static str, (u32, u32)>);

impl Ledger {
    /// This one must be taken so many times more.
    pub fn expect(&mut self, step: Step, times: u32) {
        let (least, most) = self.0.entry(step.word()).or_default();
        *least += times;
        *most += times;
    }

    /// This one may be taken so many times more.
    pub fn allow(&mut self, step: Step, times: u32) {
        self.0.entry(step.word()).or_default().1 += times;
    }

    /// What was taken too rarely or too often between two records.
    #[must_use]
    pub fn compare(&self, before: &RecordView, after: &RecordView) -> Problems {
        let mut problems = Problems::new();
        for step in Step::ALL {
            let taken = after.steps(*step).wrapping_sub(before.steps(*step));
            let (least, most) = self.0.get(step.word()).copied().unwrap_or_default();
            if !(least..=most).contains(&taken) {
                problems.push(format!(
                    "step {}: {taken} times, should be {least} to {most}",
                    step.word()
                ));
            }
        }
        problems
    }
}

/// Threads of a phase, as `src/cpus.rs` promises them. `fresh`: into memory that is not there yet.
#[must_use]
pub fn threads(option: u32, cap: u32, cpus: u32, fresh: bool) -> u32 {
    let wanted = match option {
        0 if fresh => 16,
        0 => 10,
        option => option,
    };
    let capped = if cap > 0 { wanted.min(cap) } else { wanted };
    capped.min(cpus).clamp(1, 32)
}

fn expect_equal<T: PartialEq + std::fmt::Debug>(
    problems: &mut Problems,
    what: &str,
    found: T,
    expected: T,
) {
    if found != expected {
        problems.push(format!("{what}: {found:?}, should be {expected:?}"));
    }
}

/// How a phase that came to its end must look.
struct Shape {
    direction: &'static str,
    mode: Mode,
    threads: u32,
    withheld: u64,
}

fn check_shape(problems: &mut Problems, phase: &PhaseView, shape: &Shape) {
    let what = shape.direction;
    expect_equal(
        problems,
        &format!("{what}: direction"),
        phase.direction.word,
        Some(what),
    );
    expect_equal(
        problems,
        &format!("{what}: mode"),
        phase.mode.word,
        Some(shape.mode.word()),
    );
    expect_equal(
        problems,
        &format!("{what}: threads"),
        phase.threads,
        shape.threads,
    );
    let copied = phase.expected.saturating_sub(shape.withheld);
    expect_equal(
        problems,
        &format!("{what}: bytes through the shim"),
        phase.copied,
        copied,
    );
    let covered = phase.end.is("covered");
    expect_equal(
        problems,
        &format!("{what}: covered"),
        covered,
        shape.withheld == 0,
    );
    if phase.copies < 20 || phase.expected < 46 << 20 {
        problems.push(format!("{what}: no checkpoint is so small: {phase:?}"));
    }
}

impl Setting<'_> {
    /// Threads of the checkpoint (0) or the restore (1).
    fn threads(&self, step: usize, fresh: bool) -> u32 {
        match self.plan.mode {
            // Those that are there, not those that were asked for.
            Mode::On if self.plan.fault == Fault::NoThreads => 1,
            Mode::On => threads(
                self.host.threads,
                self.plan.caps[step],
                self.cpus[step],
                fresh,
            ),
            _ => 1,
        }
    }

    fn withheld(&self) -> u64 {
        match self.plan.fault {
            Fault::Withheld(kib) => kib << 10,
            _ => 0,
        }
    }

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

    /// A checkpoint that came to its end: what its phase must show. `fresh`: not into a kept buffer.
    pub fn checkpointed(
        &self,
        before: &RecordView,
        after: &RecordView,
        fresh: bool,
        problems: &mut Problems,
    ) {
        let mode = self.plan.mode;
        let (old, new) = (&before.counters, &after.counters);
        let counts = (new.requests - old.requests, new.answered - old.answered);
        let expected = (1, u64::from(mode == Mode::On));
        expect_equal(problems, "requests and answers", counts, expected);
        if mode == Mode::Off {
            expect_equal(problems, "phases", new.phases - old.phases, 0);
            return;
        }
        let threads = self.threads(0, fresh);
        let withheld = self.withheld();
        check_shape(
            problems,
            &after.current,
            &Shape {
                direction: "checkpoint",
                mode,
                threads,
                withheld,
            },
        );
        let state = if mode == Mode::On { "live" } else { "observed" };
        expect_equal(problems, "buffer", after.buffer.state.word, Some(state));
        expect_equal(
            problems,
            "length of the buffer",
            after.buffer.length,
            after.current.expected,
        );
        if mode == Mode::Observe {
            expect_equal(problems, "pages", after.current.pages.word, Some("driver"));
        }
    }

    /// A restore that came to its end.
    pub fn restored(&self, before: &RecordView, after: &RecordView, problems: &mut Problems) {
        let mode = self.plan.mode;
        let (old, new) = (&before.counters, &after.counters);
        expect_equal(
            problems,
            "requests in the restore",
            new.requests - old.requests,
            0,
        );
        if mode == Mode::Off {
            expect_equal(problems, "phases", new.phases - old.phases, 0);
            return;
        }
        let threads = self.threads(1, false);
        let withheld = self.withheld();
        check_shape(
            problems,
            &after.current,
            &Shape {
                direction: "restore",
                mode,
                threads,
                withheld,
            },
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

/// Phases that ended between two records, oldest first, as far as the record remembers them.
#[must_use]
pub fn new_phases<'a>(before: &RecordView, after: &'a RecordView) -> &'a [PhaseView] {
    let new = (after.counters.phases - before.counters.phases) as usize;
    let known = after.history.len();
    &after.history[known - new.min(known)..]
}

/// What holds over a whole cycle.
pub fn account(before: &RecordView, after: &RecordView, ledger: &mut Ledger) -> Problems {
    let too_little = |phase: &&PhaseView| phase.copied < phase.expected / 100 * 99;
    let not_effective = new_phases(before, after).iter().filter(too_little).count();
    ledger.expect(Step::NotEffective, not_effective as u32);
    // Compaction is the machine's affair.
    ledger.allow(Step::SlowHugePages, 10);
    ledger.compare(before, after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudasnap_wire::Record;
    use std::sync::atomic::Ordering::Relaxed;

    fn view(change: impl Fn(&Record)) -> RecordView {
        let record = Record::new(0);
        change(&record);
        RecordView::new(&record)
    }

    #[test]
    fn steps_are_counted_both_ways() {
        let mut ledger = Ledger::default();
        ledger.expect(Step::NoThread, 2);
        ledger.allow(Step::HelperLate, 1);
        let before = view(|_| {});
        let after = |threads: u32, late: u32| {
            view(|record| {
                record.counters.steps[Step::NoThread as usize].store(threads, Relaxed);
                record.counters.steps[Step::HelperLate as usize].store(late, Relaxed);
            })
        };
        assert!(ledger.compare(&before, &after(2, 0)).is_empty());
        assert!(ledger.compare(&before, &after(2, 1)).is_empty());
        assert_eq!(ledger.compare(&before, &after(1, 0)).len(), 1);
        assert_eq!(ledger.compare(&before, &after(2, 2)).len(), 1);
        assert_eq!(ledger.compare(&before, &after(3, 2)).len(), 2);
    }

    #[test]
    fn a_phase_that_lost_a_byte_is_seen() {
        let shape = Shape {
            direction: "restore",
            mode: Mode::On,
            threads: 2,
            withheld: 0,
        };
        let phase = |copied: u64, end: u32| {
            let record = view(|record| {
                record.current.direction.store(2, Relaxed);
                record.current.threads.store(2, Relaxed);
                record.current.expected.store(50 << 20, Relaxed);
                record.current.copied.store(copied, Relaxed);
                record.current.copies.store(40, Relaxed);
                record.current.end.store(end, Relaxed);
            });
            let mut problems = Problems::new();
            check_shape(&mut problems, &record.current, &shape);
            problems.len()
        };
        assert_eq!(phase(50 << 20, 1), 0);
        assert_eq!(phase((50 << 20) - 1, 1), 1);
        assert_eq!(phase(50 << 20, 6), 1);
    }

    #[test]
    fn phases_that_are_not_effective_must_have_been_counted() {
        let phases = |copied: u64, counted: u32| {
            view(|record| {
                record.history[0].expected.store(1000, Relaxed);
                record.history[0].copied.store(copied, Relaxed);
                record.history_count.store(1, Relaxed);
                record.counters.phases.store(1, Relaxed);
                record.counters.steps[Step::NotEffective as usize].store(counted, Relaxed);
            })
        };
        let problems =
            |after: &RecordView| account(&view(|_| {}), after, &mut Ledger::default()).len();
        assert_eq!(problems(&phases(990, 0)), 0);
        assert_eq!(problems(&phases(980, 1)), 0);
        assert_eq!(problems(&phases(980, 0)), 1);
        assert_eq!(problems(&phases(990, 1)), 1);
    }

    #[test]
    fn threads_are_the_least_of_all_limits() {
        assert_eq!(threads(0, 0, 64, true), 16);
        assert_eq!(threads(0, 0, 64, false), 10);
        assert_eq!(threads(31, 3, 64, true), 3);
        assert_eq!(threads(8, 0, 2, true), 2);
    }
}
