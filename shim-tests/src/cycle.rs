//! One cycle: lock, checkpoint, restore, unlock, each step timed and its outcome checked.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cudasnap_cli::driver::{Driver, DriverError, State};
use cudasnap_cli::process::observe::{threads, Holdings};
use cudasnap_cli::process::target::{Mapping, MemoryError, Target};
use cudasnap_cli::record::view::{PhaseView, RecordView};
use cudasnap_cli::record::{Located, RecordError};
use serde::{Deserialize, Serialize};

use crate::freeze::Freeze;
use crate::leaks::HELPER;
use crate::watchdog::Watchdog;

/// A lock that takes longer fails, in milliseconds: a host that is idle locks at once.
const LOCK_TIMEOUT_MS: u32 = 20_000;
/// Smallest growth of private memory that can be the driver's buffer.
const SMALLEST_BUFFER: u64 = 32 << 20;

/// Why a cycle did not finish.
#[derive(Debug)]
pub enum CycleError {
    /// The driver refused a step.
    Driver(DriverError),
    /// A step reported success, and the state is another than it should be.
    State {
        /// The step.
        step: &'static str,
        /// State it should lead to.
        expected: State,
        /// State the driver reports.
        found: State,
    },
    /// The process could not be looked into.
    Memory(MemoryError),
    /// The record could not be read.
    Record(RecordError),
    /// The process could not be frozen or released.
    Freeze(std::io::Error),
    /// Others that should do a step at the same time did not come.
    Meeting(String),
}

impl fmt::Display for CycleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CycleError::Driver(error) => write!(out, "{error}"),
            CycleError::State {
                step,
                expected,
                found,
            } => {
                write!(out, "after {step} the state is {found}, not {expected}")
            }
            CycleError::Memory(error) => write!(out, "{error}"),
            CycleError::Record(error) => write!(out, "record: {error}"),
            CycleError::Freeze(error) => write!(out, "freezing: {error}"),
            CycleError::Meeting(text) => write!(out, "{text}"),
        }
    }
}

impl std::error::Error for CycleError {}

impl From<DriverError> for CycleError {
    fn from(error: DriverError) -> Self {
        CycleError::Driver(error)
    }
}

impl From<MemoryError> for CycleError {
    fn from(error: MemoryError) -> Self {
        CycleError::Memory(error)
    }
}

impl From<RecordError> for CycleError {
    fn from(error: RecordError) -> Self {
        CycleError::Record(error)
    }
}

impl From<std::io::Error> for CycleError {
    fn from(error: std::io::Error) -> Self {
        CycleError::Freeze(error)
    }
}

/// Wall times of the steps, in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Times {
    /// Lock.
    pub lock: f64,
    /// Checkpoint.
    pub checkpoint: f64,
    /// Restore.
    pub restore: f64,
    /// Unlock.
    pub unlock: f64,
}

/// What a cycle showed.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Wall times.
    pub times: Times,
    /// Bytes by which the process's private memory grew while checkpointed: the buffer's length, rounded up to pages.
    pub mapped_bytes: u64,
    /// The checkpoint phase, when the shim recorded one in this cycle.
    pub checkpoint: Option<PhaseView>,
    /// The restore phase, when the shim recorded one in this cycle.
    pub restore: Option<PhaseView>,
    /// Holdings while checkpointed.
    pub checkpointed: Holdings,
    /// The whole record after unlock, when the shim is loaded.
    pub record: Option<RecordView>,
    /// Threads that were left between the phases and had no business there.
    pub strays: Vec<String>,
}

/// How to run a cycle.
#[derive(Debug)]
pub struct Cycle<'a> {
    /// The driver.
    pub driver: &'a Driver,
    /// The process.
    pub pid: i32,
    /// Its record, if the shim is loaded.
    pub record: Option<&'a Located>,
    /// Whether all threads but the restore thread are stopped from before the checkpoint until after the unlock.
    pub frozen: bool,
    /// After this time in one step the process is killed.
    pub limit: Duration,
}

