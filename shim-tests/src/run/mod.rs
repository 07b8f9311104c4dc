//! Runs that alternate cycles between arms: the same program without the shim and with it, in one run. `reserve` fills a process's range
//! between its cycles; `judge` says what was not as it should be.

mod arm;
mod judge;
mod reserve;

use std::path::PathBuf;
use std::time::Duration;

use cudasnap_cli::driver::{kernel_driver_version, Driver};
use cudasnap_cli::process::observe::Holdings;
use cudasnap_cli::process::target::Target;
use cudasnap_cli::record::{Located, RecordError};
use serde::Serialize;

pub use arm::{Arm, Kind};
pub use reserve::Reserved;

use crate::cycle::{Cycle, Outcome};
use crate::host::{Host, HostSpec};
use crate::leaks::Growth;
use crate::meet::Meet;
use crate::split::{Split, Splits};

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The host program, without shim.
    pub host: HostSpec,
    /// The shim's library.
    pub shim: PathBuf,
    /// The tool, which fills the ranges of the arms of kind [`Kind::Reserve`].
    pub tool: PathBuf,
    /// Arms, in the order in which each round takes them.
    pub arms: Vec<Arm>,
    /// Cycles per arm.
    pub cycles: u32,
    /// Cycles per arm in which the driver's own loop copies.
    pub slow_cycles: u32,
    /// Whether contents are looked at only before the first and after the last cycle of an arm. They do not change in between,
    /// unless `before_each` changes them: what any cycle spoils is seen at the end.
    pub verify_last: bool,
    /// Where other processes are met before each checkpoint and restore.
    pub meet: Option<Meet>,
    /// Whether cycles run in a frozen world.
    pub frozen: bool,
    /// A line to ask the program before each cycle, so that its contents change (`rewrite`, `step`).
    pub before_each: Option<String>,
    /// Whether the program's own threads map memory and come and go meanwhile: that cannot be told from a leak of the shim's.
    pub busy: bool,
    /// How long a host may take for an answer, and a driver step for its work.
    pub patience: Duration,
}

impl Plan {
    fn cycles_of(&self, arm: Arm) -> u32 {
        if arm.is_slow() {
            self.slow_cycles
        } else {
            self.cycles
        }
    }
}

/// A cycle of an arm.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What the cycle showed.
    pub outcome: Outcome,
    /// How the reserved range was filled before the cycle; no part of the cycle's times.
    pub reserved: Option<Reserved>,
    /// Where the time of its calls went, as far as the shim recorded it.
    pub split: Splits,
    /// Wrong words in the device memory afterwards; `None` when it was not looked at.
    pub wrong_words: Option<u64>,
    /// How the process's holdings changed since before its first cycle.
    pub growth: Growth,
}

/// An arm's process and what it showed.
#[derive(Debug, Serialize)]
pub struct ArmResult {
    /// The arm.
    pub arm: Arm,
    /// Its process.
    pub pid: i32,
    /// Its cycles.
    pub rows: Vec<Row>,
    /// What the program wrote to stderr.
    pub stderr: String,
}

/// The whole run.
#[derive(Debug, Serialize)]
pub struct RunResult {
    /// Name of the device, as the driver tells it.
    pub device: String,
    /// Version of the kernel driver; `None` without one.
    pub kernel_driver: Option<String>,
    /// Version of CUDA that the driver speaks.
    pub cuda: u32,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Whether the cycles ran in a frozen world.
    pub frozen: bool,
    /// The program's arguments.
    pub args: Vec<String>,
    /// Environment variables that it was given.
    pub env: Vec<(String, String)>,
    /// Bytes of the driver's buffer: what times are divided into.
    pub bytes: u64,
    /// Where `bytes` comes from: `record`, or `mappings` when no arm has a record.
    pub bytes_from: &'static str,
    /// The arms.
    pub arms: Vec<ArmResult>,
    /// Whether the contents were right after every cycle.
    pub verified: bool,
    /// Everything else that was not as it should be.
    pub problems: Vec<String>,
}

struct Running {
    arm: Arm,
    host: Host,
    record: Option<Located>,
    before: Holdings,
    rows: Vec<Row>,
}

/// Starts one process per arm and alternates their cycles.
///
/// # Errors
/// Text for the first thing that kept the run from going on. Wrong contents and leaks are results, no errors.
pub fn run(driver: &Driver, plan: &Plan) -> Result<RunResult, String> {
    let mut arms = Vec::new();
    for arm in &plan.arms {
        arms.push(start(*arm, plan).map_err(|error| format!("{arm}: {error}"))?);
    }
    for round in 0..plan.cycles.max(plan.slow_cycles) {
        for running in &mut arms {
            let name = running.arm;
            let count = plan.cycles_of(running.arm);
            if round >= count {
                continue;
            }
            let verify = !plan.verify_last || round + 1 == count;
            running
                .cycle(driver, plan, round, verify)
                .map_err(|error| format!("{name}: {error}\n{}", running.host.stderr()))?;
        }
    }
    Ok(finish(driver, plan, arms))
}

