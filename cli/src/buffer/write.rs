//! `cudasnap buffer PID write` and `undo`: change some bytes, and put them back.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::hexdump::{change, digits};
use super::new_file::NewFile;
use super::opened::{Buffer, Contents};
use super::origin::{unix_milliseconds, Origin};
use super::stop::Stop;
use super::undo_file::Undo;
use super::words::{size, BytesArgs, Span};
use crate::exit::Exit;
use crate::foreign_file;
use crate::run::show::quoted;

/// Lines of a change that are shown.
const LINES: usize = 32;

/// Longest undo file that is read. A write holds no more than a command line: 128 KiB of digits.
const LARGEST: u64 = 64 << 20;

/// Clap's own words name what takes one of several forms before what has its place, so OFFSET would come last.
const USAGE: &str = "cudasnap buffer <PID> write [OPTIONS] <OFFSET> <HEX|--text <STRING>|--u32 <N>|--u64 <N>|--f32 <X>>";

/// Arguments of `write`.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE)]
pub struct WriteArgs {
    /// First byte, counted from the buffer's start
    #[arg(value_parser = crate::values::read(size))]
    offset: u64,
    #[command(flatten)]
    bytes: BytesArgs,
    /// Do it; without this it is only shown
    #[arg(long)]
    yes: bool,
    /// Where the old bytes go [default: cudasnap-undo-PID-OFFSET-TIME in this folder]
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
}

/// Arguments of `undo`.
#[derive(Debug, clap::Args)]
pub struct UndoArgs {
    /// The file that write made
    file: PathBuf,
    /// Do it; without this it is only shown
    #[arg(long)]
    yes: bool,
    /// Also when the file was made from another process (one that was moved here, say)
    #[arg(long)]
    other_process: bool,
}

/// Changes bytes, or shows what would be changed.
///
/// # Errors
/// They could not be changed; what is there now is told when it is not what was there before.
pub fn run(buffer: &Buffer, args: &WriteArgs) -> Result<(), Stop> {
    let new = args
        .bytes
        .bytes()
        .map_err(|why| Stop::with(Exit::Usage, why))?;
    buffer.range(args.offset, new.len() as u64)?;
    let mut old = vec![0; new.len()];
    buffer.read_at(args.offset, &mut old)?;
    show(buffer, args.offset, &old, &new)?;
    if old == new {
        crate::output::complain("these bytes are there already: nothing to do");
        return Ok(());
    }
    if !args.yes {
        crate::output::complain("nothing was written: --yes does it");
        return Ok(());
    }
    let undo = Undo {
        origin: Origin::of(&buffer.identity),
        buffer_length: buffer.length(),
        offset: args.offset,
        old,
        new,
    };
    let path = args.undo.clone().unwrap_or_else(|| undo_name(&undo));
    save_undo(&path, &undo)?;
    write_saved(buffer, &undo, &path)
}

/// Writes what `undo` says, after it went into the file `path`.
fn write_saved(buffer: &Buffer, undo: &Undo, path: &Path) -> Result<(), Stop> {
    let kept = format!("the old bytes are in {}", path.display());
    match replace(buffer, undo.offset, &undo.old, &undo.new) {
        Ok(()) => {
            let at = buffer.record.is_none().then_some(buffer.span);
            let back = undo_command(undo.origin.pid, path, at);
            crate::output::complain(format!("written; {kept}; {back} puts them back"));
            Ok(())
        }
        Err(Replaced::Nothing(stop)) => {
            // Nothing to undo.
            let _ = std::fs::remove_file(path);
            Err(stop.and("nothing was written"))
        }
        Err(Replaced::Perhaps(stop)) => Err(stop.and(kept)),
    }
}

/// The command that takes a write back; `at`: where the buffer is, when no record says it.
fn undo_command(pid: i32, path: &Path, at: Option<Span>) -> String {
    let file = quoted(path.as_os_str());
    let at = at.map_or(String::new(), |span| format!(" --at {span}"));
    format!("cudasnap buffer {pid} undo {file} --yes{at}")
}

fn undo_name(undo: &Undo) -> PathBuf {
    let (pid, offset) = (undo.origin.pid, undo.offset);
    format!("cudasnap-undo-{pid}-{offset:#x}-{}", unix_milliseconds()).into()
}

fn save_undo(path: &Path, undo: &Undo) -> Result<(), Stop> {
    let made = NewFile::create(path)?;
    let written = made.file().write_all(undo.to_text().as_bytes());
    written.map_err(|error| made.error(&error))?;
    made.finish()
}

