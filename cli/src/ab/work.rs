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

/// That the process is gone, or out of reach for good.
pub fn ended(member: &Member) -> Option<String> {
    let failure = member.failure.as_ref().or(member.undo_failure.as_ref());
    match (member.gone, member.hung) {
        (true, _) => Some(failure.map_or("ended".into(), ToString::to_string)),
        (_, true) => Some(format!(
            "does not answer: {}",
            failure.map_or(String::new(), ToString::to_string)
        )),
        _ => None,
    }
}

/// The steps back, of what is the doing of this cycle. `None`: there is nothing of ours to undo.
pub fn way_back(member: &Member) -> Option<Vec<Step>> {
    let now = member.now.unwrap_or(State::Checkpointed);
    let steps = undo(State::Running, now, member.ours);
    (!steps.is_empty()).then_some(steps)
}
