//! Looks at a program's GPU memory: one sign that it is ready is that this is quiet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, Receiver};

use super::quiet::{Quiet, Sample};
use crate::driver::{Driver, State};
use crate::gpus::{Asked, Depth};
use crate::process::identity::Identity;
use crate::process::target::Target;

/// How often GPU memory is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Looks at a process's GPU memory, or whether it is busy.
#[derive(Default)]
pub struct Memory {
    quiet: Quiet,
    last: Option<Instant>,
    pid: i32,
    driver: Option<Result<Arc<Driver>, ()>>,
    asked: Option<Receiver<bool>>,
}

impl Memory {
    /// Whether it has been quiet for so long. A look more often than twice a second says no.
    pub fn is_quiet(&mut self, identity: &Identity, long: Duration) -> bool {
        if identity.pid != self.pid {
            self.quiet = Quiet::default();
            self.pid = identity.pid;
        }
        if self.last.is_some_and(|last| last.elapsed() < LOOK_AGAIN) {
            return false;
        }
        let sample = self.sample(identity);
        let now = Instant::now();
        self.last = Some(now);
        self.quiet.has_been(long, now, sample)
    }

    /// What is missing.
    pub fn told(&self) -> &'static str {
        self.quiet.told()
    }

    fn sample(&mut self, identity: &Identity) -> Sample {
        let told = Asked::now(Depth::Memory).answer();
        if let Some(used) = told.ok().and_then(|gpus| gpus.used_by(identity.pid)) {
            return Sample::Memory(used);
        }
        match (self.says_running(identity.pid), cpu_time(identity.target())) {
            (true, Some(time)) => Sample::Running(time),
            _ => Sample::Nothing,
        }
    }

    /// Asked in a thread: a driver that does not answer holds up nobody.
    fn says_running(&mut self, pid: i32) -> bool {
        let driver = self
            .driver
            .get_or_insert_with(|| Driver::load().map(Arc::new).map_err(|_| ()));
        let Ok(driver) = driver else { return false };
        let answer = self.asked.take().unwrap_or_else(|| {
            let (send, answer) = bounded(1);
            let driver = Arc::clone(driver);
            let ask = move || {
                let _ = send.send(driver.state(pid) == Ok(State::Running));
            };
            // Without a thread there is no answer.
            let _ = std::thread::Builder::new().name("state".into()).spawn(ask);
            answer
        });
        match answer.recv_timeout(LOOK_AGAIN) {
            Ok(running) => running,
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => false,
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => {
                self.asked = Some(answer);
                false
            }
        }
    }
}

/// CPU time of all threads since the process's start.
fn cpu_time(target: Target) -> Option<Duration> {
    let stat = target.proc_file("stat").ok()?;
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let used = ticks()?.checked_add(ticks()?)?;
    // SAFETY: takes a number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let per_second = u64::try_from(per_second).ok().filter(|ticks| *ticks > 0)?;
    Some(Duration::from_secs_f64(used as f64 / per_second as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_time() {
        let own = Target::new(std::process::id() as i32);
        let before = cpu_time(own).unwrap();
        let since = Instant::now();
        while cpu_time(own).unwrap() == before {
            assert!(since.elapsed() < Duration::from_secs(60));
        }
    }
}
