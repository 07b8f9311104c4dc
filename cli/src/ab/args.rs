//! The command line, and what it comes to.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueHint;

use super::data::Variant;
use super::plan::Rounds;
use super::target::StartOptions;
use super::variant;
use super::variant::grid::{self, Grid};
use crate::document::OutputArgs;
use crate::flow::args::{lock_timeout, LockTimeout};
use crate::process::identity::Identity;
use crate::values;

/// Longest pause, in seconds.
const LONGEST_PAUSE: f64 = 86400.0;
/// A confidence below half, or of certainty, means nothing.
const CONFIDENCES: std::ops::RangeInclusive<f64> = 50.0..=99.99;

/// Arguments of `cudasnap ab`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "cudasnap ab [OPTIONS] PID\n       cudasnap ab [OPTIONS] -- CMD [ARGS...]\n       cudasnap ab [OPTIONS] --sizes GIB,...",
    after_help = "Each round makes one cycle (lock, checkpoint, restore, unlock) of each variant, in balanced random order. Ctrl-C: the \
                  cycle under way is finished, and what was measured is written.\nExit status: 0 all was measured; 1 the run ended \
                  early; 2 an option is wrong; 3 some cycles failed, or their contents were wrong; 4 refused before anything was \
                  touched; 126 the program cannot be executed; 127 there is none; 128 and the number of a signal."
)]
pub struct Args {
    /// A process that runs under the library
    #[arg(value_name = "PID", value_parser = values::pid(), conflicts_with = "command")]
    pid: Option<i32>,
    /// A program to start, and to end afterwards
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
    /// Sizes in GiB of the built-in workload, one after the other
    #[arg(long, value_name = "GIB,...", value_delimiter = ',', value_parser = values::whole::<u32>(1, 4096), conflicts_with_all = ["pid", "command"])]
    sizes: Vec<u32>,
    /// A variant: NAME:KEY=VALUE,... (mode, threads, pages, buffer, strategy, sparse, keep-max), or a mode alone (stock, observe, on,
    /// off); the first one is what the others are compared with. Without any: observe and on
    #[arg(long, value_name = "VARIANT", value_parser = values::read(variant::parse))]
    variant: Vec<Variant>,
    /// Variants of every combination of these values: KEY=VALUE|VALUE,...
    #[arg(long, value_name = "GRID", value_parser = values::read(grid::parse_grid))]
    grid: Vec<Grid>,
    /// Rounds: each has a cycle of every variant
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::whole::<u32>(1, 100_000))]
    cycles: u32,
    /// Rounds before that which do not count, in each process
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::whole::<u32>(0, 1000))]
    warm_up: u32,
    /// Rounds that a process serves before the next variant's is started, where variants need processes of their own (default: 1)
    #[arg(long, value_name = "N", value_parser = values::whole::<u32>(1, 100_000))]
    rounds_per_visit: Option<u32>,
    /// Seed of the order; from the clock without it
    #[arg(long, value_name = "S", value_parser = values::whole::<u64>(0, u64::MAX))]
    seed: Option<u64>,
    /// Least confidence of the intervals
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = values::read(confidence))]
    confidence: f64,
    /// Shell command that is run after each cycle, with the process's id in CUDASNAP_AB_PID; status 0 means that the process is right
    #[arg(long, value_name = "CMD", value_parser = values::text(), value_hint = ValueHint::CommandString)]
    verify: Option<String>,
    /// Pause after each cycle (fractions allowed)
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = values::read(pause))]
    pause: Duration,
    /// How long a lock may wait for work under way (fractions allowed); 0 = for ever
    #[arg(long, value_name = "SECONDS", default_value = "10", allow_negative_numbers = true, value_parser = values::read(lock_timeout))]
    lock_timeout: LockTimeout,
    /// Do not measure the limit of the bus
    #[arg(long)]
    no_limit: bool,
    /// Skip the looks at rights and at the room in main memory
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    start: StartOptions,
    #[command(flatten)]
    outputs: OutputArgs,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A process that runs.
    Process(i32),
    /// A program to start, with its name in the report.
    Program {
        /// Its name.
        name: String,
        /// The command.
        command: Vec<OsString>,
        /// Whether it is the built-in workload, which can be asked what has become of its contents.
        is_built_in: bool,
    },
}

impl Subject {
    /// Who it is, of a process that runs.
    pub fn identity(&self) -> Option<Identity> {
        match self {
            Subject::Process(pid) => Identity::of(*pid).ok(),
            Subject::Program { .. } => None,
        }
    }

    /// Whether it knows its own contents.
    pub fn is_built_in(&self) -> bool {
        matches!(
            self,
            Subject::Program {
                is_built_in: true,
                ..
            }
        )
    }
}