impl Cycle<'_> {
    /// Runs the cycle.
    ///
    /// # Errors
    /// The first step that fails ends it; the process then stays in the state in which that left it.
    pub fn run(&self) -> Result<Outcome, CycleError> {
        self.run_meeting(&|_| Ok(()))
    }

    /// The same; before each of the two long steps it calls `meet`, which may wait for others.
    ///
    /// # Errors
    /// As [`Cycle::run`]; what `meet` says.
    pub fn run_meeting(
        &self,
        meet: &dyn Fn(&'static str) -> Result<(), String>,
    ) -> Result<Outcome, CycleError> {
        self.expect("the start", State::Running)?;
        let before = private_bytes(&self.target().mappings()?);
        let lock = || self.driver.lock(self.pid, LOCK_TIMEOUT_MS);
        let mut times = Times {
            lock: self.step("lock", State::Locked, lock)?,
            ..Times::default()
        };
        let known: Vec<i32> = threads(self.target())?
            .iter()
            .map(|thread| thread.tid)
            .collect();
        // Locking comes before freezing, in CRIU too: it needs the process's own threads.
        let mut world = World::new(self)?;
        meet("checkpoint").map_err(CycleError::Meeting)?;
        let started = now();
        times.checkpoint = world.step(self, "checkpoint", State::Checkpointed, || {
            self.driver.checkpoint(self.pid)
        })?;
        let mapped = private_bytes(&self.target().mappings()?).saturating_sub(before);
        let checkpoint = self.phase("checkpoint", started)?;
        let checkpointed = Holdings::of(self.target())?;
        let strays = strays(&known, &checkpointed);
        meet("restore").map_err(CycleError::Meeting)?;
        let started = now();
        times.restore = world.step(self, "restore", State::Locked, || {
            self.driver.restore(self.pid)
        })?;
        times.unlock = world.step(self, "unlock", State::Running, || {
            self.driver.unlock(self.pid)
        })?;
        drop(world);
        Ok(Outcome {
            times,
            mapped_bytes: mapped,
            checkpoint,
            restore: self.phase("restore", started)?,
            checkpointed,
            record: self.record.map(Located::read).transpose()?,
            strays,
        })
    }

    fn target(&self) -> Target {
        Target::new(self.pid)
    }

    fn step(
        &self,
        name: &'static str,
        leads_to: State,
        action: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<f64, CycleError> {
        let seconds = self.timed(name, action)?;
        self.expect(name, leads_to)?;
        Ok(seconds)
    }

    fn timed(
        &self,
        name: &'static str,
        action: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<f64, DriverError> {
        let watchdog = Watchdog::new(name, self.pid, self.limit);
        let start = Instant::now();
        action()?;
        let seconds = start.elapsed().as_secs_f64();
        drop(watchdog);
        Ok(seconds)
    }

    fn expect(&self, step: &'static str, expected: State) -> Result<(), CycleError> {
        let found = self.driver.state(self.pid)?;
        if found == expected {
            Ok(())
        } else {
            Err(CycleError::State {
                step,
                expected,
                found,
            })
        }
    }

    /// The phase in this direction that began after `started`, if the record has one.
    fn phase(&self, direction: &str, started: Duration) -> Result<Option<PhaseView>, CycleError> {
        let Some(located) = self.record else {
            return Ok(None);
        };
        let view = located.read()?;
        let current = Some(&view.current).filter(|phase| phase.direction.is(direction));
        let phase = current.or_else(|| view.last(direction));
        // The wall clock may be set back a little in between; older than a second is the cycle before.
        let recent = |phase: &&PhaseView| {
            u128::from(phase.started_unix_ns) + 1_000_000_000 >= started.as_nanos()
        };
        Ok(phase.filter(recent).cloned())
    }
}

/// The process's other threads: running, or stopped.
enum World {
    Free,
    Frozen(Freeze),
}

impl World {
    fn new(cycle: &Cycle<'_>) -> Result<Self, CycleError> {
        if !cycle.frozen {
            return Ok(World::Free);
        }
        let restore_thread = cycle.driver.restore_thread(cycle.pid)?;
        Ok(World::Frozen(Freeze::new(cycle.pid, restore_thread)?))
    }

    fn step(
        &mut self,
        cycle: &Cycle<'_>,
        name: &'static str,
        leads_to: State,
        action: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<f64, CycleError> {
        match self {
            World::Free => cycle.step(name, leads_to, action),
            // The state is asked while the restore thread runs: the real driver may need it for the answer.
            World::Frozen(freeze) => {
                freeze.with_restore_thread(|| cycle.step(name, leads_to, action))?
            }
        }
    }
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Bytes of private memory in mappings that could be the buffer.
fn private_bytes(mappings: &[Mapping]) -> u64 {
    let large =
        |mapping: &&Mapping| mapping.is_private_memory() && mapping.length() >= SMALLEST_BUFFER;
    mappings.iter().filter(large).map(Mapping::length).sum()
}

fn strays(known: &[i32], checkpointed: &Holdings) -> Vec<String> {
    let stray = |thread: &&cudasnap_cli::process::observe::Thread| {
        thread.name.starts_with(HELPER) || !known.contains(&thread.tid)
    };
    checkpointed
        .threads
        .iter()
        .filter(stray)
        .map(|thread| format!("{} ({})", thread.name, thread.tid))
        .collect()
}
