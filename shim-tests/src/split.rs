//! Where the time of a call went, from the record's phase and the time that the caller saw.

use cudasnap_cli::record::view::PhaseView;
use serde::{Deserialize, Serialize};

/// Pieces of one call, in seconds: those from `mmap` to `rest` add up to `call`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// What the caller of the driver waited.
    pub call: f64,
    /// The buffer's mmap (checkpoint).
    pub mmap: f64,
    /// From there to the first copy: the driver sets up its staging buffers.
    pub first_copy: f64,
    /// Inside copies.
    pub copying: f64,
    /// Between copies: waiting for the driver.
    pub waiting: f64,
    /// From the last copy to the phase's end: sending the helpers home.
    pub ending: f64,
    /// The buffer's munmap (restore).
    pub munmap: f64,
    /// The driver's call without all of the above: before the phase and after it.
    pub rest: f64,
    /// From the phase's start to the end of prefault; goes on beside the other pieces.
    pub prefault: f64,
    /// First copy's start to last copy's end.
    pub copy_loop: f64,
    /// Bytes that were copied in it.
    pub bytes: u64,
    /// Whether the buffer was one kept from the cycle before.
    pub kept: bool,
    /// Threads that copied, the caller included.
    pub threads: u32,
}

impl Split {
    /// The split of a call that took `call` seconds and whose phase was recorded.
    pub fn new(call: f64, phase: &PhaseView) -> Self {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let until_loop = phase.first_copy_ns;
        let covered = phase.end.is("covered");
        let after = phase.total_ns.saturating_sub(until_loop + phase.loop_ns);
        let ending = if covered { seconds(after) } else { 0.0 };
        let mut split = Split {
            call,
            mmap: seconds(phase.mmap_ns),
            first_copy: seconds(until_loop.saturating_sub(phase.mmap_ns)),
            copying: seconds(phase.copying_ns),
            waiting: seconds(phase.waiting_ns),
            ending,
            munmap: seconds(phase.munmap_ns),
            rest: 0.0,
            prefault: seconds(phase.prefault_ns),
            copy_loop: seconds(phase.loop_ns),
            bytes: phase.copied,
            kept: phase.kept,
            threads: phase.threads,
        };
        split.rest = call - split.pieces().iter().map(|(_, piece)| piece).sum::<f64>();
        split
    }

    /// The pieces that lie one after the other, with their names.
    pub fn pieces(&self) -> [(&'static str, f64); 7] {
        [
            ("mmap", self.mmap),
            ("until the first copy", self.first_copy),
            ("copying", self.copying),
            ("waiting for the driver", self.waiting),
            ("helpers leave", self.ending),
            ("munmap", self.munmap),
            ("rest of the driver's call", self.rest),
        ]
    }
}

/// A cycle's two calls, as far as they were recorded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Splits {
    /// The checkpoint.
    pub checkpoint: Option<Split>,
    /// The restore.
    pub restore: Option<Split>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudasnap_cli::record::view::RecordView;
    use cudasnap_wire::{Direction, End, Record};
    use std::sync::atomic::Ordering::Relaxed;

    fn phase(end: End) -> PhaseView {
        let record = Record::new(1);
        let block = &record.current;
        block
            .direction
            .store(Direction::Checkpoint.number(), Relaxed);
        block.end.store(end.number(), Relaxed);
        for (word, milliseconds) in [
            (&block.mmap_ns, 10),
            (&block.first_copy_ns, 30),
            (&block.copying_ns, 400),
            (&block.waiting_ns, 100),
            (&block.loop_ns, 500),
            (&block.total_ns, 535),
            (&block.munmap_ns, 7),
            (&block.prefault_ns, 300),
        ] {
            word.store(milliseconds * 1_000_000, Relaxed);
        }
        RecordView::new(&record).current
    }

    #[test]
    fn pieces_add_up_to_the_call() {
        let split = Split::new(0.7, &phase(End::Covered));
        let sum: f64 = split.pieces().iter().map(|(_, piece)| piece).sum();
        assert!((sum - 0.7).abs() < 1e-9);
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}");
        near(split.first_copy, 0.020);
        near(split.ending, 0.005);
        near(split.rest, 0.158);
        near(split.prefault, 0.300);
    }

    #[test]
    fn a_phase_that_was_closed_late_has_no_ending_of_its_own() {
        let split = Split::new(0.7, &phase(End::Unmapped));
        assert!(split.ending.abs() < 1e-9);
        assert!((split.rest - 0.163).abs() < 1e-9);
    }
}
