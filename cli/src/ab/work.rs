//! What the engine made of a process: what counts of it, what went wrong, and the way back.

use super::data::{Cycle, Phase, Seen};
use crate::driver::State;
use crate::flow::failure::NOT_READY;
use crate::flow::hints::{self, Surroundings};
use crate::flow::member::Member;
use crate::flow::plan::{undo, Step};

/// What the engine made of a process.
pub struct Work {
    /// The process.
    pub member: Member,
    /// What was recorded about its checkpoint, and the bytes of the buffer.
    pub checkpoint: (Option<Seen>, u64),
    /// The same of its restore.
    pub restore: (Option<Seen>, u64),
}

impl Work {
    fn time(&self, step: Step) -> Option<f64> {
        let mut made = self.member.made.iter();
        let found = made.find(|made| made.step == step && !made.undoing)?;
        Some(found.time.as_secs_f64())
    }

    fn phase(&self, step: Step, (seen, bytes): &(Option<Seen>, u64)) -> Option<Phase> {
        Some(Phase {
            seconds: self.time(step)?,
            bytes: *bytes,
            seen: seen.clone(),
        })
    }

    /// Takes over what was measured, and what went wrong.
    pub fn fill(&self, cycle: &mut Cycle) {
        cycle.lock = self.time(Step::Lock);
        cycle.checkpoint = self.phase(Step::Checkpoint, &self.checkpoint);
        cycle.restore = self.phase(Step::Restore, &self.restore);
        cycle.unlock = self.time(Step::Unlock);
        if !self.member.is_done() {
            cycle.error = Some(why(&self.member));
        }
    }
}

/// Why a process did not get through its steps.
pub fn why(member: &Member) -> String {
    let failure = member.failure.as_ref().or(member.undo_failure.as_ref());
    let Some(failure) = failure else {
        return "interrupted before its checkpoint".into();
    };
    let hints = match failure.cause.code() {
        NOT_READY => vec!["a long kernel, or a rank that waits for another one: try a longer --lock-timeout (0 = for ever)".into()],
        _ => hints::for_failure(failure, member.pid, member.now, Surroundings::known()),
    };
    let sentences: Vec<String> = std::iter::once(failure.to_string()).chain(hints).collect();
    sentences.join("; ")
}

/// That the process is gone.
pub fn ended(member: &Member) -> Option<String> {
    let failure = member.failure.as_ref().or(member.undo_failure.as_ref());
    let how = || failure.map_or("ended".into(), ToString::to_string);
    member.gone.then(how)
}

/// What to say of a process that is not brought back: how it is left, why, and what brings it back. `stopped`: it is (SIGSTOP). `is_ours`:
/// it was started for this, and ends with it.
pub fn left(member: &Member, stopped: bool, is_ours: bool) -> String {
    let pid = member.pid;
    let restore = format!(
        "\"cudasnap restore {pid}\" (or, where it is only locked, \"cudasnap unlock {pid}\")"
    );
    let state = match (member.now, member.made.last()) {
        (Some(state), _) => state.to_string(),
        // Before the call that does not come back.
        (None, Some(made)) => format!("{} as far as is known", made.step.leads_to()),
        (None, None) => format!("{} as far as is known", member.before),
    };
    let failure = member.undo_failure.as_ref().or(member.failure.as_ref());
    let step = failure.and_then(|failure| failure.step);
    let during = step.map_or(String::new(), |step| format!(" during {step}"));
    if is_ours {
        let reason = match (stopped, failure) {
            (true, _) => format!("it was stopped, and the driver waited for it in vain{during}"),
            (false, Some(failure)) => failure.to_string(),
            (false, None) => "nobody knows why".into(),
        };
        return format!(
            "process {pid} could not be brought back, it was {state}: {reason}; the program is ended"
        );
    }
    if stopped {
        return format!(
            "process {pid} is left {state}: it is stopped (SIGSTOP, Ctrl-Z or a debugger), and the driver waited for it in vain{during}. \
             \"kill -CONT {pid}\" lets it go on, then {restore} brings it back"
        );
    }
    format!(
        "process {pid} is left {state}, {}: {restore} brings it back once what is in the way is gone",
        why(member)
    )
}

/// The steps back, of what is the doing of this cycle. `None`: there is nothing of ours to undo.
pub fn way_back(member: &Member) -> Option<Vec<Step>> {
    let now = member.now.unwrap_or(State::Checkpointed);
    let steps = undo(State::Running, now, member.ours);
    (!steps.is_empty()).then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::failure::{Cause, Failure};
    use crate::flow::member::Busy;
    use std::time::{Duration, Instant};

    fn member(made: &[Step], under_way: Step) -> Member {
        let mut member = Member::new(7, State::Running, Vec::new());
        let busy = |step| {
            Some(Busy {
                step,
                timeout: Duration::ZERO,
                since: Instant::now(),
                called: None,
            })
        };
        for step in made {
            member.busy = busy(*step);
            member.called(*step, Ok(()), Duration::ZERO);
            member.looked(Ok(step.leads_to()));
        }
        member.busy = busy(under_way);
        member
    }

    #[test]
    fn a_stopped_process_is_left_with_its_state_and_the_commands() {
        let mut hung = member(&[Step::Lock, Step::Checkpoint], Step::Restore);
        hung.hang(Duration::from_secs(10));
        assert!(ended(&hung).is_none());
        assert_eq!(
            left(&hung, true, false),
            "process 7 is left checkpointed as far as is known: it is stopped (SIGSTOP, Ctrl-Z or a debugger), and the driver waited for it \
             in vain during restore. \"kill -CONT 7\" lets it go on, then \"cudasnap restore 7\" (or, where it is only locked, \
             \"cudasnap unlock 7\") brings it back"
        );
        // Its call came back, its state was not to be read.
        let mut unread = member(&[Step::Lock], Step::Checkpoint);
        unread.called(Step::Checkpoint, Ok(()), Duration::ZERO);
        unread.hang(Duration::from_secs(10));
        assert!(left(&unread, true, false).contains("is left checkpointed as far as is known"));
        let mut first = member(&[], Step::Lock);
        first.hang(Duration::from_secs(10));
        assert!(
            left(&first, true, false).contains("is left running as far as is known: it is stopped")
        );
    }

    #[test]
    fn one_that_is_not_stopped_is_left_with_the_reason() {
        let mut failed = member(&[Step::Lock, Step::Checkpoint], Step::Restore);
        failed.called(
            Step::Restore,
            Err(Cause::OtherState(State::Failed)),
            Duration::ZERO,
        );
        failed.looked(Ok(State::Checkpointed));
        let text = left(&failed, false, false);
        assert!(
            text.starts_with("process 7 is left checkpointed, "),
            "{text}"
        );
        assert!(
            text.contains("\"cudasnap restore 7\"") && !text.contains("-CONT"),
            "{text}"
        );
        let ended_with_us = left(&failed, false, true);
        assert!(
            ended_with_us.starts_with("process 7 could not be brought back, it was checkpointed: ")
                && ended_with_us.ends_with("; the program is ended")
                && !ended_with_us.contains("cudasnap"),
            "{ended_with_us}"
        );
        failed.gone = true;
        failed.failure = Some(Failure {
            step: None,
            cause: Cause::Hung(Duration::ZERO),
        });
        assert!(ended(&failed).is_some());
    }
}
