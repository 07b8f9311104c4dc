//! `cudasnap buffer PID load`: a saved buffer is put back.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::image::{Head, HEAD};
use super::opened::{Buffer, Contents};
use super::origin::Origin;
use super::progress::{Interrupts, Progress};
use super::stop::Stop;
use super::windows;
use crate::exit::Exit;
use crate::foreign_file;

/// Bytes that are compared, counted and written as one. A huge page; the library's buffer begins at one.
const CHUNK: u64 = 2 << 20;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct LoadArgs {
    /// A file that save made
    file: PathBuf,
    /// Do it; without this it is only compared
    #[arg(long)]
    yes: bool,
    /// Also when the file was made from another process (one that was moved here, say)
    #[arg(long)]
    other_process: bool,
}

/// The contents of a saved file.
struct Saved {
    file: File,
    head: Head,
}

impl Contents for Saved {
    fn length(&self) -> u64 {
        self.head.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Stop> {
        let read = self.file.read_exact_at(into, HEAD as u64 + offset);
        read.map_err(|error| Stop::failed(format!("the saved file: {error}")))
    }
}

/// What differs between a file and a buffer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// Bytes.
    bytes: u64,
    /// Numbers of the chunks that hold them.
    chunks: Vec<u64>,
}

/// Puts it back, or says what would change.
///
/// # Errors
/// The file does not fit, or the buffer could not be written; how it was left is told.
pub fn run(buffer: &Buffer, args: &LoadArgs) -> Result<(), Stop> {
    let saved = open(&args.file)?;
    fits(&saved.head, buffer, args)?;
    let interrupts = Interrupts::watch()?;
    let difference = compare(&saved, buffer, &interrupts, &args.file)?;
    buffer.check()?;
    say(buffer, &difference)?;
    if difference.chunks.is_empty() {
        crate::output::complain("nothing to do");
        return Ok(());
    }
    if !args.yes {
        crate::output::complain("nothing was written: --yes does it");
        return Ok(());
    }
    interrupts.stop("nothing was written")?;
    put(&saved, buffer, &difference)?;
    verify(&saved.head, buffer)?;
    let text = format!("loaded: the buffer is that of {}", args.file.display());
    if let Some(number) = interrupts.came() {
        return Err(Stop::with(
            Exit::Signal(number),
            format!("signal {number} came too late; {text}"),
        ));
    }
    crate::output::complain(&text);
    Ok(())
}

fn open(path: &Path) -> Result<Saved, Stop> {
    let refuse = |why: String| Stop::refused(format!("{}: {why}", path.display()));
    let opened = foreign_file::open(path).map_err(|error| refuse(error.to_string()))?;
    let (file, about) = opened.ok_or_else(|| refuse("no regular file".into()))?;
    let mut head = vec![0; about.len().min(HEAD as u64) as usize];
    let read = file.read_exact_at(&mut head, 0);
    read.map_err(|error| refuse(error.to_string()))?;
    let head = Head::parse(&head, about.len()).map_err(refuse)?;
    Ok(Saved { file, head })
}

fn fits(head: &Head, buffer: &Buffer, args: &LoadArgs) -> Result<(), Stop> {
    if head.length != buffer.length() {
        return Err(Stop::refused(format!(
            "{}: it holds {} bytes, the buffer of {} has {}",
            args.file.display(),
            head.length,
            buffer.process(),
            buffer.length()
        )));
    }
    if args.other_process {
        return Ok(());
    }
    head.origin.check(&Origin::of(&buffer.identity))
}

