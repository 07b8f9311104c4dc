//! A phase as the library recorded it, from two looks at its record.

use super::data::Seen;
use crate::flow::plan::Step;
use crate::flow::shim::steps_down;
use crate::record::view::{PhaseView, RecordView};

/// What was recorded about a step: the phase, and the bytes of the driver's buffer. `None`: nothing new.
pub fn seen(after: &RecordView, before: &RecordView, step: Step) -> Option<(Seen, u64)> {
    let direction = step.to_string();
    let phase = after.last(&direction)?;
    let earlier = before.last(&direction);
    let is_new = earlier.is_none_or(|earlier| {
        // The number too: two phases of a coarse clock may begin at the same moment.
        (earlier.started_unix_ns, earlier.buffer) != (phase.started_unix_ns, phase.buffer)
    });
    is_new.then(|| {
        let steps = steps_down(after, before).into_iter();
        let steps = steps.map(|step| (step.name.to_string(), step.value));
        (of_phase(phase, steps.collect()), phase.expected)
    })
}

fn of_phase(phase: &PhaseView, steps_down: std::collections::BTreeMap<String, u32>) -> Seen {
    let seconds = |ns: u64| ns as f64 / 1e9;
    Seen {
        effective: phase.is_effective() && phase.mode.is("on"),
        mode: phase.mode.to_string(),
        pages: phase.pages.to_string(),
        kept: phase.kept,
        threads: phase.threads,
        strategy: phase.strategy.to_string(),
        copied: phase.copied,
        zeros: phase.zeros,
        mmap: seconds(phase.mmap_ns),
        prefault: seconds(phase.prefault_ns),
        first_copy: seconds(phase.first_copy_ns),
        copying: seconds(phase.copying_ns),
        waiting: seconds(phase.waiting_ns),
        copy_loop: seconds(phase.loop_ns),
        munmap: seconds(phase.munmap_ns),
        total: seconds(phase.total_ns),
        steps_down,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudasnap_wire as wire;
    use std::sync::atomic::Ordering::Relaxed;

    fn view(started: u64) -> RecordView {
        let record = wire::Record::new(0);
        record.history_count.store(1, Relaxed);
        let phase = &record.history[0];
        phase
            .direction
            .store(wire::Direction::Restore.number(), Relaxed);
        phase.started_unix_ns.store(started, Relaxed);
        phase.expected.store(1000, Relaxed);
        phase.copied.store(1000, Relaxed);
        phase.munmap_ns.store(1_500_000_000, Relaxed);
        record.counters.steps[wire::Step::NoThread.number() as usize]
            .store(started as u32, Relaxed);
        RecordView::new(&record)
    }

    #[test]
    fn only_a_new_phase_of_this_step_is_its_own() {
        let (before, after) = (view(5), view(7));
        let (phase, bytes) = seen(&after, &before, Step::Restore).unwrap();
        assert_eq!((bytes, phase.munmap, phase.effective), (1000, 1.5, true));
        assert_eq!(phase.steps_down["no-thread"], 2);
        assert_eq!(seen(&after, &after, Step::Restore), None);
        assert_eq!(seen(&after, &before, Step::Checkpoint), None);
    }
}
