//! The state of a process, as it can be seen from outside.
//!
//! The driver's own state cannot be asked without initialising CUDA. The record knows of buffers and phases; the driver's device
//! files are all closed in a checkpointed process (580.159); NVML lists whoever has a context. A lock shows nowhere.

use std::time::Duration;

use serde::Serialize;

use crate::process::cuda::CudaUse;
use crate::record::view::{PhaseView, RecordView};
use crate::status::facts::{Process, SeenByNvml};
use crate::status::{held, phases};

/// The driver unmaps its buffer within 0.5 s of the last copy of a restore (48 GiB on 4 KiB pages: 1.5 s).
const UNMAPPED_BY_NOW: Duration = Duration::from_secs(5);

/// The driver's buffer is longer, and filled (a bare context on driver 580: 0.56 GB; the library answers from here on).
const LEAST_BUFFER: u64 = 32 << 20;

/// The longest pause between two copies that was measured is 4.1 ms: a phase that is quiet for so long has broken off.
const GONE_QUIET: Duration = Duration::from_secs(5);

/// State of a process, seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// libcuda is mapped and has not been initialised.
    NotInitialised,
    /// CUDA has been initialised, and nothing of a GPU is held, neither there nor in main memory: it calls the driver for other
    /// processes, or does nothing yet.
    NoContext,
    /// It has its GPU: running, or locked, which cannot be told from outside.
    Running,
    /// A checkpoint is under way.
    Checkpointing,
    /// Its device memory lies in main memory.
    Checkpointed,
    /// A restore is under way.
    Restoring,
    /// It cannot be told.
    Unknown,
}

impl State {
    /// The word in the table.
    pub fn word(self) -> &'static str {
        match self {
            State::NotInitialised => "no CUDA yet",
            State::NoContext => "no context",
            State::Running => "running",
            State::Checkpointing => "checkpointing",
            State::Checkpointed => "checkpointed",
            State::Restoring => "restoring",
            State::Unknown => "unknown",
        }
    }
}

/// What a state was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The library's record.
    Record,
    /// NVIDIA's device files: open or mapped, or none left.
    Descriptors,
    /// NVML's list of processes.
    Nvml,
    /// The process's threads.
    Threads,
    /// How much memory it has.
    Memory,
    /// Nothing tells.
    Nothing,
}

impl Source {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Source::Record => "from the record",
            Source::Descriptors => "from its device files",
            Source::Nvml => "from NVML",
            Source::Threads => "from its threads",
            Source::Memory => "from its memory, too little for a buffer",
            Source::Nothing => "nothing tells",
        }
    }
}

/// The state at a moment in nanoseconds since 1970, and what it was taken from.
pub fn of(process: &Process, now: u64) -> (State, Source) {
    match process.cuda {
        Some(CudaUse::Initialised { .. }) => {}
        Some(CudaUse::Loaded | CudaUse::None) => return (State::NotInitialised, Source::Threads),
        None if process.nvml.as_ref().is_some_and(SeenByNvml::is_listed) => {
            return (State::Running, Source::Nvml)
        }
        None => return (State::Unknown, Source::Nothing),
    }
    let record = process.library.record();
    record
        .and_then(|record| from_record(record, process.buffer_is_mapped, now))
        .or_else(|| from_outside(process))
        .or_else(|| {
            record
                .filter(|record| knows_all(record, process))
                .map(|_| (State::Running, Source::Record))
        })
        .unwrap_or((State::Unknown, Source::Nothing))
}

/// What a record says about a buffer that is there. A buffer that is not mapped is one of a process that this one was forked
/// from.
fn from_record(record: &RecordView, mapped: bool, now: u64) -> Option<(State, Source)> {
    let buffer = &record.buffer.state;
    if !mapped || !(buffer.is("live") || buffer.is("observed")) {
        return None;
    }
    let phase = &record.current;
    let checkpoint = match phase.direction.word? {
        "checkpoint" => true,
        "restore" => false,
        _ => return None,
    };
    let quiet = phases::quiet_for(phase, now).is_some_and(|quiet| quiet > GONE_QUIET);
    let state = match (checkpoint, phase.end.is("covered")) {
        (true, true) => State::Checkpointed,
        (false, true) => restored_or_not(phase, now)?,
        (true, false) if phases::is_open(record) && !quiet => State::Checkpointing,
        (false, false) if phases::is_open(record) && !quiet => State::Restoring,
        // Interrupted: the contents are still in the buffer.
        (false, false) => State::Checkpointed,
        // A checkpoint that broke off, or whose copies do not come past the library.
        (true, false) => return None,
    };
    Some((state, Source::Record))
}

