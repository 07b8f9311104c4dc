//! A process all of whose threads are stopped.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::control::ptrace::{self, Event};
use crate::foreign_text::printable;
use crate::process::identity::{line_of, number_of};
use crate::process::observe::threads;
use crate::process::target::{MemoryError, Target};

/// Why a process could not be stopped. Whatever was stopped already goes on.
#[derive(Debug)]
pub enum StopError {
    /// Another process traces it, and there can be only one.
    Traced(i32),
    /// The kernel refuses.
    Denied,
    /// It has ended.
    Ended,
    /// This thread did not stop within the limit: it waits in the kernel in a way that nothing interrupts.
    Slow(i32),
    /// Anything else.
    Os(io::Error),
}

impl fmt::Display for StopError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopError::Traced(by) => {
                let name = Target::new(*by).proc_file("comm").unwrap_or_default();
                write!(
                    out,
                    "process {by} ({}) is tracing it",
                    printable(name.trim_end())
                )
            }
            StopError::Denied => write!(out, "this process may not trace it (ptrace)"),
            StopError::Ended => write!(out, "it has ended"),
            StopError::Slow(tid) => write!(
                out,
                "its thread {tid} waits in the kernel and cannot be interrupted"
            ),
            StopError::Os(error) => write!(out, "ptrace: {error}"),
        }
    }
}

impl From<io::Error> for StopError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => StopError::Ended,
            _ => StopError::Os(error),
        }
    }
}

/// The stopped process. Dropping it lets all threads go on.
///
/// All of it happens on one thread of this process: ptrace knows the tracing thread. Signals to that thread wait meanwhile, so
/// that nothing but SIGKILL ends it here; the kernel lets the threads go on even then.
#[derive(Debug)]
pub struct Stopped {
    pid: i32,
    threads: Vec<i32>,
    _signals: SignalsHeld,
    not_send: PhantomData<*const ()>,
}

impl Stopped {
    /// Stops all threads, those born meanwhile too.
    ///
    /// # Errors
    /// When not every thread has stopped within `limit`, with the reason.
    pub fn within(pid: i32, limit: Duration) -> Result<Self, StopError> {
        let deadline = Instant::now() + limit;
        let mut stopped = Stopped {
            pid,
            threads: Vec::new(),
            _signals: SignalsHeld::new(),
            not_send: PhantomData,
        };
        // A thread that has not stopped yet may start others: until a look finds nobody new.
        loop {
            let new = stopped.seize_new()?;
            if new.is_empty() {
                break;
            }
            for tid in new {
                stopped.wait_for(tid, deadline)?;
                // One that starts threads as fast as they are stopped.
                if Instant::now() > deadline {
                    return Err(StopError::Slow(tid));
                }
            }
        }
        if stopped.threads.is_empty() {
            return Err(StopError::Ended);
        }
        Ok(stopped)
    }

    /// Ids of the stopped threads.
    pub fn threads(&self) -> &[i32] {
        &self.threads
    }

    /// Asks every thread that is not traced yet to stop.
    fn seize_new(&mut self) -> Result<Vec<i32>, StopError> {
        let all = threads(Target::new(self.pid)).map_err(|error| match error {
            MemoryError::Gone => StopError::Ended,
            MemoryError::Denied => StopError::Denied,
            other => StopError::Os(io::Error::other(other)),
        })?;
        let mut new = Vec::new();
        for thread in all {
            if self.threads.contains(&thread.tid) || !seized(self.pid, thread.tid)? {
                continue;
            }
            self.threads.push(thread.tid);
            new.push(thread.tid);
            match ptrace::interrupt(thread.tid) {
                // It ends: the wait for it will tell.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                asked => asked?,
            }
        }
        Ok(new)
    }

