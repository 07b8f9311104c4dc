//! The `cudasnap` binary. Called as `cuda-checkpoint`, or with NVIDIA's flags, it is a drop-in for NVIDIA's tool.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use cudasnap_cli::{dropin, links};

/// Exit status of a call that is not understood.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let called_as = arguments.first().map(Path::new).and_then(Path::file_name);
    let first = arguments.get(1).map(|argument| argument.to_string_lossy());
    match first.as_deref() {
        _ if called_as.is_some_and(|name| name == links::NAME) => dropin::run(arguments),
        Some("install-links") => links::run(&arguments[2..]),
        Some("--version" | "-V") => {
            println!("cudasnap {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some(flag) if flag.starts_with('-') => dropin::run(arguments),
        _ => {
            eprintln!(
                "cudasnap: use it with the flags of cuda-checkpoint (cudasnap --help), or: cudasnap install-links DIR"
            );
            ExitCode::from(USAGE)
        }
    }
}