/// All is copied back, and the buffer still there: the driver is about to unmap it.
fn restored_or_not(phase: &PhaseView, now: u64) -> Option<State> {
    let soon = phases::ended_ago(phase, now).is_none_or(|ago| ago < UNMAPPED_BY_NOW);
    soon.then_some(State::Restoring)
}

/// What device files and NVML say. With neither, nothing: a process may be on a driver that has no such files.
fn from_outside(process: &Process) -> Option<(State, Source)> {
    let (descriptors, _) = held::of_nvidia(process.held.as_deref()?);
    if descriptors > 0 {
        return Some((State::Running, Source::Descriptors));
    }
    if process.nvml.as_ref()?.is_listed() {
        return Some((State::Running, Source::Nvml));
    }
    Some(match process.private < LEAST_BUFFER {
        true => (State::NoContext, Source::Memory),
        false => (State::Checkpointed, Source::Descriptors),
    })
}

/// Whether a checkpoint could not have gone past this record.
fn knows_all(record: &RecordView, process: &Process) -> bool {
    const BLIND: [&str; 3] = ["no-munmap-slot", "second-buffer", "not-understood"];
    let missed = |step: &str| BLIND.contains(&step);
    let rivals = process
        .preload
        .as_ref()
        .is_none_or(|preload| !preload.rivals.is_empty());
    !record.mode.is("off")
        && !rivals
        && !record.counters.steps.iter().any(|step| missed(step.name))
        && record.buffer.is_idle()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::facts::tests::{process, with_record};
    use crate::status::held::{Held, Kind};
    use crate::status::judge::Verdict;
    use crate::status::preload::Preload;
    use cudasnap_wire::Record;
    use std::sync::atomic::Ordering::Relaxed;

    const NOW: u64 = 1_000_000_000_000;

    fn nvidia(descriptors: Vec<i32>) -> Option<Vec<Held>> {
        Some(vec![Held {
            kind: Kind::Nvidia,
            name: "/dev/nvidiactl".into(),
            descriptors,
            mappings: 2,
        }])
    }

    fn seen(gpus: &[u32]) -> Option<SeenByNvml> {
        Some(SeenByNvml {
            gpus: gpus.to_vec(),
            memory: None,
        })
    }

    /// A record with a live buffer, in a phase (direction, end) that ended this long ago.
    fn phase(record: &Record, direction: u32, end: u32, ago: u64) {
        record.buffer.state.store(1, Relaxed);
        record.current.direction.store(direction, Relaxed);
        record.current.end.store(end, Relaxed);
        record.current.expected.store(100, Relaxed);
        record.current.copied.store(45, Relaxed);
        record.current.started_unix_ns.store(NOW - ago, Relaxed);
    }

    #[test]
    fn the_record_tells_of_buffers_and_phases() {
        for (direction, end, ago, expected) in [
            (1, 0, 1, State::Checkpointing),
            (2, 0, 1, State::Restoring),
            (1, 1, 1, State::Checkpointed),
            (2, 1, 1, State::Restoring),
            (2, 1, 6_000_000_000, State::Unknown),
            // The threads have left, and come back with the next copy, if one comes.
            (2, 6, 1, State::Restoring),
            (2, 6, 6_000_000_000, State::Checkpointed),
            (1, 6, 1, State::Checkpointing),
            (1, 7, 1, State::Checkpointing),
            (1, 6, 6_000_000_000, State::Unknown),
            (0, 0, 1, State::Unknown),
            (9, 0, 1, State::Unknown),
        ] {
            let mut process = with_record(7, |record| phase(record, direction, end, ago));
            process.buffer_is_mapped = true;
            let verdict = Verdict::of(&process, NOW);
            assert_eq!(verdict.state, expected, "{direction} {end} {ago}");
            let going_on = matches!(expected, State::Checkpointing | State::Restoring);
            assert_eq!(verdict.percent, going_on.then_some(45));
        }
    }

    #[test]
    fn a_phase_that_was_closed_early_has_broken_off() {
        for (direction, expected) in [(1, State::Unknown), (2, State::Checkpointed)] {
            let mut process = with_record(7, |record| {
                phase(record, direction, 3, 1);
                record.history_count.store(1, Relaxed);
                record.history[0].direction.store(direction, Relaxed);
                record.history[0].started_unix_ns.store(NOW - 1, Relaxed);
            });
            process.buffer_is_mapped = true;
            assert_eq!(Verdict::of(&process, NOW).state, expected);
        }
    }

    #[test]
    fn the_buffer_of_a_parent_is_not_a_childs() {
        let mut process = with_record(7, |record| phase(record, 1, 1, 1));
        process.nvml = seen(&[0]);
        let verdict = Verdict::of(&process, NOW);
        assert_eq!(
            (verdict.state, verdict.state_from),
            (State::Running, Source::Nvml)
        );
    }

    #[test]
    fn without_a_record_device_files_and_nvml_tell_or_nothing_does() {
        for (held, nvml, expected, from) in [
            (nvidia(vec![3]), None, State::Running, Source::Descriptors),
            (
                nvidia(vec![3]),
                seen(&[]),
                State::Running,
                Source::Descriptors,
            ),
            (
                nvidia(vec![]),
                seen(&[]),
                State::Checkpointed,
                Source::Descriptors,
            ),
            (Some(vec![]), seen(&[1]), State::Running, Source::Nvml),
            (
                Some(vec![]),
                seen(&[]),
                State::Checkpointed,
                Source::Descriptors,
            ),
            (Some(vec![]), None, State::Unknown, Source::Nothing),
            (None, seen(&[1]), State::Unknown, Source::Nothing),
        ] {
            let mut process = process(7);
            process.held = held;
            process.nvml = nvml;
            let verdict = Verdict::of(&process, NOW);
            assert_eq!(
                (verdict.state, verdict.state_from),
                (expected, from),
                "{process:?}"
            );
        }
    }

    #[test]
    fn where_no_buffer_can_be_nothing_is_checkpointed() {
        let mut process = process(7);
        process.nvml = seen(&[]);
        process.private = LEAST_BUFFER - 1;
        let verdict = Verdict::of(&process, NOW);
        assert_eq!(
            (verdict.state, verdict.state_from),
            (State::NoContext, Source::Memory)
        );
        process.held = nvidia(vec![3]);
        assert_eq!(Verdict::of(&process, NOW).state, State::Running);
        process.held = Some(vec![]);
        process.nvml = None;
        assert_eq!(Verdict::of(&process, NOW).state, State::Unknown);
        // Zeros that are left out take no memory: the record knows of the buffer.
        let mut process = with_record(7, |record| phase(record, 1, 1, 1));
        (process.buffer_is_mapped, process.private) = (true, 0);
        assert_eq!(Verdict::of(&process, NOW).state, State::Checkpointed);
    }

    #[test]
    fn a_record_without_a_buffer_means_running_unless_it_can_have_missed_one() {
        let state = |change: &dyn Fn(&Record), rivals: &[&str]| {
            let mut process = with_record(7, change);
            process.preload = Some(Preload {
                rivals: rivals.iter().map(ToString::to_string).collect(),
                ..Preload::default()
            });
            Verdict::of(&process, NOW).state
        };
        assert_eq!(state(&|_| {}, &[]), State::Running);
        assert_eq!(state(&|_| {}, &["/x/libother.so"]), State::Unknown);
        assert_eq!(
            state(&|record| record.mode.store(2, Relaxed), &[]),
            State::Unknown
        );
        assert_eq!(
            state(&|record| record.counters.steps[20].store(1, Relaxed), &[]),
            State::Unknown
        );
        assert_eq!(
            state(&|record| record.counters.steps[0].store(1, Relaxed), &[]),
            State::Running
        );
    }

    #[test]
    fn cuda_that_is_not_initialised_has_no_state() {
        let mut process = with_record(7, |record| phase(record, 1, 1, 1));
        process.cuda = Some(CudaUse::Loaded);
        process.buffer_is_mapped = true;
        assert_eq!(Verdict::of(&process, NOW).state, State::NotInitialised);
        process.cuda = None;
        assert_eq!(Verdict::of(&process, NOW).state, State::Unknown);
        process.nvml = seen(&[0]);
        assert_eq!(Verdict::of(&process, NOW).state, State::Running);
    }
}
