//! Whether the library's file is still the one that was loaded. A process that is moved to another host needs the same file at
//! the same path, and a file that was overwritten in place may crash whoever has it mapped.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use object::Object;
use serde::Serialize;

use crate::foreign_file;

/// What became of the library's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum FileState {
    /// The build that is loaded lies at its path.
    Same,
    /// Another file lies at its path.
    OtherBuild {
        /// Its build id; empty when it has none.
        build_id: String,
    },
    /// It was deleted or replaced, and no such file lies at its path.
    Missing,
    /// It cannot be looked at from here.
    Unknown,
}

/// Build ids of files that were looked at already: most processes share one library.
#[derive(Debug, Default)]
pub struct Files {
    known: Mutex<HashMap<Key, String>>,
}

/// A file as it is now: device, inode, size, time of its last change.
type Key = (u64, u64, u64, i64, i64);

impl Files {
    /// Compares the file at `path`, as the process `pid` sees it, with the build that it has loaded.
    pub fn look(&self, pid: i32, path: &str, build_id: &str) -> FileState {
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let file = match open(pid, path) {
            Ok(Some((file, metadata))) => self.build_id(file, &metadata),
            Ok(None) => return FileState::Missing,
            Err(_) => return FileState::Unknown,
        };
        match file {
            _ if build_id.is_empty() => FileState::Unknown,
            found if found == build_id => FileState::Same,
            found => FileState::OtherBuild { build_id: found },
        }
    }

    fn build_id(&self, file: File, metadata: &Metadata) -> String {
        let key = (
            metadata.dev(),
            metadata.ino(),
            metadata.size(),
            metadata.mtime(),
            metadata.mtime_nsec(),
        );
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return known.clone();
        }
        let found = read_build_id(file);
        lock().insert(key, found.clone());
        found
    }
}

/// Opens a regular file as the process sees it; `None` when there is none. The path is another's: it could be a pipe or a device by
/// now.
fn open(pid: i32, path: &str) -> std::io::Result<Option<(File, Metadata)>> {
    let root = format!("/proc/{pid}/root");
    match foreign_file::open_below(Path::new(&root), Path::new(path)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => opened,
    }
}

/// The build id in hexadecimal; empty when the file has none or is no library.
fn read_build_id(file: File) -> String {
    let elf = foreign_file::Elf::new(file);
    let image = object::File::parse(&elf);
    let id = image
        .ok()
        .and_then(|image| Some(image.build_id().ok()??.to_vec()));
    let bytes = id.unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> i32 {
        std::process::id() as i32
    }

    #[test]
    fn the_build_at_the_path_is_compared() {
        let files = Files::default();
        let mappings = crate::process::target::Target::new(own())
            .mappings()
            .unwrap();
        let libc = mappings
            .iter()
            .find(|mapping| mapping.path.contains("/libc.so"));
        let path = &libc.expect("the C library").path;
        let id = read_build_id(File::open(path).unwrap());
        assert!(!id.is_empty(), "distributions' libraries have build ids");
        assert_eq!(files.look(own(), path, &id), FileState::Same);
        assert_eq!(
            files.look(own(), path, "00"),
            FileState::OtherBuild {
                build_id: id.clone()
            }
        );
        assert_eq!(files.look(own(), path, ""), FileState::Unknown);
        // The name that the kernel shows for a deleted file.
        assert_eq!(
            files.look(own(), &format!("{path} (deleted)"), &id),
            FileState::Same
        );
    }

    #[test]
    fn what_is_no_file_is_missing_and_a_pipe_holds_nobody_up() {
        let files = Files::default();
        assert_eq!(
            files.look(own(), "/none/libcudasnap.so", "00"),
            FileState::Missing
        );
        let pipe = std::env::temp_dir().join(format!("cudasnap-pipe-{}", own()));
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a terminated string, valid for the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert_eq!(
            files.look(own(), pipe.to_str().unwrap(), "00"),
            FileState::Missing
        );
        std::fs::remove_file(&pipe).unwrap();
        // Devices are not even opened: some act on it.
        std::os::unix::fs::symlink("/dev/zero", &pipe).unwrap();
        assert_eq!(
            files.look(own(), pipe.to_str().unwrap(), "00"),
            FileState::Missing
        );
        std::fs::remove_file(pipe).unwrap();
    }

    #[test]
    fn what_is_no_library_has_no_build_id() {
        let path = std::env::temp_dir().join(format!("cudasnap-text-{}", own()));
        std::fs::write(&path, "text").unwrap();
        let files = Files::default();
        assert_eq!(
            files.look(own(), path.to_str().unwrap(), "00"),
            FileState::OtherBuild {
                build_id: String::new()
            }
        );
        std::fs::remove_file(path).unwrap();
    }
}
