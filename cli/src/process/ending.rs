//! Notices that a process has ended, and how.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::identity::{Identity, IdentityError};
use super::target::Target;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By this signal.
    Signal(i32),
    /// By itself, with this exit status.
    Exit(i32),
    /// The kernel does not say: it was collected by its parent before anybody could look.
    Unknown,
}

impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Signal(number) => write!(out, "ended by signal {number}"),
            Ending::Exit(status) => write!(out, "ended with exit status {status}"),
            Ending::Unknown => write!(out, "ended"),
        }
    }
}

/// A process whose end is awaited. The descriptor names this very process even when its id is given to another one.
#[derive(Debug)]
pub struct Watch {
    pid: i32,
    file: OwnedFd,
}

impl Watch {
    /// Begins to watch. Afterwards the identity is looked at again, so that the watched process is the one that was meant.
    ///
    /// # Errors
    /// The process has ended, or the kernel (before 5.3) or a seccomp filter refuses `pidfd_open`.
    pub fn of(identity: &Identity) -> io::Result<Self> {
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, identity.pid, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns; pidfd_open sets close-on-exec.
        let file = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        match identity.check() {
            Ok(()) => Ok(Watch {
                pid: identity.pid,
                file,
            }),
            Err(IdentityError::Unreadable(_, error)) => Err(io::Error::other(error)),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Waits for the end for at most so long; `None`: it still lives.
    pub fn ended_within(&self, limit: Duration) -> Option<Ending> {
        let mut poll = libc::pollfd {
            fd: self.file.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let milliseconds = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one pollfd, valid for the call.
        let ready = unsafe { libc::poll(&mut poll, 1, milliseconds) };
        (ready > 0).then(|| self.ending())
    }

    fn ending(&self) -> Ending {
        exit_code_of(&self.file)
            .or_else(|| exit_code_in_stat(self.pid))
            .map_or(Ending::Unknown, Ending::from_wait_status)
    }
}

/// `struct pidfd_info` of linux/pidfd.h up to `exit_code` (first size, 64 bytes).
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

const PIDFD_INFO_EXIT: u64 = 1 << 3;
/// `_IOWR(0xff, 11, struct pidfd_info)` with 64 bytes.
const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;

/// The wait status of a process that was collected already: Linux 6.15 and later keep it with the descriptor.
fn exit_code_of(file: &OwnedFd) -> Option<i32> {
    let mut info = PidfdInfo {
        mask: PIDFD_INFO_EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: the request's size is that of `info`, which is valid for the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), PIDFD_GET_INFO as _, &raw mut info) };
    (done == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// The wait status of one that was not collected yet: the last field of its `stat`, 0 for those who may not know.
fn exit_code_in_stat(pid: i32) -> Option<i32> {
    let stat = Target::new(pid).proc_file("stat").ok()?;
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let mut fields = rest.split_whitespace();
    let zombie = matches!(fields.next(), Some("Z" | "X" | "x"));
    let status: i32 = fields.last()?.parse().ok()?;
    (zombie && status != 0).then_some(status)
}

impl Ending {
    /// From what `wait` says.
    pub fn from_wait_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Ending::Signal(libc::WTERMSIG(status))
        } else {
            Ending::Exit(libc::WEXITSTATUS(status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_that_ended_a_process_is_told() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let watch = Watch::of(&Identity::of(child.id() as i32).unwrap()).unwrap();
        assert_eq!(watch.ended_within(Duration::ZERO), None);
        child.kill().unwrap();
        // Not collected yet: its parent, this test, has not waited.
        assert_eq!(
            watch.ended_within(Duration::from_secs(10)),
            Some(Ending::Signal(9))
        );
        child.wait().unwrap();
        // Collected: newer kernels still know.
        let late = watch.ended_within(Duration::ZERO).unwrap();
        assert!(matches!(late, Ending::Signal(9) | Ending::Unknown));
    }

    #[test]
    fn an_exit_status_is_told() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read line; exit 3"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let watch = Watch::of(&Identity::of(child.id() as i32).unwrap()).unwrap();
        drop(child.stdin.take());
        assert_eq!(
            watch.ended_within(Duration::from_secs(10)),
            Some(Ending::Exit(3))
        );
        child.wait().unwrap();
    }

    #[test]
    fn the_structure_is_the_kernels() {
        assert_eq!(size_of::<PidfdInfo>(), 64);
        assert_eq!(std::mem::offset_of!(PidfdInfo, exit_code), 60);
    }
}