    fn wait_for(&mut self, tid: i32, deadline: Instant) -> Result<(), StopError> {
        match wait_for_stop(tid, deadline)? {
            Some(true) => Ok(()),
            Some(false) => {
                self.threads.retain(|thread| *thread != tid);
                Ok(())
            }
            None => Err(StopError::Slow(tid)),
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for &tid in &self.threads {
            // A thread that would not stop in time cannot be let go in words: the kernel does it when this process ends.
            let released = ptrace::detach(tid);
            // One that was killed meanwhile is waited for: its process cannot end before its tracer has seen that. The first
            // thread is left to whoever waits for the process.
            if released.is_err() && tid != self.pid {
                let _ = ptrace::wait(tid, Some(Instant::now()));
            }
        }
    }
}

/// Waits until a thread that was asked to stop has stopped. `Some(false)`: it has ended; `None`: not before the deadline. A
/// signal that comes first is delivered as if nobody traced it.
pub fn wait_for_stop(tid: i32, deadline: Instant) -> io::Result<Option<bool>> {
    loop {
        match ptrace::wait(tid, Some(deadline))? {
            Some(Event::Stopped) => return Ok(Some(true)),
            Some(Event::Ended) => return Ok(Some(false)),
            Some(Event::Signal(signal)) => again(tid, signal)?,
            Some(Event::SystemCall) => again(tid, 0)?,
            None => return Ok(None),
        }
    }
}

/// Any stop takes the place of the one that was asked for: asks once more.
fn again(tid: i32, signal: i32) -> io::Result<()> {
    let asked = ptrace::interrupt(tid).and_then(|()| ptrace::go_on(tid, signal));
    match asked {
        // It was killed: the next wait will tell.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        asked => asked,
    }
}

/// Begins to trace a thread; false when it has ended.
fn seized(pid: i32, tid: i32) -> Result<bool, StopError> {
    let error = match ptrace::seize(tid) {
        Ok(()) => return Ok(true),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(false),
        Some(libc::EPERM) => {
            let status = Target::new(pid).proc_file(&format!("task/{tid}/status"));
            refusal(&status.unwrap_or_default()).map_or(Ok(false), Err)
        }
        _ => Err(error.into()),
    }
}

/// Why a thread with this `status` may not be traced; `None`: it has ended (a first thread that ended before the others stays
/// listed).
fn refusal(status: &str) -> Option<StopError> {
    let state = line_of(status, "State")?;
    if state.starts_with(['Z', 'X']) {
        return None;
    }
    match number_of(status, "TracerPid") {
        Some(0) | None => Some(StopError::Denied),
        Some(by) => Some(StopError::Traced(by)),
    }
}

/// Signals to this thread wait while it lives.
#[derive(Debug)]
struct SignalsHeld {
    before: libc::sigset_t,
}

impl SignalsHeld {
    fn new() -> Self {
        // SAFETY: both sets are plain memory, filled by the calls before they are read.
        let before = unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            before
        };
        SignalsHeld { before }
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the kernel gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    const LIMIT: Duration = Duration::from_secs(20);

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sleeper() -> Killed {
        let child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn();
        Killed(child.unwrap())
    }

    fn state(pid: i32) -> String {
        let status = Target::new(pid).proc_file("status").unwrap();
        line_of(&status, "State").unwrap().to_string()
    }

    /// Waits for a state that must come.
    fn expect_state(pid: i32, letter: char) {
        let deadline = Instant::now() + LIMIT;
        while !state(pid).starts_with(letter) {
            assert!(Instant::now() < deadline, "{}", state(pid));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_stops_and_goes_on() {
        let child = sleeper();
        let pid = child.0.id() as i32;
        let stopped = Stopped::within(pid, LIMIT).unwrap();
        assert_eq!(stopped.threads(), [pid]);
        assert!(state(pid).starts_with('t'));
        drop(stopped);
        expect_state(pid, 'S');
    }

    #[test]
    fn a_process_that_was_stopped_stays_stopped() {
        let child = sleeper();
        let pid = child.0.id() as i32;
        // SAFETY: kill takes two numbers; the child has not been waited for.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        expect_state(pid, 'T');
        drop(Stopped::within(pid, LIMIT).unwrap());
        expect_state(pid, 'T');
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        expect_state(pid, 'S');
    }

    #[test]
    fn the_tracer_of_a_traced_process_is_named() {
        let child = sleeper();
        let pid = child.0.id() as i32;
        let _first = Stopped::within(pid, LIMIT).unwrap();
        let second =
            std::thread::spawn(move || Stopped::within(pid, LIMIT).unwrap_err().to_string());
        // SAFETY: takes nothing. The kernel names the tracing thread.
        let own = unsafe { libc::gettid() };
        let text = second.join().unwrap();
        assert!(text.starts_with(&format!("process {own} (")), "{text}");
    }

    #[test]
    fn a_process_that_ends_is_an_error_value() {
        let mut child = sleeper();
        let pid = child.0.id() as i32;
        child.0.kill().unwrap();
        expect_state(pid, 'Z');
        assert!(matches!(Stopped::within(pid, LIMIT), Err(StopError::Ended)));
        child.0.wait().unwrap();
        assert!(matches!(Stopped::within(pid, LIMIT), Err(StopError::Ended)));
    }

    #[test]
    fn why_a_thread_may_not_be_traced() {
        assert!(refusal("State:\tZ (zombie)\nTracerPid:\t0\n").is_none());
        assert!(refusal("").is_none());
        let traced = refusal("State:\tt (tracing stop)\nTracerPid:\t77\n");
        assert!(matches!(traced, Some(StopError::Traced(77))));
        let denied = refusal("State:\tS (sleeping)\nTracerPid:\t0\n");
        assert!(matches!(denied, Some(StopError::Denied)));
    }
}
