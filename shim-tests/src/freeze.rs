//! A frozen world: every thread of a process stopped but the restore thread, as CRIU's CUDA plugin has it.
//!
//! The plugin (CRIU 4.2) seizes and interrupts all threads; around each driver action it blocks all signals but SIGTRAP in the
//! restore thread, continues it alone, and interrupts it again. Threads born in between are not traced and run. A library that
//! waits for a thread of the frozen world hangs here.

use std::io;
use std::marker::PhantomData;
use std::ptr;

use cudasnap_cli::process::observe::threads;
use cudasnap_cli::process::target::Target;
use libc::{c_int, c_uint};

const GETSIGMASK: c_uint = 0x420a;
const SETSIGMASK: c_uint = 0x420b;

/// A stopped thread.
#[derive(Debug)]
struct Stopped {
    tid: i32,
    /// Signal that was about to be delivered when it stopped, 0 = none; delivered on release.
    signal: c_int,
}

/// The frozen world. Dropping it releases all threads.
///
/// All of it must happen on the thread that made it: ptrace knows the tracing thread, not its process.
#[derive(Debug)]
pub struct Freeze {
    pid: i32,
    restore_thread: i32,
    stopped: Vec<Stopped>,
    not_send: PhantomData<*const ()>,
}

impl Freeze {
    /// Stops all threads of the process. `restore_thread` must be one of them.
    pub fn new(pid: i32, restore_thread: i32) -> io::Result<Self> {
        let mut freeze = Freeze {
            pid,
            restore_thread,
            stopped: Vec::new(),
            not_send: PhantomData,
        };
        // A thread that is not stopped yet may give birth to others: until a look finds nobody new.
        while freeze.stop_new(Target::new(pid))? {}
        if freeze.position(restore_thread).is_none() {
            return Err(io::Error::other("the restore thread is not there"));
        }
        Ok(freeze)
    }

    /// Ids of the frozen threads, the restore thread's among them.
    pub fn thread_ids(&self) -> Vec<i32> {
        self.stopped.iter().map(|stopped| stopped.tid).collect()
    }

    /// Lets the restore thread alone run, all its signals but SIGTRAP blocked, while `action` goes on.
    pub fn with_restore_thread<T>(&mut self, action: impl FnOnce() -> T) -> io::Result<T> {
        self.with_thread(self.restore_thread, action)
    }

    /// The same with another of the frozen threads.
    pub fn with_thread<T>(&mut self, tid: i32, action: impl FnOnce() -> T) -> io::Result<T> {
        let at = self
            .position(tid)
            .ok_or_else(|| io::Error::other("the thread has ended"))?;
        let mut mask = 0u64;
        let trap = 1u64 << (libc::SIGTRAP - 1);
        signal_mask(GETSIGMASK, tid, &mut mask)?;
        signal_mask(SETSIGMASK, tid, &mut !trap)?;
        request(libc::PTRACE_CONT, tid, 0)?;
        let result = action();
        request(libc::PTRACE_INTERRUPT, tid, 0)?;
        match wait_stop(tid)? {
            Some(stopped) => self.stopped[at] = stopped,
            None => {
                self.stopped.remove(at);
                return Err(io::Error::other("the thread ended"));
            }
        }
        signal_mask(SETSIGMASK, tid, &mut mask)?;
        Ok(result)
    }

    fn position(&self, tid: i32) -> Option<usize> {
        self.stopped.iter().position(|stopped| stopped.tid == tid)
    }

    fn stop_new(&mut self, target: Target) -> io::Result<bool> {
        let mut found = false;
        for thread in threads(target).map_err(io::Error::other)? {
            if self.position(thread.tid).is_some() {
                continue;
            }
            if let Some(stopped) = stop(self.pid, thread.tid)? {
                self.stopped.push(stopped);
                found = true;
            }
        }
        Ok(found)
    }
}

impl Drop for Freeze {
    fn drop(&mut self) {
        // The first thread last: of a process that was killed meanwhile its end is told only after all others'.
        let (first, others): (Vec<_>, Vec<_>) =
            self.stopped.iter().partition(|one| one.tid == self.pid);
        for stopped in others.into_iter().chain(first) {
            if request(libc::PTRACE_DETACH, stopped.tid, stopped.signal).is_ok() {
                continue;
            }
            // A step that failed in the middle has left its thread running.
            let _ = request(libc::PTRACE_INTERRUPT, stopped.tid, 0);
            if stopped.tid != self.pid {
                // One that was killed is waited for: its process cannot end before its tracer has seen that.
                let _ = wait_stop(stopped.tid);
            } else {
                // The end of the first thread is left to whoever waits for the process.
                wait_stop_or_end(self.pid);
            }
            let _ = request(libc::PTRACE_DETACH, stopped.tid, 0);
        }
    }
}

