//! A host of the soak: a program under the shim, with what is needed to change the world around it and to look at it.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cudasnap_cli::driver::Driver;
use cudasnap_cli::process::observe::{resident_bytes, threads, Holdings};
use cudasnap_cli::process::target::Target;
use cudasnap_cli::record::view::RecordView;
use cudasnap_cli::record::Located;
use cudasnap_wire::PageKind;

use crate::host::{Host, HostSpec};
use crate::leaks::HELPER;

use super::expect::request::Memory;
use super::expect::Problems;
use super::flat::Series;
use super::groups::Group;
use super::hosts::HostPlan;
use super::mate::Mate;
use super::world;

/// What a lane needs to start hosts.
#[derive(Debug, Clone)]
pub struct Tools {
    /// The program.
    pub simapp: PathBuf,
    /// The shim.
    pub shim: PathBuf,
    /// The library with the other threads.
    pub mate: PathBuf,
    /// A folder for the pages of the mates.
    pub folder: PathBuf,
    /// Longest time for a cycle or an answer.
    pub patience: Duration,
    /// Whether hosts get control groups.
    pub groups: bool,
}

/// Context memory of the simulated driver: the least that it takes.
const CONTEXT_MIB: u64 = 46;
/// Resident private memory that a program may have more of than at its start: its own buffers of 8 MiB. The slope tells the rest.
const SLACK: i64 = 10 << 20;
/// The same with other threads that allocate: malloc's arenas, at most two.
const SLACK_BUSY: i64 = 16 << 20;
/// Address space that a program may have more of: its heap, its stack.
const SPACE_SLACK: i64 = 1 << 20;
/// The same with other threads: malloc's arenas, stacks that libc keeps for the next thread.
const SPACE_SLACK_BUSY: i64 = 256 << 20;

/// A host. Its process ends first when it is dropped: the group goes only when nobody is in it.
#[derive(Debug)]
pub struct Guest {
    host: Host,
    /// The process.
    pub target: Target,
    /// The shim's record in it.
    pub record: Located,
    /// The driver's thread in it.
    pub restore_thread: i32,
    /// Its other threads.
    pub mate: Option<Mate>,
    /// Its control group.
    pub group: Option<Group>,
    /// What the shim remembers.
    pub memory: Memory,
    /// Device memory beyond the plan.
    pub extra_mib: u64,
    /// What it held after each cycle.
    pub series: Series,
    base: Holdings,
    patience: Duration,
}

fn specification(plan: &HostPlan, tools: &Tools) -> HostSpec {
    let mut words = vec![plan.device_mib.to_string()];
    for (option, value) in [
        ("--devices", plan.devices),
        ("--pinned", plan.pinned_mib),
        ("--seed", plan.number + 1),
    ] {
        words.extend([option.into(), value.to_string()]);
    }
    let pages = if plan.pages == PageKind::Driver {
        PageKind::Thp
    } else {
        plan.pages
    };
    let shim = tools.shim.display();
    let preload = match plan.mates {
        true => format!("{shim}:{}", tools.mate.display()),
        false => shim.to_string(),
    };
    let mut spec = HostSpec::new(&tools.simapp, words)
        .with_env("LD_PRELOAD", &preload)
        .with_env("CUDASIM_DEVICES", &plan.devices.to_string())
        .with_env("CUDASIM_CONTEXT_MIB", &CONTEXT_MIB.to_string())
        .with_env("CUDASIM_DEVICE_MIB", "512")
        .with_env("CUDASNAP_THREADS", &plan.threads.to_string())
        .with_env("CUDASNAP_PAGES", pages.word())
        .with_env("CUDASNAP_STRATEGY", plan.strategy.word())
        .with_env("CUDASNAP_SPARSE", if plan.sparse { "on" } else { "off" });
    if let Some(most) = plan.keep {
        spec = spec
            .with_env("CUDASNAP_BUFFER", "keep")
            .with_env("CUDASNAP_KEEP_MAX", &format!("{most}M"));
    }
    spec
}

/// Starts the program in its group; its contents are right, and its buffers for comparing them there.
fn start_program(
    spec: &HostSpec,
    group: Option<&Group>,
    patience: Duration,
) -> Result<Host, String> {
    let mut host = Host::start(spec, patience).map_err(|error| error.to_string())?;
    if let Some(group) = group {
        group
            .take(host.pid())
            .map_err(|error| format!("control group: {error}"))?;
    }
    match host.wrong_words(patience) {
        Ok(0) => Ok(host),
        Ok(wrong) => Err(format!("{wrong} words are wrong before the first cycle")),
        Err(error) => Err(error.to_string()),
    }
}

impl Guest {
    /// Starts a host.
    ///
    /// # Errors
    /// What keeps it from starting.
    pub fn start(plan: &HostPlan, tools: &Tools, driver: &Driver) -> Result<Self, String> {
        // A host inherits this process's environment, and would take the faults of the last step for its own.
        world::set_driver_options(0, "");
        let mut spec = specification(plan, tools);
        let page = tools.folder.join(format!("page-{}", plan.number));
        let mate = plan.mates.then(|| Mate::new(&page)).transpose();
        let mate = mate.map_err(|error| format!("{}: {error}", page.display()))?;
        if plan.mates {
            spec = spec.with_env("SOAK_PAGE", &page.to_string_lossy());
        }
        let group = tools
            .groups
            .then(|| Group::new(&plan.number.to_string()))
            .transpose()?;
        let host = start_program(&spec, group.as_ref(), tools.patience)?;
        let target = Target::new(host.pid());
        Ok(Guest {
            target,
            record: Located::find(target).map_err(|error| format!("record: {error}"))?,
            restore_thread: driver
                .restore_thread(host.pid())
                .map_err(|error| error.to_string())?,
            base: Holdings::of(target).map_err(|error| error.to_string())?,
            host,
            mate,
            group,
            memory: Memory::default(),
            extra_mib: 0,
            series: Series::default(),
            patience: tools.patience,
        })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.target.pid()
    }

