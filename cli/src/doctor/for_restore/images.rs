//! A folder of CRIU's images: which files the dumped processes had mapped.
//!
//! An image begins with two numbers, the same one in all images and one for its kind; then come messages, each behind its length.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use prost::Message;

use crate::foreign_file;

use super::messages::{FileEntry, Memory, RegularFile, Remap, MAPS_FILE};

const COMMON: u32 = 0x5456_4319;
const FILES: u32 = 0x5630_3138;
const REGULAR_FILES: u32 = 0x5036_3636;
const MEMORY: u32 = 0x5749_2820;
const REMAPS: u32 = 0x5913_3954;

/// Longest image that is read: a process with 65,530 mappings needs 5 MB.
const LARGEST: u64 = 64 << 20;

/// Why a folder's images cannot be read.
#[derive(Debug)]
pub enum ImagesError {
    /// There is no list of files in the folder.
    NoImages(PathBuf),
    /// A file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// A file is not what its name says.
    Malformed(PathBuf, String),
}

impl fmt::Display for ImagesError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImagesError::NoImages(folder) => write!(
                out,
                "{}: no images of CRIU there (no files.img): give the folder that criu dump -D had",
                folder.display()
            ),
            ImagesError::Unreadable(path, error) => write!(out, "{}: {error}", path.display()),
            ImagesError::Malformed(path, why) => {
                write!(out, "{}: no image of CRIU: {why}", path.display())
            }
        }
    }
}

impl std::error::Error for ImagesError {}

/// A file that dumped processes had mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// Its path, as the processes saw it.
    pub path: String,
    /// Bytes, where CRIU has noted them.
    pub size: Option<u64>,
    /// Build id, filled up with zeros to a multiple of 4 bytes; empty when CRIU has not noted it.
    pub build_id: Vec<u8>,
    /// The images hold the file itself, since it had been deleted.
    pub carried: bool,
    /// Ids of the processes.
    pub pids: BTreeSet<i32>,
}

/// The files that the processes in a folder of images had mapped, by path.
///
/// # Errors
/// What is wrong with the folder.
pub fn mapped_files(folder: &Path) -> Result<Vec<MappedFile>, ImagesError> {
    let files = regular_files(folder)?;
    let carried = carried(folder)?;
    let mut found: BTreeMap<String, MappedFile> = BTreeMap::new();
    for (pid, path) in memory_images(folder)? {
        let bytes = read(&path)?;
        let messages: Vec<Memory> = messages(&path, &bytes, MEMORY)?;
        for mapping in messages.iter().flat_map(|memory| &memory.mappings) {
            let id = u32::try_from(mapping.file).ok();
            let file = id.and_then(|id| files.get(&id));
            let Some(file) = file.filter(|_| mapping.status & MAPS_FILE != 0) else {
                continue;
            };
            let entry = found.entry(file.name.clone());
            let new = || MappedFile::new(file, carried.contains(&file.id));
            entry.or_insert_with(new).pids.insert(pid);
        }
    }
    Ok(found.into_values().collect())
}

impl MappedFile {
    fn new(file: &RegularFile, carried: bool) -> Self {
        MappedFile {
            path: file.name.clone(),
            size: file.size,
            build_id: file
                .build_id
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect(),
            carried,
            pids: BTreeSet::new(),
        }
    }
}

/// The list of files: one for all kinds, or, before CRIU 3.0, one for this kind.
fn regular_files(folder: &Path) -> Result<BTreeMap<u32, RegularFile>, ImagesError> {
    let all = folder.join("files.img");
    let old = folder.join("reg-files.img");
    let files: Vec<RegularFile> = if all.is_file() {
        let entries: Vec<FileEntry> = messages(&all, &read(&all)?, FILES)?;
        entries
            .into_iter()
            .filter_map(|entry| entry.regular)
            .collect()
    } else if old.is_file() {
        messages(&old, &read(&old)?, REGULAR_FILES)?
    } else {
        return Err(ImagesError::NoImages(folder.to_path_buf()));
    };
    Ok(files.into_iter().map(|file| (file.id, file)).collect())
}

fn carried(folder: &Path) -> Result<BTreeSet<u32>, ImagesError> {
    let path = folder.join("remap-fpath.img");
    if !path.is_file() {
        return Ok(BTreeSet::new());
    }
    let remaps: Vec<Remap> = messages(&path, &read(&path)?, REMAPS)?;
    Ok(remaps.iter().map(|remap| remap.file).collect())
}

/// `mm-PID.img`, by process id.
fn memory_images(folder: &Path) -> Result<BTreeMap<i32, PathBuf>, ImagesError> {
    let unreadable = |error| ImagesError::Unreadable(folder.to_path_buf(), error);
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let pid = name
            .strip_prefix("mm-")
            .and_then(|rest| rest.strip_suffix(".img"));
        if let Some(pid) = pid.and_then(|pid| pid.parse().ok()) {
            found.insert(pid, path);
        }
    }
    Ok(found)
}

/// Anybody may have put a pipe or something endless into the folder.
fn read(path: &Path) -> Result<Vec<u8>, ImagesError> {
    let read = match foreign_file::open(path) {
        Ok(Some((file, _))) => foreign_file::read(file, LARGEST),
        Ok(None) => Err(io::Error::other("it is no regular file")),
        Err(error) => Err(error),
    };
    read.map_err(|error| ImagesError::Unreadable(path.to_path_buf(), error))
}