/// Waits until the first thread of a process has stopped or ended, without taking its end away.
fn wait_stop_or_end(pid: i32) {
    let options = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
    while !is_dead(pid, pid) {
        // SAFETY: all bits zero are a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is valid for the call.
        let waited = unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, options) };
        // SAFETY: waitid has filled it in, or left it zero.
        if waited != 0 || unsafe { info.si_pid() } == pid {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Stops a thread; `None` when it has ended since it was listed.
fn stop(pid: i32, tid: i32) -> io::Result<Option<Stopped>> {
    match request(libc::PTRACE_SEIZE, tid, 0) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        // So the kernel refuses a thread that is about to be gone.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && is_dead(pid, tid) => {
            return Ok(None)
        }
        outcome => outcome?,
    }
    match request(libc::PTRACE_INTERRUPT, tid, 0) {
        // It ends now: its end is waited for.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
        outcome => outcome?,
    }
    wait_stop(tid)
}

/// Whether a thread has run its last instruction.
fn is_dead(pid: i32, tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    state.is_empty() || state.starts_with(['Z', 'X'])
}

/// Waits until a traced thread has stopped; `None` when it has ended instead.
fn wait_stop(tid: i32) -> io::Result<Option<Stopped>> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for the call.
        let waited = unsafe { libc::waitpid(tid, &mut status, libc::__WALL) };
        if waited == tid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if !libc::WIFSTOPPED(status) {
        return Ok(None);
    }
    // An event in the high bits is the stop that was asked for; without one a signal came first and is kept.
    let event = status >> 16;
    let signal = if event == 0 {
        libc::WSTOPSIG(status)
    } else {
        0
    };
    Ok(Some(Stopped { tid, signal }))
}

fn request(what: c_uint, tid: i32, data: c_int) -> io::Result<()> {
    // SAFETY: these requests take no address; `data` is a number.
    let result = unsafe { libc::ptrace(what, tid, ptr::null_mut::<u8>(), data as usize) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Reads or writes the kernel's 64-bit signal mask of a stopped thread.
fn signal_mask(what: c_uint, tid: i32, mask: &mut u64) -> io::Result<()> {
    // SAFETY: the request takes the mask's size as address and its place as data, both valid for the call.
    let result = unsafe { libc::ptrace(what, tid, size_of::<u64>(), ptr::from_mut(mask)) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Host, HostSpec};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_millis(300);

    #[test]
    fn a_frozen_process_is_silent_runs_on_request_and_recovers() {
        let spec = HostSpec::new(
            "sh",
            ["-c", "echo ready $$; while read q; do echo bad 0; done"],
        );
        let mut host = Host::start(&spec, Duration::from_secs(5)).unwrap();
        let pid = host.pid();
        let mut freeze = Freeze::new(pid, pid).unwrap();
        assert_eq!(freeze.thread_ids(), [pid]);
        assert!(host.wrong_words(PATIENCE).is_err());
        // The answer that it owed comes while its only thread is let go, and only then.
        let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let blocked = freeze
            .with_restore_thread(|| {
                std::thread::sleep(Duration::from_millis(100));
                status()
            })
            .unwrap();
        // All but SIGTRAP, and the two that nobody can block.
        assert!(blocked.contains("SigBlk:\tfffffffffffbfeef"), "{blocked}");
        assert!(status().contains("SigBlk:\t0000000000000000"));
        drop(freeze);
        host.ask("sum", Duration::from_secs(5)).unwrap();
    }

    #[test]
    fn an_unknown_restore_thread_is_refused_and_nothing_stays_frozen() {
        let spec = HostSpec::new(
            "sh",
            ["-c", "echo ready $$; while read q; do echo bad 0; done"],
        );
        let mut host = Host::start(&spec, Duration::from_secs(5)).unwrap();
        assert!(Freeze::new(host.pid(), 1).is_err());
        assert_eq!(host.wrong_words(Duration::from_secs(5)).unwrap(), 0);
    }
}
