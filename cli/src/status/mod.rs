//! `cudasnap status`

use crate::exit::Exit;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
pub fn run(_args: &Args) -> Exit {
    eprintln!("cudasnap status: not yet");
    Exit::Failed
}
