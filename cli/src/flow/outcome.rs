//! What became of each process, and the exit status that follows.

use serde::Serialize;

use super::failure::Failure;
use super::hints::{self, Surroundings};
use super::member::{Made, Member};
use super::plan::Step;
use super::shim::{Numbers, Part};
use crate::driver::State;
use crate::exit::Exit;
use crate::process::below;
use crate::process::identity::Identity;

/// How a process came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is where it was meant to be.
    Done,
    /// It was there already.
    Already,
    /// It was brought back, because another one failed or a signal came.
    Undone,
    /// It failed.
    Failed,
    /// It does not use CUDA: left alone.
    NoCuda,
    /// Nothing was tried.
    Untouched,
}

/// What the library in the process did in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Library {
    /// It made nearly all of the copies.
    Effective,
    /// It is loaded and made few copies or none.
    NotEffective,
    /// It is not loaded.
    NotLoaded,
    /// Its record cannot be read.
    Unknown,
}

/// A step that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRow {
    /// The step.
    pub step: Step,
    /// Time inside the driver's call, in seconds.
    pub seconds: f64,
    /// Whether it undid an earlier one.
    pub undoing: bool,
    /// The library's part, for steps that copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<Library>,
    /// What the library recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Numbers>,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// The step; `null` when the state was asked for.
    pub step: Option<Step>,
    /// The driver's number; 0 when it is none of the driver's errors.
    pub code: u32,
    /// One sentence.
    pub text: String,
    /// What may be behind it, and what to do.
    pub hints: Vec<String>,
}

/// A process and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its id.
    pub pid: i32,
    /// Its id in its own pid namespace.
    pub namespace_pid: i32,
    /// Its name.
    pub name: String,
    /// How it came out.
    pub outcome: Outcome,
    /// State before; `null` when unknown.
    pub before: Option<State>,
    /// State as last read; `null` when unknown, or when it has ended.
    pub state: Option<State>,
    /// The steps that succeeded.
    pub steps: Vec<StepRow>,
    /// What went wrong.
    pub troubles: Vec<Trouble>,
    /// Of one without CUDA: who below it uses CUDA, in words.
    #[serde(skip)]
    pub below: Option<String>,
}

impl Row {
    /// A process of which nothing is known yet.
    pub fn new(identity: &Identity) -> Self {
        Row {
            pid: identity.pid,
            namespace_pid: identity.own_pid(),
            name: identity.name.clone(),
            outcome: Outcome::Untouched,
            before: None,
            state: None,
            steps: Vec::new(),
            troubles: Vec::new(),
            below: None,
        }
    }

    /// Takes over what the engine made of it; `parts` is what the library recorded about the steps that copy, in their order.
    pub fn take(&mut self, member: &Member, parts: &[(Step, Part)]) {
        self.state = member.now;
        // One that could not be brought back is no better off than one that failed by itself.
        self.outcome = if member.failure.is_some() || member.undo_failure.is_some() {
            Outcome::Failed
        } else if member.turned {
            Outcome::Undone
        } else {
            Outcome::Done
        };
        self.steps = member
            .made
            .iter()
            .map(|made| step_row(made, parts))
            .collect();
        let failures = member.failure.iter().chain(&member.undo_failure);
        for failure in failures {
            self.add_trouble(failure, Surroundings::known());
        }
    }

    /// It does not use CUDA. A launcher's id is what people have at hand: they are told who below it does.
    pub fn leave_alone(&mut self) {
        self.outcome = Outcome::NoCuda;
        self.below = below::hint(self.pid);
    }

    /// Notes something that went wrong.
    pub fn add_trouble(&mut self, failure: &Failure, around: &Surroundings) {
        self.troubles.push(Trouble {
            step: failure.step,
            code: failure.cause.code(),
            text: failure.to_string(),
            hints: hints::for_failure(failure, self.pid, self.state, around),
        });
    }

    /// Whether it waits in a lock that was not there before, though it was meant to work by now or never stopped.
    pub fn is_stuck_locked(&self) -> bool {
        let left = matches!(self.outcome, Outcome::Failed | Outcome::Undone);
        left && self.state == Some(State::Locked) && self.before != Some(State::Locked)
    }
}

