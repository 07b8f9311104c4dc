//! Signals as messages: nothing is interrupted, whoever listens decides what a signal means.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{unbounded, Receiver};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
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

/// Whether Ctrl-Z came while it was held back.
static SUSPENSION: AtomicBool = AtomicBool::new(false);

extern "C" fn note_suspension(_signal: libc::c_int) {
    SUSPENSION.store(true, Ordering::Relaxed);
}

/// Holds Ctrl-Z (SIGTSTP) back as long as it lives, and lets it take effect then: this process is not suspended in between. There is one
/// at a time.
pub struct Unsuspended {
    before: Option<libc::sigaction>,
}

impl Unsuspended {
    /// From now on.
    pub fn begin() -> Self {
        if is_ignored(SIGTSTP) {
            return Unsuspended { before: None };
        }
        SUSPENSION.store(false, Ordering::Relaxed);
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeroes are a valid `sigaction` (an empty mask); both are valid for the call. The handler writes an atomic only.
        let before = unsafe {
            let handler: extern "C" fn(libc::c_int) = note_suspension;
            (*action.as_mut_ptr()).sa_sigaction = handler as libc::sighandler_t;
            (*action.as_mut_ptr()).sa_flags = libc::SA_RESTART;
            let done = libc::sigaction(SIGTSTP, action.as_ptr(), before.as_mut_ptr());
            (done == 0).then(|| before.assume_init())
        };
        Unsuspended { before }
    }

    /// Whether Ctrl-Z waits.
    pub fn is_asked_for() -> bool {
        SUSPENSION.load(Ordering::Relaxed)
    }
}

impl Drop for Unsuspended {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        // SAFETY: what was in force before; valid for the call.
        unsafe { libc::sigaction(SIGTSTP, before, ptr::null_mut()) };
        if SUSPENSION.swap(false, Ordering::Relaxed) {
            // SAFETY: takes a number only. To this thread: it does not go on before it was stopped.
            unsafe { libc::raise(SIGTSTP) };
        }
    }
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

    static STOPS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

    extern "C" fn count_stop(_signal: libc::c_int) {
        STOPS.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_suspension_waits_until_it_may() {
        let stops = || STOPS.load(Ordering::Relaxed);
        let handler: extern "C" fn(libc::c_int) = count_stop;
        // SAFETY: in place of stopping the tests; the handler writes an atomic only.
        let old = unsafe { libc::signal(SIGTSTP, handler as libc::sighandler_t) };
        // SAFETY: takes a number only.
        let press = || unsafe { libc::raise(SIGTSTP) };
        drop(Unsuspended::begin());
        assert_eq!(stops(), 0);
        let held = Unsuspended::begin();
        assert!(!Unsuspended::is_asked_for());
        press();
        assert!(Unsuspended::is_asked_for());
        assert_eq!(stops(), 0);
        drop(held);
        assert_eq!(stops(), 1);
        drop(Unsuspended::begin());
        press();
        assert_eq!(stops(), 2);
        // SAFETY: as it was.
        unsafe { libc::signal(SIGTSTP, old) };
    }

    #[test]
    fn ignored_signals_are_told_apart() {
        // Rust's runtime ignores SIGPIPE.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGUSR2));
    }
}
