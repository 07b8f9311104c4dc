//! One cycle of the soak: the world is set up as planned, the driver's steps are taken, and everything that the plan promises is
//! looked at after each.

use std::collections::BTreeSet;
use std::time::Duration;

use cudasnap_cli::driver::Driver;
use cudasnap_cli::record::view::RecordView;
use cudasnap_cli::record::Control;
use cudasnap_wire::Step;

use crate::freeze::Freeze;

use super::expect::ledger::{account, new_phases, Ledger};
use super::expect::{Problems, Setting};
use super::faults::{Deed, Fault};
use super::guest::Guest;
use super::hosts::HostPlan;
use super::kinds::Kind;
use super::plan::CyclePlan;
use super::world::{self, World};

/// Helpers of a phase that did not come to its end leave by themselves: after 20 ms without a copy, or 2 s without any.
pub(super) const LEAVE: Duration = Duration::from_secs(10);
/// A lock that takes longer fails.
const LOCK_MS: u32 = 20_000;

/// A cycle that goes on.
pub struct Cycle<'a> {
    pub(super) driver: &'a Driver,
    pub(super) guest: &'a mut Guest,
    pub(super) host: &'a HostPlan,
    pub(super) plan: &'a CyclePlan,
    pub(super) world: World,
    pub(super) ledger: Ledger,
    pub(super) problems: Problems,
    pub(super) seen: BTreeSet<Kind>,
    /// Whether a tracer met helpers: what that does to a phase depends on the moment.
    pub(super) met: u32,
    /// Helpers that the shim says were late.
    pub(super) late: u32,
    /// The shim's count of them before the cycle.
    pub(super) late_before: u32,
}

/// What became of a cycle that had no problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// What happened in it, as far as it could be proved.
    pub seen: BTreeSet<Kind>,
    /// Whether helpers were late although nobody held them: the machine has more to do than CPUs for it.
    pub late: bool,
}

