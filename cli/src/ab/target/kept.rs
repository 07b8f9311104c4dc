//! The keeper from this side: started, listened to, told to end.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{unbounded, Receiver, RecvTimeoutError};

use super::drain::{Drain, Heard, Output};
use super::family;
use super::keeper::Word;
use super::launch::Launch;
use super::options::StartOptions;
use super::{output_file, Error};
use crate::process::ending::Ending;
use crate::run::find::NotRunnable;

/// How long the keeper may take to start the program.
const START: Duration = Duration::from_secs(60);
/// How long it may take beyond its own limits.
const SLACK: Duration = Duration::from_secs(10);
/// What is killed, and the keeper's own limit for that.
const KILLED: Duration = Duration::from_secs(30);
/// How long the keeper may take to collect a process that has ended and to say so, where it is its parent.
const COLLECTED: Duration = Duration::from_secs(1);
/// How long the last words of a program that ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The kernel has killed the program with it, and knows nothing of what that has started.
const LOST: &str = "the program's keeper was killed, and the program with it: processes that it has started may be left";

/// A program below a keeper.
#[derive(Debug)]
pub struct Kept {
    keeper: Child,
    /// `None`: it was told to end.
    control: Option<UnixStream>,
    words: Receiver<Word>,
    program: i32,
    ended: HashMap<i32, i32>,
    is_gone: bool,
    /// The keeper has ended without saying that nothing is left: somebody has killed it.
    is_lost: bool,
    left: Vec<i32>,
    stdin: Option<ChildStdin>,
    heard: Arc<Heard>,
    drains: Vec<Drain>,
    grace: Duration,
}

impl Kept {
    /// Starts a program.
    ///
    /// # Errors
    /// It cannot be executed, or the system refuses something.
    pub fn start(tool: &Path, launch: &Launch, options: &StartOptions) -> Result<Self, Error> {
        let told =
            |what: &'static str| move |error: io::Error| Error::Failed(format!("{what}: {error}"));
        let (ours, theirs) =
            UnixStream::pair().map_err(told("no socket for the program's keeper"))?;
        let log = options.output().map(output_file).transpose()?;
        let mut command = command(tool, launch, &theirs, options.grace());
        let mut keeper = command.spawn().map_err(told("the program's keeper"))?;
        // Ours is the only end that stays here.
        drop(theirs);
        let heard = Arc::new(Heard::new(options.ready_line.clone()));
        let stdin = keeper.stdin.take();
        let pipes = (keeper.stdout.take(), keeper.stderr.take());
        let words = listen(&ours);
        let mut kept = Kept {
            keeper,
            control: Some(ours),
            words: words.map_err(told("no thread for the program's keeper"))?,
            program: 0,
            ended: HashMap::new(),
            is_gone: false,
            is_lost: false,
            left: Vec::new(),
            stdin,
            heard,
            drains: Vec::new(),
            grace: options.grace(),
        };
        kept.drain(pipes, log)
            .map_err(told("no thread for the program's output"))?;
        kept.await_start(launch)?;
        Ok(kept)
    }

    fn drain(
        &mut self,
        pipes: (
            Option<std::process::ChildStdout>,
            Option<std::process::ChildStderr>,
        ),
        log: Option<File>,
    ) -> io::Result<()> {
        let copy = || log.as_ref().map(File::try_clone).transpose();
        if let Some(pipe) = pipes.0 {
            let drain = Drain::start(pipe, Output::Stdout, copy()?, &self.heard);
            self.drains.push(drain?);
        }
        if let Some(pipe) = pipes.1 {
            let drain = Drain::start(pipe, Output::Stderr, copy()?, &self.heard);
            self.drains.push(drain?);
        }
        Ok(())
    }

    fn await_start(&mut self, launch: &Launch) -> Result<(), Error> {
        match self.words.recv_timeout(START) {
            Ok(Word::Started(pid)) => {
                self.program = pid;
                Ok(())
            }
            Ok(Word::Refused(errno)) => {
                let error = io::Error::from_raw_os_error(errno);
                Err(NotRunnable::new(&launch.file, &error).into())
            }
            _ => Err(Error::Failed(
                self.with_last_words("the program's keeper did not start it".into()),
            )),
        }
    }

    /// The program's id.
    pub fn program(&self) -> i32 {
        self.program
    }

    /// The keeper's id, which everything of the program is below.
    pub fn keeper(&self) -> i32 {
        self.keeper.id() as i32
    }

    /// What the program has said.
    pub fn heard(&self) -> &Heard {
        &self.heard
    }

    /// How a process below ended, where the keeper is its parent.
    pub fn status_of(&mut self, pid: i32) -> Option<Ending> {
        self.hear();
        self.ended
            .get(&pid)
            .map(|status| Ending::from_wait_status(*status))
    }

    /// The same of one that has just ended: waits a little for the keeper, which hears of it a moment later.
    pub fn late_status_of(&mut self, pid: i32) -> Option<Ending> {
        let since = Instant::now();
        while !self.ended.contains_key(&pid) && !self.is_gone {
            let rest = COLLECTED.checked_sub(since.elapsed())?;
            match self.words.recv_timeout(rest) {
                Ok(word) => self.take(word),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => self.lose(),
            }
        }
        self.status_of(pid)
    }