fn start(arm: Arm, plan: &Plan) -> Result<Running, Box<dyn std::error::Error>> {
    let mut spec = plan.host.clone();
    if !arm.is(Kind::Stock) {
        spec = spec.with_shim(&plan.shim);
    }
    for (name, value) in arm.options() {
        spec = spec.with_env(name, value);
    }
    let mut host = Host::start(&spec, plan.patience)?;
    let target = Target::new(host.pid());
    let record = match Located::find(target) {
        Ok(located) => Some(located),
        Err(RecordError::NotLoaded) if arm.is(Kind::Stock) => None,
        Err(error) => return Err(error.into()),
    };
    if record.is_some() && arm.is(Kind::Stock) {
        return Err("the shim is preloaded by the surroundings".into());
    }
    // Asked before the first look at the memory too: the program's own buffers for comparing come with it.
    let wrong = host.wrong_words(plan.patience)?;
    if wrong != 0 {
        return Err(format!("{wrong} words are wrong before the first cycle").into());
    }
    Ok(Running {
        arm,
        before: Holdings::of(target)?,
        host,
        record,
        rows: Vec::new(),
    })
}

impl Running {
    fn cycle(
        &mut self,
        driver: &Driver,
        plan: &Plan,
        round: u32,
        verify: bool,
    ) -> Result<(), Box<dyn std::error::Error>> {
        if let Some(line) = &plan.before_each {
            self.host.ask(line, plan.patience)?;
        }
        // Before the first cycle there is no range.
        let fills = self.arm.is(Kind::Reserve) && round > 0;
        let reserved = fills
            .then(|| Reserved::fill(&plan.tool, self.host.pid(), plan.patience))
            .transpose()?;
        let cycle = Cycle {
            driver,
            pid: self.host.pid(),
            record: self.record.as_ref(),
            frozen: plan.frozen,
            limit: plan.patience,
        };
        let name = self.arm;
        let outcome = cycle.run_meeting(&|step| match &plan.meet {
            Some(meet) => meet.wait(&format!("{name}-{round}-{step}")),
            None => Ok(()),
        })?;
        let wrong_words = verify
            .then(|| self.host.wrong_words(plan.patience))
            .transpose()?;
        let after = self.holdings_after(plan)?;
        let growth = Growth::between(&self.before, &after);
        let split = |seconds, phase: &Option<_>| phase.as_ref().map(|it| Split::new(seconds, it));
        self.rows.push(Row {
            split: Splits {
                checkpoint: split(outcome.times.checkpoint, &outcome.checkpoint),
                restore: split(outcome.times.restore, &outcome.restore),
            },
            outcome,
            reserved,
            wrong_words,
            growth,
        });
        Ok(())
    }
}

impl Running {
    /// A busy program that loads libraries has a descriptor more at times: what stays is a leak.
    fn holdings_after(&self, plan: &Plan) -> Result<Holdings, Box<dyn std::error::Error>> {
        let look = || Holdings::of(Target::new(self.host.pid()));
        let mut now = look()?;
        let mut looks = if plan.busy { 40 } else { 0 };
        while looks > 0 && now.descriptors.len() > self.before.descriptors.len() {
            std::thread::sleep(Duration::from_millis(5));
            now = look()?;
            looks -= 1;
        }
        Ok(now)
    }
}

fn finish(driver: &Driver, plan: &Plan, running: Vec<Running>) -> RunResult {
    let mut problems = Vec::new();
    let mut arms = Vec::new();
    for mut arm in running {
        let result = ArmResult {
            arm: arm.arm,
            pid: arm.host.pid(),
            rows: std::mem::take(&mut arm.rows),
            stderr: arm.host.stderr(),
        };
        match arm.host.quit(plan.patience) {
            Ok(status) if status.success() => {}
            Ok(status) => problems.push(format!("{}: ended with {status}", result.arm)),
            Err(error) => problems.push(format!("{}: {error}", result.arm)),
        }
        arms.push(result);
    }
    problems.extend(judge::problems(&arms, plan.busy));
    let (bytes, bytes_from) = buffer_bytes(&arms);
    let verified = arms.iter().all(|arm| judge::is_verified(&arm.rows));
    RunResult {
        device: driver.device_name(0).unwrap_or_default(),
        kernel_driver: kernel_driver_version(),
        cuda: driver.cuda_version().unwrap_or(0),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        frozen: plan.frozen,
        args: plan
            .host
            .args
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        env: plan.host.env.clone(),
        bytes,
        bytes_from,
        arms,
        verified,
        problems,
    }
}

/// The driver's LEN from a record, or else the largest growth of private memory.
fn buffer_bytes(arms: &[ArmResult]) -> (u64, &'static str) {
    let rows = || arms.iter().flat_map(|arm| &arm.rows);
    let recorded = rows()
        .filter_map(|row| row.outcome.checkpoint.as_ref())
        .map(|phase| phase.expected)
        .max();
    match recorded {
        Some(bytes @ 1..) => (bytes, "record"),
        _ => (
            rows()
                .map(|row| row.outcome.mapped_bytes)
                .max()
                .unwrap_or(0),
            "mappings",
        ),
    }
}
