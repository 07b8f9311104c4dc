//! Signals as messages: nothing is interrupted, whoever listens decides what a signal means.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use crossbeam_channel::{unbounded, Receiver};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The signals by which somebody asks a program to end.
pub const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// From now on these signals do not end the process but arrive here, by number. One that is ignored (`nohup`, a background
/// job of a script) stays ignored.
///
/// # Errors
/// The kernel refuses the handler's descriptors or the thread.
pub fn listen(wanted: &[i32]) -> io::Result<Receiver<i32>> {
    let mut signals = Signals::new(wanted.iter().filter(|signal| !is_ignored(**signal)))?;
    let (send, receive) = unbounded();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if send.send(signal).is_err() {
                    break;
                }
            }
        })?;
    Ok(receive)
}

fn is_ignored(signal: i32) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only (no new action); `now` is valid for the call, and all zeroes are a valid `sigaction`.
    unsafe {
        libc::sigaction(signal, ptr::null(), now.as_mut_ptr());
        now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_told_apart() {
        // Rust's runtime ignores SIGPIPE.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGUSR2));
    }
}
