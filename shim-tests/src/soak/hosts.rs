//! The hosts of a soak: what program with what options lives for which cycles. It follows from the seed alone.

use cudasnap_wire::{Choice, PageKind, Strategy};

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
    /// `CUDASNAP_STRATEGY`
    pub strategy: Choice,
    /// `CUDASNAP_SPARSE`
    pub sparse: bool,
    /// Whether other threads live in it that can allocate and fork.
    pub mates: bool,
}

/// `CUDASNAP_BUFFER=keep` with its limits in MiB, and `fresh`.
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
/// `CUDASNAP_PAGES`
const PAGES: [PageKind; 12] = {
    let mut pages = [PageKind::Thp; 12];
    pages[0] = PageKind::Small;
    pages[1] = PageKind::Small;
    pages[2] = PageKind::Small;
    pages[3] = PageKind::Hugetlb;
    pages[4] = PageKind::Hugetlb;
    pages
};

/// `CUDASNAP_STRATEGY`
const STRATEGIES: [Choice; 10] = [
    Choice::Fixed,
    Choice::Fixed,
    Choice::Only(Strategy::Demote),
    Choice::Only(Strategy::Demote),
    Choice::Tune,
    Choice::Only(Strategy::FlushLateAhead),
    Choice::Only(Strategy::FlushWithin),
    Choice::Only(Strategy::NoFlush),
    Choice::Only(Strategy::Plain),
    Choice::Only(Strategy::NonTemporal),
];

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
            strategy: dealt(seed, "strategy", &STRATEGIES, number),
            sparse: dealt(seed, "sparse", &[true, false, false], number),
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
