//! The process that cycles are made with: looked at before anything is touched, its words switched, and put back at the end.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use cudasnap_wire::Mode;

use super::args::Order;
use super::bench::Trouble;
use super::data::Variant;
use super::real::{is_shared, needs_library, PATIENCE};
use super::variant::THREADS;
use crate::control::drop;
use crate::driver::State;
use crate::flow::calls::Calls;
use crate::flow::crew::{Crew, Subject};
use crate::flow::failure::{Cause, Failure};
use crate::flow::life::{Life, Watched};
use crate::flow::looks::{self, Need};
use crate::flow::plan::{advice, Verb};
use crate::gpus::{Asked, Depth};
use crate::process::cuda::CudaUse;
use crate::process::identity::{is_stopped, Identity};
use crate::process::image::Image;
use crate::record::{Control, Located, RecordError};
use crate::refusal::refusal;

/// The memory of a process that is dying is gone before the process is: so long its end is waited for.
const DYING: Duration = Duration::from_millis(500);

/// See the module.
pub struct Place {
    identity: Identity,
    image: Option<Image>,
    life: Arc<Watched>,
    /// Its driver's thread.
    pub crew: Crew,
    /// The library's record, unless it runs without.
    pub record: Option<Located>,
    /// State as last read.
    pub state: State,
    /// The record's words as they were found; `None` once they are put back.
    before: Option<Words>,
    shared: bool,
}

/// The words that are switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Words {
    mode: u32,
    cap: u32,
}

impl Place {
    /// Looks at the process. Nothing of it is touched.
    ///
    /// # Errors
    /// Why there can be no cycle with it, and what to do.
    pub fn enter(
        pid: i32,
        order: &Order<'_>,
        group: usize,
        calls: &Arc<dyn Calls>,
        signals: &Receiver<i32>,
    ) -> Result<Self, Trouble> {
        let (identity, record) = look(pid, order, group)?;
        let life = Arc::new(Watched::new(identity.clone()));
        let subject = Subject {
            pid,
            life: Arc::clone(&life) as Arc<dyn Life>,
        };
        let crew = Crew::start(calls, vec![subject], &[])
            .map_err(|error| Trouble::failed(format!("no thread to work with: {error}")))?;
        running(pid, &crew, signals)?;
        let view = record.as_ref().and_then(|record| record.read().ok());
        if !order.force {
            room(pid, view.as_ref())?;
        }
        let before = view.map(|view| Words {
            mode: view.mode.number,
            cap: view.thread_cap,
        });
        Ok(Place {
            image: Image::of(pid),
            identity,
            life,
            crew,
            record,
            state: State::Running,
            before,
            shared: is_shared(order, group),
        })
    }

    /// The process.
    pub fn pid(&self) -> i32 {
        self.identity.pid
    }

    /// That the process runs another program by now: nothing that was known of the one before is there any more.
    pub fn replaced(&self) -> Option<Trouble> {
        let pid = self.pid();
        let is_replaced = self
            .image
            .as_ref()
            .is_some_and(|image| image.is_replaced(pid));
        is_replaced.then(|| {
            let name = Identity::of(pid).map_or(String::new(), |now| format!(" ({})", now.shown_name()));
            Trouble::failed(format!(
                "process {pid} runs another program now{name}: exec has ended the one that was measured"
            ))
        })
    }

    /// Sets mode and cap of the next checkpoint.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn switch(&mut self, variant: &Variant) -> Result<(), Trouble> {
        if let Some(trouble) = self.replaced() {
            return Err(trouble);
        }
        let (Some(record), Some(before)) = (&self.record, self.before) else {
            return self.alive(Duration::ZERO);
        };
        let mut modes = Mode::ALL.iter();
        let mode = modes.find(|mode| mode.word() == variant.mode);
        let cap = variant.settings.get(THREADS);
        let words = Words {
            mode: mode.map_or(before.mode, |mode| mode.number()),
            cap: cap.and_then(|cap| cap.parse().ok()).unwrap_or(before.cap),
        };
        self.alive(Duration::ZERO)?;
        write(record, words).or_else(|error| {
            self.alive(DYING)?;
            Err(Trouble::failed(refusal(self.pid(), &error).text))
        })
    }

    fn alive(&self, limit: Duration) -> Result<(), Trouble> {
        match self.life.ended_within(limit) {
            Some(ending) => Err(Trouble::failed(format!(
                "process {} {ending} between two cycles",
                self.pid()
            ))),
            None => Ok(()),
        }
    }

    /// Frees a buffer that is kept for the next checkpoint, where that may be another variant's. Whether its memory is free now.
    pub fn drop_kept(&self) -> Option<bool> {
        let buffer = self.record.as_ref()?.read().ok()?.buffer;
        if !self.shared || !buffer.is_waiting() {
            return None;
        }
        let dropped = drop::kept_buffer(&self.identity);
        Some(dropped.is_ok_and(|dropped| dropped.not_at_once.is_none()))
    }

    /// Puts back what was switched.
    ///
    /// # Errors
    /// It cannot be.
    pub fn leave(mut self) -> Result<(), Trouble> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), Trouble> {
        let (Some(record), Some(words)) = (&self.record, self.before.take()) else {
            return Ok(());
        };
        if self.replaced().is_some() {
            // Its record, if it has one, is not the one that was switched.
            return Ok(());
        }
        match write(record, words) {
            Err(error) if self.alive(DYING).is_ok() => Err(Trouble::failed(format!(
                "mode and thread cap of process {} could not be put back ({error}): \"cudasnap mode {} {}\" sets the mode",
                self.pid(),
                self.pid(),
                Mode::from_number(words.mode).map_or("on", Mode::word)
            ))),
            // One that has ended needs nothing.
            _ => Ok(()),
        }
    }
}