/// Puts the bytes of an undo file back, or shows what would be put back.
///
/// # Errors
/// The file does not fit, or the bytes that were written are not there any more.
pub fn undo(buffer: &Buffer, args: &UndoArgs) -> Result<(), Stop> {
    let refuse = |why: &str| Stop::refused(format!("{}: {why}", args.file.display()));
    let undo = fitting(buffer, args)?;
    let mut now = vec![0; undo.old.len()];
    buffer.read_at(undo.offset, &mut now)?;
    if now == undo.old {
        crate::output::complain("the old bytes are there already: nothing to do");
        return Ok(());
    }
    show(buffer, undo.offset, &now, &undo.old)?;
    if !undo.left(&now) {
        return Err(refuse(
            "the bytes there are not those that were written: nothing was changed",
        ));
    }
    if now != undo.new {
        crate::output::complain("note: only a part of the write is there: it was cut off");
    }
    if !args.yes {
        crate::output::complain("nothing was written: --yes does it");
        return Ok(());
    }
    match replace(buffer, undo.offset, &now, &undo.old) {
        Ok(()) => crate::output::complain("the old bytes are back"),
        Err(Replaced::Nothing(stop)) => return Err(stop.and("nothing was written")),
        Err(Replaced::Perhaps(stop)) => return Err(stop),
    }
    Ok(())
}

/// The undo file, when it is of this buffer.
fn fitting(buffer: &Buffer, args: &UndoArgs) -> Result<Undo, Stop> {
    let refuse = |why: &str| Stop::refused(format!("{}: {why}", args.file.display()));
    let text = File::open(&args.file).and_then(|file| foreign_file::read(file, LARGEST));
    let text = text.map_err(|error| refuse(&error.to_string()))?;
    let undo = Undo::parse(&String::from_utf8_lossy(&text)).map_err(|why| refuse(&why))?;
    if !args.other_process {
        undo.origin.check(&Origin::of(&buffer.identity))?;
    }
    if undo.buffer_length != buffer.length() {
        return Err(refuse(&format!(
            "it was made for a buffer of {} bytes, this one has {}",
            undo.buffer_length,
            buffer.length()
        )));
    }
    buffer.range(undo.offset, undo.old.len() as u64)?;
    Ok(undo)
}

/// Why bytes were not replaced.
enum Replaced {
    /// They are as before.
    Nothing(Stop),
    /// They may have been changed, all or some, or the process may have gone on with the old ones.
    Perhaps(Stop),
}

/// Writes, when the old bytes are still there; reads back and compares.
fn replace(buffer: &Buffer, offset: u64, old: &[u8], new: &[u8]) -> Result<(), Replaced> {
    let mut now = vec![0; old.len()];
    let ready = buffer
        .check()
        .and_then(|()| buffer.read_at(offset, &mut now));
    ready.map_err(Replaced::Nothing)?;
    if now != old {
        return Err(Replaced::Nothing(Stop::failed(
            "the bytes changed a moment ago: somebody else writes there",
        )));
    }
    let written = buffer.write_at(offset, new);
    let seen = buffer
        .check()
        .and_then(|()| buffer.read_at(offset, &mut now));
    match (written, seen) {
        (Ok(()), Ok(())) if now == new => Ok(()),
        (Err(stop), Ok(())) if now == old => Err(Replaced::Nothing(stop)),
        (Ok(()), Ok(())) => Err(Replaced::Perhaps(Stop::failed(
            "what was written reads back differently",
        ))),
        (Err(stop), _) => Err(Replaced::Perhaps(
            stop.and("some of it may have been written"),
        )),
        (Ok(()), Err(stop)) => Err(Replaced::Perhaps(
            stop.and("it was written, but whether before the GPU took the bytes is not known"),
        )),
    }
}

fn show(buffer: &Buffer, offset: u64, old: &[u8], new: &[u8]) -> Result<(), Stop> {
    let text = format!(
        "{}: {} bytes at offset {offset:#x}, address {:#x}\n{}",
        buffer.process(),
        old.len(),
        buffer.span.start + offset,
        change(offset, digits(buffer.length()), old, new, LINES)
    );
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Nobody reads it: the work itself goes on.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Stop::stdout(&error)),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::Cli;
    use clap::Parser;

    #[test]
    fn the_command_that_takes_a_write_back_is_one() {
        let span = Span {
            start: 0x7f00_0000_0000,
            end: 0x7f00_0020_0000,
        };
        let plain = undo_command(7, Path::new("u"), None);
        assert_eq!(plain, "cudasnap buffer 7 undo u --yes");
        let by_hand = undo_command(7, Path::new("u"), Some(span));
        assert!(by_hand.starts_with(&plain), "{by_hand}");
        for line in [plain, by_hand] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        let odd = undo_command(7, Path::new("a b"), None);
        assert_eq!(odd, "cudasnap buffer 7 undo 'a b' --yes");
    }
}
