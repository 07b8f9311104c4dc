//! Frees the pages of a kept or reserved buffer from outside, at once: the process is stopped and one of its threads gives them back.
//!
//! The addresses stay: the library in the process believes them to be its own until it unmaps them itself. A process is stopped
//! for one slice at a time, so that a server stands still for milliseconds and not for the whole of a large buffer.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::control::inject::{self, InjectError, SystemCall};
use crate::control::sandbox::Sandbox;
use crate::control::stopped::{StopError, Stopped};
use crate::process::cuda::CudaUse;
use crate::process::identity::Identity;
use crate::process::observe::has_flag;
use crate::process::target::{Mapping, MemoryError, Target};
use crate::record::view::BufferView;
use crate::record::{Located, RecordError};

/// A thread that does not stop within this time waits for a device or a file system.
const LIMIT: Duration = Duration::from_secs(1);
/// Freed while the process stands still: 32 ms with 4 KiB pages, 3 ms with huge pages (measured: 32 and 340 GB/s).
const SLICE: u64 = 1 << 30;
/// `MADV_DONTNEED_LOCKED` (Linux 5.18): the same for memory that is locked (mlockall).
const DONTNEED_LOCKED: u64 = 24;
/// What is freed of memory that is watched by userfaultfd may have to wait for the watcher, who would be stopped: flags of
/// `VmFlags` in smaps.
const WATCHED: [&str; 3] = ["um", "uw", "ui"];
/// Calls in which the driver's thread waits for work, and the library never does.
const WAITS: [i64; 7] = [
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_recvmsg,
];

/// Why pages were not freed at once.
#[derive(Debug)]
pub enum NotNow {
    /// The process could not be stopped.
    Stop(StopError),
    /// The record could not be read while it was stopped.
    Record(RecordError),
    /// What lies at the buffer's address is not, or not only, the memory of a buffer.
    Mappings,
    /// The record names more memory than there is.
    TooLong,
    /// The memory is watched by userfaultfd.
    Watched,
    /// The tool has gone: nothing more is begun.
    Abandoned,
    /// A thread did not come back from the call.
    Stuck(i32),
    /// A hugetlb buffer while the driver's thread is at work: it may be about to use it again.
    Busy,
    /// No thread waits in the kernel in a way that can be used.
    NoThread,
    /// The kernel refused to free the pages, by errno.
    Refused(i32),
    /// A ptrace request failed.
    Os(io::Error),
}

impl fmt::Display for NotNow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotNow::Stop(error) => write!(out, "{error}"),
            NotNow::Record(error) => write!(out, "the record: {error}"),
            NotNow::Mappings => write!(out, "other memory lies at the buffer's address"),
            NotNow::TooLong => write!(out, "the buffer is longer than main memory and swap"),
            NotNow::Watched => write!(out, "the buffer's memory is watched (userfaultfd)"),
            NotNow::Abandoned => write!(out, "the tool was killed"),
            NotNow::Stuck(tid) => write!(
                out,
                "its thread {tid} does not come back from madvise: it may have a wrong result of the call it waited in"
            ),
            NotNow::Busy => write!(out, "the driver's thread is at work"),
            NotNow::NoThread => write!(out, "no thread of it waits in a system call"),
            NotNow::Refused(errno) => {
                write!(out, "madvise: {}", io::Error::from_raw_os_error(*errno))
            }
            NotNow::Os(error) => write!(out, "ptrace: {error}"),
        }
    }
}

impl From<StopError> for NotNow {
    fn from(error: StopError) -> Self {
        NotNow::Stop(error)
    }
}

impl From<RecordError> for NotNow {
    fn from(error: RecordError) -> Self {
        NotNow::Record(error)
    }
}

impl From<MemoryError> for NotNow {
    fn from(error: MemoryError) -> Self {
        NotNow::Record(RecordError::Memory(error))
    }
}

impl From<io::Error> for NotNow {
    fn from(error: io::Error) -> Self {
        StopError::from(error).into()
    }
}

/// Frees all pages of the kept or reserved buffer. Ends early, without an error, when the buffer is no longer kept: the process has freed
/// it, or uses it again. `go_on` is asked before each part.
///
/// # Errors
/// Why not, or not all.
pub fn pages(
    identity: &Identity,
    record: &Located,
    buffer: &BufferView,
    go_on: &dyn Fn() -> bool,
) -> Result<(), NotNow> {
    let target = identity.target();
    let range = buffer.range().ok_or(NotNow::Mappings)?;
    // A record that lies could keep the tool busy for hours.
    if buffer.mapped > main_memory_and_swap() {
        return Err(NotNow::TooLong);
    }
    if has_flag(target, range.0, range.1, &WATCHED)? {
        return Err(NotNow::Watched);
    }
    let mut next = range.0;
    while next < range.1 {
        if !go_on() {
            return Err(NotNow::Abandoned);
        }
        let stopped = Stopped::within(target.pid(), LIMIT)?;
        // Every thread stands still: what the record says now holds until they go on.
        let now = record.read()?.buffer;
        if !now.is_waiting() || now.range() != Some(range) {
            return Ok(());
        }
        look(identity, range)?;
        let length = SLICE.min(range.1 - next);
        free_slice(target, &stopped, next, length)?;
        next += length;
    }
    Ok(())
}

/// The last look at the stopped process: it is the one that was meant, and the range is a buffer that nobody uses.
fn look(identity: &Identity, range: (u64, u64)) -> Result<(), NotNow> {
    let target = identity.target();
    identity.check().map_err(|_| StopError::Ended)?;
    if !is_buffers(&target.mappings()?, range) {
        return Err(NotNow::Mappings);
    }
    if is_hugetlb(target, range.0)? && !driver_waits(target)? {
        return Err(NotNow::Busy);
    }
    Ok(())
}

