//! The `cudasnap` binary. Called as `cuda-checkpoint`, or with NVIDIA's flags, it is a drop-in for NVIDIA's tool.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use cudasnap_cli::{dropin, grammar::Cli, links};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if is_nvidias(&arguments) {
        return dropin::run(arguments);
    }
    // Ends the process with status 2 on a command line that is not understood.
    Cli::parse_from(arguments).command.run().into()
}

/// Whether the call is meant for NVIDIA's tool: by its name, or by a flag in front that is not one of ours.
fn is_nvidias(arguments: &[OsString]) -> bool {
    let called_as = arguments.first().map(Path::new).and_then(Path::file_name);
    let first = arguments.get(1).map(|argument| argument.to_string_lossy());
    let ours = ["-h", "--help", "-V", "--version"];
    called_as.is_some_and(|name| name == links::NAME)
        || first.is_some_and(|first| first.starts_with('-') && !ours.contains(&first.as_ref()))
}
