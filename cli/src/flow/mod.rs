//! The verbs.

use crate::exit::Exit;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct LockArgs {}

/// Runs it.
pub fn lock(_args: &LockArgs) -> Exit {
    eprintln!("cudasnap lock: not yet");
    Exit::Failed
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct CheckpointArgs {}

/// Runs it.
pub fn checkpoint(_args: &CheckpointArgs) -> Exit {
    eprintln!("cudasnap checkpoint: not yet");
    Exit::Failed
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {}

/// Runs it.
pub fn restore(_args: &RestoreArgs) -> Exit {
    eprintln!("cudasnap restore: not yet");
    Exit::Failed
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct UnlockArgs {}

/// Runs it.
pub fn unlock(_args: &UnlockArgs) -> Exit {
    eprintln!("cudasnap unlock: not yet");
    Exit::Failed
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct ToggleArgs {}

/// Runs it.
pub fn toggle(_args: &ToggleArgs) -> Exit {
    eprintln!("cudasnap toggle: not yet");
    Exit::Failed
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct StateArgs {}

/// Runs it.
pub fn state(_args: &StateArgs) -> Exit {
    eprintln!("cudasnap state: not yet");
    Exit::Failed
}
