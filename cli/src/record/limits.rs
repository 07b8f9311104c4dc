//! A time limit for looking into a process that does not want to be looked into: its memory may be a file of a file system that
//! never answers, or be watched by somebody who never answers.

use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

use super::RecordError;
use crate::process::target::MemoryError;

/// How long a look may take. It takes milliseconds, and some more on a machine that swaps.
const LIMIT: Duration = Duration::from_secs(10);

/// Does the work on a thread of its own, and waits no longer than the limit. A thread that a page never comes for stays behind
/// and ends with this process.
pub fn in_time<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RecordError> + Send + 'static,
) -> Result<T, RecordError> {
    within(LIMIT, work)
}

fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> Result<T, RecordError> + Send + 'static,
) -> Result<T, RecordError> {
    let stuck = || RecordError::Memory(MemoryError::Os(libc::ETIMEDOUT));
    let (send, done) = channel();
    let named = std::thread::Builder::new().name("look".into());
    let started = named.spawn(move || {
        let _ = send.send(work());
    });
    let thread = started.map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
        RecordError::Memory(MemoryError::Os(errno))
    })?;
    match done.recv_timeout(limit) {
        Ok(result) => {
            // Its last instructions: nobody who forks afterwards finds it there.
            let _ = thread.join();
            result
        }
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(stuck()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_does_not_end_is_given_up() {
        let (_keep, never) = channel::<()>();
        let hangs = move || {
            let _ = never.recv();
            Ok(())
        };
        let error = within(Duration::from_millis(10), hangs).unwrap_err();
        assert_eq!(error, RecordError::Memory(MemoryError::Os(libc::ETIMEDOUT)));
        assert_eq!(in_time(|| Ok(7)), Ok(7));
        assert_eq!(
            in_time(|| Err::<(), _>(RecordError::Busy)),
            Err(RecordError::Busy)
        );
    }
}
