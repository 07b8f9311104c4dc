//! When a program is ready: everything that was asked for has come about, and one process uses CUDA. Without a condition its GPU memory
//! is to be quiet.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueHint;
use crossbeam_channel::{bounded, Receiver};
use regex::Regex;

use super::family;
use super::kept::Kept;
use super::quiet::{Quiet, Sample};
use super::Error;
use crate::driver::{Driver, State};
use crate::gpus::{Asked, Depth};
use crate::process::identity::Identity;
use crate::process::target::Target;
use crate::values;

/// How often a readiness command is run.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often GPU memory is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// A port of this machine answers at once, or never.
const CONNECT: Duration = Duration::from_millis(500);

/// When a program that is started is ready, and where its output goes.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "A program that is started")]
pub struct StartOptions {
    /// It is ready when this shell command returns 0, tried each second
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString, value_parser = values::text())]
    ready_command: Option<String>,
    /// It is ready when this TCP port accepts, on this machine unless a host is named
    #[arg(long, value_name = "[HOST:]PORT", value_parser = values::read(port))]
    ready_port: Option<Port>,
    /// It is ready when a line of its output contains this text, or matches /REGEX/
    #[arg(long, value_name = "TEXT", value_parser = values::text())]
    ready_line: Option<String>,
    /// It is ready when its GPU memory has not changed for so long (without another condition: 3)
    #[arg(long, value_name = "SECONDS", value_parser = values::read(seconds))]
    ready_quiet: Option<Duration>,
    /// How long it may take to be ready (default: 600)
    #[arg(long, value_name = "SECONDS", value_parser = values::read(seconds))]
    ready_timeout: Option<Duration>,
    /// How long it may take to end after SIGTERM, before SIGKILL (default: 10)
    #[arg(long, value_name = "SECONDS", value_parser = values::read(seconds))]
    end_timeout: Option<Duration>,
    /// File for what it writes to stdout and stderr, in place of this command's stderr
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    program_output: Option<PathBuf>,
}

/// Where something is to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    host: Option<String>,
    number: u16,
}

fn port(text: &str) -> Result<Port, String> {
    let takes = || values::takes("a port, 1 to 65535, with or without HOST: in front");
    let (host, number) = match text.rsplit_once(':') {
        Some((host, number)) => (Some(host.trim_matches(['[', ']'])), number),
        None => (None, text),
    };
    let number: u16 = number.parse().map_err(|_| takes())?;
    if number == 0 || host.is_some_and(str::is_empty) {
        return Err(takes());
    }
    Ok(Port {
        host: host.map(str::to_owned),
        number,
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let fit = |seconds| (0.1..=86_400.0).contains(&seconds);
    values::seconds(text, fit, "seconds, 0.1 to 86400")
}

impl Port {
    fn accepts(&self) -> bool {
        let hosts = match &self.host {
            Some(host) => vec![host.as_str()],
            None => vec!["127.0.0.1", "::1"],
        };
        let places = hosts
            .iter()
            .filter_map(|host| (*host, self.number).to_socket_addrs().ok());
        let mut places = places.flatten();
        places.any(|place| TcpStream::connect_timeout(&place, CONNECT).is_ok())
    }

    fn shown(&self) -> String {
        let host = self.host.as_ref().map(|host| format!("{host}:"));
        format!("{}{}", host.unwrap_or_default(), self.number)
    }
}

/// What a line must contain, or match.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// This text.
    Text(String),
    /// This expression.
    Regex(Regex),
}

impl Pattern {
    /// From `TEXT` or `/REGEX/`.
    ///
    /// # Errors
    /// The expression makes no sense.
    pub fn new(text: &str) -> Result<Self, String> {
        let inner = text
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'));
        match inner.filter(|inner| !inner.is_empty()) {
            None => Ok(Pattern::Text(text.to_owned())),
            Some(inner) => Regex::new(inner)
                .map(Pattern::Regex)
                .map_err(|error| format!("--ready-line {text}: {error}")),
        }
    }

    /// Whether a line does.
    pub fn fits(&self, line: &str) -> bool {
        match self {
            Pattern::Text(text) => line.contains(text),
            Pattern::Regex(regex) => regex.is_match(line),
        }
    }
}

impl StartOptions {
    /// How long it may take to be ready.
    pub fn timeout(&self) -> Duration {
        self.ready_timeout.unwrap_or(Duration::from_secs(600))
    }

    /// How long between SIGTERM and SIGKILL.
    pub fn grace(&self) -> Duration {
        self.end_timeout.unwrap_or(Duration::from_secs(10))
    }

    /// Where its outputs go.
    pub fn output(&self) -> Option<&PathBuf> {
        self.program_output.as_ref()
    }

    /// The line that is waited for.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn pattern(&self) -> Result<Option<Pattern>, Error> {
        let pattern = self.ready_line.as_deref().map(Pattern::new).transpose();
        pattern.map_err(usage)
    }

    /// Looks whether the conditions can come about by this program.
    ///
    /// # Errors
    /// They cannot.
    pub fn check(&self) -> Result<(), Error> {
        self.pattern()?;
        match &self.ready_port {
            Some(port) if port.accepts() => Err(Error::NotStarted {
                exit: crate::exit::Exit::Refused,
                lines: vec![format!(
                    "port {} accepts already: another program listens there, and it would be taken for this one",
                    port.shown()
                )],
            }),
            _ => Ok(()),
        }
    }

    /// For how long memory must be quiet; `None`: other conditions decide.
    fn quiet(&self) -> Option<Duration> {
        let others =
            self.ready_command.is_some() || self.ready_port.is_some() || self.ready_line.is_some();
        let without = (!others).then_some(Duration::from_secs(3));
        self.ready_quiet.or(without)
    }
}