/// The command line, understood.
#[derive(Debug)]
pub struct Order<'a> {
    /// What is measured, one after the other.
    pub subjects: Vec<Subject>,
    /// Variants, the baseline first.
    pub variants: Vec<Variant>,
    /// Those that share a process.
    pub groups: Vec<Vec<usize>>,
    /// How much is done.
    pub rounds: Rounds,
    /// Seed of the order.
    pub seed: u64,
    /// Least confidence of intervals, as a part of 1.
    pub confidence: f64,
    /// Verification command.
    pub verify: Option<&'a str>,
    /// Pause after each cycle.
    pub pause: Duration,
    /// How long a lock may take; `None`: for ever.
    pub lock_timeout: Option<Duration>,
    /// Whether the limit is measured.
    pub limit: bool,
    /// Whether looks are skipped.
    pub force: bool,
    /// How a program is started.
    pub start: &'a StartOptions,
    /// Where the report goes.
    pub outputs: &'a OutputArgs,
}

impl Args {
    /// What the command line comes to; `clock` is the seed where none is given.
    ///
    /// # Errors
    /// What does not go together, and what to do instead.
    pub fn order(&self, clock: u64) -> Result<Order<'_>, String> {
        let variants = grid::all(&self.variant, &self.grid)?;
        let groups = variant::groups(&variants);
        if let Some(pid) = self.pid {
            one_process(pid, &variants, &groups)?;
            self.nothing_in_vain(pid)?;
        }
        Ok(Order {
            subjects: self.subjects()?,
            variants,
            groups,
            rounds: Rounds {
                cycles: self.cycles,
                warm_up: self.warm_up,
                per_visit: self.rounds_per_visit.unwrap_or(1),
            },
            seed: self.seed.unwrap_or(clock),
            confidence: self.confidence / 100.0,
            verify: self.verify.as_deref(),
            pause: self.pause,
            lock_timeout: self.lock_timeout,
            limit: !self.no_limit,
            force: self.force,
            start: &self.start,
            outputs: &self.outputs,
        })
    }

    /// Refuses options that mean nothing to a process that runs.
    fn nothing_in_vain(&self, pid: i32) -> Result<(), String> {
        let mut given = self.start.given();
        given.extend(self.rounds_per_visit.map(|_| "--rounds-per-visit"));
        match given.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "{}: only for a program that is started, and process {pid} runs already: leave it out, or give the program behind --",
                given.join(", ")
            )),
        }
    }

    fn subjects(&self) -> Result<Vec<Subject>, String> {
        if let Some(pid) = self.pid {
            return Ok(vec![Subject::Process(pid)]);
        }
        if let Some(program) = self.command.first() {
            let file = std::path::Path::new(program).file_name();
            return Ok(vec![Subject::Program {
                name: file.unwrap_or(program).to_string_lossy().into_owned(),
                command: self.command.clone(),
                is_built_in: false,
            }]);
        }
        if self.sizes.is_empty() {
            return Err(
                "nothing to measure: give the PID of a process that runs under the library, a program behind --, or --sizes for the \
                 built-in workload"
                    .into(),
            );
        }
        let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        let of_size = |gib: &u32| Subject::Program {
            name: format!("{gib} GiB"),
            command: vec![
                own.clone().into(),
                "workload".into(),
                "--gib".into(),
                gib.to_string().into(),
            ],
            is_built_in: true,
        };
        // As in a grid: once is enough.
        let is_first = |(at, size): &(usize, &u32)| !self.sizes[..*at].contains(size);
        let sizes = self.sizes.iter().enumerate().filter(is_first);
        Ok(sizes.map(|(_, size)| of_size(size)).collect())
    }
}

/// A process that runs cannot be given another environment.
fn one_process(pid: i32, variants: &[Variant], groups: &[Vec<usize>]) -> Result<(), String> {
    let needs_start = |variant: &&Variant| {
        variant.mode == variant::STOCK || !variant::environment(variant).is_empty()
    };
    let Some(variant) = variants.iter().find(needs_start) else {
        debug_assert!(groups.len() == 1, "{groups:?}");
        return Ok(());
    };
    let what = match variant.mode == variant::STOCK {
        true => "runs without the library".to_string(),
        false => format!("sets {}", variant::settings(variant)),
    };
    Err(format!(
        "variant {} {what}, which a program reads once when it starts; process {pid} runs already, and only mode and threads can be \
         switched in it: give the program behind -- instead of its PID, and each variant gets a process",
        variant.name
    ))
}

fn confidence(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| CONFIDENCES.contains(number));
    number.ok_or_else(|| {
        let (least, most) = CONFIDENCES.into_inner();
        values::takes(format_args!("a percentage, {least} to {most}"))
    })
}

fn pause(text: &str) -> Result<Duration, String> {
    let fits = |number: f64| (0.0..=LONGEST_PAUSE).contains(&number);
    let what = format!("seconds, with fractions, up to {LONGEST_PAUSE}");
    values::seconds(text, fits, &what)
}

#[cfg(test)]
mod tests;
