//! The program of `-- CMD`: started under the library, awaited until it is ready, ended afterwards whatever becomes of this process.
//!
//! | file | job |
//! |---|---|
//! | [`launch`] | what is executed with which environment |
//! | [`keeper`] | the process between: the program's parent, which ends it when this process is gone |
//! | [`kept`] | the keeper from this side |
//! | [`drain`] | the program's outputs, which never block it |
//! | [`family`] | which processes there are below, and signals to them |
//! | [`options`] | when it counts as ready, how it ends, where its output goes |
//! | [`ready`] | whether all signs have come |
//! | [`command`], [`port`], [`pattern`], [`memory`] | the signs |
//! | [`quiet`] | when GPU memory is quiet |
//! | [`error`] | why it is not there |

pub mod command;
pub mod drain;
pub mod error;
pub mod family;
pub mod keeper;
pub mod kept;
pub mod launch;
pub mod memory;
pub mod options;
pub mod pattern;
pub mod port;
pub mod quiet;
pub mod ready;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use crate::output;
use crate::pinned::child::own_program;
use crate::process::ending::{Ending, Watch};
use crate::process::identity::Identity;

pub use error::Error;
use kept::Kept;
use launch::Launch;
pub use options::StartOptions;
use ready::{Ready, Wait};

/// A program that runs and is ready. It ends with this value, at the latest.
#[derive(Debug)]
pub struct Started {
    kept: Kept,
    cuda: Identity,
    watch: Option<Watch>,
}

impl Started {
    /// Starts it under the library with these variables beside its own, and waits until it is ready.
    ///
    /// # Errors
    /// Why it is not. Nothing of it is left then.
    pub fn start(
        command: &[OsString],
        env: &[(OsString, OsString)],
        options: &StartOptions,
        signals: &Receiver<i32>,
    ) -> Result<Started, Error> {
        let launch = Launch::with_library(command, env)?;
        Self::start_by(&own_program(), &launch, options, signals)
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
        let launch = Launch::stock(command, env)?;
        Self::start_by(&own_program(), &launch, options, signals)
    }

    /// The same by `tool`, which is this program.
    ///
    /// # Errors
    /// As [`Started::start`].
    pub fn start_by(
        tool: &Path,
        launch: &Launch,
        options: &StartOptions,
        signals: &Receiver<i32>,
    ) -> Result<Started, Error> {
        options.check()?;
        launch.warnings.iter().for_each(output::complain);
        let mut kept = Kept::start(tool, launch, options)?;
        match wait(&mut kept, options, signals) {
            Ok(cuda) => Ok(Started {
                watch: Watch::of(&cuda).ok(),
                kept,
                cuda,
            }),
            Err(error) => {
                // Why it could not be ended matters less than why it was not ready.
                let _ = kept.end();
                Err(error)
            }
        }
    }

    /// The process that uses CUDA: the program, or one below it.
    pub fn pid(&self) -> i32 {
        self.cuda.pid
    }

    /// How it ended, in a sentence with its last words; `None`: it lives.
    pub fn ending(&mut self) -> Option<String> {
        let how = self.how_it_ended()?;
        let (pid, name) = (self.cuda.pid, self.cuda.shown_name());
        Some(
            self.kept
                .with_last_words(format!("process {pid} ({name}) {how}")),
        )
    }

    fn how_it_ended(&mut self) -> Option<Ending> {
        let pid = self.cuda.pid;
        if let Some(ending) = self.kept.status_of(pid) {
            return Some(ending);
        }
        let by_watch = || self.watch.as_ref()?.ended_within(Duration::ZERO);
        let gone = || self.cuda.check().is_err().then_some(Ending::Unknown);
        match by_watch().or_else(gone)? {
            // The keeper may be about to say it.
            Ending::Unknown => Some(self.kept.late_status_of(pid).unwrap_or(Ending::Unknown)),
            ending => Some(ending),
        }
    }

    /// Writes a line to its stdin, and returns the next line that it writes to stdout, as the built-in workload answers. `None`: `is_over`
    /// said so, which is asked meanwhile.
    ///
    /// # Errors
    /// It does not take the line, does not answer within `limit`, or has ended.
    pub fn ask(
        &mut self,
        line: &str,
        limit: Duration,
        is_over: impl FnMut() -> bool,
    ) -> Result<Option<String>, String> {
        self.kept.ask(line, limit, is_over)
    }

    /// Ends it: SIGTERM, then SIGKILL, to everything below it.
    ///
    /// # Errors
    /// Some of it is left.
    pub fn end(mut self) -> Result<(), String> {
        self.kept.end()
    }
}

/// How often the program is looked at while it gets ready.
const TICK: Duration = Duration::from_millis(100);

fn wait(
    kept: &mut Kept,
    options: &StartOptions,
    signals: &Receiver<i32>,
) -> Result<Identity, Error> {
    let since = Instant::now();
    let mut wait = Wait::new(options, kept);
    loop {
        if let Ok(signal) = signals.recv_timeout(TICK) {
            return Err(Error::Signal(signal));
        }
        kept.check_alive()?;
        let missing = match wait.look(kept)? {
            Ready::Yes(identity) => return Ok(identity),
            Ready::NotYet(missing) => missing,
        };
        if since.elapsed() >= options.timeout() {
            let what = format!(
                "the program was not ready within {} s: {missing}",
                options.timeout().as_secs()
            );
            return Err(Error::NotReady(kept.with_last_words(what)));
        }
    }
}

/// A file for the program's outputs, of which both are written to the same, behind those of programs that were started before.
pub(crate) fn output_file(path: &PathBuf) -> Result<std::fs::File, Error> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    file.map_err(|error| Error::Failed(format!("{}: {error}", path.display())))
}

/// Empties that file: a run begins.
///
/// # Errors
/// It cannot be written.
pub fn empty_output(path: &PathBuf) -> Result<(), Error> {
    let file = output_file(path)?;
    let emptied = file.metadata().and_then(|found| match found.is_file() {
        true => file.set_len(0),
        // A device or a pipe.
        false => Ok(()),
    });
    emptied.map_err(|error| Error::Failed(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn programs_of_a_run_write_behind_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        std::fs::write(&path, "of an earlier run").unwrap();
        empty_output(&path).unwrap();
        for word in ["first ", "second"] {
            output_file(&path)
                .unwrap()
                .write_all(word.as_bytes())
                .unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "first second");
        assert!(empty_output(&PathBuf::from("/dev/null")).is_ok());
        assert!(empty_output(&folder.path().join("none/out")).is_err());
    }
}
