//! The plan of a soak: which hosts, and what happens in each of their cycles. It follows from the seed alone, and any cycle's can
//! be had without those before it: a failure is repeated by its seed and number.

use cudasnap_wire::{Mode, PageKind};

use super::kinds::Kind;
use super::random::{dealt, Random};

/// Hosts are dealt in hands of this many.
const HAND: u64 = 12;
/// Cycles of each host in the first hand: a short run should see many hosts.
const FIRST_LIFE: u64 = 8;
/// Cycles of a later host that the driver leaks into: it is started anew in between.
const ROUGH_LIFE: u64 = 24;
/// Cycles of the other later hosts: long enough to see memory grow.
const STEADY_LIFE: u64 = 100;
const ROUGH: [bool; HAND as usize] = [
    true, true, true, true, false, false, false, false, false, false, false, false,
];
const ROUGH_HOSTS: u64 = 4;
const FIRST_HAND: u64 = HAND * FIRST_LIFE;
const LATER_HAND: u64 = ROUGH_HOSTS * ROUGH_LIFE + (HAND - ROUGH_HOSTS) * STEADY_LIFE;
/// In a run from cycle 0 of this length every kind is planned.
pub const EVERY_KIND_WITHIN: u64 = FIRST_HAND;

/// A host program and its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlan {
    /// Its number, from 0.
    pub number: u64,
    /// Its first cycle.
    pub first: u64,
    /// How many cycles it lives.
    pub life: u64,
    /// Whether faults come that lose the process or a buffer of it, with the shim or without. Then it is started anew.
    pub rough: bool,
    /// Device memory per device that the program holds.
    pub device_mib: u64,
    /// Devices.
    pub devices: u64,
    /// Pinned host memory.
    pub pinned_mib: u64,
    /// `CUDASNAP_THREADS`
    pub threads: u32,
    /// `CUDASNAP_PAGES`
    pub pages: PageKind,
    /// `CUDASNAP_BUFFER=keep`, with `CUDASNAP_KEEP_MAX` in MiB.
    pub keep: Option<u64>,
    /// Whether other threads live in it that can allocate and fork.
    pub mates: bool,
}

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

/// A cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CyclePlan {
    /// Its number, from 0.
    pub number: u64,
    /// Whether a new process takes the host's place before it.
    pub anew: bool,
    /// Its fault.
    pub fault: Fault,
    /// Mode at the request.
    pub mode: Mode,
    /// Mode that is set while the process is checkpointed.
    pub switch: Option<Mode>,
    /// The record's `thread_cap` in checkpoint and restore.
    pub caps: [u32; 2],
    /// Whether all threads but the restore thread are stopped.
    pub frozen: bool,
    /// Whether another thread forks meanwhile.
    pub forks: bool,
    /// Whether another thread allocates meanwhile.
    pub allocations: bool,
    /// Rate of the DMA, in hundredths of GB/s; 0 = as fast as this machine copies.
    pub dma: u64,
    /// Whether the program writes new contents before.
    pub rewrite: bool,
    /// Device memory that the program holds beyond the host's plan.
    pub extra_mib: u64,
    /// Whether a kept buffer is dropped before.
    pub drop: bool,
    /// Whether huge pages are switched off for the process.
    pub no_huge_pages: bool,
}

/// Number of the host that a cycle belongs to, its first cycle, its life, whether it is rough.
fn host_at(seed: u64, cycle: u64) -> (u64, u64, u64, bool) {
    let hand = cycle
        .checked_sub(FIRST_HAND)
        .map_or(0, |rest| 1 + rest / LATER_HAND);
    let rough = Random::new(seed, "rough", hand).shuffled(&ROUGH);
    let mut first = if hand == 0 {
        0
    } else {
        FIRST_HAND + (hand - 1) * LATER_HAND
    };
    for (place, rough) in rough.into_iter().enumerate() {
        let life = match (hand, rough) {
            (0, _) => FIRST_LIFE,
            (_, true) => ROUGH_LIFE,
            (_, false) => STEADY_LIFE,
        };
        if cycle < first + life {
            return (hand * HAND + place as u64, first, life, rough);
        }
        first += life;
    }
    unreachable!("a hand's lives add up to its cycles")
}