impl Drop for Place {
    /// Whatever happened.
    fn drop(&mut self) {
        let _ = self.put_back();
    }
}

/// What can be seen without the driver: who the process is, and whether it may be worked on.
///
/// # Errors
/// Why not, and what to do.
pub fn look(
    pid: i32,
    order: &Order<'_>,
    group: usize,
) -> Result<(Identity, Option<Located>), Trouble> {
    let identity = Identity::of(pid).map_err(|error| Trouble::failed(error.to_string()))?;
    let missing = looks::missing_rights(std::iter::once(pid));
    if !missing.is_empty() && !order.force {
        return Err(Trouble::refused(missing.join("; ")));
    }
    if CudaUse::of(identity.target()) == Ok(CudaUse::None) {
        return Err(Trouble::failed(format!(
            "process {pid} ({}) does not use CUDA: give the one that does (cudasnap status shows it)",
            identity.shown_name()
        )));
    }
    let record = match needs_library(order, group) {
        true => Some(record_of(&identity)?),
        false => None,
    };
    Ok((identity, record))
}

fn write(record: &Located, words: Words) -> Result<(), RecordError> {
    if let Some(mode) = Mode::from_number(words.mode) {
        record.write(Control::Mode(mode))?;
    }
    record.write(Control::ThreadCap(words.cap))
}

fn record_of(identity: &Identity) -> Result<Located, Trouble> {
    let pid = identity.pid;
    Located::find(identity.target()).map_err(|error| match error {
        RecordError::NotLoaded => Trouble::refused(format!(
            "process {pid} ({}) does not run under the library, so nothing can be switched or timed in it: start it with \"cudasnap run -- CMD\", \
             or give its command: \"cudasnap ab -- CMD\"; the variant stock measures it without the library",
            identity.shown_name()
        )),
        error => {
            let refusal = refusal(pid, &error);
            Trouble {
                text: refusal.text,
                exit: refusal.exit,
            }
        }
    })
}

/// That the process runs: it is neither locked nor checkpointed.
fn running(pid: i32, crew: &Crew, signals: &Receiver<i32>) -> Result<(), Trouble> {
    let states = crew.survey(PATIENCE, signals).map_err(Trouble::signal)?;
    match states.into_iter().next() {
        Some(Ok(State::Running)) => Ok(()),
        Some(Ok(state)) => Err(Trouble::refused(format!(
            "process {pid} is {state}, not running: {}",
            match state {
                State::Locked => format!("\"cudasnap unlock {pid}\" lets it run"),
                State::Checkpointed => format!("\"cudasnap restore {pid}\" brings it back"),
                state => advice(Verb::Checkpoint, state, pid),
            }
        ))),
        Some(Err(cause)) => Err(no_state(pid, cause)),
        None => Err(Trouble::failed(format!("process {pid}: no state"))),
    }
}

fn no_state(pid: i32, cause: Cause) -> Trouble {
    let failure = Failure { step: None, cause };
    let around = crate::flow::hints::Surroundings::known();
    let hints = crate::flow::hints::for_failure(&failure, pid, None, around);
    let stopped = is_stopped(pid).then(|| {
        format!("it is stopped (SIGSTOP, Ctrl-Z or a debugger): \"kill -CONT {pid}\" lets it go on")
    });
    let sentences: Vec<String> = std::iter::once(format!("process {pid}: {failure}"))
        .chain(stopped)
        .chain(hints)
        .collect();
    Trouble::failed(sentences.join("; "))
}

/// That main memory holds what a checkpoint brings there.
fn room(pid: i32, record: Option<&crate::record::view::RecordView>) -> Result<(), Trouble> {
    let gpus = Asked::now(Depth::Memory).answer().ok();
    let need = Need::of(pid, gpus.as_ref(), record);
    let short = looks::short_of_room(&[need]);
    match short.is_empty() {
        true => Ok(()),
        false => Err(Trouble::refused(short.join("; "))),
    }
}
