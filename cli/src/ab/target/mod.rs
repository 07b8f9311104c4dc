//! The program of `-- CMD`: started, awaited, ended.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::exit::Exit;
use crate::gpus::Gpus;
use crate::process::cuda::CudaUse;
use crate::process::tree;
use crate::run::library::{self, Choice};
use crate::run::preload;

/// When a program that was started is ready.
#[derive(Debug, Default, clap::Args)]
pub struct StartOptions {
    /// How long a program may take to be ready
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = crate::values::whole::<u32>(1, 86400))]
    ready_timeout: u32,
}

/// Why a program is not there.
#[derive(Debug)]
pub enum Error {
    /// A signal came meanwhile.
    Signal(i32),
    /// Something else.
    Failed(String),
}

impl Error {
    /// The status that it means.
    pub fn exit(&self) -> Exit {
        match self {
            Error::Signal(number) => Exit::Signal(*number),
            Error::Failed(_) => Exit::Failed,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Signal(number) => write!(out, "signal {number}"),
            Error::Failed(text) => out.write_str(text),
        }
    }
}

/// A program that runs.
#[derive(Debug)]
pub struct Started {
    child: Child,
    pid: i32,
}

impl Started {
    /// Starts it under the library and waits until it is ready.
    ///
    /// # Errors
    /// Why it is not.
    pub fn start(
        command: &[OsString],
        env: &[(OsString, OsString)],
        options: &StartOptions,
        signals: &Receiver<i32>,
    ) -> Result<Started, Error> {
        let own = std::env::current_exe().map_err(|error| Error::Failed(error.to_string()))?;
        let mut line = vec![own.into_os_string()];
        line.extend(["run", "--require", "--"].map(OsString::from));
        line.extend(command.iter().cloned());
        Self::start_by(&line, env, options, signals)
    }

    /// The same without the library.
    ///
    /// # Errors
    /// As [`Started::start`].
    pub fn start_stock(
        command: &[OsString],
        env: &[(OsString, OsString)],
        options: &StartOptions,
        signals: &Receiver<i32>,
    ) -> Result<Started, Error> {
        let mut env = env.to_vec();
        let list = preload::in_force(std::env::vars_os());
        if let (Some(list), Ok(Choice::Fit(path, _))) = (list, library::choose(None)) {
            let without = preload::without(&list, &library::kin(&path));
            env.push((preload::VARIABLE.into(), without));
        }
        Self::start_by(command, &env, options, signals)
    }

    fn start_by(
        command: &[OsString],
        env: &[(OsString, OsString)],
        options: &StartOptions,
        signals: &Receiver<i32>,
    ) -> Result<Started, Error> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Error::Failed("no program".into()));
        };
        let child = Command::new(program)
            .args(arguments)
            .envs(env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| Error::Failed(format!("{}: {error}", program.to_string_lossy())))?;
        let mut started = Started { child, pid: 0 };
        let (mut used, mut quiet) = (None, 0);
        let deadline = Instant::now() + Duration::from_secs(u64::from(options.ready_timeout));
        while Instant::now() < deadline {
            match signals.recv_timeout(Duration::from_millis(50)) {
                Ok(signal) => return Err(Error::Signal(signal)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
            if let Some(ending) = started.ending() {
                return Err(Error::Failed(format!("{ending} before it was ready")));
            }
            if let Some(pid) = started.cuda_process() {
                let now = Gpus::look().ok().and_then(|gpus| gpus.used_by(pid));
                quiet = if now.is_some() && now == used {
                    quiet + 1
                } else {
                    0
                };
                used = now;
                if quiet >= 10 {
                    started.pid = pid;
                    return Ok(started);
                }
            }
        }
        Err(Error::Failed("it is not ready in time".into()))
    }

    fn cuda_process(&self) -> Option<i32> {
        let below = tree::below(self.child.id() as i32, &tree::all());
        let uses = below.iter().find(|identity| {
            matches!(
                CudaUse::of(identity.target()),
                Ok(CudaUse::Initialised { .. })
            )
        });
        uses.map(|identity| identity.pid)
    }

    /// The process that uses CUDA.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// How it ended; `None`: it lives.
    pub fn ending(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("the program ended with {status}"))
    }

    /// Ends it.
    ///
    /// # Errors
    /// It does not end.
    pub fn end(mut self) -> Result<(), String> {
        self.kill();
        Ok(())
    }

    fn kill(&mut self) {
        // SAFETY: takes numbers only; the group is the child's own.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.kill();
    }
}
