//! The ptrace requests that are used here, one function each.

use std::io;
use std::time::{Duration, Instant};

use libc::{c_int, c_uint, user_regs_struct};

const GETSIGMASK: c_uint = 0x420a;
const SETSIGMASK: c_uint = 0x420b;

/// What a traced thread has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It has stopped because it was asked to, or since its whole process is stopped (SIGSTOP).
    Stopped,
    /// It has stopped before this signal is delivered; the signal is the tracer's to pass on.
    Signal(c_int),
    /// It has stopped at the entry or the exit of a system call.
    SystemCall,
    /// It has ended.
    Ended,
}

/// Begins to trace a thread without stopping it.
pub fn seize(tid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD as usize;
    request(libc::PTRACE_SEIZE, tid, options)
}

/// Asks a traced thread to stop. One that is stopped stops again when it is let go.
pub fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Lets a stopped thread go on, with this signal delivered first; 0 = none.
pub fn go_on(tid: i32, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, signal as usize)
}

/// Lets a stopped thread go on to the next entry or exit of a system call. A signal that it stopped for is not delivered.
pub fn go_on_to_system_call(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0)
}

/// Lets a stopped thread go for good.
pub fn detach(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0)
}

/// The registers of a stopped thread.
pub fn registers(tid: i32) -> io::Result<user_regs_struct> {
    // SAFETY: the structure is plain numbers; all zero is one of its values.
    let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: the request writes one such structure to the place given as data.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid, 0usize, &raw mut registers) };
    outcome(done).map(|()| registers)
}

/// Sets the registers of a stopped thread.
pub fn set_registers(tid: i32, registers: &user_regs_struct) -> io::Result<()> {
    // SAFETY: the request reads one such structure from the place given as data.
    let done = unsafe {
        let from = std::ptr::from_ref(registers);
        libc::ptrace(libc::PTRACE_SETREGS, tid, 0usize, from)
    };
    outcome(done)
}

/// The signals that a stopped thread blocks, one bit each.
pub fn signal_mask(tid: i32) -> io::Result<u64> {
    let mut mask = 0u64;
    // SAFETY: the request takes the mask's size as address and writes the mask to the place given as data.
    let done = unsafe { libc::ptrace(GETSIGMASK, tid, size_of::<u64>(), &raw mut mask) };
    outcome(done).map(|()| mask)
}

/// Sets the signals that a stopped thread blocks.
pub fn set_signal_mask(tid: i32, mask: u64) -> io::Result<()> {
    // SAFETY: the request takes the mask's size as address and reads the mask from the place given as data.
    let done = unsafe { libc::ptrace(SETSIGMASK, tid, size_of::<u64>(), &raw const mask) };
    outcome(done)
}

/// Waits for what a traced thread does next; `None` when it did nothing until the deadline.
pub fn wait(tid: i32, deadline: Option<Instant>) -> io::Result<Option<Event>> {
    let mut pause = Duration::from_micros(20);
    loop {
        let mut status = 0;
        // Without a deadline the kernel wakes us; with one there is no such call, so it is asked again and again.
        let flags = libc::__WALL | deadline.map_or(0, |_| libc::WNOHANG);
        // SAFETY: `status` is valid for the call.
        let waited = unsafe { libc::waitpid(tid, &mut status, flags) };
        if waited == tid {
            return Ok(Some(event_of(status)));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            _ if waited == 0 => {}
            Some(libc::EINTR) => continue,
            // Another thread of its process has called exec, or its process was collected.
            Some(libc::ECHILD) => return Ok(Some(Event::Ended)),
            _ => return Err(error),
        }
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}

fn event_of(status: c_int) -> Event {
    if !libc::WIFSTOPPED(status) {
        return Event::Ended;
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 if signal == libc::SIGTRAP | 0x80 => Event::SystemCall,
        0 => Event::Signal(signal),
        _ => Event::Stopped,
    }
}

fn request(what: c_uint, tid: i32, data: usize) -> io::Result<()> {
    // SAFETY: these requests take no address; `data` is a number.
    outcome(unsafe { libc::ptrace(what, tid, 0usize, data) })
}

fn outcome(done: libc::c_long) -> io::Result<()> {
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_word_is_told_apart() {
        let stopped = |event: c_int, signal: c_int| event << 16 | signal << 8 | 0x7f;
        for (status, event) in [
            (stopped(128, libc::SIGTRAP), Event::Stopped),
            (stopped(128, libc::SIGSTOP), Event::Stopped),
            (stopped(0, libc::SIGSTOP), Event::Signal(libc::SIGSTOP)),
            (stopped(0, libc::SIGTRAP), Event::Signal(libc::SIGTRAP)),
            (stopped(0, libc::SIGTRAP | 0x80), Event::SystemCall),
            (0, Event::Ended),
            (libc::SIGKILL, Event::Ended),
        ] {
            assert_eq!(event_of(status), event, "{status:#x}");
        }
    }
}
