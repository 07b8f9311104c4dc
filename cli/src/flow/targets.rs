//! The processes of a call before their first step: selected, allowed, with CUDA, their states read.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{after, bounded, select, Receiver};

use super::args::Common;
use super::crew::{Crew, Subject};
use super::failure::{Cause, Failure, NO_CUDA};
use super::hints::{self, Surroundings};
use super::life::Watched;
use super::looks;
use super::outcome::{Outcome, Row};
use crate::driver::{Driver, DriverError, GpuPair, State};
use crate::process::cuda::CudaUse;
use crate::process::identity::Identity;
use crate::selection::{Selection, SelectionError};

/// How long loading the driver may take: seconds on a node with many GPUs, never a minute.
const LOADING: Duration = Duration::from_secs(60);

/// Why a call ends before its first step.
#[derive(Debug)]
pub enum Stop {
    /// A look beforehand says no.
    Refused(Vec<String>),
    /// It cannot work.
    Failed(Vec<String>),
    /// A signal came.
    Signal(i32),
}

/// The processes of a call.
#[derive(Debug, Default)]
pub struct Targets {
    /// What is known of each.
    pub rows: Vec<Row>,
    identities: Vec<Identity>,
    /// What was wrong with numbers on the command line.
    pub unnamed: Vec<String>,
    /// Trees on the command line without any CUDA process.
    pub without_cuda: Vec<String>,
    /// Why the others were left alone, when something was wrong with some.
    pub held_up: Option<&'static str>,
    /// Remarks for those who want to know.
    pub notes: Vec<String>,
    told: usize,
}

impl Targets {
    /// Finds the processes that the command line names.
    ///
    /// # Errors
    /// [`Stop::Refused`] when a tree may not be looked into.
    pub fn select(&mut self, common: &Common) -> Result<(), Stop> {
        let mut refused = Vec::new();
        for error in self.resolve(&common.selection) {
            match error {
                SelectionError::NoCudaBelow { denied, .. } if denied > 0 && !common.force => {
                    refused.push(error.to_string());
                }
                // No more a failure than a process without CUDA.
                SelectionError::NoCudaBelow { .. } => {
                    self.without_cuda.push(error.to_string());
                    self.notes.push(error.to_string());
                }
                _ => self.unnamed.push(error.to_string()),
            }
        }
        if refused.is_empty() {
            Ok(())
        } else {
            Err(Stop::Refused(refused))
        }
    }

    /// Each number by itself, so that a wrong one does not hide the others.
    fn resolve(&mut self, selection: &Selection) -> Vec<SelectionError> {
        let mut errors = Vec::new();
        for pid in &selection.pids {
            let one = Selection {
                pids: vec![*pid],
                ..selection.clone()
            };
            match one.resolve() {
                Ok(found) => found.into_iter().for_each(|identity| self.add(identity)),
                Err(more) => errors.extend(more),
            }
        }
        errors
    }

    fn add(&mut self, identity: Identity) {
        if !self.identities.contains(&identity) {
            self.rows.push(Row::new(&identity));
            self.identities.push(identity);
        }
    }

    /// Looks at rights, and sorts out who does not use CUDA; needs no driver.
    ///
    /// # Errors
    /// [`Stop::Refused`] with the rights that are missing.
    pub fn look(&mut self, force: bool) -> Result<(), Stop> {
        let missing = looks::missing_rights(self.rows.iter().map(|row| row.pid));
        if !missing.is_empty() && !force {
            return Err(Stop::Refused(missing));
        }
        for (row, identity) in self.rows.iter_mut().zip(&self.identities) {
            // Where only the driver knows, it is asked.
            if CudaUse::of(identity.target()) == Ok(CudaUse::None) {
                row.leave_alone();
            }
        }
        Ok(())
    }

    /// Positions of the processes that are still worked on.
    pub fn live(&self) -> Vec<usize> {
        let untouched = |at: &usize| self.rows[*at].outcome == Outcome::Untouched;
        (0..self.rows.len()).filter(untouched).collect()
    }

    /// Who the process at this position is.
    pub fn identity(&self, at: usize) -> &Identity {
        &self.identities[at]
    }

