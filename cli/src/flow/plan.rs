//! Which steps a verb makes from which state, and which ones undo them. Pure.

use std::fmt;

use serde::Serialize;

use crate::driver::State;

/// What a user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Lock only.
    Lock,
    /// Lock, then checkpoint.
    Checkpoint,
    /// Restore, then unlock.
    Restore,
    /// Unlock only.
    Unlock,
    /// Checkpoint what runs, restore what is checkpointed.
    Toggle,
}

impl Verb {
    /// Whether it may move device memory.
    pub fn copies(self) -> bool {
        matches!(self, Verb::Checkpoint | Verb::Restore | Verb::Toggle)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Verb::Lock => "lock",
            Verb::Checkpoint => "checkpoint",
            Verb::Restore => "restore",
            Verb::Unlock => "unlock",
            Verb::Toggle => "toggle",
        })
    }
}

/// One call of the driver that changes a process's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// running -> locked
    Lock,
    /// locked -> checkpointed
    Checkpoint,
    /// checkpointed -> locked
    Restore,
    /// locked -> running
    Unlock,
}

impl Step {
    /// The state in which it leaves the process when it succeeds.
    pub fn leads_to(self) -> State {
        match self {
            Step::Lock | Step::Restore => State::Locked,
            Step::Checkpoint => State::Checkpointed,
            Step::Unlock => State::Running,
        }
    }

    /// Whether it moves device memory, which takes long.
    pub fn copies(self) -> bool {
        matches!(self, Step::Checkpoint | Step::Restore)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Step::Lock => "lock",
            Step::Checkpoint => "checkpoint",
            Step::Restore => "restore",
            Step::Unlock => "unlock",
        })
    }
}

/// What a verb comes to for one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// These steps, in this order.
    Steps(Vec<Step>),
    /// The process is already where the verb would bring it.
    Already,
    /// The verb is not possible from this state.
    Impossible,
}

/// The plan for a process in this state.
pub fn plan(verb: Verb, state: State) -> Plan {
    use State::{Checkpointed, Locked, Running};
    match (verb, state) {
        (Verb::Lock, Running) => Plan::Steps(vec![Step::Lock]),
        (Verb::Checkpoint | Verb::Toggle, Running) => {
            Plan::Steps(vec![Step::Lock, Step::Checkpoint])
        }
        (Verb::Checkpoint, Locked) => Plan::Steps(vec![Step::Checkpoint]),
        (Verb::Restore | Verb::Toggle, Checkpointed) => {
            Plan::Steps(vec![Step::Restore, Step::Unlock])
        }
        (Verb::Unlock, Locked) => Plan::Steps(vec![Step::Unlock]),
        (Verb::Lock, Locked) | (Verb::Checkpoint, Checkpointed) => Plan::Already,
        (Verb::Restore | Verb::Unlock, Running) => Plan::Already,
        _ => Plan::Impossible,
    }
}

/// What of a process's state is the doing of this call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ours {
    /// It was locked by us.
    pub lock: bool,
    /// It was checkpointed by us.
    pub checkpoint: bool,
}

impl Ours {
    /// A step was made.
    pub fn made(&mut self, step: Step) {
        match step {
            Step::Lock => self.lock = true,
            Step::Checkpoint => self.checkpoint = true,
            Step::Restore => self.checkpoint = false,
            Step::Unlock => self.lock = false,
        }
    }
}

/// The steps from `now` back to `before`. What was locked before stays locked; what somebody else locked or checkpointed
/// meanwhile (it is not `ours`) is not ours to unlock or to restore.
pub fn undo(before: State, now: State, ours: Ours) -> Vec<Step> {
    let mut steps = Vec::new();
    if now == State::Checkpointed {
        if before == State::Checkpointed || !ours.checkpoint {
            return steps;
        }
        steps.push(Step::Restore);
    }
    let held = matches!(now, State::Checkpointed | State::Locked);
    if held && before == State::Running && ours.lock {
        steps.push(Step::Unlock);
    }
    steps
}

/// Whether the steps take a process away from its GPU. Only those are undone when something fails: a process on its way back
/// to work goes on.
pub fn leads_away(steps: &[Step]) -> bool {
    steps
        .iter()
        .any(|step| matches!(step, Step::Lock | Step::Checkpoint))
}

