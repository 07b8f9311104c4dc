//! The `cudasnap` binary as its users start it, from tests.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::shimmed::library;
use crate::simdriver::SimDriver;
use crate::steps;

/// The binary: beside the library, as `cargo build --release` leaves them.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn binary() -> PathBuf {
    let binary = library().with_file_name("cudasnap");
    assert!(
        binary.exists(),
        "{} is missing: cargo build --release -p cudasnap-cli",
        binary.display()
    );
    binary
}

/// Waits until something has come about.
///
/// # Panics
/// When it has not after a minute.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What a program said, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Exit status; the negative number of the signal that ended it.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// A program that this process has just written may be busy: a child that another test's thread forked meanwhile holds its descriptor
/// until it executes.
fn output_of(command: &mut Command) -> std::io::Result<std::process::Output> {
    for _ in 0..1000 {
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            result => return result,
        }
    }
    command.output()
}

impl Said {
    /// The lines of its standard error that a test must account for ([`steps::lines`]).
    #[must_use]
    pub fn remarks(&self) -> Vec<&str> {
        steps::lines(&self.stderr)
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn by(command: &mut Command) -> Self {
        Self::from(output_of(command).unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Status, output, errors.
    #[must_use]
    pub fn parts(self) -> (i32, String, String) {
        (self.code, self.stdout, self.stderr)
    }

    /// The output as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let status = output.status;
        let signal = status.signal().unwrap_or(0);
        Said {
            code: status.code().unwrap_or(-signal),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A tool that runs; killed when dropped.
#[derive(Debug)]
pub struct RunningTool(Option<Child>);

impl RunningTool {
    /// Starts a command, its output and errors kept.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let started = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        RunningTool(Some(
            started.unwrap_or_else(|error| panic!("{command:?}: {error}")),
        ))
    }

    /// Its id.
    ///
    /// # Panics
    /// Never: it is there until it was waited for.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.as_ref().expect("it is taken only at its end").id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        if let Some(child) = &self.0 {
            send_signal(child.id(), signal);
        }
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        let child = self.0.as_mut();
        child.is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When its output cannot be read.
    #[must_use]
    pub fn wait(mut self) -> Said {
        let child = self.0.take().expect("it is taken only here");
        Said::from(child.wait_with_output().expect("its output"))
    }
}

impl Drop for RunningTool {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal to a process that the caller has started.
pub fn send_signal(pid: u32, signal: i32) {
    // SAFETY: takes numbers only.
    unsafe { libc::kill(pid as i32, signal) };
}

impl SimDriver {
    /// The tool on the simulated driver, with these arguments, separated by blanks.
    #[must_use]
    pub fn tool(&self, arguments: &str) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments.split_whitespace())
            .env("LD_LIBRARY_PATH", &self.library)
            .env_remove("CUDASNAP_LIB");
        // A job of a script without job control is born with SIGINT ignored, and the tool heeds that.
        // SAFETY: `signal` may be called between fork and exec, and touches no memory.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            })
        };
        command
    }

    /// Runs the tool on the simulated driver.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn said(&self, arguments: &str) -> Said {
        Said::by(&mut self.tool(arguments))
    }

    /// The same, for a call that must succeed and whose output does not matter.
    ///
    /// # Panics
    /// With everything it said when it does not.
    pub fn does(&self, arguments: &str) {
        let _ = self.must_say(arguments);
    }

    /// The same, for a call that must succeed; returns its output.
    ///
    /// # Panics
    /// With everything it said when it does not.
    #[must_use]
    pub fn must_say(&self, arguments: &str) -> String {
        let said = self.said(arguments);
        assert_eq!(said.code, 0, "{arguments}: {said:?}");
        said.stdout
    }
}
