//! One traced thread: what a debugger does to it, request by request. All on the thread that seized it: ptrace knows the tracing
//! thread, not its process.

use std::io;
use std::mem::offset_of;
use std::ptr;

use libc::{c_int, c_uint};

/// Why a traced thread has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// At the start or the end of a system call.
    Syscall,
    /// `PTRACE_EVENT_...`
    Event(c_int),
    /// A signal is about to be delivered.
    Signal(c_int),
    /// It has ended.
    Ended,
}

/// A traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracee {
    /// Its id.
    pub tid: i32,
}

impl Tracee {
    /// Begins to trace a thread without stopping it.
    pub fn seize(tid: i32, options: c_int) -> io::Result<Self> {
        request(libc::PTRACE_SEIZE, tid, 0, options as usize)?;
        Ok(Tracee { tid })
    }

    /// Stops it soon.
    pub fn interrupt(self) -> io::Result<()> {
        request(libc::PTRACE_INTERRUPT, self.tid, 0, 0)
    }

    /// Lets it go on: `PTRACE_CONT`, `PTRACE_SYSCALL` or `PTRACE_SINGLESTEP`.
    pub fn resume(self, how: c_uint, signal: c_int) -> io::Result<()> {
        request(how, self.tid, 0, signal as usize)
    }

    /// Lets it go for good.
    pub fn detach(self) -> io::Result<()> {
        request(libc::PTRACE_DETACH, self.tid, 0, 0)
    }

    /// Whether it has stopped since the last look, and why.
    pub fn look(self) -> io::Result<Option<Seen>> {
        let mut status = 0;
        // SAFETY: `status` is valid for the call.
        let waited = unsafe { libc::waitpid(self.tid, &mut status, libc::__WALL | libc::WNOHANG) };
        match waited {
            0 => Ok(None),
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(Some(Seen::of(status))),
        }
    }

    /// Waits until it has stopped.
    pub fn wait(self) -> io::Result<Seen> {
        loop {
            if let Some(seen) = self.look()? {
                return Ok(seen);
            }
            std::thread::yield_now();
        }
    }

    /// The id of the thread that it has just given birth to.
    pub fn newborn(self) -> io::Result<i32> {
        let mut message = 0usize;
        let place = ptr::from_mut(&mut message) as usize;
        request(libc::PTRACE_GETEVENTMSG, self.tid, 0, place)?;
        Ok(message as i32)
    }

    /// Its registers.
    pub fn registers(self) -> io::Result<libc::user_regs_struct> {
        // SAFETY: a structure of numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let place = ptr::from_mut(&mut registers) as usize;
        request(libc::PTRACE_GETREGS, self.tid, 0, place)?;
        Ok(registers)
    }

    /// Changes its registers.
    pub fn set_registers(self, registers: &libc::user_regs_struct) -> io::Result<()> {
        let place = ptr::from_ref(registers) as usize;
        request(libc::PTRACE_SETREGS, self.tid, 0, place)
    }

    /// Makes a stopped thread end, alone, by an `exit` system call; `syscall` is the address of such an instruction.
    pub fn make_exit(self, syscall: u64) -> io::Result<()> {
        let mut registers = self.registers()?;
        registers.rip = syscall;
        registers.rax = libc::SYS_exit as u64;
        registers.rdi = 0;
        // Not inside a system call that would be made again.
        registers.orig_rax = u64::MAX;
        self.set_registers(&registers)?;
        loop {
            self.resume(libc::PTRACE_CONT, 0)?;
            if self.wait()? == Seen::Ended {
                return Ok(());
            }
        }
    }

    /// Eight bytes of its memory.
    pub fn peek(self, address: u64) -> io::Result<[u8; 8]> {
        // libc's function returns the word itself, and an error as -1 like that word.
        // SAFETY: the kernel checks the address in the other process.
        let word = unsafe {
            *libc::__errno_location() = 0;
            libc::ptrace(libc::PTRACE_PEEKDATA, self.tid, address as usize, 0usize)
        };
        let error = io::Error::last_os_error();
        if word == -1 && error.raw_os_error() != Some(0) {
            return Err(error);
        }
        Ok(word.to_ne_bytes())
    }

    /// Changes eight bytes of its memory.
    pub fn poke(self, address: u64, bytes: [u8; 8]) -> io::Result<()> {
        let word = usize::from_ne_bytes(bytes);
        request(libc::PTRACE_POKEDATA, self.tid, address as usize, word)
    }

    /// Has the CPU stop it when it next reads or writes one of these words, four at most, each at a multiple of 8.
    pub fn watch(self, addresses: &[u64]) -> io::Result<()> {
        self.unwatch()?;
        let mut control = 0usize;
        for (number, address) in addresses.iter().take(4).enumerate() {
            self.debug_register(number, *address as usize)?;
            // Enabled; reads and writes; eight bytes.
            control |= 1 << (2 * number) | 0b1011 << (16 + 4 * number);
        }
        self.debug_register(7, control)
    }

    /// Takes that back.
    pub fn unwatch(self) -> io::Result<()> {
        self.debug_register(7, 0)
    }

    fn debug_register(self, number: usize, value: usize) -> io::Result<()> {
        let at = offset_of!(libc::user, u_debugreg) + number * size_of::<usize>();
        request(libc::PTRACE_POKEUSER, self.tid, at, value)
    }
}

impl Seen {
    fn of(status: c_int) -> Self {
        if !libc::WIFSTOPPED(status) {
            return Seen::Ended;
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 if signal == libc::SIGTRAP | 0x80 => Seen::Syscall,
            0 => Seen::Signal(signal),
            event => Seen::Event(event),
        }
    }
}

fn request(what: c_uint, tid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: addresses of this process are valid for the call; those of the other are checked by the kernel.
    let result = unsafe { libc::ptrace(what, tid, address, data) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
