//! One system call in a stopped thread of another process.
//!
//! The thread must have been waiting in the kernel. Its own system call instruction is used again, the one before its program
//! counter, so nothing is searched for or written. A thread that was running is not taken: it could be in the middle of a
//! restartable sequence (rseq), which would no longer be restarted.
//!
//! While the call goes on, registers and signal mask of the thread are not its own. Nothing else of the process runs then, and
//! every signal to this process waits; only SIGKILL of this process in that moment would leave the thread with a wrong result
//! of its own call.

use std::io;
use std::time::{Duration, Instant};

use libc::user_regs_struct;

use crate::control::ptrace::{self, Event};
use crate::control::stopped;
use crate::process::target::{Memory, Target};

/// `syscall`.
const INSTRUCTION: [u8; 2] = [0x0f, 0x05];
/// Code segment of 64-bit programs.
const SEGMENT: u64 = 0x33;
/// Thread that is in no system call.
const NO_CALL: u64 = u64::MAX;
/// Until a thread has made the call, or has stopped at its old place.
const PATIENCE: Duration = Duration::from_secs(10);
/// Until a thread that did not come back from the call comes back because it was asked to.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Why a call gave no result.
#[derive(Debug)]
pub enum InjectError {
    /// The thread was not waiting in the kernel, or not in a way that can be used.
    Unusable,
    /// The process has ended.
    Ended,
    /// The thread does not come back from the call.
    Stuck,
    /// A ptrace request failed.
    Os(io::Error),
}

impl From<io::Error> for InjectError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => InjectError::Ended,
            _ => InjectError::Os(error),
        }
    }
}

/// A system call: number and arguments.
#[derive(Debug, Clone, Copy)]
pub struct SystemCall {
    /// Its number.
    pub number: i64,
    /// Its first three arguments; the others are 0.
    pub arguments: [u64; 3],
}

/// The system call that a stopped thread waits in: number and first argument; `None` when it was running.
pub fn waits_in(tid: i32) -> io::Result<Option<(i64, u64)>> {
    let registers = ptrace::registers(tid)?;
    let waits = registers.orig_rax <= i64::MAX as u64;
    Ok(waits.then_some((registers.orig_rax as i64, registers.rdi)))
}

/// Lets a stopped thread of the process make the call. Afterwards it is stopped where it was. Returns what the kernel
/// returned: a negative errno is an error.
///
/// # Errors
/// [`InjectError::Unusable`] when the thread cannot be used; nothing was done then.
pub fn system_call(target: Target, tid: i32, call: &SystemCall) -> Result<i64, InjectError> {
    let saved = ptrace::registers(tid)?;
    let changed = prepared(&saved, call).ok_or(InjectError::Unusable)?;
    let mut found = [0; 2];
    if target.read(changed.rip, &mut found).is_err() || found != INSTRUCTION {
        return Err(InjectError::Unusable);
    }
    let mask = ptrace::signal_mask(tid)?;
    ptrace::set_signal_mask(tid, u64::MAX)?;
    let mut held = Vec::new();
    let result = ptrace::set_registers(tid, &changed)
        .map_err(InjectError::from)
        .and_then(|()| run(tid, &mut held));
    // Whatever happened: if the thread still exists it gets back what is its own.
    let restored = ptrace::set_registers(tid, &saved).and(ptrace::set_signal_mask(tid, mask));
    let value = result?;
    restored?;
    for signal in held {
        // SAFETY: takes numbers only; a signal that came for the thread is sent to it again.
        unsafe { libc::syscall(libc::SYS_tgkill, target.pid(), tid, signal) };
    }
    settle(tid)?;
    Ok(value)
}

/// The registers for the call; `None` when the thread is in no system call, or is not a 64-bit one.
fn prepared(saved: &user_regs_struct, call: &SystemCall) -> Option<user_regs_struct> {
    if saved.orig_rax > i64::MAX as u64 || saved.cs != SEGMENT {
        return None;
    }
    let mut changed = *saved;
    changed.rip = saved.rip.checked_sub(INSTRUCTION.len() as u64)?;
    changed.rax = call.number as u64;
    // The thread's own call is not started again before this one.
    changed.orig_rax = NO_CALL;
    [changed.rdi, changed.rsi, changed.rdx] = call.arguments;
    [changed.r10, changed.r8, changed.r9] = [0; 3];
    Some(changed)
}

/// Runs the thread through one system call and returns its result. Signals that cannot be blocked are put into `held`.
fn run(tid: i32, held: &mut Vec<i32>) -> Result<i64, InjectError> {
    let mut entered = false;
    let deadline = Instant::now() + PATIENCE;
    loop {
        ptrace::go_on_to_system_call(tid)?;
        match ptrace::wait(tid, Some(deadline))? {
            Some(Event::SystemCall) if entered => {
                return Ok(ptrace::registers(tid)?.rax as i64);
            }
            Some(Event::SystemCall) => entered = true,
            Some(Event::Signal(signal)) => held.push(signal),
            Some(Event::Stopped) => {}
            Some(Event::Ended) => return Err(InjectError::Ended),
            None => return Err(called_back(tid)?),
        }
    }
}

