//! `cudasnap buffer PID read`: bytes as a hexdump, or as they are.

use std::io::{self, IsTerminal, Write};

use super::hexdump::{digits, Dump, WIDTH};
use super::opened::{Buffer, Contents};
use super::stop::Stop;
use super::words::size;
use crate::values;

/// Bytes that are read at a time; a multiple of a line.
const PIECE: u64 = 1 << 20;
const _: () = assert!(PIECE.is_multiple_of(WIDTH as u64));

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct ReadArgs {
    /// First byte, counted from the buffer's start
    #[arg(value_parser = values::read(size))]
    offset: u64,
    /// How many bytes
    #[arg(value_parser = values::read(size), default_value = "256")]
    length: u64,
    /// The bytes themselves, not as text (not to a terminal)
    #[arg(long)]
    raw: bool,
    /// Also lines that repeat the one before, which are told as *
    #[arg(long, conflicts_with = "raw")]
    all: bool,
}

/// Prints them.
///
/// # Errors
/// They cannot be read.
pub fn run(buffer: &Buffer, args: &ReadArgs) -> Result<(), Stop> {
    buffer.range(args.offset, args.length)?;
    let stdout = io::stdout();
    if args.raw && stdout.is_terminal() {
        return Err(Stop::refused(
            "--raw does not write to a terminal: send it to a file or a program",
        ));
    }
    let mut out = io::BufWriter::new(stdout.lock());
    let mut dump = Dump::new(digits(buffer.length()), !args.all);
    let mut piece = vec![0; args.length.min(PIECE) as usize];
    let mut done = 0;
    while done < args.length {
        let length = (args.length - done).min(PIECE) as usize;
        let (at, bytes) = (args.offset + done, &mut piece[..length]);
        buffer.read_at(at, bytes)?;
        let written = if args.raw {
            out.write_all(bytes)
        } else {
            out.write_all(dump.lines(at, bytes).as_bytes())
        };
        written.map_err(|error| Stop::stdout(&error))?;
        done += length as u64;
    }
    out.flush().map_err(|error| Stop::stdout(&error))?;
    buffer
        .check()
        .map_err(|stop| stop.and("do not rely on what was printed"))
}
