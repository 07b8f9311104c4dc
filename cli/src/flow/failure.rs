//! Why a process did not get where it was meant to.

use std::fmt;
use std::time::Duration;

use super::plan::{Step, Verb};
use crate::driver::{DriverError, State};
use crate::process::ending::Ending;
use crate::process::identity::IdentityError;

/// `CUDA_ERROR_NOT_INITIALIZED`: what the checkpoint calls return for a process without CUDA (measured, 580.159.04).
pub const NO_CUDA: u32 = 3;
/// `CUDA_ERROR_ILLEGAL_STATE`: a step that does not go from the state that the process is in.
pub const ILLEGAL_STATE: u32 = 401;
/// `CUDA_ERROR_NOT_READY`: a lock was not got in time.
pub const NOT_READY: u32 = 600;

/// Why a step, or a look at the state, gave no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The driver's words.
    Driver(DriverError),
    /// The process is not there any more, or its id is another one's.
    Identity(IdentityError),
    /// The process ended meanwhile.
    Ended(Ending),
    /// The call did not come back within this time.
    Hung(Duration),
    /// The call succeeded by its own words, but the process is in another state.
    OtherState(State),
    /// The call succeeded by its own words, and the state cannot be read.
    StateUnread(Box<Cause>),
    /// The verb does not go from the state that the process is in.
    WrongState {
        /// What was asked for.
        verb: Verb,
        /// The state it is in.
        state: State,
        /// The driver's words for it.
        words: String,
    },
}

impl Cause {
    /// The driver's number; 0 when it is none of the driver's errors.
    pub fn code(&self) -> u32 {
        match self {
            Cause::Driver(DriverError::Refused { code, .. }) => *code,
            Cause::WrongState { .. } => ILLEGAL_STATE,
            _ => 0,
        }
    }
}

/// A cause, and the step in which it struck.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The step; `None`: when the state was asked for.
    pub step: Option<Step>,
    /// Why.
    pub cause: Cause,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step;
        let during = step.map_or_else(String::new, |step| format!(" during {step}"));
        match &self.cause {
            Cause::Driver(error) => match step {
                Some(step) => write!(out, "{step} failed: {error}"),
                None => write!(out, "its state cannot be read: {error}"),
            },
            Cause::Identity(error) => write!(out, "{error}{during}"),
            Cause::Ended(ending) => write!(out, "{ending}{during}"),
            Cause::Hung(time) => write!(
                out,
                "the driver does not answer for {} s{during}; another process may be holding its lock, or it is stopped",
                time.as_secs_f64()
            ),
            Cause::OtherState(state) => {
                write_success(out, step)?;
                write!(out, "the process is {state}")?;
                step.map_or(Ok(()), |step| write!(out, ", not {}", step.leads_to()))
            }
            Cause::StateUnread(cause) => {
                write_success(out, step)?;
                let cause = (**cause).clone();
                write!(out, "{}", Failure { step: None, cause })
            }
            Cause::WrongState { verb, state, words } => write!(
                out,
                "{verb} is not possible, the process is {state}: {words}; nothing was done"
            ),
        }
    }
}

fn write_success(out: &mut fmt::Formatter<'_>, step: Option<Step>) -> fmt::Result {
    step.map_or(Ok(()), |step| {
        write!(out, "the driver reported success for {step}, but ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_in_one_sentence() {
        let told = |step, cause| Failure { step, cause }.to_string();
        assert_eq!(
            told(Some(Step::Restore), Cause::Ended(Ending::Signal(9))),
            "ended by signal 9 during restore"
        );
        assert_eq!(
            told(Some(Step::Checkpoint), Cause::OtherState(State::Locked)),
            "the driver reported success for checkpoint, but the process is locked, not checkpointed"
        );
        assert_eq!(
            told(
                Some(Step::Unlock),
                Cause::StateUnread(Box::new(Cause::Hung(Duration::from_secs(10))))
            ),
            "the driver reported success for unlock, but the driver does not answer for 10 s; another process may be holding \
             its lock, or it is stopped"
        );
        assert!(told(
            None,
            Cause::WrongState {
                verb: Verb::Lock,
                state: State::Locked,
                words: "error 401".into(),
            }
        )
        .contains("the process is locked: error 401"));
    }
}
