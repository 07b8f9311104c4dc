//! The process between this program and the one that it starts: `cudasnap keep`, hidden. It is the program's parent and stays below
//! this program whatever happens, so that nothing of the program is left when this one ends, be it by SIGKILL: its end closes the
//! control socket, and then the keeper ends everything below itself. Whatever the program starts stays below the keeper, also when
//! its parent ends (`PR_SET_CHILD_SUBREAPER`). Should the keeper itself be killed, the kernel kills the program with it.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crossbeam_channel::{select, unbounded, Receiver, Sender};
use serde::{Deserialize, Serialize};

use super::family::{below, Member};
use crate::exit::Exit;
use crate::run::image::Format;
use crate::run::program::SHELL;
use crate::signals;
use crate::values;

/// Pause between two looks at what is left.
const TICK: Duration = Duration::from_millis(20);
/// How long a process that was killed may take to be gone: it may be inside the kernel, giving much memory back.
const KILLED: Duration = Duration::from_secs(30);

/// Arguments of the hidden command.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Descriptor of the control socket
    #[arg(long, value_name = "FD", value_parser = values::whole::<i32>(3, i32::MAX as u64))]
    control: i32,
    /// Milliseconds between SIGTERM and SIGKILL
    #[arg(long, value_name = "MS", default_value = "10000", value_parser = values::whole::<u64>(0, 3_600_000))]
    grace: u64,
    /// Variable to set, NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<OsString>,
    /// Variable to take away
    #[arg(long, value_name = "NAME")]
    unset: Vec<OsString>,
    /// File to execute, and the argument vector, the program's name in front
    #[arg(last = true, required = true, num_args = 2.., value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What the keeper says, a line of JSON each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// The program runs, with this id.
    Started(i32),
    /// The program cannot be executed: the error's number.
    Refused(i32),
    /// A process below ended, with this wait status.
    Ended(i32, i32),
    /// Nothing is left; the keeper's last word.
    Gone,
    /// These could not be ended; the keeper's last word.
    Left(Vec<i32>),
}

enum Event {
    Reaped(i32, i32),
    NoneLeft,
    EndAsked,
}

/// Runs it.
pub fn run(args: &Args) -> Exit {
    // SAFETY: the descriptor that this command was started for; nobody else uses it.
    let mut control = unsafe { UnixStream::from_raw_fd(args.control) };
    // SAFETY: takes numbers only. The program must not have the socket.
    unsafe { libc::fcntl(args.control, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: take numbers only. A session of its own: no signal of the terminal comes here.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
    let Ok(asked) = signals::listen(&signals::ENDING) else {
        return Exit::Failed;
    };
    let program = match spawn(args) {
        Ok(child) => child.id() as i32,
        Err(error) => {
            say(
                &mut control,
                &Word::Refused(error.raw_os_error().unwrap_or(libc::EINVAL)),
            );
            return Exit::Failed;
        }
    };
    let_go_of_outputs();
    say(&mut control, &Word::Started(program));
    let (send, events) = unbounded();
    if watch(&control, &send).is_err() {
        finish(&mut control, program, args, &events);
        return Exit::Failed;
    }
    keep(&mut control, program, args, &events, &asked)
}

fn keep(
    control: &mut UnixStream,
    program: i32,
    args: &Args,
    events: &Receiver<Event>,
    asked: &Receiver<i32>,
) -> Exit {
    loop {
        let event = select! {
            recv(events) -> event => event.unwrap_or(Event::EndAsked),
            recv(asked) -> _ => Event::EndAsked,
        };
        match event {
            Event::Reaped(pid, status) => say(control, &Word::Ended(pid, status)),
            Event::NoneLeft => {
                say(control, &Word::Gone);
                return Exit::Done;
            }
            Event::EndAsked => return finish(control, program, args, events),
        }
    }
}

/// Two threads: one that collects what ends, one that waits for the end of the control socket.
fn watch(control: &UnixStream, send: &Sender<Event>) -> io::Result<()> {
    let reading = control.try_clone()?;
    let to_us = send.clone();
    let thread = std::thread::Builder::new().name("control".into());
    thread.spawn(move || {
        let mut line = String::new();
        // Whatever comes, or the end: it has the same meaning.
        let _ = BufReader::new(reading).read_line(&mut line);
        let _ = to_us.send(Event::EndAsked);
    })?;
    let to_us = send.clone();
    let thread = std::thread::Builder::new().name("collects".into());
    thread.spawn(move || collect(&to_us))?;
    Ok(())
}

fn collect(to_us: &Sender<Event>) {
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid for the call; it waits for children of this process only.
        let pid = unsafe { libc::waitpid(-1, &mut status, 0) };
        let event = if pid > 0 {
            Event::Reaped(pid, status)
        } else if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        } else {
            Event::NoneLeft
        };
        let is_last = matches!(event, Event::NoneLeft);
        if to_us.send(event).is_err() || is_last {
            return;
        }
    }
}

