//! Host programs: started with or without the shim, spoken to by lines, killed on drop.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

/// How to start a host program.
#[derive(Debug, Clone, Default)]
pub struct HostSpec {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The shim to preload, in front of whatever the environment preloads already.
    pub shim: Option<PathBuf>,
    /// Environment variables beyond the inherited ones.
    pub env: Vec<(String, String)>,
}

impl HostSpec {
    /// A program with arguments, without the shim.
    pub fn new(
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        HostSpec {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            ..HostSpec::default()
        }
    }

    /// The same with the shim preloaded.
    pub fn with_shim(mut self, shim: impl Into<PathBuf>) -> Self {
        self.shim = Some(shim.into());
        self
    }

    /// The same with one more environment variable.
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        // The options of the one who runs the tests must not decide what is tested.
        for option in cudasnap_wire::OPTIONS {
            command.env_remove(option.name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(shim) = &self.shim {
            // What is preloaded already goes behind the shim, as `cudasnap run` does it.
            let asked = self.env.iter().find(|(name, _)| name == "LD_PRELOAD");
            let others = asked
                .map(|(_, value)| value.into())
                .or_else(|| std::env::var_os("LD_PRELOAD"));
            let mut preload = OsString::from(shim);
            if let Some(others) = others.filter(|others| !others.is_empty()) {
                preload.push(":");
                preload.push(others);
            }
            command.env("LD_PRELOAD", preload);
        }
        // A harness that is itself killed must leave no host behind, least of all one that waits frozen.
        let end_with_us = || {
            // SAFETY: prctl with two numbers is a plain system call.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            Ok(())
        };
        // SAFETY: the closure makes one system call and touches nothing of the parent's.
        unsafe { command.pre_exec(end_with_us) };
        command
    }
}

/// What went wrong with a host program.
#[derive(Debug)]
pub enum HostError {
    /// It could not be started, or its pipes failed.
    Io(io::Error),
    /// It ended; with what it last wrote to stderr.
    Ended(String),
    /// It did not answer in time.
    Silent {
        /// What it was asked.
        asked: String,
        /// For how long it was waited.
        waited: Duration,
    },
    /// It answered something that the protocol does not have.
    Unexpected {
        /// What it was asked.
        asked: String,
        /// What it said.
        answer: String,
    },
}

impl fmt::Display for HostError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::Io(error) => write!(out, "host program: {error}"),
            HostError::Ended(stderr) => write!(out, "host program ended; stderr: {stderr}"),
            HostError::Silent { asked, waited } => {
                write!(
                    out,
                    "host program said nothing for {waited:?} after \"{asked}\""
                )
            }
            HostError::Unexpected { asked, answer } => {
                write!(out, "host program answered \"{asked}\" with \"{answer}\"")
            }
        }
    }
}

impl std::error::Error for HostError {}

impl From<io::Error> for HostError {
    fn from(error: io::Error) -> Self {
        HostError::Io(error)
    }
}

/// A running host program. Dropping it kills it, and so does the end of the thread that started it.
#[derive(Debug)]
pub struct Host {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Arc<Mutex<Vec<u8>>>,
    pid: i32,
}

impl Host {
    /// Starts it and waits for its `ready PID`. Lines before that (a framework's chatter) are skipped.
    pub fn start(spec: &HostSpec, patience: Duration) -> Result<Self, HostError> {
        let mut child = spec
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = Arc::new(Mutex::new(Vec::new()));
        if let Some(from) = child.stderr.take() {
            collect(from, Arc::clone(&stderr));
        }
        let lines = read_lines(child.stdout.take());
        let mut host = Host {
            pid: child.id() as i32,
            stdin: child.stdin.take(),
            child,
            lines,
            stderr,
        };
        host.pid = host.wait_ready(patience)?;
        Ok(host)
    }

