//! One cycle of the soak: the world is set up as planned, the driver's steps are taken, and everything that the plan promises is
//! looked at after each.

use std::collections::BTreeSet;
use std::time::Duration;

use cudasnap_cli::driver::{Driver, DriverError, State};
use cudasnap_cli::record::view::RecordView;
use cudasnap_cli::record::Control;
use cudasnap_wire::{Mode, PageKind, Step};

use crate::freeze::Freeze;

use super::expect::{account, Kept, Ledger, Problems, Setting};
use super::guest::Guest;
use super::kinds::Kind;
use super::meddler::Meddler;
use super::plan::{CyclePlan, Deed, Fault, HostPlan, When};
use super::world::{self, World};

/// Helpers of a phase that did not come to its end leave by themselves: after 20 ms without a copy, or 2 s without any.
const LEAVE: Duration = Duration::from_secs(10);
/// Helpers of a phase that was covered are gone when its last copy returns, but for what the kernel still has to do for them.
const GONE: Duration = Duration::from_secs(1);
/// A lock that takes longer fails.
const LOCK_MS: u32 = 20_000;
const OPERATING_SYSTEM: u32 = 304;
const OUT_OF_MEMORY: u32 = 2;

/// A cycle that goes on.
pub struct Cycle<'a> {
    driver: &'a Driver,
    guest: &'a mut Guest,
    host: &'a HostPlan,
    plan: &'a CyclePlan,
    world: World,
    ledger: Ledger,
    problems: Problems,
    seen: BTreeSet<Kind>,
    /// Whether a tracer met helpers: what that does to a phase depends on the moment.
    met: u32,
    /// Helpers that the shim says were late.
    late: u32,
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

    /// A step of the driver with the caller's faults set, and helpers met meanwhile when the plan says so.
    fn step(&mut self, when: When, fault: &str) -> Result<Result<(), DriverError>, String> {
        world::set_driver_options(self.plan.dma, fault);
        let meddler = match self.plan.fault {
            Fault::Helpers(planned, after_us, deed) if planned == when => {
                let after = Duration::from_micros(after_us);
                Some(Meddler::new(self.guest.target, after, deed))
            }
            _ => None,
        };
        let (driver, pid) = (self.driver, self.guest.pid());
        let result = self.world.with_restore_thread(|| match when {
            When::Checkpoint => driver.checkpoint(pid),
            When::Restore => driver.restore(pid),
        });
        if let Some(meddler) = meddler {
            self.met += meddler.met();
            if self.met > 0 {
                self.seen.insert(self.plan.fault.kind());
            }
        }
        result.map_err(|error| format!("frozen world: {error}"))
    }

    fn expect_state(&mut self, expected: State) -> Result<(), String> {
        let (driver, pid) = (self.driver, self.guest.pid());
        let state = self.world.with_restore_thread(|| driver.state(pid));
        match state.map_err(|error| format!("frozen world: {error}"))? {
            Ok(state) if state == expected => Ok(()),
            Ok(state) => Err(format!("state is {state}, should be {expected}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Words of `CUDASIM_FAULT` for a step that succeeds.
    fn mild_fault(&self) -> String {
        match self.plan.fault {
            Fault::Withheld(kib) => format!("withhold={kib}"),
            Fault::Pause(ms, copy) => format!("pause={ms}@{copy}"),
            Fault::DevicePause(ms) => format!("device-pause={ms}"),
            Fault::NeverUnmapped => "never-unmap".into(),
            _ => String::new(),
        }
    }

    /// A checkpoint that fails, when the plan says so. The next one will not.
    fn failing_checkpoint(&mut self, setting: &Setting<'_>) -> Result<(), String> {
        let (words, code) = match self.plan.fault {
            Fault::MmapRefused => ("mmap-refused".to_string(), OUT_OF_MEMORY),
            Fault::Checkpoint(place, unmaps) => {
                let after = if unmaps { "unmap" } else { "keep" };
                (format!("copy:{place},{after}"), OPERATING_SYSTEM)
            }
            _ => return Ok(()),
        };
        let before = self.guest.look()?;
        let outcome = self.step(When::Checkpoint, &words)?;
        expect_code(outcome, code, "checkpoint")?;
        self.expect_state(State::Locked)?;
        self.guest.expect_no_helper_within(LEAVE)?;
        self.seen.insert(self.plan.fault.kind());
        let after = self.guest.look()?;
        self.expect_counts(&before, &after, self.plan.fault != Fault::MmapRefused);
        let memory = &mut self.guest.memory;
        if self.plan.fault == Fault::MmapRefused {
            setting.refused(memory, &mut self.ledger);
            return Ok(());
        }
        if self.plan.mode == Mode::On {
            setting.answered(memory, &after.current, &mut self.ledger, &mut self.problems);
        } else {
            self.request_without_answer();
        }
        self.buffer_is_gone(setting, &after, self.plan.fault.forgets());
        if self.plan.mode != Mode::Off && after.current.copied >= after.current.expected {
            self.problems.push(format!(
                "the failed checkpoint was covered: {:?}",
                after.current
            ));
        }
        Ok(())
    }

    fn expect_counts(&mut self, before: &RecordView, after: &RecordView, given: bool) {
        let (old, new) = (&before.counters, &after.counters);
        let counts = (new.requests - old.requests, new.answered - old.answered);
        let expected = (1, u64::from(given && self.plan.mode == Mode::On));
        if counts != expected {
            self.problems.push(format!(
                "requests and answers {counts:?}, should be {expected:?}"
            ));
        }
    }

    /// In the other modes the request gives a kept buffer up; only a watched one takes a forgotten one's place.
    fn request_without_answer(&mut self) {
        let memory = &mut self.guest.memory;
        memory.kept = None;
        if self.plan.mode == Mode::Observe {
            self.ledger
                .expect(Step::SecondBuffer, u32::from(memory.forgotten));
            memory.forgotten = false;
        }
    }

    fn checkpoint(&mut self, mut setting: Setting<'_>, huge_pages: bool) -> Result<(), String> {
        let before = self.guest.look()?;
        let outcome = self.step(When::Checkpoint, &self.mild_fault())?;
        outcome.map_err(|error| format!("checkpoint: {error}"))?;
        self.expect_state(State::Checkpointed)?;
        self.no_helper_left(When::Checkpoint, before.steps(Step::HelperLate))?;
        let after = self.guest.look()?;
        setting.huge_pages = Some(huge_pages).filter(|was| *was == self.guest.huge_pages());
        let mut fresh = true;
        if self.plan.mode == Mode::On {
            let memory = &mut self.guest.memory;
            let kept =
                setting.answered(memory, &after.current, &mut self.ledger, &mut self.problems);
            fresh = !kept;
            self.note_pages(&after, kept);
        } else {
            self.request_without_answer();
        }
        setting.checkpointed(&before, &after, fresh, &mut self.problems);
        self.note_mode(&after);
        self.note_pause(&after);
        Ok(())
    }

    fn note_pages(&mut self, after: &RecordView, kept: bool) {
        let pages = after.current.pages;
        let special = [
            (kept, Kind::Kept),
            (
                kept && self.host.keep.is_some_and(|most| most > 0),
                Kind::KeepMax,
            ),
            (
                pages.is("4k") && self.host.pages == PageKind::Small,
                Kind::SmallPages,
            ),
            (pages.is("4k") && self.plan.no_huge_pages, Kind::NoHugePages),
            (self.host.pages == PageKind::Hugetlb, Kind::Hugetlb),
            (self.host.threads > 0, Kind::ThreadsOption),
        ];
        let seen = special
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, kind)| kind);
        self.seen.extend(seen);
    }

    fn note_mode(&mut self, after: &RecordView) {
        let special = [
            (
                self.plan.mode == Mode::Observe && after.current.mode.is("observe"),
                Kind::Observe,
            ),
            (self.plan.mode == Mode::Off, Kind::Off),
            (
                self.plan.mode == Mode::On && self.plan.caps != [0; 2],
                Kind::ThreadCap,
            ),
            (
                self.host.devices == 2 && after.current.expected > 92 << 20,
                Kind::TwoDevices,
            ),
            (self.host.pinned_mib > 0, Kind::Pinned),
            (self.plan.dma == 0, Kind::FastDma),
            ((1..1000).contains(&self.plan.dma), Kind::SlowDma),
            (
                matches!(
                    self.plan.fault,
                    Fault::Calm | Fault::Affinity(..) | Fault::Quota(..)
                ),
                self.plan.fault.kind(),
            ),
        ];
        let seen = special
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, kind)| kind);
        self.seen.extend(seen);
    }

    /// Pauses and bytes that the driver copied itself leave their mark in the phase.
    fn note_pause(&mut self, after: &RecordView) {
        let phase = &after.current;
        let paused = |ms: u64| phase.longest_wait_ns >= ms * 1_000_000;
        let struck = match self.plan.fault {
            Fault::Pause(ms, _) | Fault::DevicePause(ms) => paused(ms),
            Fault::Withheld(kib) => phase.expected - phase.copied == kib << 10,
            _ => return,
        };
        if struck {
            self.seen.insert(self.plan.fault.kind());
        } else {
            self.problems
                .push(format!("{:?} left no mark: {phase:?}", self.plan.fault));
        }
    }

    /// After a phase that was covered its helpers are gone when its last copy returns, unless somebody holds one.
    fn no_helper_left(&mut self, when: When, late_before: u32) -> Result<(), String> {
        let meddled = matches!(self.plan.fault, Fault::Helpers(planned, ..) if planned == when);
        let limit = match self.plan.fault {
            Fault::Withheld(_) => LEAVE,
            _ if meddled => LEAVE,
            // The shim has given up waiting for one that does not get a CPU.
            _ if self.guest.look()?.steps(Step::HelperLate) > late_before => LEAVE,
            _ => GONE,
        };
        self.guest.expect_no_helper_within(limit)
    }

    /// A restore that fails, when the plan says so; whether that loses the process.
    fn failing_restore(&mut self) -> Result<bool, String> {
        let Fault::Restore(place, unmaps) = self.plan.fault else {
            return Ok(false);
        };
        let after = if unmaps { "unmap" } else { "keep" };
        let outcome = self.step(When::Restore, &format!("copy:{place},{after}"))?;
        expect_code(outcome, OPERATING_SYSTEM, "restore")?;
        self.expect_state(if unmaps {
            State::Failed
        } else {
            State::Checkpointed
        })?;
        self.guest.expect_no_helper_within(LEAVE)?;
        self.seen.insert(self.plan.fault.kind());
        Ok(unmaps)
    }

    fn restore(&mut self, setting: &Setting<'_>) -> Result<(), String> {
        let before = self.guest.look()?;
        let outcome = self.step(When::Restore, &self.mild_fault())?;
        outcome.map_err(|error| format!("restore: {error}"))?;
        self.expect_state(State::Locked)?;
        self.no_helper_left(When::Restore, before.steps(Step::HelperLate))?;
        let after = self.guest.look()?;
        setting.restored(&before, &after, &mut self.problems);
        if self.plan.fault == Fault::NeverUnmapped {
            self.seen.insert(Kind::NeverUnmapped);
        } else if self.plan.mode != Mode::Off {
            self.note_pause(&after);
        }
        self.buffer_is_gone(setting, &after, self.plan.fault == Fault::NeverUnmapped);
        Ok(())
    }

    /// The driver has let its buffer go, or has forgotten it: what the record must say of it.
    fn buffer_is_gone(&mut self, setting: &Setting<'_>, after: &RecordView, forgotten: bool) {
        let memory = &mut self.guest.memory;
        memory.lost |= forgotten;
        if self.plan.mode == Mode::Off {
            // What a phase before has left stays as it was.
            return;
        }
        if forgotten {
            memory.forgotten = true;
            memory.left += 1;
            return;
        }
        let pages = after.current.pages.word.unwrap_or_default();
        let kept = after.buffer.state.is("kept");
        if !kept && !after.buffer.state.is("none") {
            self.problems.push(format!(
                "the buffer is {} after its end",
                after.buffer.state
            ));
        }
        if setting.keeps(pages).is_some_and(|keeps| keeps != kept) {
            self.problems.push(format!(
                "the buffer is {} after its end",
                after.buffer.state
            ));
        }
        memory.kept = kept.then(|| Kept {
            length: after.buffer.length,
            mapped: after.buffer.mapped,
            pages: pages.to_string(),
        });
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
        self.late = after.steps(Step::HelperLate) - before.steps(Step::HelperLate);
        self.meddled();
        self.problems
            .extend(account(before, &after, &mut self.ledger));
        if after.drop != 0 {
            self.problems
                .push("the wish to drop a kept buffer was not met".into());
        }
        let held = after.slots.iter().filter(|slot| slot.value.is("held"));
        let held: Vec<_> = held.map(|slot| slot.name).collect();
        if !held.is_empty() && self.guest.memory.left == 0 && !lost {
            self.problems
                .push(format!("libcuda's slots are still held: {held:?}"));
        }
        if after.steps(Step::KeptUnfit) > before.steps(Step::KeptUnfit) {
            self.seen.insert(Kind::KeptUnfit);
        }
        // A held helper's stack waits for the next request.
        let exact = !lost
            && self.late == 0
            && !matches!(self.plan.fault, Fault::Helpers(_, _, Deed::Hold(_)));
        let leaks = self.guest.check_holdings(&after, exact)?;
        self.problems.extend(leaks);
        Ok(())
    }

    /// Helpers were started where threads are more than one, and only there.
    fn expect_helpers(&mut self, before: &RecordView, after: &RecordView, lost: bool) {
        let started = after.counters.helpers_started - before.counters.helpers_started;
        let refused = after.steps(Step::NoThread) - before.steps(Step::NoThread);
        let phases = super::expect::new_phases(before, after);
        let crowded = phases
            .iter()
            .filter(|phase| phase.threads > 1 && phase.mode.is("on"));
        let crowded = crowded.count() as u32;
        if self.plan.fault == Fault::NoThreads {
            self.ledger.expect(Step::NoThread, crowded);
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

fn expect_code(outcome: Result<(), DriverError>, expected: u32, step: &str) -> Result<(), String> {
    match outcome {
        Err(DriverError::Refused { code, .. }) if code == expected => Ok(()),
        Err(error) => Err(format!("{step}: {error}, should be error {expected}")),
        Ok(()) => Err(format!("{step}: no error, should be {expected}")),
    }
}
