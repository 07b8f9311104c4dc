//! The plan of a soak: what happens in each cycle. It follows from the seed alone, and any cycle's can be had without those before
//! it: a failure is repeated by its seed and number.

use cudasnap_wire::Mode;

use super::faults::{fault, kind_of_fault, Fault};
use super::hosts::HostPlan;
use super::kinds::Kind;
use super::random::{dealt, Random};

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
    use crate::soak::hosts::EVERY_KIND_WITHIN;
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
        assert_eq!(hash, 1_573_926_756_220_353_576);
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
