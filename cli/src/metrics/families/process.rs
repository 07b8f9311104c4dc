//! Families of which every process has samples.

use cudasnap_wire::{Mode, Step};

use super::values::{one_of, plain, sample, Samples};
use crate::metrics::exposition::Kind::{self, Counter, Gauge};
use crate::metrics::exposition::{Family, Value};
use crate::metrics::gather::Seen;

/// Name, help, kind, and where its samples come from.
struct OfProcess(&'static str, &'static str, Kind, fn(&Seen) -> Samples);

const OF_PROCESS: [OfProcess; 13] = [
    OfProcess(
        "cudasnap_library_info",
        "The library in the process; always 1.",
        Gauge,
        info,
    ),
    OfProcess(
        "cudasnap_cuda_initialised",
        "Whether the process has initialised CUDA.",
        Gauge,
        |seen| plain(u64::from(seen.initialised)),
    ),
    OfProcess(
        "cudasnap_mode",
        "What the library does with the next buffer request: 1 for the mode in force, 0 for the others.",
        Gauge,
        |seen| one_of("mode", &seen.record.mode, Mode::ALL.iter().map(|mode| mode.word())),
    ),
    OfProcess(
        "cudasnap_thread_cap",
        "Threads that copy at most, as set from outside; 0 is no cap.",
        Gauge,
        |seen| plain(u64::from(seen.record.thread_cap)),
    ),
    OfProcess(
        "cudasnap_buffer_state",
        "State of the buffer: 1 for the one it is in, 0 for the others.",
        Gauge,
        |seen| one_of("state", &seen.record.buffer.state, BUFFER_STATES.into_iter()),
    ),
    OfProcess(
        "cudasnap_buffer_bytes",
        "Bytes that the driver asked for, of the buffer that is live, kept, observed or reserved.",
        Gauge,
        |seen| plain(if_there(seen, seen.record.buffer.length)),
    ),
    OfProcess(
        "cudasnap_buffer_mapped_bytes",
        "Bytes of address space of that buffer.",
        Gauge,
        |seen| plain(if_there(seen, seen.record.buffer.mapped)),
    ),
    OfProcess(
        "cudasnap_buffer_requests_total",
        "Buffer requests of the driver that were recognised.",
        Counter,
        |seen| plain(seen.record.counters.requests),
    ),
    OfProcess(
        "cudasnap_buffer_requests_answered_total",
        "Buffer requests that were answered with a buffer of the library.",
        Counter,
        |seen| plain(seen.record.counters.answered),
    ),
    OfProcess(
        "cudasnap_phases_total",
        "Phases (checkpoints and restores) that ended.",
        Counter,
        |seen| plain(seen.record.counters.phases),
    ),
    OfProcess(
        "cudasnap_helpers_started_total",
        "Helper threads that were started.",
        Counter,
        |seen| plain(seen.record.counters.helpers_started),
    ),
    OfProcess(
        "cudasnap_steps_down_total",
        "Steps down: what the library did less well than it wished, by reason.",
        Counter,
        steps,
    ),
    OfProcess(
        "cudasnap_complaints_total",
        "Values of options that were not understood; the defaults are in force.",
        Counter,
        |seen| plain(seen.record.complaints.len() as u64),
    ),
];

const BUFFER_STATES: [&str; 5] = ["none", "live", "kept", "observed", "reserved"];

/// All of them.
pub fn families(seen: &[Seen]) -> Vec<Family> {
    OF_PROCESS.iter().map(|of| of.family(seen)).collect()
}

impl OfProcess {
    fn family(&self, seen: &[Seen]) -> Family {
        let samples = seen.iter().flat_map(|process| {
            let all = (self.3)(process).into_iter();
            all.map(|(more, value)| sample(process, more, value))
        });
        Family {
            name: self.0,
            help: self.1,
            kind: self.2,
            samples: samples.collect(),
        }
    }
}

fn info(seen: &Seen) -> Samples {
    let labels = vec![
        ("version", seen.record.library_version.clone()),
        ("build_id", seen.record.build_id.clone()),
    ];
    vec![(labels, Value::Whole(1))]
}

/// Those that never happened too: a rate needs its first 0.
fn steps(seen: &Seen) -> Samples {
    let count = |step: &Step| {
        let labels = vec![("reason", step.word().to_owned())];
        (labels, Value::Whole(u64::from(seen.record.steps(*step))))
    };
    Step::ALL.iter().map(count).collect()
}

/// A record at rest may still hold the numbers of a buffer that is gone.
fn if_there(seen: &Seen, bytes: u64) -> u64 {
    if seen.record.buffer.state.is("none") {
        0
    } else {
        bytes
    }
}