    /// Asks it something that it answers with `ok`.
    ///
    /// # Errors
    /// When it does not.
    pub fn tell(&mut self, line: &str) -> Result<(), String> {
        let answer = self
            .host
            .ask(line, self.patience)
            .map_err(|error| error.to_string())?;
        (answer == "ok")
            .then_some(())
            .ok_or(format!("\"{line}\" was answered with \"{answer}\""))
    }

    /// Its contents must be right.
    ///
    /// # Errors
    /// How many words are wrong, or that it does not answer.
    pub fn check_contents(&mut self) -> Result<(), String> {
        match self.host.wrong_words(self.patience) {
            Ok(0) => Ok(()),
            Ok(wrong) => Err(format!("{wrong} words are wrong")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// What it has written to stderr.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.host.stderr()
    }

    /// The record now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn look(&self) -> Result<RecordView, String> {
        self.record
            .read()
            .map_err(|error| format!("record: {error}"))
    }

    /// Names of helpers that live.
    ///
    /// # Errors
    /// When the process cannot be looked into.
    pub fn helpers(&self) -> Result<Vec<String>, String> {
        let all = threads(self.target).map_err(|error| error.to_string())?;
        let names = all.into_iter().map(|thread| thread.name);
        Ok(names.filter(|name| name.starts_with(HELPER)).collect())
    }

    /// Waits until no helper lives.
    ///
    /// # Errors
    /// When one still lives after `limit`.
    pub fn expect_no_helper_within(&self, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        loop {
            let helpers = self.helpers()?;
            if helpers.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{helpers:?} live after {limit:?}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the kernel would give it huge pages.
    #[must_use]
    pub fn huge_pages(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let enabled = status
            .lines()
            .find_map(|line| line.strip_prefix("THP_enabled:"));
        let setting = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let base = "/sys/kernel/mm/transparent_hugepage";
        let of_size = setting(&format!("{base}/hugepages-2048kB/enabled"));
        let global = setting(&format!("{base}/enabled"));
        let chosen = if of_size.is_empty() || of_size.contains("[inherit]") {
            global
        } else {
            of_size
        };
        let asks = chosen.contains("[always]") || chosen.contains("[madvise]");
        asks && enabled.is_none_or(|value| value.trim() != "0")
    }

    /// Compares what it holds with what it held at its start. `exact`: no range of a helper that was held may still wait.
    ///
    /// # Errors
    /// When it cannot be looked into.
    pub fn check_holdings(&mut self, after: &RecordView, exact: bool) -> Result<Problems, String> {
        let now = Holdings::of(self.target).map_err(|error| error.to_string())?;
        let count = |of: &Holdings| (of.threads.len() as i64, of.descriptors.len() as i64);
        let ((threads, descriptors), before) = (count(&now), count(&self.base));
        let mut problems = Problems::new();
        at_most(&mut problems, "threads", threads - before.0, 0);
        at_most(&mut problems, "descriptors", descriptors - before.1, 0);
        if exact && !self.memory.lost {
            self.check_memory(&now, after, &mut problems)?;
        }
        Ok(problems)
    }

    /// The same for memory, less what a kept buffer holds.
    fn check_memory(
        &mut self,
        now: &Holdings,
        after: &RecordView,
        problems: &mut Problems,
    ) -> Result<(), String> {
        let kept = after.buffer.range().filter(|_| self.memory.kept.is_some());
        let kept_bytes = match kept {
            Some((start, end)) => resident_bytes(self.target, start, end)
                .map_err(|error| format!("memory: {error}"))?,
            None => 0,
        };
        let anonymous = now.anonymous as i64 - kept_bytes as i64;
        let space = now.address_space as i64 - kept.map_or(0, |(start, end)| end - start) as i64;
        let mappings = now.mappings as i64 - i64::from(kept.is_some());
        let (slack, space_slack) = match self.mate {
            Some(_) => (SLACK_BUSY, SPACE_SLACK_BUSY),
            None => (SLACK, SPACE_SLACK),
        };
        let base = &self.base;
        let more = anonymous - base.anonymous as i64;
        at_most(problems, "resident private bytes", more, slack);
        let more = space - base.address_space as i64;
        at_most(problems, "bytes of address space", more, space_slack);
        if self.mate.is_none() {
            at_most(problems, "mappings", mappings - base.mappings as i64, 0);
        }
        self.series.anonymous.push(anonymous as f64);
        self.series.address_space.push(space as f64);
        self.series.mappings.push(mappings as f64);
        Ok(())
    }
}

fn at_most(problems: &mut Problems, what: &str, more: i64, most: i64) {
    if more > most {
        problems.push(format!(
            "{what}: {more:+} since the start, at most {most:+}"
        ));
    }
}
