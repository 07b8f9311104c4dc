//! The files of `gpu-check --full`, merged: steps by name, each with the pinned rate of its own run.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cycles::{Run, RunFile};
use crate::ceiling::Ceiling;
use crate::cycle::Times;
use crate::split::{Split, Splits};

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

    pub(super) fn seconds(self, times: &Times) -> f64 {
        match self {
            Call::Checkpoint => times.checkpoint,
            Call::Restore => times.restore,
        }
    }

    pub(super) fn split(self, splits: &Splits) -> Option<Split> {
        match self {
            Call::Checkpoint => splits.checkpoint,
            Call::Restore => splits.restore,
        }
    }
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
            runs.insert(number, Run::new(file, limit));
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

    /// Steps that failed, and those that were skipped wherever they are, in words; each once, as it was last.
    pub fn missing(&self) -> Vec<String> {
        let mut last = BTreeMap::new();
        for (_, name, step) in self.steps() {
            let was_run = last
                .get(name)
                .is_some_and(|step: &&Step| step.status.is_some());
            if step.status.is_some() || !was_run {
                last.insert(name, step);
            }
        }
        let said = last
            .into_iter()
            .filter_map(|(name, step)| match step.status {
                Some(0) => None,
                Some(status) => Some(format!("{name}: status {status}")),
                None => Some(format!("{name}: skipped: {}", step.skipped)),
            });
        said.collect()
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