fn usage(line: String) -> Error {
    Error::NotStarted {
        exit: crate::exit::Exit::Usage,
        lines: vec![line],
    }
}

/// Whether a program is ready.
pub enum Ready {
    /// It is; with the process that uses CUDA.
    Yes(Identity),
    /// What is missing.
    NotYet(String),
}

/// The conditions, with what has come about so far.
pub struct Wait {
    options: StartOptions,
    program: i32,
    command: Asking,
    port: bool,
    memory: Memory,
}

impl Wait {
    /// Nothing has come about yet.
    pub fn new(options: &StartOptions, kept: &Kept) -> Self {
        Wait {
            options: options.clone(),
            program: kept.program(),
            command: Asking::default(),
            port: false,
            memory: Memory::default(),
        }
    }

    /// Looks, without waiting for long.
    ///
    /// # Errors
    /// Several processes use CUDA.
    pub fn look(&mut self, kept: &Kept) -> Result<Ready, Error> {
        if let Some(missing) = self.missing(kept) {
            return Ok(Ready::NotYet(missing));
        }
        let Some(cuda) = the_one(family::with_cuda(kept.keeper()))? else {
            return Ok(Ready::NotYet(
                "no process below it uses CUDA (of a container, give the PID)".into(),
            ));
        };
        match self.options.quiet() {
            Some(long) if !self.memory.is_quiet(&cuda, long) => {
                Ok(Ready::NotYet(self.memory.quiet.told().into()))
            }
            _ => Ok(Ready::Yes(cuda)),
        }
    }

    fn missing(&mut self, kept: &Kept) -> Option<String> {
        if let Some(line) = &self.options.ready_line {
            if !kept.heard().is_seen() {
                return Some(format!("no line with \"{line}\" has come"));
            }
        }
        if let Some(port) = &self.options.ready_port {
            self.port = self.port || port.accepts();
            if !self.port {
                return Some(format!("port {} does not accept", port.shown()));
            }
        }
        let command = self.options.ready_command.clone()?;
        let done = self.command.is_done(&command, self.program);
        (!done).then(|| format!("\"{command}\" has not returned 0"))
    }
}