/// A step may have been made twice only in opposite directions, so the last part of its kind is its own.
fn step_row(made: &Made, parts: &[(Step, Part)]) -> StepRow {
    let part = parts.iter().rev().find(|(step, _)| *step == made.step);
    let (library, recorded) = match part.map(|(_, part)| part) {
        None => (None, None),
        Some(Part::NotLoaded) => (Some(Library::NotLoaded), None),
        Some(Part::SawNothing) => (Some(Library::NotEffective), None),
        Some(Part::Unknown(_)) => (Some(Library::Unknown), None),
        Some(Part::Saw(numbers)) if numbers.effective => {
            (Some(Library::Effective), Some(numbers.clone()))
        }
        Some(Part::Saw(numbers)) => (Some(Library::NotEffective), Some(numbers.clone())),
    };
    StepRow {
        step: made.step,
        seconds: made.time.as_secs_f64(),
        undoing: made.undoing,
        library,
        recorded,
    }
}

/// The exit status: a signal's number whatever else happened; 1 when all failed or none uses CUDA, 3 when some failed (with
/// those that were brought back because of them). `unnamed`: command line numbers that name no process.
pub fn exit(rows: &[Row], unnamed: usize, signal: Option<i32>) -> Exit {
    if let Some(signal) = signal {
        return Exit::Signal(signal);
    }
    let with_cuda = rows.iter().filter(|row| row.outcome != Outcome::NoCuda);
    let all = with_cuda.count() + unnamed;
    let failed = rows.iter().filter(|row| row.outcome == Outcome::Failed);
    let failed = failed.count() + unnamed;
    match failed {
        _ if all == 0 => Exit::Failed,
        0 => Exit::Done,
        _ if failed == all => Exit::Failed,
        _ => Exit::SomeFailed,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::flow::failure::Cause;
    use Outcome::{Already, Done, Failed, NoCuda, Undone, Untouched};

    pub fn row(pid: i32, outcome: Outcome) -> Row {
        Row {
            pid,
            namespace_pid: pid,
            name: "python3".into(),
            outcome,
            before: Some(State::Running),
            state: Some(State::Running),
            steps: Vec::new(),
            troubles: Vec::new(),
            below: None,
        }
    }

    #[test]
    fn the_status_counts_those_that_failed() {
        for (outcomes, unnamed, expected) in [
            (vec![Done, Already, NoCuda], 0, Exit::Done),
            (vec![Failed], 0, Exit::Failed),
            (vec![Failed, Failed, NoCuda], 0, Exit::Failed),
            (vec![Failed, Undone], 0, Exit::SomeFailed),
            (vec![Failed, Done], 0, Exit::SomeFailed),
            (vec![NoCuda], 0, Exit::Failed),
            (vec![], 1, Exit::Failed),
            (vec![Untouched], 1, Exit::SomeFailed),
        ] {
            let rows: Vec<Row> = outcomes.iter().map(|outcome| row(1, *outcome)).collect();
            assert_eq!(exit(&rows, unnamed, None), expected, "{outcomes:?}");
            assert_eq!(exit(&rows, unnamed, Some(15)), Exit::Signal(15));
        }
    }

    #[test]
    fn one_that_could_not_be_brought_back_has_failed() {
        let mut member = Member::new(1, State::Running, vec![Step::Lock]);
        member.turned = true;
        let outcome = |member: &Member| {
            let mut row = row(1, Untouched);
            row.take(member, &[]);
            row.outcome
        };
        assert_eq!(outcome(&member), Undone);
        member.undo_failure = Some(Failure {
            step: Some(Step::Unlock),
            cause: Cause::Hung(std::time::Duration::from_secs(1)),
        });
        assert_eq!(outcome(&member), Failed);
    }

    #[test]
    fn a_lock_that_was_there_before_is_not_ours_to_warn_of() {
        let mut stuck = row(1, Failed);
        stuck.state = Some(State::Locked);
        assert!(stuck.is_stuck_locked());
        stuck.before = Some(State::Locked);
        assert!(!stuck.is_stuck_locked());
        stuck.before = Some(State::Checkpointed);
        assert!(stuck.is_stuck_locked());
        stuck.outcome = Done;
        assert!(!stuck.is_stuck_locked());
    }
}
