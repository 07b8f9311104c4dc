//! Another process's memory and mappings.

use std::fmt;
use std::io::{self, Read};

use serde::Serialize;

/// Longest file of `/proc/PID` that is read: `smaps` of a process with 65530 mappings (the default limit) has 80 MB.
const LONGEST: u64 = 512 << 20;

/// Why foreign memory could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryError {
    /// No such memory, or not readable (writable), at this address.
    Unmapped(u64),
    /// The process has ended.
    Gone,
    /// The kernel refuses: another user, a ptrace restriction, or a missing capability.
    Denied,
    /// Anything else, by errno.
    Os(i32),
}

impl fmt::Display for MemoryError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::Unmapped(address) => write!(out, "no accessible memory at {address:#x}"),
            MemoryError::Gone => write!(out, "the process has ended"),
            MemoryError::Denied => write!(
                out,
                "not permitted: another user's process, a ptrace restriction, or CAP_SYS_PTRACE missing"
            ),
            MemoryError::Os(libc::ETIMEDOUT) => write!(
                out,
                "its memory does not come: it lies in a file of a file system that hangs, or is watched (userfaultfd)"
            ),
            MemoryError::Os(errno) => {
                write!(
                    out,
                    "system error: {}",
                    io::Error::from_raw_os_error(*errno)
                )
            }
        }
    }
}

impl std::error::Error for MemoryError {}

impl From<io::Error> for MemoryError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) | Some(libc::ENOENT) => MemoryError::Gone,
            Some(libc::EPERM) | Some(libc::EACCES) => MemoryError::Denied,
            Some(errno) => MemoryError::Os(errno),
            None => MemoryError::Os(libc::EIO),
        }
    }
}

/// Memory that can be read by address. The ELF walk works on this, so that its tests can feed it anything.
pub trait Memory {
    /// Fills `into` from `address`, or fails without a promise about the contents of `into`.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError>;
}

/// A line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
    /// Private (copy on write), not shared.
    pub private: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Inode, 0 for anonymous memory.
    pub inode: u64,
    /// Path or pseudo name such as `[heap]`; empty for plain anonymous memory.
    pub path: String,
}

impl Mapping {
    /// Bytes.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }

    /// Plain memory, private, readable and writable, that no file backs: the kind the driver's buffer is.
    pub fn is_private_memory(&self) -> bool {
        self.private && self.readable && self.writable && self.inode == 0
    }

    /// Where the image of a program or library may begin: at offset 0 of a file. Devices are none: reads of their memory fail
    /// or, worse, have effects. Nor is hugetlb memory: a read of a page that was not touched yet takes one from the pool.
    pub fn is_image(&self) -> bool {
        let other = ["/dev/", "/anon_hugepage"];
        let is_other = other.iter().any(|start| self.path.starts_with(start));
        self.readable && self.offset == 0 && self.inode != 0 && !is_other
    }

    /// Reads one line; `None` when it has another shape.
    pub fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let trimmed = rest.trim_start();
            let cut = trimmed.find(' ').unwrap_or(trimmed.len());
            let (head, tail) = trimmed.split_at(cut);
            rest = tail;
            head
        };
        let (start, end) = field().split_once('-')?;
        let rights = field().as_bytes().first_chunk::<4>().copied()?;
        let offset = field();
        let _device = field();
        let inode = field().parse().ok()?;
        let mapping = Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            readable: rights[0] == b'r',
            writable: rights[1] == b'w',
            executable: rights[2] == b'x',
            private: rights[3] == b'p',
            offset: u64::from_str_radix(offset, 16).ok()?,
            inode,
            path: rest.trim_start().to_owned(),
        };
        (mapping.start < mapping.end).then_some(mapping)
    }
}

/// A process that is looked into. Holding one pins nothing: the process may end at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pid: i32,
}

impl Target {
    /// The process with this id, as this process's pid namespace counts. It need not exist.
    pub fn new(pid: i32) -> Self {
        Target { pid }
    }

    /// Its id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its mappings, in the order of their addresses. An ended process has none and is [`MemoryError::Gone`].
    pub fn mappings(&self) -> Result<Vec<Mapping>, MemoryError> {
        let text = self.proc_file("maps")?;
        if text.is_empty() {
            return Err(MemoryError::Gone);
        }
        Ok(text.lines().filter_map(Mapping::parse).collect())
    }

    /// A file of `/proc/PID` as text; bytes that are not UTF-8 (in a path) are replaced. One that is absurdly long is an error
    /// (`EFBIG`): a process can map a file with a path of 4 KiB as often as it likes.
    pub(crate) fn proc_file(&self, name: &str) -> Result<String, MemoryError> {
        let file = std::fs::File::open(format!("/proc/{}/{name}", self.pid))?;
        text_within(file, LONGEST)
    }

    /// The beginning of such a file, at most `limit` bytes: a process says itself how long its command line and its environment
    /// are, and may say that they are all of its address space.
    pub(crate) fn proc_file_within(&self, name: &str, limit: u64) -> Result<String, MemoryError> {
        let file = std::fs::File::open(format!("/proc/{}/{name}", self.pid))?;
        Ok(text(beginning(file, limit)?))
    }

