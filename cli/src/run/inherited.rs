//! What this process was started with and Rust's runtime changes before `main`: the program is to find it as it was.
//!
//! The runtime ignores SIGPIPE and opens `/dev/null` in place of standard descriptors that are closed.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

static IGNORES_SIGPIPE: AtomicBool = AtomicBool::new(false);
/// One bit per standard descriptor that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
const STANDARD: std::ops::Range<i32> = 0..3;

/// Runs before the runtime's own start.
#[used]
#[link_section = ".init_array"]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: an all-zero sigaction is a valid one.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: asks only, and writes to a sigaction of ours.
        let asked = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) };
        IGNORES_SIGPIPE.store(asked == 0 && action.sa_sigaction == libc::SIG_IGN, Relaxed);
        for number in STANDARD {
            // SAFETY: asks only; a closed descriptor is an error value.
            if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
                CLOSED.fetch_or(1 << number, Relaxed);
            }
        }
    }
    look
};

/// Makes it so again for the program that is executed next. Descriptors stay open until then, for messages.
pub fn hand_on() {
    let pipe = if IGNORES_SIGPIPE.load(Relaxed) {
        libc::SIG_IGN
    } else {
        libc::SIG_DFL
    };
    // SAFETY: both are dispositions, no handlers.
    unsafe { libc::signal(libc::SIGPIPE, pipe) };
    let closed = CLOSED.load(Relaxed);
    for number in STANDARD.filter(|number| closed & 1 << number != 0) {
        // SAFETY: a flag of a descriptor that nobody uses but for messages.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