impl<'a> Cycle<'a> {
    /// Sets the cycle up.
    #[must_use]
    pub fn new(
        driver: &'a Driver,
        guest: &'a mut Guest,
        host: &'a HostPlan,
        plan: &'a CyclePlan,
    ) -> Self {
        Cycle {
            driver,
            guest,
            host,
            plan,
            world: World::Free,
            ledger: Ledger::default(),
            problems: Problems::new(),
            seen: BTreeSet::new(),
            met: 0,
            late: 0,
            late_before: 0,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// Everything that was not as it should be.
    pub fn run(mut self) -> Result<Done, Problems> {
        if let Err(fatal) = self.all_steps() {
            self.problems.push(fatal);
        }
        // Whatever happened: nobody stays stopped.
        self.world = World::Free;
        if self.problems.is_empty() {
            let late = self.late > 0 && self.met == 0;
            Ok(Done {
                seen: self.seen,
                late,
            })
        } else {
            Err(self.problems)
        }
    }

    fn all_steps(&mut self) -> Result<(), String> {
        self.prepare()?;
        let before = self.guest.look()?;
        self.late_before = before.steps(Step::HelperLate);
        let counts = self.guest.mate.as_ref().map(|mate| mate.counts());
        if let Some(mate) = &self.guest.mate {
            mate.begin(self.plan.allocations, self.plan.forks);
        }
        let huge_pages = self.guest.huge_pages();
        self.driver
            .lock(self.guest.pid(), LOCK_MS)
            .map_err(|error| error.to_string())?;
        self.freeze()?;
        let outcome = self.phases(huge_pages);
        self.thaw()?;
        let lost = outcome?;
        if !lost {
            self.driver
                .unlock(self.guest.pid())
                .map_err(|error| error.to_string())?;
        }
        self.rest(counts)?;
        if !lost {
            self.guest.check_contents()?;
        }
        self.finish(&before, lost)
    }

    /// Everything that is set before the lock.
    fn prepare(&mut self) -> Result<(), String> {
        let plan = self.plan;
        if plan.extra_mib != self.guest.extra_mib {
            self.guest.tell(&format!("extra {}", plan.extra_mib))?;
            self.guest.extra_mib = plan.extra_mib;
            self.seen.insert(Kind::Resized);
        }
        if plan.rewrite {
            self.guest.tell("rewrite")?;
            self.seen.insert(Kind::Rewritten);
        }
        if let Some(mate) = &self.guest.mate {
            mate.set_huge_pages_off(plan.no_huge_pages, LEAVE)?;
        }
        self.write(Control::Mode(plan.mode))?;
        self.write(Control::ThreadCap(plan.caps[0]))?;
        if plan.drop {
            self.write(Control::Drop)?;
            if self.guest.memory.kept.take().is_some() {
                self.seen.insert(Kind::Dropped);
            }
        }
        self.set_machine(0)
    }

    fn write(&self, control: Control) -> Result<(), String> {
        let written = self.guest.record.write(control);
        written.map_err(|error| format!("{control:?}: {error}"))
    }

    /// CPUs, quota and threads for the checkpoint (0) or the restore (1).
    fn set_machine(&self, step: usize) -> Result<(), String> {
        let guest = &self.guest;
        let affinity = match self.plan.fault {
            Fault::Affinity(checkpoint, restore) => [checkpoint, restore][step],
            _ => 0,
        };
        world::set_cpus(guest.restore_thread, affinity, self.plan.number)?;
        let Some(group) = &guest.group else {
            return Ok(());
        };
        let quota = match self.plan.fault {
            Fault::Quota(checkpoint, restore) => [checkpoint, restore][step],
            _ => 0,
        };
        let refuse = self.plan.fault == Fault::NoThreads;
        group
            .limit_cpus(quota)
            .and_then(|()| group.refuse_threads(refuse))
            .map_err(|error| format!("control group: {error}"))
    }

    fn cpus(&self) -> [u32; 2] {
        let all = world::cpus();
        [0, 1].map(|step| match self.plan.fault {
            Fault::Affinity(checkpoint, restore) => match [checkpoint, restore][step] {
                0 => all,
                some => some.min(all),
            },
            Fault::Quota(checkpoint, restore) => match [checkpoint, restore][step] {
                0 => all,
                hundredths => hundredths.div_ceil(100).min(all),
            },
            _ => all,
        })
    }

    fn freeze(&mut self) -> Result<(), String> {
        if self.plan.frozen {
            let frozen = Freeze::new(self.guest.pid(), self.guest.restore_thread);
            let frozen = frozen.map_err(|error| format!("freezing: {error}"))?;
            if frozen.thread_ids().len() > 1 {
                self.seen.insert(Kind::Frozen);
            }
            self.world = World::Frozen(frozen);
        }
        Ok(())
    }

    fn thaw(&mut self) -> Result<(), String> {
        self.world = World::Free;
        Ok(())
    }

    /// Checkpoint and restore; whether the process is lost.
    fn phases(&mut self, huge_pages: bool) -> Result<bool, String> {
        let setting = Setting {
            host: self.host,
            plan: self.plan,
            cpus: self.cpus(),
            huge_pages: Some(huge_pages),
        };
        self.failing_checkpoint(&setting)?;
        self.checkpoint(setting.clone(), huge_pages)?;
        if let Some(mode) = self.plan.switch {
            self.write(Control::Mode(mode))?;
            self.seen.insert(Kind::ModeSwitched);
        }
        self.write(Control::ThreadCap(self.plan.caps[1]))?;
        self.set_machine(1)?;
        if self.failing_restore()? {
            return Ok(true);
        }
        self.restore(&setting)?;
        Ok(false)
    }

    /// Other threads come to rest; what they did while the driver worked.
    fn rest(&mut self, before: Option<(u32, u32, u32)>) -> Result<(), String> {
        let (Some(mate), Some((rounds, forks, bad))) = (&self.guest.mate, before) else {
            return Ok(());
        };
        mate.rest(LEAVE)?;
        let now = mate.counts();
        if now.2 != bad {
            self.problems
                .push(format!("{} forks or allocations went wrong", now.2 - bad));
        }
        if now.0 != rounds {
            self.seen.insert(Kind::Allocations);
        }
        if now.1 != forks {
            self.seen.insert(Kind::Forks);
        }
        Ok(())
    }

    fn finish(&mut self, before: &RecordView, lost: bool) -> Result<(), String> {
        if let Some(group) = &self.guest.group {
            group
                .refuse_threads(false)
                .map_err(|error| format!("control group: {error}"))?;
        }
        self.guest.expect_no_helper_within(LEAVE)?;
        let after = self.guest.look()?;
        self.expect_helpers(before, &after, lost);
        self.late = after.steps(Step::HelperLate) - self.late_before;
        self.meddled();
        self.problems
            .extend(account(before, &after, &mut self.ledger));
        if after.drop != 0 {
            self.problems
                .push("the wish to drop a kept buffer was not met".into());
        }
        // A helper's stack waits for the next request when somebody held it, and so do the slots through which libcuda could take
        // away what it was about to touch.
        let exact = !lost
            && self.late == 0
            && !matches!(self.plan.fault, Fault::Helpers(_, _, Deed::Hold(_)));
        let held = after.slots.iter().filter(|slot| slot.value.is("held"));
        let held = held.filter(|slot| exact || ["memcpy", "memmove"].contains(&slot.name));
        let held: Vec<_> = held.map(|slot| slot.name).collect();
        if !held.is_empty() && self.guest.memory.left == 0 && !lost {
            self.problems
                .push(format!("libcuda's slots are still held: {held:?}"));
        }
        if after.steps(Step::KeptUnfit) > before.steps(Step::KeptUnfit) {
            self.seen.insert(Kind::KeptUnfit);
        }
        let leaks = self.guest.check_holdings(&after, exact)?;
        self.problems.extend(leaks);
        Ok(())
    }

    /// Helpers were started where threads are more than one, and only there.
    fn expect_helpers(&mut self, before: &RecordView, after: &RecordView, lost: bool) {
        let started = after.counters.helpers_started - before.counters.helpers_started;
        let refused = after.steps(Step::NoThread) - before.steps(Step::NoThread);
        let phases = new_phases(before, after);
        let on = phases.iter().filter(|phase| phase.mode.is("on"));
        let crowded = on.clone().filter(|phase| phase.threads > 1).count();
        if self.plan.fault == Fault::NoThreads {
            let asked = if world::cpus() > 1 { on.count() } else { 0 };
            self.ledger.expect(Step::NoThread, asked as u32);
            if started == 0 && refused > 0 {
                self.seen.insert(Kind::NoThreads);
            }
        }
        let expected = crowded > 0 && self.plan.fault != Fault::NoThreads && !lost;
        if (started > 0) != expected && !lost {
            self.problems.push(format!(
                "{started} helpers for {crowded} phases of more than one thread"
            ));
        }
    }

    /// What a tracer can cause, and a machine with too few CPUs: how often that is the account tells.
    fn meddled(&mut self) {
        self.ledger.allow(Step::HelperLate, self.late);
        if let Fault::Helpers(_, _, deed) = self.plan.fault {
            if deed == Deed::Kill {
                self.ledger.allow(Step::HelperDead, self.met);
            }
        }
    }
}
