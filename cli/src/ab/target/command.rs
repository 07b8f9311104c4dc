//! A command that returns 0: one sign that a program is ready.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::shell;

/// How often a readiness command is run.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A command that is run again and again.
#[derive(Debug, Default)]
pub struct Asking {
    running: Option<Child>,
    last: Option<Instant>,
    done: bool,
}

impl Asking {
    /// Whether it has returned 0. The command finds the program's id in `PROGRAM_PID`.
    pub fn is_done(&mut self, command: &str, program: i32) -> bool {
        if self.done {
            return true;
        }
        match self.running.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => return false,
            Some(Ok(Some(status))) => {
                self.running = None;
                self.done = status.success();
                return self.done;
            }
            Some(Err(_)) => self.running = None,
            None => {}
        }
        if self.last.is_none_or(|last| last.elapsed() >= ASK_AGAIN) {
            self.last = Some(Instant::now());
            let mut shell = shell::command(command);
            shell
                .env("PROGRAM_PID", program.to_string())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            self.running = shell.spawn().ok();
        }
        false
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(child) = &mut self.running {
            shell::end(child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_run_until_it_returns_0() {
        let folder = tempfile::tempdir().unwrap();
        let flag = folder.path().join("flag");
        let command = format!("test -e {} && test \"$PROGRAM_PID\" = 7", flag.display());
        let mut asking = Asking::default();
        let wait = |asking: &mut Asking, until: &dyn Fn(&Asking) -> bool| {
            let since = Instant::now();
            while !until(asking) {
                assert!(since.elapsed() < Duration::from_secs(60));
                asking.is_done(&command, 7);
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        wait(&mut asking, &|asking| asking.running.is_some());
        wait(&mut asking, &|asking| asking.running.is_none());
        assert!(!asking.done);
        std::fs::write(&flag, "").unwrap();
        wait(&mut asking, &|asking| asking.done);
    }
}
