//! `cudasnap buffer PID save`: the whole buffer in a file.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use super::image::{Head, HEAD};
use super::new_file::{has_room, NewFile};
use super::opened::{Buffer, Contents};
use super::origin::{unix_milliseconds, Origin};
use super::progress::{Interrupts, Progress};
use super::stop::Stop;
use super::windows;
use crate::units;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct SaveArgs {
    /// A file that is not there yet
    file: PathBuf,
    /// Only the bytes, without the head: `load` does not take such a file
    #[arg(long)]
    raw: bool,
}

/// Saves it. What was begun is removed when it does not come to its end.
///
/// # Errors
/// The buffer cannot be read, or the file not written.
pub fn run(buffer: &Buffer, args: &SaveArgs) -> Result<(), Stop> {
    let head = if args.raw { 0 } else { HEAD as u64 };
    has_room(&args.file, buffer.length().saturating_add(head))?;
    let interrupts = Interrupts::watch()?;
    let out = NewFile::create(&args.file)?;
    let started = Instant::now();
    let fingerprint = copy(buffer, &out, head, &interrupts)?;
    let gone = || format!("{} was removed again", args.file.display());
    buffer.check().map_err(|stop| stop.and(gone()))?;
    if !args.raw {
        let head = head_of(buffer, &fingerprint).to_bytes();
        let head = head.ok_or_else(|| Stop::failed("the head does not fit"))?;
        // The head comes last: without it the file is none.
        let written = out.file().write_all_at(&head, 0);
        written.map_err(|error| out.error(&error))?;
    }
    out.finish()?;
    crate::output::complain(format!(
        "{}: {} in {}, {}\ncudasnap: blake3 {}",
        args.file.display(),
        units::bytes(buffer.length()),
        units::duration(started.elapsed()),
        units::rate(buffer.length(), started.elapsed()),
        fingerprint.to_hex()
    ));
    Ok(())
}

/// Copies the buffer into the file behind the head; returns the fingerprint of what was written.
fn copy(
    buffer: &Buffer,
    out: &NewFile,
    head: u64,
    interrupts: &Interrupts,
) -> Result<blake3::Hash, Stop> {
    let progress = Progress::begin("saving", buffer.length());
    let mut hasher = blake3::Hasher::new();
    windows::each(buffer, |offset, bytes| {
        interrupts.stop("the file was removed again")?;
        let (_, written) = rayon::join(
            || hasher.update_rayon(bytes),
            || out.file().write_all_at(bytes, head + offset),
        );
        progress.add(bytes.len() as u64);
        written.map_err(|error| out.error(&error).and("the file was removed again"))
    })?;
    interrupts.stop("the file was removed again")?;
    Ok(hasher.finalize())
}

fn head_of(buffer: &Buffer, fingerprint: &blake3::Hash) -> Head {
    let record = buffer.record.as_ref().map(|record| &record.view);
    Head {
        length: buffer.length(),
        blake3: fingerprint.to_hex().to_string(),
        origin: Origin::of(&buffer.identity),
        address: buffer.span.start,
        library_version: record.map_or_else(String::new, |view| view.library_version.clone()),
        build_id: record.map_or_else(String::new, |view| view.build_id.clone()),
        saved_unix_ms: unix_milliseconds(),
    }
}
