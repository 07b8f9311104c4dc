//! `cudasnap run`

use crate::exit::Exit;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
pub fn run(_args: &Args) -> Exit {
    eprintln!("cudasnap run: not yet");
    Exit::Failed
}
