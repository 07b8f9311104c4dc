//! The files of `gpu-check --full`, merged: steps by name, each with the pinned rate of its own run.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ceiling::Ceiling;
use crate::cycle::Times;
use crate::split::{Split, Splits};
use crate::table::median;

/// One run of one part of the measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Part {
    /// Its name.
    pub part: String,
    /// The device.
    pub device: String,
    /// The machine, in words.
    pub machine: String,
    /// Its steps, by name.
    pub steps: BTreeMap<String, Step>,
}

/// A step of a part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// Exit status; `None` when it was skipped.
    pub status: Option<i32>,
    /// Why it was skipped.
    #[serde(default)]
    pub skipped: String,
    /// What its program wrote.
    #[serde(default)]
    pub result: Value,
}

/// The rates of pinned copies, which times are compared with, in GB/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// From the device.
    pub checkpoint: f64,
    /// To the device.
    pub restore: f64,
}

/// Which of the two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// The checkpoint.
    Checkpoint,
    /// The restore.
    Restore,
}

impl Call {
    /// The limit of this call.
    pub fn of(self, limit: Limit) -> f64 {
        match self {
            Call::Checkpoint => limit.checkpoint,
            Call::Restore => limit.restore,
        }
    }

    fn seconds(self, times: &Times) -> f64 {
        match self {
            Call::Checkpoint => times.checkpoint,
            Call::Restore => times.restore,
        }
    }

    fn split(self, splits: &Splits) -> Option<Split> {
        match self {
            Call::Checkpoint => splits.checkpoint,
            Call::Restore => splits.restore,
        }
    }
}

#[derive(Debug, Deserialize)]
struct RunFile {
    bytes: u64,
    #[serde(default)]
    args: Vec<String>,
    arms: Vec<ArmFile>,
    verified: bool,
    problems: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ArmFile {
    arm: String,
    rows: Vec<RowFile>,
}

#[derive(Debug, Deserialize)]
struct RowFile {
    outcome: OutcomeFile,
    split: Splits,
    #[serde(default)]
    reserved: Option<ReservedFile>,
}

#[derive(Debug, Deserialize)]
struct ReservedFile {
    seconds: f64,
}

#[derive(Debug, Deserialize)]
struct OutcomeFile {
    times: Times,
    #[serde(default)]
    checkpoint: Option<PhaseFile>,
    #[serde(default)]
    restore: Option<PhaseFile>,
    #[serde(default)]
    checkpointed: Option<HoldingsFile>,
}

#[derive(Debug, Deserialize)]
struct HoldingsFile {
    resident: u64,
}

#[derive(Debug, Deserialize)]
struct PhaseFile {
    #[serde(default)]
    strategy: Value,
    #[serde(default)]
    threads: u32,
    #[serde(default)]
    pages: Value,
    #[serde(default)]
    zeros: Option<u64>,
}

/// Cycles of one program in one or more arms.
#[derive(Debug)]
pub struct Run {
    /// Bytes of the buffer.
    pub bytes: u64,
    /// The limit in the same part.
    pub limit: Limit,
    /// What was not as it should be; empty when the contents were right and nothing was left behind.
    pub complaint: String,
    args: Vec<String>,
    arms: Vec<ArmFile>,
}

impl Run {
    /// The cycles of an arm that count: where it keeps its buffer or the addresses of it, not the first one, which makes it.
    fn rows<'a>(&'a self, arm: &'a str) -> impl Iterator<Item = &'a RowFile> {
        let rows = self.arms.iter().filter(move |found| found.arm == arm);
        rows.flat_map(|found| &found.rows)
            .filter(move |row| !makes_its_buffer(arm, row))
    }

    /// Times and splits of an arm's calls.
    pub fn calls(&self, arm: &str, call: Call) -> Vec<(f64, Option<Split>)> {
        self.rows(arm)
            .map(|row| (call.seconds(&row.outcome.times), call.split(&row.split)))
            .collect()
    }

