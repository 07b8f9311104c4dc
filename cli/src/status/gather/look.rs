//! Looks at one process. Most have no CUDA: of them only the mappings are read, and not parsed.

use std::fs::File;
use std::io::Read;

use memchr::memmem;

use super::Depth;
use crate::process::cuda::{is_libcuda, CudaUse};
use crate::process::file_mappings;
use crate::process::identity::{Identity, IdentityError};
use crate::process::observe::{descriptors, kilobytes};
use crate::process::rights;
use crate::process::target::{Mapping, MemoryError, Target};
use crate::record::view::RecordView;
use crate::record::{Located, RecordError};
use crate::status::facts::{Library, Loaded, Process};
use crate::status::library_file::Files;
use crate::status::pages::Pages;
use crate::status::{held, phases, preload};

/// Bytes of `maps` up to which all of it is read: some 2,000 mappings.
const SHORT: u64 = 128 << 10;
/// Bytes of a command line that are looked at. A single argument cannot be longer than 128 KiB.
const COMMAND: u64 = 1 << 20;

/// What a look at a process found.
pub enum Look {
    /// It uses CUDA.
    Cuda(Box<Process>),
    /// It does not.
    NoCuda,
    /// It may not be looked into.
    Denied(Identity),
    /// It ended, or there is none.
    Gone(IdentityError),
}

impl From<IdentityError> for Look {
    fn from(error: IdentityError) -> Self {
        Look::Gone(error)
    }
}

/// Looks at a process.
pub fn look(pid: i32, depth: Depth, files: &Files) -> Look {
    let mappings = match cuda_mappings(pid) {
        Ok(Some(mappings)) => mappings,
        Ok(None) => return Look::NoCuda,
        Err(MemoryError::Denied) => return Identity::of(pid).map_or_else(Look::from, Look::Denied),
        Err(_) => return Look::Gone(IdentityError::NoSuchProcess(pid)),
    };
    let found = Identity::with_status(pid);
    let (identity, status) = match found {
        Ok(found) => found,
        Err(error) => return error.into(),
    };
    match CudaUse::with(identity.target(), &mappings) {
        Ok(CudaUse::None) => Look::NoCuda,
        Ok(used) => {
            let mut process = closed(identity, None);
            process.cuda = Some(used);
            process.rss_anon = kilobytes(&status, "RssAnon");
            process.private = ["RssAnon", "VmSwap", "HugetlbPages"]
                .iter()
                .fold(0u64, |sum, name| {
                    sum.saturating_add(kilobytes(&status, name))
                });
            fill(&mut process, &mappings, depth, files);
            Look::Cuda(Box::new(process))
        }
        Err(_) => Look::Gone(IdentityError::NoSuchProcess(pid)),
    }
}

/// The mappings of a process that has libcuda mapped; of one with very many only those of files. `None` for all others.
fn cuda_mappings(pid: i32) -> Result<Option<Vec<Mapping>>, MemoryError> {
    let mut file = File::open(format!("/proc/{pid}/maps"))?;
    let mut text = Vec::new();
    file.by_ref().take(SHORT).read_to_end(&mut text)?;
    if text.len() as u64 == SHORT {
        if let Some(mappings) = file_mappings::of(&file) {
            return Ok(mappings.iter().any(is_libcuda).then_some(mappings));
        }
        file.read_to_end(&mut text)?;
    }
    if memmem::find(&text, b"libcuda.so").is_none() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&text);
    Ok(Some(text.lines().filter_map(Mapping::parse).collect()))
}

/// A process of which no more is known than who it is.
pub fn closed(identity: Identity, missing_right: Option<String>) -> Process {
    let library = match &missing_right {
        None => Library::Absent,
        Some(_) => Library::Unreadable {
            path: None,
            reason: "its memory and mappings may not be read".into(),
        },
    };
    Process {
        rss_anon: missing_right.as_ref().map_or(0, |_| anonymous(&identity)),
        private: 0,
        command: command_of(identity.target()),
        identity,
        user: String::new(),
        missing_right,
        cuda: None,
        held: None,
        nvml: None,
        library,
        preload: None,
        buffer_is_mapped: false,
        buffer_pages: None,
        library_above: None,
        cuda_below: Vec::new(),
    }
}

fn anonymous(identity: &Identity) -> u64 {
    let status = identity.target().proc_file("status");
    status.map_or(0, |status| kilobytes(&status, "RssAnon"))
}

fn command_of(target: Target) -> Vec<String> {
    let text = target
        .proc_file_within("cmdline", COMMAND)
        .unwrap_or_default();
    let arguments = text.strip_suffix('\0').unwrap_or(&text).split('\0');
    arguments
        .filter(|_| !text.is_empty())
        .map(str::to_owned)
        .collect()
}