impl HostPlan {
    /// The host that a cycle belongs to.
    #[must_use]
    pub fn of_cycle(seed: u64, cycle: u64) -> Self {
        let (number, first, life, rough) = host_at(seed, cycle);
        let mut random = Random::new(seed, "host", number);
        const KEEP: [Option<u64>; 12] = [
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            Some(0),
            Some(0),
            Some(0),
            Some(12),
            Some(40),
        ];
        const PAGES: [PageKind; 12] = {
            let mut pages = [PageKind::Thp; 12];
            pages[0] = PageKind::Small;
            pages[1] = PageKind::Small;
            pages[2] = PageKind::Small;
            pages[3] = PageKind::Hugetlb;
            pages[4] = PageKind::Hugetlb;
            pages
        };
        HostPlan {
            number,
            first,
            life,
            rough,
            device_mib: random.between(1, 24),
            devices: dealt(seed, "devices", &[1, 1, 1, 2], number),
            pinned_mib: dealt(seed, "pinned", &[0, 0, 1, 5], number),
            threads: dealt(
                seed,
                "threads",
                &[0, 0, 0, 0, 0, 1, 2, 2, 3, 8, 16, 31],
                number,
            ),
            pages: dealt(seed, "pages", &PAGES, number),
            keep: dealt(seed, "keep", &KEEP, number),
            mates: dealt(seed, "mates", &[true, true, false], number),
        }
    }

    /// What is special about it.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        let special = [
            (self.pages == PageKind::Small, Kind::SmallPages),
            (self.pages == PageKind::Hugetlb, Kind::Hugetlb),
            (self.devices == 2, Kind::TwoDevices),
            (self.pinned_mib > 0, Kind::Pinned),
            (self.threads > 0, Kind::ThreadsOption),
            (self.keep.is_some_and(|most| most > 0), Kind::KeepMax),
        ];
        special
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, kind)| kind)
    }
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