    /// Seconds that `cudasnap reserve` took before an arm's cycles.
    pub fn fills(&self, arm: &str) -> Vec<f64> {
        let fills = self.rows(arm).filter_map(|row| row.reserved.as_ref());
        fills.map(|reserved| reserved.seconds).collect()
    }

    /// Bytes that the checkpoints of an arm left out as zeros.
    pub fn zeros(&self, arm: &str) -> Vec<f64> {
        let phases = self
            .rows(arm)
            .filter_map(|row| row.outcome.checkpoint.as_ref());
        phases
            .filter_map(|phase| phase.zeros)
            .map(|bytes| bytes as f64)
            .collect()
    }

    /// Resident bytes of an arm's process while it was checkpointed.
    pub fn resident(&self, arm: &str) -> Vec<f64> {
        let held = self
            .rows(arm)
            .filter_map(|row| row.outcome.checkpointed.as_ref());
        held.map(|held| held.resident as f64).collect()
    }

    /// Kinds of pages that an arm's checkpoints had by the record.
    pub fn pages(&self, arm: &str) -> Vec<String> {
        let phases = self
            .rows(arm)
            .filter_map(|row| row.outcome.checkpoint.as_ref());
        let mut kinds: Vec<String> = phases
            .filter_map(|phase| phase.pages.as_str().map(str::to_owned))
            .collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// The value of one of the program's options, if it had it.
    pub fn option(&self, name: &str) -> Option<u64> {
        let at = self.args.iter().position(|word| word == name)?;
        self.args.get(at + 1)?.parse().ok()
    }

    /// Names of its arms.
    pub fn arms(&self) -> impl Iterator<Item = &str> {
        self.arms.iter().map(|found| &found.arm[..])
    }

    /// In which ways an arm's copies were made in the end, with how many threads, and how often.
    pub fn ways(&self, arm: &str, call: Call) -> Vec<(String, usize)> {
        let mut ways = BTreeMap::new();
        for row in self.rows(arm) {
            let phase = match call {
                Call::Checkpoint => &row.outcome.checkpoint,
                Call::Restore => &row.outcome.restore,
            };
            if let Some(phase) = phase {
                let strategy = phase.strategy.as_str().unwrap_or("unknown");
                *ways
                    .entry(format!("{strategy} {}", phase.threads))
                    .or_default() += 1;
            }
        }
        ways.into_iter().collect()
    }

    /// Times of an arm's calls.
    pub fn seconds(&self, arm: &str, call: Call) -> Vec<f64> {
        self.calls(arm, call)
            .iter()
            .map(|(time, _)| *time)
            .collect()
    }

    /// Seconds that the limit would take.
    pub fn least(&self, call: Call) -> f64 {
        self.bytes as f64 / 1e9 / call.of(self.limit)
    }

    /// Medians of the pieces of an arm's calls, of the cycles that have a record.
    pub fn split(&self, arm: &str, call: Call) -> Option<Split> {
        let calls = self.calls(arm, call);
        let splits: Vec<Split> = calls.iter().filter_map(|(_, split)| *split).collect();
        let of = |piece: fn(&Split) -> f64| median(splits.iter().map(piece));
        Some(Split {
            call: of(|split| split.call)?,
            mmap: of(|split| split.mmap)?,
            first_copy: of(|split| split.first_copy)?,
            copying: of(|split| split.copying)?,
            waiting: of(|split| split.waiting)?,
            ending: of(|split| split.ending)?,
            munmap: of(|split| split.munmap)?,
            rest: of(|split| split.rest)?,
            prefault: of(|split| split.prefault)?,
            copy_loop: of(|split| split.copy_loop)?,
            ..*splits.first()?
        })
    }
}

/// Whether this cycle of an arm that keeps its buffer, or reserves it, found none: the first.
fn makes_its_buffer(arm: &str, row: &RowFile) -> bool {
    let kind = arm.split(':').next();
    let found = row.split.checkpoint.is_some_and(|split| split.kept);
    matches!(kind, Some("keep" | "reserve")) && !found
}

/// All parts.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// They, in the order of the files.
    pub parts: Vec<Part>,
}

impl Measured {
    /// Reads the files of parts, or of parts that were merged before.
    ///
    /// # Errors
    /// Text, with the file's name.
    pub fn load<P: AsRef<Path>>(files: &[P]) -> Result<Self, String> {
        let mut parts = Vec::new();
        for file in files {
            let path = file.as_ref();
            let named = |error: String| format!("{}: {error}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
            let value: Value =
                serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
            let found = if value.get("parts").is_some() {
                serde_json::from_value::<Measured>(value).map(|merged| merged.parts)
            } else {
                serde_json::from_value(value).map(|part| vec![part])
            };
            parts.extend(found.map_err(|error| named(error.to_string()))?);
        }
        Ok(Measured { parts })
    }

    /// Runs whose step is called `KIND-NUMBER`, by number. A step that was measured twice counts as it was measured last.
    ///
    /// # Errors
    /// Text, when a result is not what `cycle` writes.
    pub fn runs(&self, kind: &str) -> Result<BTreeMap<u64, Run>, String> {
        let mut runs = BTreeMap::new();
        for (part, name, step) in self.steps() {
            let number = name
                .strip_prefix(kind)
                .and_then(|rest| rest.strip_prefix('-'));
            let Some(number) = number.and_then(|number| number.parse().ok()) else {
                continue;
            };
            if step.result.is_null() {
                continue;
            }
            let file: RunFile = serde_json::from_value(step.result.clone())
                .map_err(|error| format!("{name}: {error}"))?;
            let limit = part
                .limit()
                .ok_or_else(|| format!("{name}: its part {} has no pinned rate", part.part))?;
            runs.insert(
                number,
                Run {
                    bytes: file.bytes,
                    limit,
                    complaint: complaint(file.verified, &file.problems),
                    args: file.args,
                    arms: file.arms,
                },
            );
        }
        Ok(runs)
    }

    /// The ceilings of the driver's loop, by size in MiB, each with its limit.
    pub fn ceilings(&self) -> BTreeMap<u64, (Ceiling, Limit)> {
        let ceiling = |(part, name, step): (&Part, &String, &Step)| {
            let number = name.strip_prefix("ceiling-")?.parse().ok()?;
            let result = serde_json::from_value(step.result.clone()).ok()?;
            Some((number, (result, part.limit()?)))
        };
        self.steps().filter_map(ceiling).collect()
    }

    /// Steps that failed or were skipped, in words.
    pub fn missing(&self) -> Vec<String> {
        self.steps()
            .filter_map(|(_, name, step)| match step.status {
                Some(0) => None,
                Some(status) => Some(format!("{name}: status {status}")),
                None => Some(format!("{name}: skipped: {}", step.skipped)),
            })
            .collect()
    }

    fn steps(&self) -> impl Iterator<Item = (&Part, &String, &Step)> {
        self.parts.iter().flat_map(|part| {
            part.steps
                .iter()
                .map(move |(name, step)| (part, name, step))
        })
    }
}

impl Part {
    /// The mean of the medians before and after; `None` when neither was measured.
    pub fn limit(&self) -> Option<Limit> {
        let rates = |direction: &str| {
            let of = |name: &str| self.steps.get(name)?.result[direction]["median"].as_f64();
            let found: Vec<f64> = ["pinned-before", "pinned-after"]
                .into_iter()
                .filter_map(of)
                .collect();
            (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
        };
        Some(Limit {
            checkpoint: rates("device_to_host_gbs")?,
            restore: rates("host_to_device_gbs")?,
        })
    }
}

fn complaint(verified: bool, problems: &[String]) -> String {
    match (verified, problems.len()) {
        (false, _) => "CONTENTS WRONG".into(),
        (true, 0) => String::new(),
        (true, count) => format!("{count} problems, the first: {}", problems[0]),
    }
}
