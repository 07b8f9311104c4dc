//! A run of `cycle`, read back: the cycles of one program in one or more arms.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::data::{Call, Limit};
use crate::cycle::Times;
use crate::split::{Split, Splits};
use crate::table::median;

/// What `cycle` wrote, as far as it is needed.
#[derive(Debug, Deserialize)]
pub struct RunFile {
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
    pub(super) fn new(file: RunFile, limit: Limit) -> Self {
        Run {
            bytes: file.bytes,
            limit,
            complaint: complaint(file.verified, &file.problems),
            args: file.args,
            arms: file.arms,
        }
    }

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

    /// What the program was asked to hold, in MiB; 0 when it does not say.
    pub fn mib(&self) -> u64 {
        let first = self.args.first();
        first.and_then(|word| word.parse().ok()).unwrap_or(0)
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

fn complaint(verified: bool, problems: &[String]) -> String {
    match (verified, problems.len()) {
        (false, _) => "CONTENTS WRONG".into(),
        (true, 0) => String::new(),
        (true, count) => format!("{count} problems, the first: {}", problems[0]),
    }
}