/// Calls a thread back that has not returned in time, so that it can be given what is its own. Returns what to report: what
/// the call came to is not known.
fn called_back(tid: i32) -> Result<InjectError, InjectError> {
    ptrace::interrupt(tid)?;
    Ok(match ptrace::wait(tid, Some(Instant::now() + LAST_WAIT))? {
        Some(Event::Ended) => InjectError::Ended,
        Some(_) => InjectError::Os(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
        None => InjectError::Stuck,
    })
}

/// Brings the thread from the end of the call to the kind of stop it was in before: there, and only there, the kernel starts
/// its own interrupted call again when it goes on.
fn settle(tid: i32) -> Result<(), InjectError> {
    ptrace::interrupt(tid)?;
    ptrace::go_on(tid, 0)?;
    match stopped::wait_for_stop(tid, Instant::now() + PATIENCE)? {
        Some(true) => Ok(()),
        Some(false) => Err(InjectError::Ended),
        None => Err(InjectError::Os(io::Error::from_raw_os_error(
            libc::ETIMEDOUT,
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(orig_rax: u64, cs: u64) -> user_regs_struct {
        // SAFETY: plain numbers.
        let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
        registers.orig_rax = orig_rax;
        registers.cs = cs;
        registers.rip = 0x1002;
        registers.rsp = 0x7000;
        registers
    }

    #[test]
    fn only_a_64_bit_thread_in_a_system_call_is_prepared() {
        let call = SystemCall {
            number: libc::SYS_madvise,
            arguments: [1, 2, 3],
        };
        let changed = prepared(&registers(libc::SYS_poll as u64, SEGMENT), &call).unwrap();
        assert_eq!((changed.rip, changed.rsp), (0x1000, 0x7000));
        assert_eq!(changed.rax, libc::SYS_madvise as u64);
        assert_eq!((changed.rdi, changed.rsi, changed.rdx), (1, 2, 3));
        assert_eq!(changed.orig_rax, NO_CALL);
        for other in [
            registers(NO_CALL, SEGMENT),
            registers(libc::SYS_poll as u64, 0x23),
        ] {
            assert!(prepared(&other, &call).is_none());
        }
    }

    /// A child that waits in its own system call; the injected one must not disturb it.
    #[test]
    fn the_thread_makes_the_call_and_goes_on_waiting() {
        use std::io::Write;
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read line; exit 7"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let target = Target::new(child.id() as i32);
        let getppid = SystemCall {
            number: libc::SYS_getppid,
            arguments: [0; 3],
        };
        let deadline = Instant::now() + PATIENCE;
        // Until it waits: it may still be starting.
        for round in 0..20 {
            let stopped = stopped::Stopped::within(target.pid(), PATIENCE).unwrap();
            match system_call(target, target.pid(), &getppid) {
                Ok(parent) => assert_eq!(parent, i64::from(std::process::id())),
                Err(InjectError::Unusable) => {}
                Err(error) => panic!("{round}: {error:?}"),
            }
            drop(stopped);
            std::thread::sleep(Duration::from_millis(5));
            assert!(Instant::now() < deadline);
        }
        let stopped = stopped::Stopped::within(target.pid(), PATIENCE).unwrap();
        let call = waits_in(target.pid()).unwrap().map(|(number, _)| number);
        assert_eq!(call, Some(libc::SYS_read));
        let parent = system_call(target, target.pid(), &getppid).unwrap();
        assert_eq!(parent, i64::from(std::process::id()));
        drop(stopped);
        child.stdin.take().unwrap().write_all(b"x\n").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }

    /// Sleeping is a call that the kernel starts again in a way of its own, with the time that is left.
    #[test]
    fn a_sleep_goes_on_where_it_was() {
        let mut child = std::process::Command::new("sleep")
            .arg("1")
            .spawn()
            .unwrap();
        let target = Target::new(child.id() as i32);
        let getppid = SystemCall {
            number: libc::SYS_getppid,
            arguments: [0; 3],
        };
        let mut calls = 0;
        while child.try_wait().unwrap().is_none() {
            let Ok(stopped) = stopped::Stopped::within(target.pid(), PATIENCE) else {
                break;
            };
            match system_call(target, target.pid(), &getppid) {
                Ok(parent) => {
                    assert_eq!(parent, i64::from(std::process::id()));
                    calls += 1;
                }
                Err(InjectError::Unusable | InjectError::Ended) => {}
                Err(error) => panic!("{error:?}"),
            }
            drop(stopped);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(child.wait().unwrap().success() && calls > 0, "{calls}");
    }
}