fn fill(process: &mut Process, mappings: &[Mapping], depth: Depth, files: &Files) {
    let target = process.identity.target();
    match descriptors(target) {
        Ok(descriptors) => process.held = Some(held::among(&descriptors, mappings)),
        Err(MemoryError::Denied) => {
            process.missing_right = Some(rights::missing(target.pid()).to_string());
        }
        Err(_) => {}
    }
    let record = Located::find_in(target, mappings).and_then(|place| Ok((place.read()?, place)));
    match record {
        Ok((record, place)) => take_record(process, record, place.library(), files),
        Err(RecordError::NotLoaded) => {}
        Err(error) => {
            if error == RecordError::Memory(MemoryError::Denied) {
                process.missing_right = Some(rights::missing(target.pid()).to_string());
            }
            process.library = Library::Unreadable {
                path: by_name(mappings),
                reason: error.to_string(),
            };
        }
    }
    process.preload = preload::look(target, mappings, library_path(&process.library));
    look_at_buffer(process, mappings, depth);
}

fn take_record(process: &mut Process, record: RecordView, path: &str, files: &Files) {
    process.library = Library::Loaded(Box::new(Loaded {
        path: path.to_owned(),
        file: files.look(process.identity.pid, path, &record.build_id),
        record,
    }));
}

fn library_path(library: &Library) -> Option<&str> {
    match library {
        Library::Loaded(loaded) => Some(&loaded.path),
        Library::Unreadable { path, .. } => path.as_deref(),
        Library::Absent => None,
    }
}

/// A mapped file with the library's name: all that can be said where memory may not be read.
fn by_name(mappings: &[Mapping]) -> Option<String> {
    let file = |mapping: &&Mapping| {
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        name.starts_with(crate::shim_library::FILE)
    };
    mappings
        .iter()
        .find(file)
        .map(|mapping| mapping.path.clone())
}

fn look_at_buffer(process: &mut Process, mappings: &[Mapping], depth: Depth) {
    let Some(record) = process.library.record() else {
        return;
    };
    let (buffer, target) = (&record.buffer, process.identity.target());
    if buffer.state.is("none") {
        return;
    }
    let covers = |mappings: &[Mapping]| covers(mappings, buffer.address, buffer.length);
    // The record was read after the mappings: a buffer that is younger than those is looked for again.
    let mapped = covers(mappings) || target.mappings().is_ok_and(|anew| covers(&anew));
    // Not in a phase: the walk would hold up the driver's own mmap and munmap calls.
    let at_rest = !phases::is_open(record);
    let end = buffer.address.saturating_add(buffer.length);
    let pages = (depth == Depth::Everything && mapped && at_rest)
        .then(|| Pages::of(target, buffer.address, end).ok())
        .flatten();
    process.buffer_is_mapped = mapped;
    process.buffer_pages = pages;
}

/// Whether private memory lies at every address of the range.
fn covers(mappings: &[Mapping], start: u64, length: u64) -> bool {
    let end = start.saturating_add(length);
    let mut reached = start;
    for mapping in mappings {
        if mapping.start <= reached && reached < mapping.end && mapping.private {
            reached = mapping.end;
        }
    }
    length > 0 && reached >= end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64) -> Mapping {
        Mapping::parse(&format!("{start:x}-{end:x} rw-p 00000000 00:00 0")).unwrap()
    }

    #[test]
    fn a_buffer_may_lie_in_several_mappings_but_not_in_a_hole() {
        let mappings = [
            mapping(0x1000, 0x3000),
            mapping(0x3000, 0x5000),
            mapping(0x6000, 0x7000),
        ];
        assert!(covers(&mappings, 0x1800, 0x3800));
        assert!(!covers(&mappings, 0x1800, 0x3801));
        assert!(!covers(&mappings, 0x4000, 0x3000));
        assert!(!covers(&mappings, 0x1000, 0));
        assert!(!covers(&mappings, u64::MAX - 1, u64::MAX));
    }

    #[test]
    fn a_process_without_cuda_and_one_that_ended_are_told_apart() {
        let files = Files::default();
        let own = std::process::id() as i32;
        assert!(matches!(look(own, Depth::Everything, &files), Look::NoCuda));
        assert!(matches!(
            look(i32::MAX, Depth::Overview, &files),
            Look::Gone(_)
        ));
    }

    #[test]
    fn a_command_line_is_split_at_its_ends() {
        let own = Target::new(std::process::id() as i32);
        let command = command_of(own);
        let expected: Vec<String> = std::env::args().collect();
        assert_eq!(command, expected);
        assert!(command_of(Target::new(i32::MAX)).is_empty());
    }
}
