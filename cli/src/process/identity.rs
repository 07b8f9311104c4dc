//! Who a process id means: the same process from the first look to the last, and not a thread of another.

use std::fmt;

use serde::Serialize;

use super::target::{MemoryError, Target};
use crate::foreign_text::printable;

/// A process, told apart from a later one with the same id by the moment of its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Its id, as this process's pid namespace counts.
    pub pid: i32,
    /// Its parent's id; 0 when the parent is outside this namespace.
    pub parent: i32,
    /// Start, in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub started: u64,
    /// Effective user.
    pub uid: u32,
    /// Name (`comm`), at most 15 bytes, with escapes in place of control characters: it is foreign.
    pub name: String,
    /// Its ids in each pid namespace that it is in, from this process's one inwards; at least one.
    pub namespace_pids: Vec<i32>,
}

/// Why a number names no process that can be worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityError {
    /// No process has this id.
    NoSuchProcess(i32),
    /// The id of a thread that is not the first of its process.
    Thread {
        /// The id.
        tid: i32,
        /// The process that the thread belongs to.
        pid: i32,
        /// That process's name.
        name: String,
    },
    /// It has ended, and its parent has not collected it yet.
    Zombie(i32),
    /// Its first thread has ended while others go on: the kernel shows nothing of it any more.
    FirstThreadEnded(i32),
    /// The id belongs to another process by now.
    Reused(i32),
    /// It exists, and `/proc` does not show it.
    Hidden(i32),
    /// There is no `/proc`.
    NoProc,
    /// `/proc` cannot be read.
    Unreadable(i32, MemoryError),
}

impl fmt::Display for IdentityError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdentityError::NoSuchProcess(pid) => write!(
                out,
                "no process has the id {pid}: \"cudasnap status\" lists those that use CUDA"
            ),
            IdentityError::Thread { tid, pid, name } => write!(
                out,
                "{tid} is a thread of process {pid} ({}): give the process's id, {pid}",
                printable(name)
            ),
            IdentityError::Zombie(pid) => {
                write!(out, "process {pid} has ended, its parent has not collected it")
            }
            IdentityError::FirstThreadEnded(pid) => write!(
                out,
                "the first thread of process {pid} has ended while others go on: its memory cannot be read any more"
            ),
            IdentityError::Reused(pid) => write!(
                out,
                "the process that had the id {pid} has ended, and another one has it now: nothing was done to that one"
            ),
            IdentityError::Hidden(pid) => write!(
                out,
                "process {pid} exists, and /proc does not show it: /proc is mounted with hidepid (run as root), or is that of another \
                 pid namespace (mount -t proc proc /proc)"
            ),
            IdentityError::NoProc => write!(
                out,
                "/proc is not mounted: no process can be looked at (mount -t proc proc /proc)"
            ),
            IdentityError::Unreadable(pid, error) => write!(out, "/proc/{pid}: {error}"),
        }
    }
}

impl std::error::Error for IdentityError {}

impl Identity {
    /// Looks the process up.
    ///
    /// # Errors
    /// Why the number names no process that can be worked on.
    pub fn of(pid: i32) -> Result<Self, IdentityError> {
        Ok(Self::with_status(pid)?.0)
    }

    /// The same, with the text of the process's `status` file, for those who need more of it.
    ///
    /// # Errors
    /// As [`Identity::of`].
    pub(crate) fn with_status(pid: i32) -> Result<(Self, String), IdentityError> {
        let (identity, state, status) = look(pid)?;
        match state {
            b'Z' | b'X' | b'x' if has_other_threads(pid) => {
                Err(IdentityError::FirstThreadEnded(pid))
            }
            b'Z' | b'X' | b'x' => Err(IdentityError::Zombie(pid)),
            _ => Ok((identity, status)),
        }
    }

    /// Whether this very process still lives: not ended, and its id not given to another one.
    ///
    /// # Errors
    /// What became of it.
    pub fn check(&self) -> Result<(), IdentityError> {
        let (now, state, _) = look(self.pid)?;
        // One that has only lost its first thread lives.
        if matches!(state, b'Z' | b'X' | b'x') && !has_other_threads(self.pid) {
            return Err(IdentityError::Zombie(self.pid));
        }
        if now.started == self.started {
            Ok(())
        } else {
            Err(IdentityError::Reused(self.pid))
        }
    }

    /// Its name, for showing.
    pub fn shown_name(&self) -> String {
        printable(&self.name)
    }

    /// The process's memory and mappings.
    pub fn target(&self) -> Target {
        Target::new(self.pid)
    }

    /// Its id in its own (innermost) pid namespace: what `getpid` returns in it.
    pub fn own_pid(&self) -> i32 {
        *self.namespace_pids.last().unwrap_or(&self.pid)
    }
}

/// Whether it is stopped: by a signal (SIGSTOP, Ctrl-Z), or by a debugger.
pub fn is_stopped(pid: i32) -> bool {
    let stat = Target::new(pid).proc_file("stat").ok();
    let state = stat.and_then(|stat| Some(parse_stat(&stat)?.0));
    matches!(state, Some(b'T' | b't'))
}

