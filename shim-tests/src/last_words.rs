//! What a process of the suite says when a fault ends it: the signal, the address, the instruction, and its mappings, on stderr. A lane
//! that dies once in ten thousand cycles leaves nothing else to go by.

use std::ffi::c_void;
use std::mem::{size_of_val, zeroed};
use std::ptr;

/// Signals of faults.
const FAULTS: [i32; 3] = [libc::SIGBUS, libc::SIGSEGV, libc::SIGILL];

/// From now on: a fault is told, and then ends the process as it would have.
pub fn on_faults() {
    for number in FAULTS {
        // SAFETY: all zeros are a valid action, and the handler makes only calls that a handler may make.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = tell as *const () as usize;
            // Back from the handler the instruction runs again, and ends the process.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND | libc::SA_ONSTACK;
            libc::sigaction(number, &action, ptr::null_mut());
        }
    }
}

extern "C" fn tell(number: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel gives a handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    for (word, value) in [
        ("\nended by signal ", number as u64),
        (" code ", u64::from(code.unsigned_abs())),
        (" address ", address),
        (" instruction ", instruction(context)),
        // SAFETY: takes nothing.
        (" thread ", unsafe { libc::gettid() } as u64),
    ] {
        say(word.as_bytes());
        say(&hex(value));
    }
    say(b"\n");
    say_mappings();
}

#[cfg(target_arch = "x86_64")]
fn instruction(context: *mut c_void) -> u64 {
    // SAFETY: what the kernel gives a handler.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_RIP as usize] as u64
}

#[cfg(not(target_arch = "x86_64"))]
fn instruction(_: *mut c_void) -> u64 {
    0
}

fn hex(value: u64) -> [u8; 18] {
    let mut text = *b"0x0000000000000000";
    for (place, digit) in text[2..].iter_mut().rev().enumerate() {
        let nibble = (value >> (4 * place)) as u8 & 0xf;
        *digit = if nibble < 10 { b'0' } else { b'a' - 10 } + nibble;
    }
    text
}

fn say(bytes: &[u8]) {
    // SAFETY: the bytes are there. Nobody hears it where stderr is closed.
    unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
}

fn say_mappings() {
    let mut chunk = [0u8; 4096];
    // SAFETY: a terminated path, and a buffer of this length.
    unsafe {
        let file = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY);
        loop {
            let got = libc::read(file, chunk.as_mut_ptr().cast(), size_of_val(&chunk));
            let Some(bytes) = usize::try_from(got).ok().and_then(|got| chunk.get(..got)) else {
                break;
            };
            if bytes.is_empty() {
                break;
            }
            say(bytes);
        }
        libc::close(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_fault_is_told_and_ends_the_process() {
        let mut said = tempfile();
        let file = said.as_raw_fd();
        // SAFETY: the child makes only calls that are allowed after fork; the file it maps has no bytes.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::dup2(file, 2);
                let empty = libc::memfd_create(c"empty".as_ptr(), 0);
                let page = libc::mmap(
                    ptr::null_mut(),
                    4096,
                    libc::PROT_READ,
                    libc::MAP_SHARED,
                    empty,
                    0,
                );
                on_faults();
                page.cast::<u8>().read_volatile();
                libc::_exit(1);
            }
            let mut status = 0;
            libc::waitpid(child, &mut status, 0);
            status
        };
        assert!(
            libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS,
            "{status:#x}"
        );
        let mut text = String::new();
        said.rewind().unwrap();
        said.read_to_string(&mut text).unwrap();
        assert!(
            text.contains("ended by signal 0x0000000000000007"),
            "{text}"
        );
        let mapping = text.lines().find(|line| line.contains("empty (deleted)"));
        let start = mapping.and_then(|line| line.split('-').next()).unwrap();
        assert!(text.contains(&format!("address 0x{start:0>16}")), "{text}");
    }

    fn tempfile() -> File {
        // SAFETY: a terminated name; the descriptor is nobody else's.
        unsafe {
            let file = libc::memfd_create(c"said".as_ptr(), libc::MFD_CLOEXEC);
            std::os::fd::FromRawFd::from_raw_fd(file)
        }
    }
}