    /// Writes `bytes` at `address`. The mapping's own rights decide: nothing is forced.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let local = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let remote = remote_range(address, bytes.len())?;
        // SAFETY: `local` covers `bytes`, which the kernel only reads; the remote range is checked by the kernel.
        let moved = unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) };
        outcome(moved, address, bytes.len())
    }

    /// Reads `length` bytes at `address` into `into`.
    ///
    /// # Safety
    /// `into` must be valid for writes of `length` bytes, and any bytes must be valid there.
    pub(crate) unsafe fn read_raw(
        &self,
        address: u64,
        into: *mut u8,
        length: usize,
    ) -> Result<(), MemoryError> {
        let local = libc::iovec {
            iov_base: into.cast(),
            iov_len: length,
        };
        let remote = remote_range(address, length)?;
        // SAFETY: the caller vouches for `into`; the remote range is checked by the kernel.
        let moved = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        outcome(moved, address, length)
    }
}

impl Memory for Target {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        // SAFETY: `into` is valid for its length, and bytes may hold anything.
        unsafe { self.read_raw(address, into.as_mut_ptr(), into.len()) }
    }
}

fn text_within(file: impl Read, longest: u64) -> Result<String, MemoryError> {
    let bytes = beginning(file, longest + 1)?;
    if bytes.len() as u64 > longest {
        return Err(MemoryError::Os(libc::EFBIG));
    }
    Ok(text(bytes))
}

fn beginning(file: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    // Most fit, and then two system calls read them: the kernel tells no size of these files.
    let mut bytes = Vec::with_capacity(4096);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn remote_range(address: u64, length: usize) -> Result<libc::iovec, MemoryError> {
    let base = usize::try_from(address).map_err(|_| MemoryError::Unmapped(address))?;
    Ok(libc::iovec {
        iov_base: base as *mut libc::c_void,
        iov_len: length,
    })
}

fn outcome(moved: isize, address: u64, length: usize) -> Result<(), MemoryError> {
    if moved >= 0 {
        // The kernel stops at the first page that it cannot reach.
        return if moved as usize == length {
            Ok(())
        } else {
            Err(MemoryError::Unmapped(address + moved as u64))
        };
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EFAULT) | Some(libc::EINVAL) => Err(MemoryError::Unmapped(address)),
        _ => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_spaces_in_its_path_is_read() {
        let mapping = Mapping::parse(
            "7f00a000-7f00b000 rw-p 00001000 fe:00 42                    /tmp/a b (deleted)",
        )
        .unwrap();
        assert_eq!(mapping.path, "/tmp/a b (deleted)");
        assert_eq!(
            (mapping.start, mapping.length(), mapping.offset),
            (0x7f00a000, 0x1000, 0x1000)
        );
        assert!(mapping.private && mapping.writable && !mapping.is_private_memory());
    }

    #[test]
    fn only_files_are_looked_into() {
        for (line, is) in [
            ("1000-2000 r--p 00000000 fe:00 42 /x/lib.so", true),
            ("1000-2000 r--p 00000000 fe:00 42 /x/lib.so (deleted)", true),
            ("1000-2000 r--p 00001000 fe:00 42 /x/lib.so", false),
            ("1000-2000 ---p 00000000 fe:00 42 /x/lib.so", false),
            ("1000-2000 rw-p 00000000 00:00 0", false),
            ("1000-2000 rw-s 00000000 00:06 99 /dev/nvidia0", false),
            (
                "1000-2000 rw-p 00000000 00:0f 99 /anon_hugepage (deleted)",
                false,
            ),
        ] {
            assert_eq!(Mapping::parse(line).unwrap().is_image(), is, "{line}");
        }
    }

    #[test]
    fn a_text_is_read_up_to_a_limit() {
        assert_eq!(text_within(&b"abc"[..], 3), Ok("abc".into()));
        assert_eq!(
            text_within(&b"abcd"[..], 3),
            Err(MemoryError::Os(libc::EFBIG))
        );
        assert_eq!(text_within(&b"a\xff"[..], 3), Ok("a\u{fffd}".into()));
    }

    #[test]
    fn garbage_lines_are_refused() {
        for line in [
            "",
            "x",
            "1-",
            "2-1 rwxp 0 0:0 0",
            "1-2 rw 0 0:0 0",
            "1-2 rw-p zz 0:0 0",
            "1-2 rw-p 0 0:0",
            "1-2 rw-p 0 0:0 é",
        ] {
            assert_eq!(Mapping::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn own_memory_is_read_and_written() {
        let mut word = 7u64;
        let target = Target::new(std::process::id() as i32);
        let address = &raw mut word as u64;
        target.write(address, &9u64.to_ne_bytes()).unwrap();
        let mut copy = [0; 8];
        target.read(address, &mut copy).unwrap();
        assert_eq!(u64::from_ne_bytes(copy), 9);
        assert_eq!(
            target.read(16, &mut copy),
            Err(MemoryError::Unmapped(16)),
            "the first page is never mapped"
        );
        assert!(!target.mappings().unwrap().is_empty());
    }

    #[test]
    fn an_ended_process_is_an_error_value() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let target = Target::new(child.id() as i32);
        child.wait().unwrap();
        let mut byte = [0];
        assert_eq!(target.read(4096, &mut byte), Err(MemoryError::Gone));
        assert_eq!(target.mappings(), Err(MemoryError::Gone));
    }

    #[test]
    fn a_zombie_is_gone_too() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let target = Target::new(child.id() as i32);
        std::thread::sleep(std::time::Duration::from_millis(200));
        let mut byte = [0];
        assert_eq!(target.read(4096, &mut byte), Err(MemoryError::Gone));
        assert_eq!(target.mappings(), Err(MemoryError::Gone));
        child.wait().unwrap();
    }
}