/// Of several that have initialised CUDA, those that hold memory of a GPU count, where NVML tells.
fn the_one(mut found: Vec<Identity>) -> Result<Option<Identity>, Error> {
    if found.len() > 1 {
        if let Ok(gpus) = Asked::now(Depth::Memory).answer() {
            let holds = |identity: &&Identity| gpus.contexts_of(identity.pid).next().is_some();
            let holding: Vec<Identity> = found.iter().filter(holds).cloned().collect();
            if !holding.is_empty() {
                found = holding;
            }
        }
    }
    if found.len() > 1 {
        let named = found
            .into_iter()
            .map(|identity| (identity.pid, identity.name));
        return Err(Error::Several(named.collect()));
    }
    Ok(found.pop())
}

/// A command that is run again and again.
#[derive(Default)]
struct Asking {
    running: Option<Child>,
    last: Option<Instant>,
    done: bool,
}

impl Asking {
    /// Whether it has returned 0. The command finds the program's id in `PROGRAM_PID`.
    fn is_done(&mut self, command: &str, program: i32) -> bool {
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
            let mut shell = Command::new("/bin/sh");
            shell
                .args(["-c", command])
                .env("PROGRAM_PID", program.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0);
            self.running = shell.spawn().ok();
        }
        false
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(child) = &mut self.running {
            // SAFETY: takes numbers only: the group of a child that was not waited for.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            let _ = child.wait();
        }
    }
}

/// Looks at a process's GPU memory, or whether it is busy.
#[derive(Default)]
struct Memory {
    quiet: Quiet,
    last: Option<Instant>,
    pid: i32,
    driver: Option<Result<Arc<Driver>, ()>>,
    asked: Option<Receiver<bool>>,
}

impl Memory {
    fn is_quiet(&mut self, identity: &Identity, long: Duration) -> bool {
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
    use std::net::TcpListener;

    #[test]
    fn ports_have_a_host_or_not() {
        let of = |text: &str| port(text).ok().map(|port| port.shown());
        assert_eq!(of("8000").as_deref(), Some("8000"));
        assert_eq!(of("node:8000").as_deref(), Some("node:8000"));
        assert_eq!(of("[::1]:80").as_deref(), Some("::1:80"));
        for wrong in ["", "0", "65536", "x", ":80", "a:"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_port_accepts_while_somebody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = listener.local_addr().unwrap().port();
        let options = StartOptions {
            ready_port: Some(port(&number.to_string()).unwrap()),
            ..StartOptions::default()
        };
        let error = options.check().unwrap_err();
        assert!(error.to_string().contains("accepts already"), "{error}");
        drop(listener);
        assert_eq!(options.check(), Ok(()));
    }

    #[test]
    fn a_line_contains_a_text_or_matches() {
        let fits = |pattern: &str, line: &str| Pattern::new(pattern).unwrap().fits(line);
        assert!(fits(
            "startup complete",
            "INFO: Application startup complete."
        ));
        assert!(!fits("startup complete", "startup"));
        assert!(fits(r"/^ready \d+$/", "ready 42") && !fits(r"/^ready \d+$/", "not ready 42"));
        assert!(fits("/", "a/b") && fits("//", "http://x"));
        assert!(Pattern::new("/(/").unwrap_err().contains("--ready-line"));
    }

    #[test]
    fn without_a_condition_memory_is_to_be_quiet() {
        let none = StartOptions::default();
        assert_eq!(none.quiet(), Some(Duration::from_secs(3)));
        let line = StartOptions {
            ready_line: Some("x".into()),
            ..StartOptions::default()
        };
        assert_eq!(line.quiet(), None);
        let both = StartOptions {
            ready_quiet: Some(Duration::from_secs(9)),
            ..line
        };
        assert_eq!(both.quiet(), Some(Duration::from_secs(9)));
    }

    #[test]
    fn this_process_has_used_time() {
        let own = Target::new(std::process::id() as i32);
        let before = cpu_time(own).unwrap();
        let since = Instant::now();
        while cpu_time(own).unwrap() == before {
            assert!(since.elapsed() < Duration::from_secs(60));
        }
    }

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
