//! Writing to stdout and stderr. `println!` and `eprintln!` panic when the reader has closed the pipe; here that means: it has
//! seen enough.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

use crate::exit::Exit;

/// Writes the text and a line end, and returns how the command ended: as given, unless the text could not be written.
pub fn say(text: &str, ended: Exit) -> Exit {
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    match written {
        Ok(()) => ended,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ended,
        Err(error) => {
            complain(&format_args!("stdout: {error}"));
            Exit::Failed
        }
    }
}

/// The same for a value as JSON, in lines.
pub fn say_json(value: &impl Serialize, ended: Exit) -> Exit {
    match serde_json::to_string_pretty(value) {
        Ok(text) => say(&text, ended),
        Err(error) => {
            complain(&error);
            Exit::Failed
        }
    }
}

/// Says a line on stderr, behind the name of this program. Nobody is left to tell when that fails.
pub fn complain(line: &dyn Display) {
    let _ = writeln!(io::stderr().lock(), "cudasnap: {line}");
}
