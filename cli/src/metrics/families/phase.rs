//! Families of which every last phase has samples, a checkpoint's and a restore's.

use cudasnap_wire::{Direction, Mode, PageKind, Strategy};

use super::values::{one_of, plain, real, sample, seconds, Samples};
use crate::metrics::exposition::Kind::Gauge;
use crate::metrics::exposition::{Family, Value};
use crate::metrics::gather::Seen;
use crate::record::view::PhaseView;

/// Name, help, and where its samples come from.
struct OfPhase(&'static str, &'static str, fn(&PhaseView) -> Samples);

const OF_PHASE: [OfPhase; 14] = [
    OfPhase(
        "cudasnap_last_phase_start_timestamp_seconds",
        "Start of the last ended phase, seconds since 1970.",
        |phase| real(seconds(phase.started_unix_ns)),
    ),
    OfPhase(
        "cudasnap_last_phase_bytes",
        "Bytes that the driver asked for in the last ended phase.",
        |phase| plain(phase.expected),
    ),
    OfPhase(
        "cudasnap_last_phase_copied_bytes",
        "Bytes of it that were copied through the library.",
        |phase| plain(phase.copied),
    ),
    OfPhase(
        "cudasnap_last_phase_zero_bytes",
        "Bytes of those that were zero and take no memory.",
        |phase| plain(phase.zeros),
    ),
    OfPhase(
        "cudasnap_last_phase_prefaulted_bytes",
        "Bytes that were populated ahead of the copies.",
        |phase| plain(phase.prefaulted),
    ),
    OfPhase(
        "cudasnap_last_phase_duration_seconds",
        "Start of the last ended phase to its end.",
        |phase| real(seconds(phase.total_ns)),
    ),
    OfPhase(
        "cudasnap_last_phase_piece_seconds",
        "Where its time went; the pieces overlap, see docs/fleet.md.",
        pieces,
    ),
    OfPhase(
        "cudasnap_last_phase_bytes_per_second",
        "Bytes copied through the library divided by the duration.",
        |phase| match phase.total_ns {
            0 => Vec::new(),
            _ => real(phase.copied as f64 / seconds(phase.total_ns)),
        },
    ),
    OfPhase(
        "cudasnap_last_phase_effective",
        "Whether the library made the copies: at least 99 % of the buffer, into memory of its own.",
        |phase| plain(u64::from(is_effective(phase))),
    ),
    OfPhase(
        "cudasnap_last_phase_kept",
        "Whether its buffer was one kept from the cycle before, or a reserved one that was found full.",
        |phase| plain(u64::from(phase.kept)),
    ),
    OfPhase(
        "cudasnap_last_phase_threads",
        "Threads that copied, the driver's own included.",
        |phase| plain(u64::from(phase.threads)),
    ),
    OfPhase(
        "cudasnap_last_phase_mode",
        "Mode of the last ended phase: 1 for the one it had, 0 for the others.",
        |phase| one_of("mode", &phase.mode, Mode::ALL.iter().map(|mode| mode.word())),
    ),
    OfPhase(
        "cudasnap_last_phase_pages",
        "Kind of page of its buffer: 1 for the one it had, 0 for the others.",
        |phase| one_of("pages", &phase.pages, PageKind::ALL.iter().map(|kind| kind.word())),
    ),
    OfPhase(
        "cudasnap_last_phase_strategy",
        "How its copies were made: 1 for that, 0 for the others.",
        |phase| {
            let all = Strategy::ALL.iter().map(|strategy| strategy.word());
            one_of("strategy", &phase.strategy, all)
        },
    ),
];

/// All of them.
pub fn families(seen: &[Seen]) -> Vec<Family> {
    OF_PHASE.iter().map(|of| of.family(seen)).collect()
}

impl OfPhase {
    fn family(&self, seen: &[Seen]) -> Family {
        let mut samples = Vec::new();
        for process in seen {
            for direction in [Direction::Checkpoint, Direction::Restore] {
                let Some(phase) = process.record.last(direction.word()) else {
                    continue;
                };
                for (more, value) in (self.2)(phase) {
                    let mut labels = vec![("direction", direction.word().to_owned())];
                    labels.extend(more);
                    samples.push(sample(process, labels, value));
                }
            }
        }
        Family {
            name: self.0,
            help: self.1,
            kind: Gauge,
            samples,
        }
    }
}

fn pieces(phase: &PhaseView) -> Samples {
    let pieces = [
        ("mmap", phase.mmap_ns),
        ("prefault", phase.prefault_ns),
        ("first_copy", phase.first_copy_ns),
        ("copying", phase.copying_ns),
        ("waiting", phase.waiting_ns),
        ("longest_wait", phase.longest_wait_ns),
        ("copy_loop", phase.loop_ns),
        ("munmap", phase.munmap_ns),
    ];
    let sample = |(piece, time): (&str, u64)| {
        let labels = vec![("piece", piece.to_owned())];
        (labels, Value::Real(seconds(time)))
    };
    pieces.map(sample).to_vec()
}

/// As the library's own report has it.
fn is_effective(phase: &PhaseView) -> bool {
    phase.is_effective() && phase.mode.is("on") && !phase.pages.is("driver")
}
