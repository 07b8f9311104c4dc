//! `cudasnap doctor`

use crate::exit::Exit;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
pub fn run(_args: &Args) -> Exit {
    eprintln!("cudasnap doctor: not yet");
    Exit::Failed
}