fn look(pid: i32) -> Result<(Identity, u8, String), IdentityError> {
    let target = Target::new(pid);
    let read = |name| {
        target.proc_file(name).map_err(|error| match error {
            MemoryError::Gone => unseen(pid),
            error => IdentityError::Unreadable(pid, error),
        })
    };
    let status = read("status")?;
    let owner: i32 = number_of(&status, "Tgid").unwrap_or(pid);
    if owner != pid {
        let name = Target::new(owner).proc_file("comm").unwrap_or_default();
        return Err(IdentityError::Thread {
            tid: pid,
            pid: owner,
            name: printable(name.trim_end()),
        });
    }
    let stat = read("stat")?;
    let (state, parent, started) = parse_stat(&stat).ok_or(IdentityError::Unreadable(
        pid,
        MemoryError::Os(libc::EPROTO),
    ))?;
    let mut namespace_pids: Vec<i32> = line_of(&status, "NSpid")
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    if namespace_pids.is_empty() {
        namespace_pids.push(pid);
    }
    let identity = Identity {
        pid,
        parent,
        started,
        uid: uid_in(&status),
        name: printable(line_of(&status, "Name").unwrap_or_default()),
        namespace_pids,
    };
    Ok((identity, state, status))
}

/// Why `/proc` does not show a process.
fn unseen(pid: i32) -> IdentityError {
    if !is_proc_there() {
        return IdentityError::NoProc;
    }
    let asked = rustix::process::Pid::from_raw(pid).map(rustix::process::test_kill_process);
    match asked {
        Some(Ok(()) | Err(rustix::io::Errno::PERM)) => IdentityError::Hidden(pid),
        _ => IdentityError::NoSuchProcess(pid),
    }
}

/// Whether there is a `/proc` that shows this process.
pub(crate) fn is_proc_there() -> bool {
    std::path::Path::new("/proc/self/stat").exists()
}

fn has_other_threads(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    threads.is_ok_and(|threads| threads.flatten().count() > 1)
}

/// Effective user in the text of a `status` file.
pub(crate) fn uid_in(status: &str) -> u32 {
    let words = line_of(status, "Uid").unwrap_or_default();
    let effective = words.split_whitespace().nth(1);
    effective
        .and_then(|word| word.parse().ok())
        .unwrap_or(u32::MAX)
}

/// The value of a line `Name: value` of a `status` file.
pub(crate) fn line_of<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim())
}

/// The same, as a number.
pub(crate) fn number_of<T: std::str::FromStr>(status: &str, name: &str) -> Option<T> {
    line_of(status, name)?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// State, parent and start of a `stat` line. The name in it may hold blanks and parentheses: fields count from the last one.
fn parse_stat(stat: &str) -> Option<(u8, i32, u64)> {
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let mut fields = rest.split_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    // Fields 3 and 4 are taken; the start is field 22.
    let started = fields.nth(17)?.parse().ok()?;
    Some((state, parent, started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_told_from_one_that_runs() {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "kill -STOP $$; exec sleep 600"])
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let until = |stopped: bool| {
            let since = std::time::Instant::now();
            while is_stopped(pid) != stopped {
                assert!(since.elapsed() < std::time::Duration::from_secs(60));
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        };
        until(true);
        // SAFETY: takes numbers only: a child that was not waited for.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        until(false);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(std::process::id() as i32) && !is_stopped(pid));
    }

    #[test]
    fn this_process_is_itself() {
        let own = Identity::of(std::process::id() as i32).unwrap();
        own.check().unwrap();
        assert_eq!(own.pid, own.namespace_pids[0]);
        // SAFETY: takes nothing, cannot fail.
        assert_eq!(own.uid, unsafe { libc::geteuid() });
        assert!(own.started > 0 && own.parent > 0);
    }

    #[test]
    fn a_name_cannot_command_the_terminal() {
        let mut own = Identity::of(std::process::id() as i32).unwrap();
        own.name = "\u{1b}[2J".into();
        assert_eq!(own.shown_name(), "\\u{1b}[2J");
        let thread = IdentityError::Thread {
            tid: 2,
            pid: 1,
            name: own.name,
        };
        assert!(!thread.to_string().contains('\u{1b}'));
    }

    #[test]
    fn a_later_process_with_the_same_id_is_another() {
        let mut own = Identity::of(std::process::id() as i32).unwrap();
        own.started -= 1;
        assert_eq!(own.check(), Err(IdentityError::Reused(own.pid)));
    }

    #[test]
    fn a_thread_is_told_with_its_process() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            // SAFETY: takes nothing, cannot fail.
            send.send(unsafe { libc::gettid() }).unwrap();
            let _ = ended.recv();
        });
        let tid = receive.recv().unwrap();
        let error = Identity::of(tid).unwrap_err();
        let own = std::process::id() as i32;
        assert!(
            matches!(error, IdentityError::Thread { pid, .. } if pid == own),
            "{error}"
        );
        drop(end);
        other.join().unwrap();
    }

    #[test]
    fn nobody_and_the_dead_are_told_apart() {
        assert_eq!(
            Identity::of(i32::MAX),
            Err(IdentityError::NoSuchProcess(i32::MAX))
        );
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        while Identity::of(pid).is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(Identity::of(pid), Err(IdentityError::Zombie(pid)));
        child.wait().unwrap();
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_fields() {
        let stat = "7 (a) S (b) R 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse_stat(stat), Some((b'R', 3, 4711)));
        assert_eq!(parse_stat("7 (a) R 3"), None);
    }
}
