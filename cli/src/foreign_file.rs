//! Files whose path somebody else chose: a process that is looked at, a script, an image. Opening one must not wait (a pipe), must
//! not do anything (a device, a file of the kernel), and reading it must not take more memory than is told.

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use object::read::{ReadCache, ReadRef};
use rustix::fs::{fstatfs, open as open_at, openat2, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// File systems whose files are the kernel's own words: reading one can wait, or take away what was read.
const OF_THE_KERNEL: [u64; 12] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0xcafe_4a11, // bpf
    0x6367_7270, // cgroup2
    0x0027_e0eb, // cgroup
    0xf97c_ff8c, // selinux
];

/// Opens a regular file for reading; `None` when what is there is no such file.
///
/// # Errors
/// There is nothing, or it may not be opened.
pub fn open(path: &Path) -> io::Result<Option<(File, Metadata)>> {
    // A handle on the place: of a pipe or a device nothing is opened yet.
    let place = open_at(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    regular(place, path)
}

/// The same below a folder that stands for `/`: links and `..` lead nowhere else. `path` may begin with `/`.
///
/// # Errors
/// As [`open`].
pub fn open_below(root: &Path, path: &Path) -> io::Result<Option<(File, Metadata)>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let folder = open_at(root, flags | OFlags::DIRECTORY, Mode::empty())?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match openat2(&folder, path, flags, Mode::empty(), inside) {
        // Before Linux 5.6, or a filter of system calls: links are then followed as this process sees them.
        Err(Errno::NOSYS | Errno::PERM) => open(&root.join(path.strip_prefix("/").unwrap_or(path))),
        Err(error) => Err(error.into()),
        Ok(place) => regular(place, Path::new("")),
    }
}

/// Opens the file of which `place` is a handle; by `path` where there is no `/proc`.
fn regular(place: OwnedFd, path: &Path) -> io::Result<Option<(File, Metadata)>> {
    let place = File::from(place);
    let metadata = place.metadata()?;
    if !metadata.is_file() || OF_THE_KERNEL.contains(&(fstatfs(&place)?.f_type as u64)) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let again = |path: &Path| open_at(path, flags, Mode::empty()).map(File::from);
    let file = match again(Path::new(&format!("/proc/self/fd/{}", place.as_raw_fd()))) {
        Err(Errno::NOENT) => again(path)?,
        opened => opened?,
    };
    let is_same = file.metadata()?.ino() == metadata.ino();
    Ok(is_same.then_some((file, metadata)))
}

/// Reads a file as far as `limit` bytes.
///
/// # Errors
/// It cannot be read, or is longer.
pub fn read(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("it is longer than {limit} bytes")));
    }
    Ok(bytes)
}

/// A file that an ELF reader may read here and there, but no more of it than `left` bytes in all: sizes in it may be lies.
#[derive(Debug)]
pub struct Elf {
    cache: ReadCache<File>,
    left: Cell<u64>,
}

impl Elf {
    /// No library of the field needs more for its headers, names and notes.
    const LIMIT: u64 = 64 << 20;

    /// Around this file.
    pub fn new(file: File) -> Self {
        Elf {
            cache: ReadCache::new(file),
            left: Cell::new(Self::LIMIT),
        }
    }

    fn take(&self, bytes: u64) -> Result<(), ()> {
        self.left.set(self.left.get().checked_sub(bytes).ok_or(())?);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for &'a Elf {
    fn len(self) -> Result<u64, ()> {
        (&self.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.take(size)?;
        (&self.cache).read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        // Names and the like: the reader grows until the delimiter comes.
        let end = range.end.min(range.start.saturating_add(self.left.get()));
        let found = (&self.cache).read_bytes_at_until(range.start..end, delimiter)?;
        self.take(found.len() as u64)?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("cudasnap-foreign-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_regular_files_are_opened_and_nothing_waits() {
        let folder = Folder::new("kinds");
        let pipe = folder.path("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a terminated string, valid for the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for (link, to) in [
            ("zero", "/dev/zero"),
            ("kmsg", "/proc/kmsg"),
            ("up", "/proc/self/maps"),
        ] {
            symlink(to, folder.path(link)).unwrap();
            assert!(open(&folder.path(link)).unwrap().is_none(), "{to}");
        }
        assert!(open(&pipe).unwrap().is_none() && open(&folder.0).unwrap().is_none());
        assert_eq!(
            open(&folder.path("none")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        std::fs::write(folder.path("file"), "text").unwrap();
        let (file, metadata) = open(&folder.path("file")).unwrap().unwrap();
        assert_eq!(
            (metadata.len(), read(file, 4).unwrap()),
            (4, b"text".to_vec())
        );
        let (file, _) = open(&folder.path("file")).unwrap().unwrap();
        assert!(read(file, 3).is_err());
    }

    #[test]
    fn nothing_leads_out_of_a_root() {
        let folder = Folder::new("root");
        let root = folder.path("root");
        std::fs::create_dir_all(root.join("lib")).unwrap();
        std::fs::write(folder.path("outside"), "outside").unwrap();
        std::fs::write(root.join("lib/x"), "inside").unwrap();
        symlink("/lib/x", root.join("link")).unwrap();
        let text = |path: &str| {
            let found = open_below(&root, Path::new(path)).ok()??;
            String::from_utf8(read(found.0, 100).unwrap()).ok()
        };
        assert_eq!(text("/link").as_deref(), Some("inside"));
        assert_eq!(text("/../lib/x").as_deref(), Some("inside"));
        assert_eq!(text("/../outside"), None);
    }

    #[test]
    fn sizes_that_are_lies_take_no_memory() {
        let folder = Folder::new("sparse");
        let file = File::create_new(folder.path("sparse")).unwrap();
        file.set_len(1 << 40).unwrap();
        let elf = Elf::new(open(&folder.path("sparse")).unwrap().unwrap().0);
        assert!((&elf).read_bytes_at(0, 1 << 39).is_err());
        assert!((&elf).read_bytes_at(0, 64).is_ok());
        assert!((&elf).read_bytes_at_until(0..1 << 40, 1).is_err());
        assert!(
            (&elf).read_bytes_at(0, Elf::LIMIT).is_err(),
            "64 bytes are taken"
        );
    }
}
