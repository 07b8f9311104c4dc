//! What makes one cycle, behind a trait, so that order, warm-ups, failures and signals are tested without a driver and without time.

use super::data::{Cycle, Variant};
use crate::exit::Exit;

/// Why a run goes no further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In a sentence or two, with what to do.
    pub text: String,
    /// The status that it means.
    pub exit: Exit,
}

impl Trouble {
    /// The driver or the target process did not do it.
    pub fn failed(text: impl Into<String>) -> Self {
        Trouble {
            text: text.into(),
            exit: Exit::Failed,
        }
    }

    /// It cannot be done.
    pub fn refused(text: impl Into<String>) -> Self {
        Trouble {
            text: text.into(),
            exit: Exit::Refused,
        }
    }

    /// A signal came.
    pub fn signal(number: i32) -> Self {
        Trouble {
            text: format!("interrupted by signal {number}"),
            exit: Exit::Signal(number),
        }
    }
}

/// What became of a cycle.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// What was measured; number, round and variant are the session's to fill in.
    pub cycle: Cycle,
    /// Why there can be no further cycle with this process.
    pub trouble: Option<Trouble>,
}

/// A process under the variants of one group.
pub trait Bench {
    /// A visit begins: a process that can serve this group is there afterwards.
    ///
    /// # Errors
    /// It is not.
    fn arrive(&mut self, group: usize) -> Result<(), Trouble>;

    /// Makes one cycle. Whatever fails, the process is brought back: restored and unlocked, as far as that goes.
    fn cycle(&mut self, variant: &Variant) -> Made;

    /// Asks the verification command; without one the built-in workload is asked after the last cycle of its visit. `None`: nobody was
    /// asked, or there was no answer.
    ///
    /// # Errors
    /// A signal came before the answer.
    fn verify(&mut self, is_last: bool) -> Result<Option<bool>, Trouble>;

    /// Waits between two cycles.
    fn pause(&mut self);

    /// A visit ends: what was switched in the process is put back; one that was started for the visit is ended.
    ///
    /// # Errors
    /// Something could not be put back, or the process does not end.
    fn leave(&mut self) -> Result<(), Trouble>;

    /// The first signal that has come.
    fn signal(&mut self) -> Option<i32>;

    /// Says what is to come, where people look.
    fn announce(&mut self, what: &str, done: usize, all: usize);
}
