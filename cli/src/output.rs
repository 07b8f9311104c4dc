//! Writing to stdout and stderr. `println!` and `eprintln!` panic when the reader has closed the pipe or the disk is full; here a
//! closed stdout means that it has seen enough, and a stderr that takes nothing is no reason to stop.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

use crate::exit::Exit;

/// Writes the text and a line end, and returns how the command ended: as given, unless the text could not be written.
pub fn say(text: &str, ended: Exit) -> Exit {
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    settle(written, ended)
}

/// How a command ended whose output was written with this result. A reader who has closed the pipe has seen enough.
pub fn settle(written: io::Result<()>, ended: Exit) -> Exit {
    match written {
        Ok(()) => ended,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ended,
        Err(error) => {
            complain(format_args!("stdout: {error}"));
            Exit::Failed
        }
    }
}

/// The same for a value as JSON, in lines.
pub fn say_json(value: &impl Serialize, ended: Exit) -> Exit {
    match serde_json::to_string_pretty(value) {
        Ok(text) => say(&text, ended),
        Err(error) => {
            complain(error);
            Exit::Failed
        }
    }
}

/// Writes a sentence to stderr, with the program's name in front.
pub fn complain(sentence: impl Display) {
    complain_plainly(format_args!("cudasnap: {sentence}"));
}

/// The same without the name.
pub fn complain_plainly(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
