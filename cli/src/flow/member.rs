//! One process on its way through the steps: what was done, what is left, what went wrong.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::failure::{Cause, Failure, ILLEGAL_STATE};
use super::plan::{leads_away, undo, Ours, Step};
use crate::driver::State;

/// A step that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// The step.
    pub step: Step,
    /// Time inside the driver's call.
    pub time: Duration,
    /// Whether it undid an earlier one.
    pub undoing: bool,
}

/// A step under way.
#[derive(Debug, Clone, Copy)]
pub struct Busy {
    /// The step.
    pub step: Step,
    /// Its time-out, for a lock.
    pub timeout: Duration,
    /// When it was ordered.
    pub since: Instant,
    /// When the call came back and the state began to be read, and whether it was a success.
    pub called: Option<(Instant, bool)>,
}

/// A process.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its id.
    pub pid: i32,
    /// State before anything was done.
    pub before: State,
    /// State as last read; `None` when it could not be.
    pub now: Option<State>,
    /// Steps that are left.
    pub todo: VecDeque<Step>,
    /// The step under way.
    pub busy: Option<Busy>,
    /// Whether the steps take it away from its GPU.
    pub away: bool,
    /// Whether the steps that are left undo what was done.
    pub turned: bool,
    /// What of its state is our doing.
    pub ours: Ours,
    /// Whether it has ended.
    pub gone: bool,
    /// Whether a call did not come back in time.
    pub hung: bool,
    /// What went wrong first.
    pub failure: Option<Failure>,
    /// What went wrong while it was brought back.
    pub undo_failure: Option<Failure>,
    /// The steps that succeeded.
    pub made: Vec<Made>,
}

impl Member {
    /// A process in this state, before its steps.
    pub fn new(pid: i32, before: State, steps: Vec<Step>) -> Self {
        Member {
            pid,
            before,
            now: Some(before),
            away: leads_away(&steps),
            todo: steps.into(),
            busy: None,
            turned: false,
            ours: Ours::default(),
            gone: false,
            hung: false,
            failure: None,
            undo_failure: None,
            made: Vec::new(),
        }
    }

    /// Whether a step is under way that will end.
    pub fn is_working(&self) -> bool {
        self.busy.is_some() && !self.hung && !self.gone
    }

    /// Whether it can be given a step.
    pub fn is_idle(&self) -> bool {
        self.busy.is_none() && !self.gone
    }

    /// Whether its lock is still to come: nobody is checkpointed before all are locked.
    pub fn awaits_lock(&self) -> bool {
        let first = self
            .busy
            .map(|busy| busy.step)
            .or(self.todo.front().copied());
        !self.turned && !self.gone && !self.hung && first == Some(Step::Lock)
    }

    /// Whether its checkpoint has begun.
    pub fn has_begun_checkpoint(&self) -> bool {
        let is = |step: Step| step == Step::Checkpoint;
        self.busy.is_some_and(|busy| is(busy.step)) || self.made.iter().any(|made| is(made.step))
    }

    /// Whether its end would matter: one that was let go may end as it likes.
    pub fn is_held(&self) -> bool {
        let has_work = self.busy.is_some() || !self.todo.is_empty();
        !self.gone && (has_work || (self.away && !self.turned))
    }

    /// Whether it got where it was meant to.
    pub fn is_done(&self) -> bool {
        self.failure.is_none() && !self.turned && self.todo.is_empty() && self.busy.is_none()
    }

    /// Notes what went wrong, and gives up the steps that are left.
    pub fn fail(&mut self, step: Option<Step>, cause: Cause) {
        if matches!(cause, Cause::Ended(_) | Cause::Identity(_)) {
            self.gone = true;
            self.busy = None;
            self.now = None;
        }
        let failure = Failure { step, cause };
        if self.turned {
            self.undo_failure.get_or_insert(failure);
        } else {
            self.failure.get_or_insert(failure);
        }
        self.todo.clear();
    }

    /// Replaces the steps that are left by those that undo what was done.
    pub fn turn(&mut self) {
        self.turned = true;
        let led_to = self.made.last().map(|made| made.step.leads_to());
        let now = self.now.or(led_to).unwrap_or(self.before);
        self.todo = undo(self.before, now, self.ours).into();
    }

    /// The call of the step under way came back.
    pub fn called(&mut self, step: Step, result: Result<(), Cause>, time: Duration) {
        // Later than was hoped for, but not never.
        self.hung = false;
        let succeeded = result.is_ok();
        if let Some(busy) = &mut self.busy {
            busy.called = Some((Instant::now(), succeeded));
        }
        match result {
            Ok(()) => {
                self.ours.made(step);
                self.made.push(Made {
                    step,
                    time,
                    undoing: self.turned,
                });
            }
            Err(cause) => {
                // A checkpoint that fails half-way may have been made. One that the state forbade was not begun: if the process
                // is checkpointed all the same, somebody else has done that, and it is not ours to undo.
                if step == Step::Checkpoint && cause.code() != ILLEGAL_STATE {
                    self.ours.made(step);
                }
                self.fail(Some(step), cause);
            }
        }
    }

    /// The state after the step under way was read. Returns the step.
    pub fn looked(&mut self, state: Result<State, Cause>) -> Option<Step> {
        let busy = self.busy.take()?;
        self.hung = false;
        let step = busy.step;
        let succeeded = busy.called.is_some_and(|(_, succeeded)| succeeded);
        self.now = state.as_ref().ok().copied();
        match state {
            Ok(state) if succeeded && state != step.leads_to() => {
                self.fail(Some(step), Cause::OtherState(state));
            }
            Err(cause @ (Cause::Ended(_) | Cause::Identity(_))) => self.fail(Some(step), cause),
            Err(cause) if succeeded => {
                self.fail(Some(step), Cause::StateUnread(Box::new(cause)));
            }
            _ => {}
        }
        Some(step)
    }

    /// The call, or the look at the state, has taken longer than it may.
    pub fn hang(&mut self, waited: Duration) {
        let Some(busy) = self.busy else { return };
        let hung = Cause::Hung(waited);
        let cause = match busy.called {
            None => hung,
            Some((_, false)) => hung,
            Some((_, true)) => Cause::StateUnread(Box::new(hung)),
        };
        self.fail(Some(busy.step), cause);
        self.now = None;
        self.hung = true;
    }
}