/// Ends everything: what shares the program's session is asked first, whatever is below is killed.
fn finish(control: &mut UnixStream, program: i32, args: &Args, events: &Receiver<Event>) -> Exit {
    for member in living().iter().filter(|member| member.session == program) {
        member.signal(libc::SIGTERM);
        // One that is stopped does not hear it otherwise.
        member.signal(libc::SIGCONT);
    }
    let grace = Duration::from_millis(args.grace);
    if gone_within(control, grace, events, || {}) {
        return Exit::Done;
    }
    let kill = || {
        living()
            .iter()
            .for_each(|member| member.signal(libc::SIGKILL))
    };
    if gone_within(control, KILLED, events, kill) {
        return Exit::Done;
    }
    let left = living().iter().map(|member| member.pid).collect();
    say(control, &Word::Left(left));
    Exit::Failed
}

fn living() -> Vec<Member> {
    let mut members = below(std::process::id() as i32);
    members.retain(|member| !member.is_dead);
    members
}

/// Waits until nothing is left, doing this again and again: what is killed may just have started another.
fn gone_within(
    control: &mut UnixStream,
    limit: Duration,
    events: &Receiver<Event>,
    again: impl Fn(),
) -> bool {
    let since = Instant::now();
    while since.elapsed() < limit {
        again();
        match events.recv_timeout(TICK) {
            Ok(Event::Reaped(pid, status)) => say(control, &Word::Ended(pid, status)),
            Ok(Event::NoneLeft) => {
                say(control, &Word::Gone);
                return true;
            }
            Ok(Event::EndAsked) | Err(_) => {}
        }
    }
    false
}

fn say(control: &mut UnixStream, word: &Word) {
    // Plain values always serialise. Nobody hears it when this program is gone.
    let line = serde_json::to_string(word).unwrap_or_default() + "\n";
    let _ = control.write_all(line.as_bytes());
}

fn spawn(args: &Args) -> io::Result<Child> {
    let (file, arguments) = args.command.split_first().ok_or(io::ErrorKind::NotFound)?;
    match command(args, Path::new(file), arguments).spawn() {
        // As execvp: the shell runs text. It would also try anything else, and complain about its bytes.
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
            if !matches!(Format::of(Path::new(file)), Ok(Format::Text)) {
                return Err(error);
            }
            let mut shell = vec![OsString::from(SHELL), file.clone()];
            shell.extend(arguments.iter().skip(1).cloned());
            command(args, &PathBuf::from(SHELL), &shell).spawn()
        }
        spawned => spawned,
    }
}

fn command(args: &Args, file: &Path, arguments: &[OsString]) -> Command {
    let mut command = Command::new(file);
    let (name, rest) = arguments
        .split_first()
        .map_or((None, arguments), |(name, rest)| (Some(name), rest));
    command
        .arg0(name.map_or(file.as_os_str(), |name| name))
        .args(rest);
    for pair in &args.set {
        let bytes = pair.as_bytes();
        let cut = bytes
            .iter()
            .position(|byte| *byte == b'=')
            .unwrap_or(bytes.len());
        let value = bytes.get(cut + 1..).unwrap_or_default();
        let of = std::ffi::OsStr::from_bytes;
        command.env(of(&bytes[..cut]), of(value));
    }
    for name in &args.unset {
        command.env_remove(name);
    }
    // SAFETY: system calls with numbers only, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    };
    command
}

/// The program alone holds its pipes: they end with it.
fn let_go_of_outputs() {
    // SAFETY: a terminated path, and descriptors of this process that nothing in it uses any more.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for standard in 0..3 {
            if null >= 0 {
                libc::dup2(null, standard);
            } else {
                libc::close(standard);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_lines_of_json() {
        for (word, text) in [
            (Word::Started(7), r#"{"started":7}"#),
            (Word::Ended(7, 256), r#"{"ended":[7,256]}"#),
            (Word::Gone, r#""gone""#),
            (Word::Left(vec![1]), r#"{"left":[1]}"#),
        ] {
            assert_eq!(serde_json::to_string(&word).unwrap(), text);
            assert_eq!(serde_json::from_str::<Word>(text).unwrap(), word);
        }
    }
}
