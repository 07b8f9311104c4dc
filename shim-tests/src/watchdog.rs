//! A limit for steps that wait inside libcuda, which knows no time-out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{bounded, RecvTimeoutError, Sender};

/// Exit status when a step stays stuck even after its target was killed.
pub const STUCK: i32 = 4;
/// How long a driver call may take to notice that its target is dead.
const NOTICE: Duration = Duration::from_secs(15);

/// Kills the target of a step that takes too long. If the step does not even end then, the whole process ends with
/// [`STUCK`]: a thread that hangs in libcuda cannot be stopped otherwise. Dropping it calls it off.
#[derive(Debug)]
pub struct Watchdog {
    done: Option<Sender<()>>,
    fired: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches a step, named by `what`, on the process `pid`.
    pub fn new(what: &'static str, pid: i32, limit: Duration) -> Self {
        let (done, finished) = bounded::<()>(0);
        let fired = Arc::new(AtomicBool::new(false));
        let says_fired = Arc::clone(&fired);
        let watcher = thread::spawn(move || {
            if finished.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            eprintln!("{what} of process {pid} hangs for {limit:?}: killing it");
            eprint!("{}", threads_of(pid));
            says_fired.store(true, Ordering::Release);
            // SAFETY: kill takes two numbers. The process is a child that nobody has waited for, so its id is its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            if finished.recv_timeout(NOTICE) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what} of process {pid} hangs although the process is dead");
                std::process::exit(STUCK);
            }
        });
        Watchdog {
            done: Some(done),
            fired,
            watcher: Some(watcher),
        }
    }

    /// Whether the limit was met and the target killed.
    #[must_use]
    pub fn has_fired(&self) -> bool {
        self.fired.load(Ordering::Acquire)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // The watcher wakes when the sender is gone.
        self.done.take();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

/// Where the threads of a process are: name, state, and what they wait for in the kernel.
fn threads_of(pid: i32) -> String {
    let folder = format!("/proc/{pid}/task");
    let tasks = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut text = String::new();
    for task in tasks.map(|task| task.path()) {
        let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
        let status = read("status");
        let line = |key: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(key));
            found.unwrap_or_default().trim().to_owned()
        };
        text.push_str(&format!(
            "    {:16} {:24} tracer {:8} in {} ({})\n",
            line("Name:"),
            line("State:"),
            line("TracerPid:"),
            read("wchan"),
            read("syscall").trim()
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_threads_of_a_process_are_told() {
        let text = threads_of(std::process::id() as i32);
        assert!(text.contains("R (running)"), "{text}");
        assert_eq!(threads_of(0), "");
    }

    #[test]
    fn a_step_in_time_is_left_alone_and_a_late_one_loses_its_target() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        drop(Watchdog::new("step", pid, Duration::from_secs(60)));
        assert!(child.try_wait().unwrap().is_none());
        let watchdog = Watchdog::new("step", pid, Duration::from_millis(1));
        assert!(!child.wait().unwrap().success());
        assert!(watchdog.has_fired());
        drop(watchdog);
    }
}