/// What to do about a process in this state, for somebody who wanted `verb`.
pub fn advice(verb: Verb, state: State, pid: i32) -> String {
    match (verb, state) {
        (Verb::Lock, State::Checkpointed) => "it holds no GPU, there is nothing to lock".into(),
        (Verb::Restore, State::Locked) => {
            format!("it has its GPU memory: \"cudasnap unlock {pid}\" lets it run")
        }
        (Verb::Unlock, State::Checkpointed) => {
            format!("\"cudasnap restore {pid}\" brings it back and unlocks it")
        }
        (Verb::Toggle, State::Locked) => format!(
            "neither running nor checkpointed: \"cudasnap unlock {pid}\" lets it run, \"cudasnap checkpoint {pid}\" goes on"
        ),
        (_, State::Failed) => {
            "an earlier step failed in a way that cannot be repeated: end the process and start it anew".into()
        }
        (_, State::Unknown(_)) => "this build does not know that state".into(),
        _ => "--already-ok makes that a success".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATES: [State; 5] = [
        State::Running,
        State::Locked,
        State::Checkpointed,
        State::Failed,
        State::Unknown(9),
    ];
    const VERBS: [Verb; 5] = [
        Verb::Lock,
        Verb::Checkpoint,
        Verb::Restore,
        Verb::Unlock,
        Verb::Toggle,
    ];

    /// The driver's rule: from which state a step is legal.
    fn comes_from(step: Step) -> State {
        match step {
            Step::Lock => State::Running,
            Step::Checkpoint | Step::Unlock => State::Locked,
            Step::Restore => State::Checkpointed,
        }
    }

    fn walk(mut state: State, steps: &[Step]) -> State {
        for step in steps {
            assert_eq!(comes_from(*step), state, "{steps:?}");
            state = step.leads_to();
        }
        state
    }

    #[test]
    fn every_plan_is_legal_and_arrives() {
        for verb in VERBS {
            for state in STATES {
                if let Plan::Steps(steps) = plan(verb, state) {
                    let end = walk(state, &steps);
                    let right = match verb {
                        Verb::Lock => State::Locked,
                        Verb::Checkpoint => State::Checkpointed,
                        Verb::Restore | Verb::Unlock => State::Running,
                        Verb::Toggle if state == State::Running => State::Checkpointed,
                        Verb::Toggle => State::Running,
                    };
                    assert_eq!(end, right, "{verb} from {state}");
                    // Once there, the same verb has nothing to do (a toggle goes back).
                    assert!(verb == Verb::Toggle || plan(verb, end) == Plan::Already);
                }
            }
        }
    }

    #[test]
    fn nothing_is_possible_from_states_that_are_not_understood() {
        for verb in VERBS {
            for state in [State::Failed, State::Unknown(9)] {
                assert_eq!(plan(verb, state), Plan::Impossible);
            }
        }
        assert_eq!(plan(Verb::Toggle, State::Locked), Plan::Impossible);
        assert_eq!(plan(Verb::Restore, State::Locked), Plan::Impossible);
        assert_eq!(plan(Verb::Unlock, State::Checkpointed), Plan::Impossible);
        assert_eq!(plan(Verb::Lock, State::Checkpointed), Plan::Impossible);
    }

    fn ours(steps: &[Step]) -> Ours {
        let mut ours = Ours::default();
        steps.iter().for_each(|step| ours.made(*step));
        ours
    }

    #[test]
    fn what_was_locked_before_stays_locked() {
        assert_eq!(
            undo(
                State::Locked,
                State::Checkpointed,
                ours(&[Step::Checkpoint])
            ),
            [Step::Restore]
        );
        assert_eq!(undo(State::Locked, State::Locked, ours(&[])), []);
    }

    /// Taken between our look and our step.
    #[test]
    fn what_somebody_else_did_is_not_undone() {
        assert_eq!(undo(State::Running, State::Locked, ours(&[])), []);
        for before in [State::Running, State::Locked] {
            for steps in [&[][..], &[Step::Lock]] {
                let undone = undo(before, State::Checkpointed, ours(steps));
                assert_eq!(undone, [], "{before} {steps:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn undoing_any_part_of_a_plan_leads_back(verb in 0..5usize, state in 0..5usize, done in 0..3usize) {
            let before = STATES[state];
            if let Plan::Steps(steps) = plan(VERBS[verb], before) {
                if leads_away(&steps) {
                    let made = &steps[..done.min(steps.len())];
                    let now = walk(before, made);
                    let back = undo(before, now, ours(made));
                    prop_assert_eq!(walk(now, &back), before);
                }
            }
        }
    }
}
