//! What the phase of a checkpoint or a restore must look like when it has come to its end.

use cudasnap_cli::record::view::{PhaseView, RecordView};
use cudasnap_wire::Mode;

use super::{expect_equal, Problems, Setting};
use crate::soak::faults::Fault;

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
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::super::tests::view;
    use super::*;

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
    fn threads_are_the_least_of_all_limits() {
        assert_eq!(threads(0, 0, 64, true), 16);
        assert_eq!(threads(0, 0, 64, false), 10);
        assert_eq!(threads(31, 3, 64, true), 3);
        assert_eq!(threads(8, 0, 2, true), 2);
    }
}
