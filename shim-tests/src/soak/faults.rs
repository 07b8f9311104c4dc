//! The faults of a soak: what can be done to a cycle, and which is done to which.

use super::hosts::HostPlan;
use super::kinds::Kind;
use super::random::{dealt, Random};

/// Where the driver fails, in the words of `CUDASIM_FAULT`.
pub type Place = &'static str;

/// Which step something happens in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The checkpoint.
    Checkpoint,
    /// The restore.
    Restore,
}

/// What a tracer does to helpers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Stops them for so many milliseconds.
    Hold(u64),
    /// Makes them exit.
    Kill,
}

/// The one fault of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// None.
    Calm,
    /// The driver fails at a copy of the checkpoint; unmaps its buffer or forgets it.
    Checkpoint(Place, bool),
    /// The driver fails at a copy of the restore; unmaps its buffer or keeps it for another try.
    Restore(Place, bool),
    /// The kernel refuses the buffer.
    MmapRefused,
    /// So many KiB of one copy in each direction do not go through the slot.
    Withheld(u64),
    /// A pause of so many milliseconds before this copy, in both directions.
    Pause(u64, u64),
    /// A pause between two devices.
    DevicePause(u64),
    /// The restore does not unmap the buffer.
    NeverUnmapped,
    /// A tracer meets helpers so many microseconds after their first was seen.
    Helpers(When, u64, Deed),
    /// The kernel refuses threads.
    NoThreads,
    /// How many CPUs checkpoint and restore may use: 1 or, as 0, all.
    Affinity(u32, u32),
    /// Hundredths of a CPU that checkpoint and restore may use; 0 = no limit.
    Quota(u32, u32),
}

impl Fault {
    /// What is counted when it strikes.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Fault::Calm => Kind::Calm,
            Fault::Checkpoint(_, true) => Kind::CheckpointFailsUnmaps,
            Fault::Checkpoint(_, false) => Kind::CheckpointFailsForgets,
            Fault::Restore(_, true) => Kind::RestoreFailsUnmaps,
            Fault::Restore(_, false) => Kind::RestoreFailsKeeps,
            Fault::MmapRefused => Kind::MmapRefused,
            Fault::Withheld(_) => Kind::Withheld,
            Fault::Pause(..) => Kind::Pause,
            Fault::DevicePause(_) => Kind::DevicePause,
            Fault::NeverUnmapped => Kind::NeverUnmapped,
            Fault::Helpers(_, _, Deed::Hold(ms)) if ms < LONG_HOLD_MS => Kind::HelperStopped,
            Fault::Helpers(_, _, Deed::Hold(_)) => Kind::HelperHeld,
            Fault::Helpers(_, _, Deed::Kill) => Kind::HelperKilled,
            Fault::NoThreads => Kind::NoThreads,
            Fault::Affinity(..) => Kind::Affinity,
            Fault::Quota(..) => Kind::Quota,
        }
    }

    /// Whether the driver forgets a buffer: the process holds it until its end.
    #[must_use]
    pub const fn forgets(self) -> bool {
        matches!(self, Fault::Checkpoint(_, false) | Fault::NeverUnmapped)
    }

    /// Whether the process is lost.
    #[must_use]
    pub const fn loses(self) -> bool {
        matches!(self, Fault::Restore(_, true))
    }
}

/// The end of a phase waits 200 ms for helpers: who is held for so long is late.
pub const LONG_HOLD_MS: u64 = 260;

/// Faults that any host can take, one after the other.
const FAULTS: [Kind; 13] = [
    Kind::Calm,
    Kind::Calm,
    Kind::CheckpointFailsUnmaps,
    Kind::RestoreFailsKeeps,
    Kind::MmapRefused,
    Kind::Withheld,
    Kind::Pause,
    Kind::HelperStopped,
    Kind::HelperHeld,
    Kind::HelperKilled,
    Kind::NoThreads,
    Kind::Affinity,
    Kind::Quota,
];
/// Faults after which a process is started anew.
const ROUGH_FAULTS: [Kind; 3] = [
    Kind::NeverUnmapped,
    Kind::CheckpointFailsForgets,
    Kind::RestoreFailsUnmaps,
];

/// The fault of a cycle, by kind.
#[must_use]
pub fn kind_of_fault(seed: u64, host: &HostPlan, cycle: u64) -> Kind {
    let place = cycle - host.first;
    if host.rough && place % 2 == 1 {
        return dealt(
            seed,
            "rough faults",
            &ROUGH_FAULTS,
            host.number * 4 + place / 2,
        );
    }
    if host.devices == 2 && place % 10 == 2 {
        return Kind::DevicePause;
    }
    let kind = dealt(seed, "faults", &FAULTS, cycle);
    let needs_helpers = matches!(
        kind,
        Kind::HelperStopped | Kind::HelperHeld | Kind::HelperKilled | Kind::NoThreads
    );
    if needs_helpers && host.threads == 1 {
        Kind::Calm
    } else {
        kind
    }
}

/// A fault of this kind.
pub fn fault(kind: Kind, random: &mut Random) -> Fault {
    const PLACES: [Place; 7] = ["0", "1", "2", "7", "15", "middle", "last-1"];
    let place = random.pick(&PLACES);
    let when = random.pick(&[When::Checkpoint, When::Restore]);
    // A phase of the smallest buffers takes some 20 to 60 ms.
    let after_us = random.below(15_000);
    match kind {
        Kind::CheckpointFailsUnmaps => Fault::Checkpoint(place, true),
        Kind::CheckpointFailsForgets => Fault::Checkpoint(place, false),
        Kind::RestoreFailsUnmaps => Fault::Restore(place, true),
        Kind::RestoreFailsKeeps => Fault::Restore(place, false),
        Kind::MmapRefused => Fault::MmapRefused,
        Kind::Withheld => Fault::Withheld(random.between(1, 190) * 8),
        Kind::Pause => Fault::Pause(random.between(25, 60), random.between(1, 20)),
        Kind::DevicePause => Fault::DevicePause(random.between(5, 60)),
        Kind::NeverUnmapped => Fault::NeverUnmapped,
        Kind::HelperStopped => Fault::Helpers(when, after_us, Deed::Hold(random.between(1, 120))),
        Kind::HelperHeld => {
            let ms = random.between(LONG_HOLD_MS, LONG_HOLD_MS + 150);
            Fault::Helpers(when, after_us, Deed::Hold(ms))
        }
        Kind::HelperKilled => Fault::Helpers(when, after_us, Deed::Kill),
        Kind::NoThreads => Fault::NoThreads,
        Kind::Affinity => {
            let (checkpoint, restore) = random.pick(&[(1, 0), (0, 1), (1, 1)]);
            Fault::Affinity(checkpoint, restore)
        }
        Kind::Quota => {
            let (checkpoint, restore) = random.pick(&[(100, 0), (0, 100), (60, 0), (150, 70)]);
            Fault::Quota(checkpoint, restore)
        }
        _ => Fault::Calm,
    }
}