/// Reads the whole file: its fingerprint must be right before anything is said or done.
fn compare(
    saved: &Saved,
    buffer: &Buffer,
    interrupts: &Interrupts,
    path: &Path,
) -> Result<Difference, Stop> {
    let progress = Progress::begin("comparing", saved.length());
    let mut hasher = blake3::Hasher::new();
    let mut difference = Difference::default();
    let mut there = Vec::new();
    windows::each(saved, |offset, bytes| {
        interrupts.stop("nothing was written")?;
        there.resize(bytes.len(), 0);
        let (_, read) = rayon::join(
            || hasher.update_rayon(bytes),
            || windows::fill(buffer, offset, &mut there),
        );
        read?;
        difference.add(offset / CHUNK, bytes, &there);
        progress.add(bytes.len() as u64);
        Ok(())
    })?;
    if hasher.finalize().to_hex().as_str() == saved.head.blake3 {
        return Ok(difference);
    }
    Err(Stop::refused(format!(
        "{}: damaged: its contents do not have the fingerprint that its head tells",
        path.display()
    )))
}

impl Difference {
    /// Compares a window that begins with chunk number `first`.
    fn add(&mut self, first: u64, one: &[u8], other: &[u8]) {
        let counts: Vec<u64> = one
            .par_chunks(CHUNK as usize)
            .zip(other.par_chunks(CHUNK as usize))
            .map(|(one, other)| {
                if one == other {
                    return 0;
                }
                let pairs = one.iter().zip(other);
                pairs.filter(|(one, other)| one != other).count() as u64
            })
            .collect();
        for (number, count) in counts.into_iter().enumerate() {
            self.bytes += count;
            if count > 0 {
                self.chunks.push(first + number as u64);
            }
        }
    }
}

fn say(buffer: &Buffer, difference: &Difference) -> Result<(), Stop> {
    let all = buffer.length().div_ceil(CHUNK);
    let text = format!(
        "{}: {} of {} bytes differ, in {} of {all} chunks of 2 MiB\n",
        buffer.process(),
        difference.bytes,
        buffer.length(),
        difference.chunks.len(),
    );
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Stop::stdout(&error)),
        _ => Ok(()),
    }
}

/// Writes the chunks that differ. A signal does not stop it: half of one state and half of another would be left.
fn put(saved: &Saved, buffer: &Buffer, difference: &Difference) -> Result<(), Stop> {
    let progress = Progress::begin("writing", difference.chunks.len() as u64 * CHUNK);
    let chunks = difference.chunks.par_iter();
    let written = chunks.try_for_each_init(
        || vec![0; CHUNK as usize],
        |bytes, number| {
            let offset = number * CHUNK;
            let bytes = &mut bytes[..(saved.length() - offset).min(CHUNK) as usize];
            saved.read_at(offset, bytes)?;
            buffer.write_at(offset, bytes)?;
            progress.add(CHUNK);
            Ok(())
        },
    );
    written.map_err(|stop: Stop| stop.and("the buffer holds parts of both states: load again"))
}

/// The fingerprint of what is in the buffer now must be the file's.
fn verify(head: &Head, buffer: &Buffer) -> Result<(), Stop> {
    let progress = Progress::begin("verifying", buffer.length());
    let mut hasher = blake3::Hasher::new();
    let read = windows::each(buffer, |_, bytes| {
        hasher.update_rayon(bytes);
        progress.add(bytes.len() as u64);
        Ok(())
    });
    let read = read.and_then(|()| buffer.check());
    read.map_err(|stop| {
        stop.and("the bytes were written, but whether before the GPU took them is not known")
    })?;
    if hasher.finalize().to_hex().as_str() == head.blake3 {
        return Ok(());
    }
    Err(Stop::failed(
        "what was written reads back differently: the file changed meanwhile, or somebody else writes to the buffer",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_chunks_and_bytes_are_counted() {
        let one = vec![0u8; 5 << 20];
        let mut other = one.clone();
        other[0] = 1;
        other[1] = 1;
        other[(5 << 20) - 1] = 1;
        let mut difference = Difference::default();
        difference.add(16, &one, &other);
        difference.add(19, &one, &one);
        assert_eq!(
            difference,
            Difference {
                bytes: 3,
                chunks: vec![16, 18]
            }
        );
    }
}