    fn wait_ready(&self, patience: Duration) -> Result<i32, HostError> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.line("(start)", left, patience)?;
            if let Some(pid) = line.strip_prefix("ready ") {
                return pid.trim().parse().map_err(|_| HostError::Unexpected {
                    asked: "(start)".into(),
                    answer: line.clone(),
                });
            }
        }
    }

    /// The process id that it announced.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a line and waits for one.
    pub fn ask(&mut self, question: &str, patience: Duration) -> Result<String, HostError> {
        let stdin = self
            .stdin
            .as_mut()
            .ok_or_else(|| HostError::Ended("stdin is closed".into()))?;
        if writeln!(stdin, "{question}")
            .and_then(|()| stdin.flush())
            .is_err()
        {
            return Err(self.ended());
        }
        self.line(question, patience, patience)
    }

    /// Asks `sum`: the number of wrong words in its device memory.
    pub fn wrong_words(&mut self, patience: Duration) -> Result<u64, HostError> {
        let answer = self.ask("sum", patience)?;
        let count = answer
            .strip_prefix("bad ")
            .and_then(|count| count.trim().parse().ok());
        count.ok_or(HostError::Unexpected {
            asked: "sum".into(),
            answer,
        })
    }

    /// Sends `quit` and waits for its end.
    pub fn quit(mut self, patience: Duration) -> Result<ExitStatus, HostError> {
        if let Some(mut stdin) = self.stdin.take() {
            // It may have ended already, which the wait below tells.
            let _ = writeln!(stdin, "quit");
        }
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(HostError::Silent {
            asked: "quit".into(),
            waited: patience,
        })
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        let bytes = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn line(&self, asked: &str, left: Duration, waited: Duration) -> Result<String, HostError> {
        match self.lines.recv_timeout(left) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(HostError::Silent {
                asked: asked.into(),
                waited,
            }),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    fn ended(&self) -> HostError {
        // stdout closes a moment before stderr has been read to its end.
        thread::sleep(Duration::from_millis(50));
        let stderr = self.stderr();
        let tail: Vec<&str> = stderr.lines().rev().take(8).collect();
        HostError::Ended(tail.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Both fail when it has ended and was waited for, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines as a channel: reading with a time-out must not depend on the program's cooperation.
fn read_lines(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, lines) = crossbeam_channel::unbounded();
    if let Some(from) = from {
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    lines
}

fn collect(mut from: impl Read + Send + 'static, into: Arc<Mutex<Vec<u8>>>) {
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            into.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend_from_slice(&piece[..length]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(5);

    fn shell(script: &str) -> HostSpec {
        HostSpec::new("sh", ["-c", script])
    }

    #[test]
    fn the_protocol_is_spoken() {
        let script = "echo chatter; echo ready $$; while read q; do case $q in sum) echo bad 3;; quit) exit 7;; esac; done";
        let mut host = Host::start(&shell(script), SECOND).unwrap();
        assert_eq!(host.pid(), host.child.id() as i32);
        assert_eq!(host.wrong_words(SECOND).unwrap(), 3);
        assert_eq!(host.quit(SECOND).unwrap().code(), Some(7));
    }

    #[test]
    fn an_end_shows_stderr_and_silence_has_a_limit() {
        let error = Host::start(&shell("echo why >&2"), SECOND).unwrap_err();
        assert!(matches!(error, HostError::Ended(text) if text == "why"));
        let mut host = Host::start(&shell("echo ready $$; sleep 100"), SECOND).unwrap();
        let error = host.wrong_words(Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, HostError::Silent { .. }));
    }

    #[test]
    fn options_of_the_surroundings_do_not_leak_in() {
        let spec = shell("echo ready $$; echo \"$CUDASNAP_LOG$CUDASNAP\"; read q")
            .with_env("CUDASNAP", "observe");
        let host = Host::start(&spec, SECOND).unwrap();
        assert_eq!(host.line("", SECOND, SECOND).unwrap(), "observe");
    }
}