    /// Whether the program goes on, or what it has started does after it has ended well.
    ///
    /// # Errors
    /// How it ended, with its last words.
    pub fn check_alive(&mut self) -> Result<(), Error> {
        let Some(ending) = self.status_of(self.program) else {
            return match self.is_gone {
                true => Err(Error::Died(
                    self.with_last_words("the program is gone".into()),
                )),
                false => Ok(()),
            };
        };
        let others = || {
            family::below(self.keeper())
                .iter()
                .any(|member| !member.is_dead)
        };
        if ending == Ending::Exit(0) && others() {
            return Ok(());
        }
        let what = format!("the program {ending} before it was ready");
        Err(Error::Died(self.with_last_words(what)))
    }

    /// A sentence, and after it what the program said last.
    pub fn with_last_words(&self, sentence: String) -> String {
        if self.ended.contains_key(&self.program) || self.is_gone {
            self.drains.iter().for_each(|drain| drain.wait(LAST_WORDS));
        }
        self.heard.after(sentence)
    }

    /// See [`super::Started::ask`].
    ///
    /// # Errors
    /// As there.
    pub fn ask(
        &mut self,
        line: &str,
        limit: Duration,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<Option<String>, String> {
        let answers = self.heard.answers();
        let stdin = self.stdin.as_mut().ok_or("the program has no stdin")?;
        let written = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        written.map_err(|error| format!("the program does not take \"{line}\": {error}"))?;
        let since = Instant::now();
        loop {
            match answers.recv_timeout(Duration::from_millis(50)) {
                Ok(answer) => return Ok(Some(answer)),
                Err(RecvTimeoutError::Disconnected) => {}
                Err(RecvTimeoutError::Timeout) if self.status_of(self.program).is_none() => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.with_last_words("the program has ended".into()))
                }
            }
            if is_over() {
                return Ok(None);
            }
            if since.elapsed() >= limit {
                return Err(format!(
                    "the program did not answer \"{line}\" within {} s",
                    limit.as_secs()
                ));
            }
        }
    }

    /// Takes in what the keeper has said.
    fn hear(&mut self) {
        loop {
            match self.words.try_recv() {
                Ok(word) => self.take(word),
                Err(crossbeam_channel::TryRecvError::Empty) => return,
                Err(crossbeam_channel::TryRecvError::Disconnected) => return self.lose(),
            }
        }
    }

    fn lose(&mut self) {
        self.is_lost |= !self.is_gone;
        self.is_gone = true;
    }

    fn take(&mut self, word: Word) {
        match word {
            Word::Ended(pid, status) => {
                self.ended.insert(pid, status);
            }
            Word::Gone => self.is_gone = true,
            Word::Left(pids) => self.left = pids,
            Word::Started(_) | Word::Refused(_) => {}
        }
    }

    /// Ends everything below. The second call finds nothing to do.
    ///
    /// # Errors
    /// Some of it is left.
    pub fn end(&mut self) -> Result<(), String> {
        let Some(control) = self.control.take() else {
            return Ok(());
        };
        // The thread that listens holds the socket too: closing ours alone would say nothing.
        let _ = control.shutdown(std::net::Shutdown::Write);
        self.stdin = None;
        let limit = self.grace + KILLED + SLACK;
        let since = Instant::now();
        while !self.is_gone && self.left.is_empty() && since.elapsed() < limit {
            match self.words.recv_timeout(Duration::from_millis(100)) {
                Ok(word) => self.take(word),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.lose(),
            }
        }
        self.drains.iter().for_each(|drain| drain.wait(LAST_WORDS));
        if self.left.is_empty() && self.is_gone {
            let _ = self.keeper.wait();
            return match self.is_lost {
                true => Err(LOST.into()),
                false => Ok(()),
            };
        }
        let left: Vec<String> = self.left.iter().map(ToString::to_string).collect();
        Err(format!(
            "processes of the program could not be ended: {}",
            if left.is_empty() {
                "its keeper does not answer".into()
            } else {
                left.join(", ")
            }
        ))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Whoever wants to know calls it before.
        let _ = self.end();
    }
}

fn command(tool: &Path, launch: &Launch, control: &UnixStream, grace: Duration) -> Command {
    let joined = |option: &str, text: &OsString| {
        let mut joined = OsString::from(option);
        joined.push(text);
        joined
    };
    let descriptor = control.as_raw_fd();
    let mut command = Command::new(tool);
    command
        .arg0("cudasnap")
        .arg("keep")
        .args(["--control", &descriptor.to_string()])
        .args(["--grace", &grace.as_millis().to_string()]);
    for (name, value) in &launch.set {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        command.arg(joined("--set=", &pair));
    }
    command.args(launch.unset.iter().map(|name| joined("--unset=", name)));
    command.arg("--").arg(&launch.file).args(&launch.arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: a system call with numbers only, between fork and exec: the keeper keeps this one descriptor.
    unsafe {
        command.pre_exec(move || {
            libc::fcntl(descriptor, libc::F_SETFD, 0);
            Ok(())
        })
    };
    command
}

fn listen(control: &UnixStream) -> io::Result<Receiver<Word>> {
    let reading = control.try_clone()?;
    let (send, words) = unbounded();
    let thread = std::thread::Builder::new().name("keeper's words".into());
    thread.spawn(move || {
        for line in BufReader::new(reading).lines().map_while(Result::ok) {
            let word = serde_json::from_str(&line);
            if word.is_ok_and(|word| send.send(word).is_err()) {
                return;
            }
        }
    })?;
    Ok(words)
}
