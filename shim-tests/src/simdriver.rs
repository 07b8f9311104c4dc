//! Helpers for the tests of the simulated driver itself: programs started on it, and `simctl` as the calling process.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::watchdog::Watchdog;

/// A `simapp` that takes longer to be ready hangs: a preload of a test may have seen to that.
const START: Duration = Duration::from_secs(120);

/// Where `scripts/sim-env` put things.
#[derive(Debug, Clone)]
pub struct SimDriver {
    /// Directory of `libcuda.so.1`.
    pub library: PathBuf,
    /// Directory of the programs.
    pub programs: PathBuf,
}

/// Root of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default()
}

impl SimDriver {
    /// Builds what is stale.
    ///
    /// # Panics
    /// With the script's words, if it fails.
    #[must_use]
    pub fn build(relro: bool) -> Self {
        let option = if relro { "--relro" } else { "" };
        let script = format!(
            "unset LD_LIBRARY_PATH; eval \"$(scripts/sim-env {option})\" && \
             printf '%s\\n%s\\n' \"$LD_LIBRARY_PATH\" \"$SIMAPP\""
        );
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(repository())
            .output()
            .expect("sh starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            output.status.success() && lines.len() == 2,
            "scripts/sim-env: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        SimDriver {
            library: lines[0].into(),
            programs: Path::new(lines[1])
                .parent()
                .map(Path::to_path_buf)
                .unwrap_or_default(),
        }
    }

    /// A program of the simulated driver, with its library in front and none of its options set.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.env("LD_LIBRARY_PATH", &self.library);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CUDASIM_")) {
            command.env_remove(name);
        }
        command
    }

    /// Runs `simctl ACTION PID` with extra environment.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn control(&self, action: &str, pid: u32, environment: &[(&str, &str)]) -> Control {
        self.control_within(action, pid, 0, environment)
    }

    /// The same, with a time limit for the lock in milliseconds.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn control_within(
        &self,
        action: &str,
        pid: u32,
        timeout_ms: u32,
        environment: &[(&str, &str)],
    ) -> Control {
        let output = self
            .command("simctl")
            .args([action, &pid.to_string(), &timeout_ms.to_string()])
            .envs(environment.iter().copied())
            .output()
            .expect("simctl starts");
        Control {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).trim().to_string(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts `simctl ACTION PID` with extra environment, to be waited for.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn begin(&self, action: &str, pid: u32, environment: &[(&str, &str)]) -> Begun {
        let mut command = self.command("simctl");
        command
            .args([action, &pid.to_string()])
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Begun {
            what: format!("{action} of {pid}"),
            child: command.spawn().expect("simctl starts"),
            since: Instant::now(),
        }
    }

    /// Starts `simapp`.
    ///
    /// # Panics
    /// If it does not say `ready`.
    #[must_use]
    pub fn app(&self, arguments: &[&str], environment: &[(&str, &str)]) -> App {
        let mut command = self.command("simapp");
        command.args(arguments).envs(environment.iter().copied());
        App::start(&mut command)
    }
}

/// What `simctl` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The CUresult.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// Its complaints.
    pub stderr: String,
}

/// A step that is longer under way than this hangs.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// A `simctl` under way; killed when dropped.
#[derive(Debug)]
pub struct Begun {
    what: String,
    child: Child,
    since: Instant,
}

impl Begun {
    /// What it did, if it is through.
    ///
    /// # Panics
    /// When it hangs.
    pub fn poll(&mut self) -> Option<Control> {
        let Some(status) = self.child.try_wait().expect("simctl's status") else {
            assert!(self.since.elapsed() < STEP_LIMIT, "{} hangs", self.what);
            return None;
        };
        Some(Control {
            code: status.code().unwrap_or(-1),
            stdout: text_of(self.child.stdout.take()).trim().to_string(),
            stderr: text_of(self.child.stderr.take()),
        })
    }

    /// Whether it is not through yet.
    ///
    /// # Panics
    /// When its status cannot be asked for.
    pub fn is_under_way(&mut self) -> bool {
        self.child.try_wait().expect("simctl's status").is_none()
    }

    /// Waits until it is through.
    ///
    /// # Panics
    /// When it hangs.
    pub fn finish(mut self) -> Control {
        loop {
            if let Some(control) = self.poll() {
                return control;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // Already gone, or gone now: both are fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line or two: they wait in the pipe until here.
fn text_of(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_string(&mut text).expect("text");
    }
    text
}

/// A running `simapp`; killed when dropped.
#[derive(Debug)]
pub struct App {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl App {
    /// Starts a command that becomes `simapp` in the same process.
    ///
    /// # Panics
    /// If it does not say `ready`, with the id of that process.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("simapp starts");
        let stdin = child.stdin.take().expect("piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        let watchdog = Watchdog::new("the start of simapp", child.id() as i32, START);
        stdout.read_line(&mut line).expect("simapp's first line");
        drop(watchdog);
        assert_eq!(line.trim(), format!("ready {}", child.id()));
        App {
            child,
            stdin,
            stdout,
        }
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line without waiting.
    ///
    /// # Panics
    /// If the program is gone.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("simapp reads");
        self.stdin.flush().expect("simapp reads");
    }

    /// The next line.
    ///
    /// # Panics
    /// If the program is gone.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("simapp writes");
        line.trim().to_string()
    }

    /// Wrong words in all of its memory.
    ///
    /// # Panics
    /// If the program does not say.
    pub fn wrong_words(&mut self) -> u64 {
        self.tell("sum");
        let line = self.hear();
        let number = line.strip_prefix("bad ").map(str::parse);
        number
            .and_then(Result::ok)
            .unwrap_or_else(|| panic!("simapp said '{line}'"))
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // Already gone, or gone now: both are fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
