//! What the fuzz targets (`fuzz/`) run: one function per kind of foreign bytes that the tool reads. Each returns for any bytes,
//! and checks what must hold whatever they are. The tests run them over the corpus.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};

use cudasnap_wire::{Record, SYMBOL};

use crate::buffer::undo_file::Undo;
use crate::doctor::elf_file::{build_id_of, Library as LibraryFile};
use crate::doctor::for_restore::images;
use crate::foreign_text::printable;
use crate::process::identity::Identity;
use crate::process::target::{Mapping, Memory, MemoryError};
use crate::record::elf::{defines_function, find_symbol};
use crate::record::{check_head, view::RecordView};
use crate::run::image::{is_glibc_loader, library_with, Format};
use crate::run::script::shebang;
use crate::status::facts::{Library, Loaded, Process, Round};
use crate::status::judge::Verdict;
use crate::status::library_file::FileState;
use crate::status::text::Paper;
use crate::status::{detail, json, table};

/// Bytes as they would lie in another process's memory.
struct Bytes<'a> {
    base: u64,
    bytes: &'a [u8],
}

impl Memory for Bytes<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let from = address.checked_sub(self.base);
        let from = from.and_then(|from| usize::try_from(from).ok());
        let range = from.and_then(|from| Some(from..from.checked_add(into.len())?));
        let source = range.and_then(|range| self.bytes.get(range));
        into.copy_from_slice(source.ok_or(MemoryError::Unmapped(address))?);
        Ok(())
    }
}

/// The walk over an image in another process: damage is no error, only the absence of the symbol.
pub fn elf(data: &[u8]) {
    for base in [0x40_0000, 1 << 63] {
        let memory = Bytes { base, bytes: data };
        assert!(find_symbol(&memory, base, SYMBOL).is_ok());
        assert!(defines_function(&memory, base, "cuInit").is_ok());
    }
}

/// A record, from its bytes to all that is shown of it: nothing of it commands a terminal.
pub fn record(data: &[u8]) {
    let record = Record::new(0);
    let length = data.len().min(size_of::<Record>());
    // SAFETY: a record consists of atomics, of which any bytes are valid ones.
    unsafe {
        let to = (&raw const record).cast::<u8>().cast_mut();
        std::ptr::copy_nonoverlapping(data.as_ptr(), to, length);
    }
    let _ = check_head(&record);
    let process = process_with(RecordView::new(&record));
    let now = 1_000_000_000_000;
    let verdicts = [Verdict::of(&process, now)];
    let round = Round {
        unix_ns: now,
        nvml: Err("no library".into()),
        processes: vec![process],
        without_cuda: Vec::new(),
        errors: Vec::new(),
        unreadable: Vec::new(),
        privileged: false,
        named: true,
    };
    let paper = Paper::plain();
    let shown = detail::text(&round, &verdicts, paper) + &table::text(&round, &verdicts, paper);
    let is_harmless = |character: char| character == '\n' || !character.is_control();
    assert!(shown.chars().all(is_harmless), "{shown:?}");
    let line = json::line(&round, &verdicts);
    assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok());
}

fn process_with(record: RecordView) -> Process {
    Process {
        identity: Identity {
            pid: 7,
            parent: 1,
            started: 1,
            uid: 0,
            name: "python3".into(),
            namespace_pids: vec![7],
        },
        user: "root".into(),
        missing_right: None,
        command: vec!["python3".into()],
        cuda: None,
        rss_anon: 1 << 30,
        private: 1 << 30,
        held: Some(Vec::new()),
        nvml: None,
        library: Library::Loaded(Box::new(Loaded {
            path: "/opt/libcudasnap.so".into(),
            file: FileState::Same,
            record,
        })),
        preload: None,
        buffer_is_mapped: false,
        buffer_pages: None,
        library_above: None,
        cuda_below: Vec::new(),
    }
}

/// CRIU's images, of each kind that is read.
pub fn images(data: &[u8]) {
    images::parse_any(data);
}

/// Lines of `/proc/PID/maps`.
pub fn maps(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for mapping in text.lines().filter_map(Mapping::parse) {
        assert!(mapping.length() > 0);
        let _ = (mapping.is_image(), mapping.is_private_memory());
        assert!(!printable(&mapping.path).chars().any(char::is_control));
    }
}

/// A file in memory, by a path that can be opened.
fn file(data: &[u8]) -> (File, PathBuf) {
    let name = CString::new("fuzz").expect("no zero");
    // SAFETY: a terminated name.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "memfd");
    // SAFETY: a new descriptor that nobody else owns.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(data).expect("memory");
    let path = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
    (file, path)
}

/// Files: programs, scripts, libraries, undo files.
pub fn files(data: &[u8]) {
    if let Some(script) = shebang(data) {
        assert!(!script.interpreter.as_os_str().is_empty());
        let _ = script.by_env();
    }
    if let Some(undo) = std::str::from_utf8(data)
        .ok()
        .and_then(|text| Undo::parse(text).ok())
    {
        assert_eq!(Undo::parse(&undo.to_text()), Ok(undo));
    }
    if let Ok(library) = LibraryFile::parse(data) {
        let _ = (library.build_id(), library.exports(SYMBOL));
        let _ = (
            library.data_of(SYMBOL),
            library.slots(&["memcpy", "munmap"]),
        );
    }
    let (file, path) = file(data);
    let _ = Format::of(&path);
    let _ = (library_with(&path, SYMBOL), is_glibc_loader(&path));
    let _ = build_id_of(file);
}

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn the_corpus_of_each_target_is_survived() {
        replay("cli_elf", super::elf);
        replay("cli_record", super::record);
        replay("cli_images", super::images);
        replay("cli_maps", super::maps);
        replay("cli_files", super::files);
    }
}