fn kind_of_fault(seed: u64, host: &HostPlan, cycle: u64) -> Kind {
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

fn fault(kind: Kind, random: &mut Random) -> Fault {
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

impl CyclePlan {
    /// The plan of a cycle.
    #[must_use]
    pub fn new(seed: u64, number: u64) -> Self {
        let host = HostPlan::of_cycle(seed, number);
        let mut random = Random::new(seed, "cycle", number);
        let fault = fault(kind_of_fault(seed, &host, number), &mut random);
        let mode = dealt(seed, "mode", &MODES, number);
        let switch = dealt(seed, "switch", &[0, 0, 0, 0, 1, 2], number);
        let one_in_three = |what: &str| dealt(seed, what, &[true, false, false], number);
        let one_in_six = |what: &str| dealt(seed, what, &[0, 1, 2, 3, 4, 5], number) == 0;
        let mut cap = || match random.one_in(4) {
            true => random.between(1, 3) as u32,
            false => 0,
        };
        let mut plan = CyclePlan {
            number,
            anew: is_anew(seed, &host, number),
            fault,
            mode,
            switch: (switch > 0).then(|| Mode::ALL[(mode as usize + switch) % Mode::ALL.len()]),
            caps: [cap(), cap()],
            frozen: one_in_three("frozen"),
            forks: one_in_three("forks") && host.mates,
            allocations: !one_in_three("allocations") && host.mates,
            dma: dealt(seed, "dma", &DMA_RATES, number),
            rewrite: one_in_three("rewrite"),
            // The same for some cycles, so that a kept buffer is also used again.
            extra_mib: dealt(seed, "extra", &[0, 0, 0, 8, 16, 30], number / 3),
            drop: one_in_six("drop") && host.keep.is_some(),
            no_huge_pages: one_in_six("no huge pages") && host.mates,
        };
        plan.make_room();
        plan
    }

    /// What the fault needs to be seen.
    fn make_room(&mut self) {
        match self.fault {
            Fault::Helpers(..) | Fault::NoThreads | Fault::Affinity(..) | Fault::Quota(..) => {
                self.mode = Mode::On;
                self.switch = None;
                self.caps = [0; 2];
            }
            Fault::Pause(..) | Fault::DevicePause(_) | Fault::Withheld(_)
                if self.mode == Mode::Off =>
            {
                self.mode = Mode::On;
                self.switch = None;
            }
            _ => {}
        }
        if self.fault == Fault::NoThreads {
            // Their threads and processes would be refused too.
            self.forks = false;
            self.allocations = false;
        }
    }

    /// All that happens in it, as far as the plan alone can say.
    #[must_use]
    pub fn kinds(&self, host: &HostPlan) -> Vec<Kind> {
        let own = [
            (self.frozen, Kind::Frozen),
            (self.forks, Kind::Forks),
            (self.allocations, Kind::Allocations),
            (self.mode == Mode::Observe, Kind::Observe),
            (self.mode == Mode::Off, Kind::Off),
            (self.switch.is_some(), Kind::ModeSwitched),
            (self.caps != [0; 2], Kind::ThreadCap),
            (self.rewrite, Kind::Rewritten),
            (self.dma == 0, Kind::FastDma),
            ((1..1000).contains(&self.dma), Kind::SlowDma),
            (self.no_huge_pages, Kind::NoHugePages),
        ];
        let own = own.into_iter().filter(|(is, _)| *is).map(|(_, kind)| kind);
        std::iter::once(self.fault.kind())
            .chain(own)
            .chain(host.kinds())
            .collect()
    }
}

const MODES: [Mode; 12] = {
    let mut modes = [Mode::On; 12];
    modes[0] = Mode::Observe;
    modes[1] = Mode::Observe;
    modes[2] = Mode::Off;
    modes[3] = Mode::Off;
    modes
};
const DMA_RATES: [u64; 13] = [0, 0, 0, 0, 0, 0, 2500, 2500, 2500, 2500, 500, 500, 150];

/// A host lives on for one cycle after the driver forgot a buffer, and for none after it lost the process.
fn is_anew(seed: u64, host: &HostPlan, cycle: u64) -> bool {
    let fault_before = |back: u64| {
        let before = cycle
            .checked_sub(back)
            .filter(|before| *before >= host.first)?;
        let kind = kind_of_fault(seed, host, before);
        Some(kind)
    };
    let forgot = [
        Some(Kind::NeverUnmapped),
        Some(Kind::CheckpointFailsForgets),
    ];
    fault_before(1) == Some(Kind::RestoreFailsUnmaps) || forgot.contains(&fault_before(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_is_planned_in_the_first_cycles() {
        // What depends on more than the plan: the state of a kept buffer, and what the program held before.
        let by_chance = [Kind::Resized, Kind::Kept, Kind::Dropped, Kind::KeptUnfit];
        for seed in 0..300 {
            let planned: BTreeSet<Kind> = (0..EVERY_KIND_WITHIN)
                .flat_map(|cycle| {
                    CyclePlan::new(seed, cycle).kinds(&HostPlan::of_cycle(seed, cycle))
                })
                .collect();
            let missing: Vec<_> = Kind::ALL
                .iter()
                .filter(|kind| !planned.contains(kind) && !by_chance.contains(kind))
                .collect();
            assert!(missing.is_empty(), "seed {seed}: {missing:?}");
        }
    }

    #[test]
    fn the_plan_of_a_seed_is_fixed() {
        // A change here makes the seeds of old failures mean something else: say so where they are noted.
        let text: String = (0..2000)
            .map(|cycle| {
                format!(
                    "{:?}{:?}",
                    HostPlan::of_cycle(1, cycle),
                    CyclePlan::new(1, cycle)
                )
            })
            .collect();
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        assert_eq!(hash, 9_064_135_710_188_752_692);
    }

    #[test]
    fn lives_follow_each_other_without_a_gap() {
        let mut next = 0;
        for number in 0..60 {
            let host = HostPlan::of_cycle(5, next);
            assert_eq!((host.number, host.first), (number, next));
            assert_eq!(HostPlan::of_cycle(5, next + host.life - 1), host);
            next += host.life;
        }
    }

    #[test]
    fn faults_find_what_they_need() {
        for cycle in 0..20_000 {
            let (host, plan) = (HostPlan::of_cycle(9, cycle), CyclePlan::new(9, cycle));
            match plan.fault {
                Fault::Helpers(..) | Fault::NoThreads => {
                    assert!(host.threads != 1 && plan.mode == Mode::On && plan.caps == [0; 2]);
                }
                Fault::DevicePause(_) => assert_eq!(host.devices, 2),
                Fault::Withheld(kib) => {
                    assert!(kib % 8 == 0 && kib < 2048 && plan.mode != Mode::Off)
                }
                fault => assert!(host.rough || !(fault.loses() || fault.forgets())),
            }
            assert!(host.mates || !(plan.forks || plan.allocations || plan.no_huge_pages));
            assert!(plan.switch != Some(plan.mode) && (!plan.drop || host.keep.is_some()));
        }
    }

    #[test]
    fn a_process_is_replaced_after_the_driver_forgot_a_buffer_or_lost_it() {
        for cycle in 0..20_000u64 {
            let host = HostPlan::of_cycle(2, cycle);
            let fault = |back: u64| CyclePlan::new(2, cycle - back).fault;
            let age = cycle - host.first;
            let forgot = age >= 2 && fault(2).forgets();
            let lost = age >= 1 && fault(1).loses();
            assert_eq!(CyclePlan::new(2, cycle).anew, forgot || lost);
        }
    }
}
