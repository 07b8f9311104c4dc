//! The verbs: lock, checkpoint, restore, unlock, toggle, state.
//!
//! | file | job |
//! |---|---|
//! | [`args`] | the options |
//! | [`call`], [`finish`] | a call from its command line to its exit status: the order of everything below |
//! | [`targets`], [`looks`] | before the first step: which processes, rights, room, the driver, the states |
//! | [`change`] | the plans of a call, the last looks, the work |
//! | [`plan`] | pure: the steps of a verb, and those that undo them |
//! | [`engine`], [`member`] | carries the plans out side by side, undoes them, heeds signals |
//! | [`crew`], [`calls`], [`life`] | a thread per process that calls the driver; whether the process lives |
//! | [`share`], [`caps`] | how many threads each process copies with when several do at once |
//! | [`shim`], [`progress`] | what the library's record says about a step, meanwhile and afterwards |
//! | [`failure`], [`hints`] | what went wrong, what may be behind it |
//! | [`outcome`], [`report`] | what became of each process, told to people and to scripts |

pub mod args;
pub mod call;
pub mod calls;
pub mod caps;
pub mod change;
pub mod crew;
pub mod engine;
pub mod failure;
pub mod finish;
pub mod hints;
pub mod life;
pub mod looks;
pub mod member;
pub mod outcome;
pub mod plan;
pub mod progress;
pub mod report;
pub mod share;
pub mod shim;
pub mod targets;

pub use args::{CheckpointArgs, LockArgs, RestoreArgs, StateArgs, ToggleArgs, UnlockArgs};

use crate::exit::Exit;

/// Locks.
pub fn lock(args: &LockArgs) -> Exit {
    call::perform(&args.into())
}

/// Locks and checkpoints.
pub fn checkpoint(args: &CheckpointArgs) -> Exit {
    call::perform(&args.into())
}

/// Restores and unlocks.
pub fn restore(args: &RestoreArgs) -> Exit {
    call::perform(&args.into())
}

/// Unlocks.
pub fn unlock(args: &UnlockArgs) -> Exit {
    call::perform(&args.into())
}

/// Checkpoints what runs, restores what is checkpointed.
pub fn toggle(args: &ToggleArgs) -> Exit {
    call::perform(&args.into())
}

/// Prints states.
pub fn state(args: &StateArgs) -> Exit {
    call::state(args)
}
