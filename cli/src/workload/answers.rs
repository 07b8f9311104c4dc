//! What is asked on stdin, a line each, and answered on stdout.

use std::io::{self, BufRead, Read, Write};

use crate::exit::Exit;
use crate::foreign_text::printable;
use crate::output;

use super::holding::{Holding, Trouble};

/// Longest line that is taken; no question is that long.
const LONGEST: u64 = 256;

/// Answers until it is told to end, or the input does.
///
/// # Errors
/// New contents could not be written.
pub fn serve(holding: &mut Holding<'_>, mut input: impl BufRead) -> Result<Exit, Trouble> {
    while let Some(line) = next(&mut input) {
        let answer = match line.as_str() {
            "quit" => break,
            "sum" => sum(holding),
            "rewrite" => {
                holding.rewrite()?;
                "ok".into()
            }
            other => format!("unknown {}", printable(other)),
        };
        let mut out = io::stdout().lock();
        let said = writeln!(out, "{answer}").and_then(|()| out.flush());
        if said.is_err() {
            return Ok(output::settle(said, Exit::Done));
        }
    }
    Ok(Exit::Done)
}

fn sum(holding: &Holding<'_>) -> String {
    let (wrong, trouble) = holding.wrong_words();
    if let Some(error) = trouble {
        output::complain(format_args!("device memory cannot be read: {error}"));
    }
    format!("bad {wrong}")
}

/// The next line, cut to what is taken; `None` at the end of the input.
fn next(input: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let read = input.by_ref().take(LONGEST).read_until(b'\n', &mut line);
    if !matches!(read, Ok(1..)) {
        return None;
    }
    if !line.ends_with(b"\n") && line.len() as u64 == LONGEST {
        skip_line(input);
    }
    Some(String::from_utf8_lossy(&line).trim().to_owned())
}

fn skip_line(input: &mut impl BufRead) {
    while let Ok(bytes) = input.fill_buf() {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(bytes.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() || used == 0 {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_by_one_and_none_is_too_long() {
        let long = "x".repeat(10_000);
        let text = format!("sum\r\n{long}\n\nrewrite");
        let mut input = text.as_bytes();
        assert_eq!(next(&mut input).as_deref(), Some("sum"));
        assert_eq!(next(&mut input).unwrap().len(), LONGEST as usize);
        assert_eq!(next(&mut input).as_deref(), Some(""));
        assert_eq!(next(&mut input).as_deref(), Some("rewrite"));
        assert_eq!(next(&mut input), None);
    }
}
