//! The driver's steps in a cycle, those that fail as planned among them, and what is looked at after each.

use std::time::Duration;

use cudasnap_cli::driver::{DriverError, State};
use cudasnap_cli::record::view::RecordView;
use cudasnap_wire::{Mode, Step};

use super::cycle::{Cycle, LEAVE};
use super::expect::request::Kept;
use super::expect::Setting;
use super::faults::{Fault, When};
use super::kinds::Kind;
use super::meddler::Meddler;
use super::world;

/// Helpers of a phase that was covered are gone when its last copy returns, but for what the kernel still has to do for them.
const GONE: Duration = Duration::from_secs(1);
const OPERATING_SYSTEM: u32 = 304;
const OUT_OF_MEMORY: u32 = 2;

impl Cycle<'_> {
    /// A step of the driver with the caller's faults set, and helpers met meanwhile when the plan says so.
    pub(super) fn step(
        &mut self,
        when: When,
        fault: &str,
    ) -> Result<Result<(), DriverError>, String> {
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

    pub(super) fn expect_state(&mut self, expected: State) -> Result<(), String> {
        let (driver, pid) = (self.driver, self.guest.pid());
        let state = self.world.with_restore_thread(|| driver.state(pid));
        match state.map_err(|error| format!("frozen world: {error}"))? {
            Ok(state) if state == expected => Ok(()),
            Ok(state) => Err(format!("state is {state}, should be {expected}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Words of `CUDASIM_FAULT` for a step that succeeds.
    pub(super) fn mild_fault(&self) -> String {
        match self.plan.fault {
            Fault::Withheld(kib) => format!("withhold={kib}"),
            Fault::Pause(ms, copy) => format!("pause={ms}@{copy}"),
            Fault::DevicePause(ms) => format!("device-pause={ms}"),
            Fault::NeverUnmapped => "never-unmap".into(),
            _ => String::new(),
        }
    }

    /// A checkpoint that fails, when the plan says so. The next one will not.
    pub(super) fn failing_checkpoint(&mut self, setting: &Setting<'_>) -> Result<(), String> {
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

    pub(super) fn expect_counts(&mut self, before: &RecordView, after: &RecordView, given: bool) {
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
    pub(super) fn request_without_answer(&mut self) {
        let memory = &mut self.guest.memory;
        memory.kept = None;
        if self.plan.mode == Mode::Observe {
            self.ledger
                .expect(Step::SecondBuffer, u32::from(memory.forgotten));
            memory.forgotten = false;
        }
    }

    pub(super) fn checkpoint(
        &mut self,
        mut setting: Setting<'_>,
        huge_pages: bool,
    ) -> Result<(), String> {
        let before = self.guest.look()?;
        let outcome = self.step(When::Checkpoint, &self.mild_fault())?;
        outcome.map_err(|error| format!("checkpoint: {error}"))?;
        self.expect_state(State::Checkpointed)?;
        self.no_helper_left(When::Checkpoint)?;
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

    /// After a phase that was covered its helpers are gone when its last copy returns, unless somebody holds one.
    pub(super) fn no_helper_left(&mut self, when: When) -> Result<(), String> {
        let meddled = matches!(self.plan.fault, Fault::Helpers(planned, ..) if planned == when);
        let limit = match self.plan.fault {
            Fault::Withheld(_) => LEAVE,
            _ if meddled => LEAVE,
            // The shim has given up waiting for one that does not get a CPU.
            _ if self.guest.look()?.steps(Step::HelperLate) > self.late_before => LEAVE,
            _ => GONE,
        };
        self.guest.expect_no_helper_within(limit)
    }

    /// A restore that fails, when the plan says so; whether that loses the process.
    pub(super) fn failing_restore(&mut self) -> Result<bool, String> {
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

    pub(super) fn restore(&mut self, setting: &Setting<'_>) -> Result<(), String> {
        let before = self.guest.look()?;
        let outcome = self.step(When::Restore, &self.mild_fault())?;
        outcome.map_err(|error| format!("restore: {error}"))?;
        self.expect_state(State::Locked)?;
        self.no_helper_left(When::Restore)?;
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
    pub(super) fn buffer_is_gone(
        &mut self,
        setting: &Setting<'_>,
        after: &RecordView,
        forgotten: bool,
    ) {
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
        // What a late helper may still touch is not kept.
        let late = after.steps(Step::HelperLate) > self.late_before;
        let keeps = setting.keeps(pages).filter(|keeps| !(late && *keeps));
        if keeps.is_some_and(|keeps| keeps != kept) {
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
}

fn expect_code(outcome: Result<(), DriverError>, expected: u32, step: &str) -> Result<(), String> {
    match outcome {
        Err(DriverError::Refused { code, .. }) if code == expected => Ok(()),
        Err(error) => Err(format!("{step}: {error}, should be error {expected}")),
        Ok(()) => Err(format!("{step}: no error, should be {expected}")),
    }
}