    /// Reads the states of the processes at these positions. Those that turn out to be without CUDA, or fail, are marked.
    ///
    /// # Errors
    /// [`Stop::Signal`]
    pub fn survey(
        &mut self,
        live: &[usize],
        crew: &Crew,
        patience: Duration,
        signals: &Receiver<i32>,
    ) -> Result<(), Stop> {
        let states = crew.survey(patience, signals).map_err(Stop::Signal)?;
        for (at, state) in live.iter().zip(states) {
            self.note_state(*at, state);
        }
        Ok(())
    }

    fn note_state(&mut self, at: usize, state: Result<State, Cause>) {
        let row = &mut self.rows[at];
        match state {
            Ok(state) => {
                row.before = Some(state);
                row.state = Some(state);
            }
            Err(cause) if cause.code() == NO_CUDA => row.leave_alone(),
            Err(cause) => self.fail(at, Failure { step: None, cause }),
        }
    }

    /// Marks a process as failed.
    pub fn fail(&mut self, at: usize, failure: Failure) {
        let row = &mut self.rows[at];
        row.outcome = Outcome::Failed;
        row.add_trouble(&failure, Surroundings::known());
    }

    /// The remarks that were not told yet; from now on they are.
    pub fn new_notes(&mut self) -> &[String] {
        let first = std::mem::replace(&mut self.told, self.notes.len());
        &self.notes[first..]
    }

    /// The remarks that were not told yet.
    pub fn untold(&self) -> &[String] {
        &self.notes[self.told..]
    }

    /// Whether something is wrong already.
    pub fn has_failed(&self) -> bool {
        let failed = |row: &Row| row.outcome == Outcome::Failed;
        !self.unnamed.is_empty() || self.rows.iter().any(failed)
    }
}

/// Loads the driver, and starts a thread for each of the processes at these positions.
///
/// # Errors
/// The driver cannot be loaded, a thread cannot be started, or a signal came.
pub fn crew(
    targets: &Targets,
    live: &[usize],
    map: &[GpuPair],
    signals: &Receiver<i32>,
) -> Result<Crew, Stop> {
    let driver = Arc::new(load(live.iter().map(|at| targets.identity(*at)), signals)?);
    let subjects = live.iter().map(|at| {
        let identity = targets.identity(*at).clone();
        Subject {
            pid: identity.pid,
            life: Arc::new(Watched::new(identity)),
        }
    });
    Crew::start(&(driver as _), subjects.collect(), map)
        .map_err(|error| Stop::Failed(vec![format!("no thread to work with: {error}")]))
}

/// Loads the driver, in a thread of its own: it takes seconds on some nodes, and hangs on some others. `theirs`: the processes whose driver it
/// should be.
///
/// # Errors
/// It cannot be loaded, or a signal came.
pub(crate) fn load<'a>(
    theirs: impl Iterator<Item = &'a Identity>,
    signals: &Receiver<i32>,
) -> Result<Driver, Stop> {
    let (send, loaded) = bounded(1);
    let loader = move || {
        let _ = send.send(Driver::load());
    };
    std::thread::Builder::new()
        .name("cuInit".into())
        .spawn(loader)
        .map_err(|error| Stop::Failed(vec![format!("no thread to work with: {error}")]))?;
    select! {
        recv(loaded) -> driver => match driver {
            Ok(driver) => driver.map_err(|error| cannot_load(&error, theirs)),
            Err(_) => Err(Stop::Failed(vec!["the driver's library ended its thread".into()])),
        },
        recv(signals) -> signal => Err(Stop::Signal(signal.unwrap_or(libc::SIGTERM))),
        recv(after(LOADING)) -> _ => Err(Stop::Failed(vec![format!(
            "cuInit has not come back for {} s: the driver hangs (nvidia-smi, the kernel's log)",
            LOADING.as_secs()
        )])),
    }
}

fn cannot_load<'a>(error: &DriverError, mut targets: impl Iterator<Item = &'a Identity>) -> Stop {
    let mut sentences = vec![error.to_string()];
    let theirs = targets.find_map(|identity| {
        let (pid, name) = (identity.pid, identity.shown_name());
        let library = hints::libcuda_of(identity.target())?;
        Some(format!(
            "process {pid} ({name}) {}",
            hints::from_there(&library)
        ))
    });
    let theirs = theirs.filter(|_| matches!(error, DriverError::NoLibrary(_)));
    sentences.extend(theirs.map(|hint| format!("  {hint}")));
    let hints = hints::for_load(error, Surroundings::known());
    sentences.extend(hints.iter().map(|hint| format!("  {hint}")));
    Stop::Failed(sentences)
}