fn messages<T: Message + Default>(
    path: &Path,
    bytes: &[u8],
    kind: u32,
) -> Result<Vec<T>, ImagesError> {
    parse(bytes, kind).map_err(|why| ImagesError::Malformed(path.to_path_buf(), why))
}

fn parse<T: Message + Default>(bytes: &[u8], kind: u32) -> Result<Vec<T>, String> {
    let (first, rest) = number(bytes).ok_or("it is too short")?;
    let (second, mut rest) = number(rest).ok_or("it is too short")?;
    if (first, second) != (COMMON, kind) {
        return Err(format!(
            "it begins with {first:#x} {second:#x}, not with {COMMON:#x} {kind:#x}"
        ));
    }
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (length, after) = number(rest).ok_or("it is cut off")?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let message = after.get(..length).ok_or("it is cut off")?;
        found.push(T::decode(message).map_err(|error| error.to_string())?);
        rest = &after[length..];
    }
    Ok(found)
}

/// Takes bytes for an image of each kind in turn: what was read is still there when more follows.
#[cfg(any(test, fuzzing))]
pub fn parse_any(bytes: &[u8]) {
    fn check<T: Message + Default + PartialEq>(bytes: &[u8], kind: u32) {
        let head = [COMMON.to_le_bytes(), kind.to_le_bytes()].concat();
        let whole = [&head, bytes].concat();
        let Ok(found) = parse::<T>(&whole, kind) else {
            return;
        };
        let longer = [&whole[..], &0u32.to_le_bytes()].concat();
        if let Ok(more) = parse::<T>(&longer, kind) {
            assert!(more.starts_with(&found) && more.len() == found.len() + 1);
        }
    }
    let _ = parse::<FileEntry>(bytes, FILES);
    let body = bytes.get(8..).unwrap_or_default();
    check::<FileEntry>(body, FILES);
    check::<RegularFile>(body, REGULAR_FILES);
    check::<Memory>(body, MEMORY);
    check::<Remap>(body, REMAPS);
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*head), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `sleep` with both libraries preloaded, dumped by CRIU 4.1.1.
    fn sample() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/criu-4.1.1")
    }

    #[test]
    fn the_files_of_a_real_dump_are_found() {
        let files = mapped_files(&sample()).unwrap();
        let find = |path: &str| files.iter().find(|file| file.path == path).unwrap();
        let shim = find("/opt/cudasnap/0.1.0/libcudasnap.so");
        assert_eq!(shim.size, Some(4_726_208));
        let id = crate::doctor::elf_file::hex(&shim.build_id);
        assert_eq!(id, "73d32e7b0f7b6f1182220e438cbfcbacee32685e");
        assert_eq!(shim.pids, BTreeSet::from([1]));
        let libcuda = find("/opt/driver/libcuda.so.580.159.04");
        assert_eq!(libcuda.size, Some(212_400));
        assert!(!files.iter().any(|file| file.path == "/dev/null"));
    }

    #[test]
    fn a_cut_or_foreign_image_is_refused() {
        let bytes = fs::read(sample().join("files.img")).unwrap();
        assert!(parse::<FileEntry>(&bytes, FILES).is_ok());
        assert!(parse::<FileEntry>(&bytes, MEMORY).is_err());
        for length in [0, 7, 9, 12, 13, bytes.len() - 1] {
            assert!(
                parse::<FileEntry>(&bytes[..length], FILES).is_err(),
                "{length}"
            );
        }
        let none = mapped_files(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err();
        assert!(matches!(none, ImagesError::NoImages(_)), "{none}");
        assert!(matches!(
            mapped_files(Path::new("/nonexistent")),
            Err(ImagesError::NoImages(_))
        ));
    }

    #[test]
    fn pipes_and_endless_files_are_refused() {
        let folder = std::env::temp_dir().join(format!("cudasnap-images-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::copy(sample().join("files.img"), folder.join("files.img")).unwrap();
        let refused = |why: &str| {
            let error = mapped_files(&folder).unwrap_err().to_string();
            assert!(error.contains("mm-1.img") && error.contains(why), "{error}");
            fs::remove_file(folder.join("mm-1.img")).unwrap();
        };
        let name = std::ffi::CString::new(folder.join("mm-1.img").to_str().unwrap()).unwrap();
        // SAFETY: a terminated string, valid for the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        refused("no regular file");
        std::os::unix::fs::symlink("/dev/zero", folder.join("mm-1.img")).unwrap();
        refused("no regular file");
        std::os::unix::fs::symlink("mm-1.img", folder.join("mm-1.img")).unwrap();
        refused("symbolic links");
        let huge = fs::File::create_new(folder.join("mm-1.img")).unwrap();
        huge.set_len(1 << 40).unwrap();
        refused("longer than");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_image_cut_anywhere_is_refused_or_ends_between_messages() {
        let bytes = fs::read(sample().join("files.img")).unwrap();
        let whole = parse::<FileEntry>(&bytes, FILES).unwrap();
        let mut found = BTreeSet::new();
        for length in 0..bytes.len() {
            if let Ok(some) = parse::<FileEntry>(&bytes[..length], FILES) {
                assert_eq!(some, whole[..some.len()]);
                assert!(found.insert(some.len()), "once for each number of messages");
            }
        }
        assert_eq!(found.len(), whole.len());
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse::<FileEntry>(&bytes, FILES);
            let head = [COMMON.to_le_bytes(), FILES.to_le_bytes()].concat();
            bytes.splice(..0, head);
            let _ = parse::<FileEntry>(&bytes, FILES);
            let _ = parse::<Memory>(&bytes, FILES);
        }
    }
}