/// Bytes; `u64::MAX` where the kernel does not say.
fn main_memory_and_swap() -> u64 {
    // SAFETY: the structure is plain numbers; all zero is one of its values.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for the call.
    if unsafe { libc::sysinfo(&raw mut info) } != 0 {
        return u64::MAX;
    }
    (info.totalram + info.totalswap).saturating_mul(u64::from(info.mem_unit))
}

/// Whether the whole range is plain private memory, or hugetlb memory, which has a name of its own.
fn is_buffers(mappings: &[Mapping], (start, end): (u64, u64)) -> bool {
    let mut next = start;
    for mapping in mappings {
        if mapping.end <= next || mapping.start >= end {
            continue;
        }
        let plain = mapping.is_private_memory() && mapping.path.is_empty();
        let huge = mapping.private && mapping.path.starts_with("/anon_hugepage");
        if mapping.start > next || !(plain || huge) {
            return false;
        }
        next = mapping.end;
    }
    next >= end
}

/// Whether hugetlb pages lie at the address. Such pages cannot be had again where the pool is empty, and a touch is a signal then;
/// other pages come back as zeros.
fn is_hugetlb(target: Target, address: u64) -> Result<bool, MemoryError> {
    let mappings = target.mappings()?;
    let mut at = mappings
        .iter()
        .filter(|mapping| (mapping.start..mapping.end).contains(&address));
    Ok(at.any(|mapping| mapping.path.starts_with("/anon_hugepage")))
}

/// Whether the driver's thread, stopped now, waits for a command, so that no request for a buffer is half answered.
fn driver_waits(target: Target) -> Result<bool, NotNow> {
    let CudaUse::Initialised { restore_thread } = CudaUse::of(target)? else {
        return Ok(true);
    };
    let waits = inject::waits_in(restore_thread)?;
    Ok(waits.is_some_and(|(call, first)| {
        WAITS.contains(&call) || (call == libc::SYS_read && is_pipe(target, first))
    }))
}

fn is_pipe(target: Target, descriptor: u64) -> bool {
    let link = std::fs::read_link(format!("/proc/{}/fd/{descriptor}", target.pid()));
    link.is_ok_and(|link| {
        let name = link.to_string_lossy();
        name.starts_with("pipe:") || name.starts_with("socket:") || name.starts_with("anon_inode:")
    })
}

fn free_slice(target: Target, stopped: &Stopped, address: u64, length: u64) -> Result<(), NotNow> {
    let advice = |advice: u64| SystemCall {
        number: libc::SYS_madvise,
        arguments: [address, length, advice],
    };
    let plain = in_some_thread(target, stopped, &advice(libc::MADV_DONTNEED as u64))?;
    let result = match -plain {
        number if number == i64::from(libc::EINVAL) => {
            in_some_thread(target, stopped, &advice(DONTNEED_LOCKED))?
        }
        _ => plain,
    };
    match result {
        0 => Ok(()),
        errno => Err(NotNow::Refused(i32::try_from(-errno).unwrap_or(0))),
    }
}

fn in_some_thread(target: Target, stopped: &Stopped, call: &SystemCall) -> Result<i64, NotNow> {
    let driver = Sandbox::of_driver(target)?;
    for &tid in stopped.threads() {
        if !Sandbox::of(target, tid).is_ok_and(|thread| thread.allows_what(driver)) {
            continue;
        }
        match inject::system_call(target, tid, call) {
            Err(InjectError::Unusable) => {}
            Err(InjectError::Ended) => return Err(StopError::Ended.into()),
            Err(InjectError::Stuck) => return Err(NotNow::Stuck(tid)),
            Err(InjectError::Os(error)) => return Err(NotNow::Os(error)),
            Ok(result) => return Ok(result),
        }
    }
    Err(NotNow::NoThread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mappings(lines: &[&str]) -> Vec<Mapping> {
        let parsed = lines.iter().map(|line| Mapping::parse(line).unwrap());
        parsed.collect()
    }

    #[test]
    fn the_whole_range_must_be_memory_of_a_buffer() {
        let plain = "2000-6000 rw-p 00000000 00:00 0";
        let range = (0x2000, 0x6000);
        for (lines, is) in [
            (&[plain][..], true),
            (&["1000-9000 rw-p 00000000 00:00 0"], true),
            (
                &[
                    "2000-3000 rw-p 00000000 00:00 0",
                    "3000-6000 rw-p 00000000 00:00 0",
                ],
                true,
            ),
            (
                &["2000-6000 rw-p 00000000 00:0f 99 /anon_hugepage (deleted)"],
                true,
            ),
            (&[], false),
            (&["2000-5000 rw-p 00000000 00:00 0"], false),
            (&["3000-6000 rw-p 00000000 00:00 0"], false),
            (
                &[
                    "2000-3000 rw-p 00000000 00:00 0",
                    "4000-6000 rw-p 00000000 00:00 0",
                ],
                false,
            ),
            (&["2000-6000 r--p 00000000 00:00 0"], false),
            (&["2000-6000 rw-s 00000000 00:00 0"], false),
            (&["2000-6000 rw-p 00000000 00:00 0 [heap]"], false),
            (&["2000-6000 rw-p 00000000 fe:00 42 /x"], false),
        ] {
            assert_eq!(is_buffers(&mappings(lines), range), is, "{lines:?}");
        }
    }

    #[test]
    fn a_pipe_is_told_from_a_file() {
        use std::os::fd::AsRawFd;
        let own = Target::new(std::process::id() as i32);
        let (reader, _writer) = std::io::pipe().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(is_pipe(own, reader.as_raw_fd() as u64));
        assert!(!is_pipe(own, file.as_raw_fd() as u64));
        assert!(!is_pipe(own, 1 << 20));
    }
}
