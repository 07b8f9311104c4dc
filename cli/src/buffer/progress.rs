//! How far a long command has come, and whether it is to stop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};

use super::stop::Stop;
use crate::exit::Exit;

/// A bar on stderr, when that is a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Begins; `what` in a few words.
    pub fn begin(what: &str, bytes: u64) -> Self {
        let form = "{msg} [{bar:24}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}";
        let style = ProgressStyle::with_template(form);
        let bar = ProgressBar::new(bytes)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_message(what.to_string());
        Progress { bar }
    }

    /// So many bytes more are done.
    pub fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Signals that ask to stop: noted, not obeyed at once.
#[derive(Debug)]
pub struct Interrupts {
    signal: Arc<AtomicUsize>,
}

impl Interrupts {
    /// From now on SIGINT, SIGTERM and SIGHUP are only noted.
    ///
    /// # Errors
    /// The kernel refuses a handler.
    pub fn watch() -> Result<Self, Stop> {
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let note = Arc::clone(&signal);
            signal_hook::flag::register_usize(number, note, number as usize)
                .map_err(|error| Stop::failed(format!("signal {number}: {error}")))?;
        }
        Ok(Interrupts { signal })
    }

    /// The signal that came, if any.
    pub fn came(&self) -> Option<i32> {
        let number = self.signal.load(Ordering::Relaxed);
        i32::try_from(number).ok().filter(|number| *number != 0)
    }

    /// Stops when a signal came; `left` says how things were left.
    ///
    /// # Errors
    /// A signal came.
    pub fn stop(&self, left: &str) -> Result<(), Stop> {
        match self.came() {
            None => Ok(()),
            Some(number) => Err(Stop::with(
                Exit::Signal(number),
                format!("interrupted by signal {number}: {left}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_noted_and_stops() {
        let interrupts = Interrupts {
            signal: Arc::new(AtomicUsize::new(0)),
        };
        interrupts.stop("x").unwrap();
        interrupts.signal.store(15, Ordering::Relaxed);
        let stop = interrupts.stop("nothing was changed").unwrap_err();
        assert_eq!(stop.exit.status(), 143);
        assert!(stop.text.unwrap().ends_with("nothing was changed"));
    }
}
