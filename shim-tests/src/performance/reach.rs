//! The table "Reach": what was measured beside the prototype, what is in reach and what may be dreamt of; ratios to pinned copies.

use super::cycles::Run;
use super::data::{Call, Measured};
use crate::split::Split;
use crate::table::median;

/// Process whose fresh memory, and whose restore, the table is about.
const FRESH_MIB: u64 = 48 << 10;
/// Process whose kept buffer and copy loop it is about.
const KEPT_MIB: u64 = 24 << 10;

/// Values of the same thing: their median, lowest and highest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Lowest.
    pub low: f64,
    /// Highest.
    pub high: f64,
}

impl Spread {
    /// `None` of nothing.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Spread {
            median: median(values.iter().copied())?,
            low: values.iter().copied().min_by(f64::total_cmp)?,
            high: values.iter().copied().max_by(f64::total_cmp)?,
        })
    }
}

/// A row of the table.
#[derive(Debug, PartialEq)]
pub struct Reach {
    /// What.
    pub what: String,
    /// Size of the process that was measured, in MiB; 0: not measured.
    pub mib: u64,
    /// Measured ratios.
    pub measured: Option<Spread>,
    /// The prototype's, what is in reach, what may be dreamt of: the goals, as they were set.
    pub goals: [&'static str; 3],
}

/// The run of the wanted size, or else of the largest: the table says which.
pub fn pick(runs: std::collections::BTreeMap<u64, Run>, wanted: u64) -> Option<(u64, Run)> {
    let has = runs.contains_key(&wanted);
    runs.into_iter().rfind(|(mib, _)| !has || *mib == wanted)
}

/// Ratios of whole calls to the limit.
pub fn whole(run: &Run, arm: &str, call: Call) -> Vec<f64> {
    let seconds = run.seconds(arm, call);
    seconds.iter().map(|time| run.least(call) / time).collect()
}

/// Ratios of the copy loops to the limit.
pub fn loops(run: &Run, arm: &str, call: Call) -> Vec<f64> {
    let ratio = |split: Split| split.bytes as f64 / 1e9 / split.copy_loop / call.of(run.limit);
    let calls = run.calls(arm, call);
    calls
        .iter()
        .filter_map(|(_, split)| split.map(ratio))
        .collect()
}

type Ratios = fn(&Run, &str, Call) -> Vec<f64>;

/// All rows.
///
/// # Errors
/// Text, when a result cannot be read.
pub fn rows(measured: &Measured) -> Result<Vec<Reach>, String> {
    let row = |what: &str, kind, wanted, ratios: Ratios, arm, call, goals| {
        let found = pick(measured.runs(kind)?, wanted);
        let values = found.as_ref().map(|(_, run)| ratios(run, arm, call));
        Ok::<_, String>(Reach {
            what: what.into(),
            mib: found.map_or(0, |(mib, _)| mib),
            measured: values.and_then(|values| Spread::of(&values)),
            goals,
        })
    };
    use Call::{Checkpoint, Restore};
    let (kept, fresh) = (KEPT_MIB, FRESH_MIB);
    Ok(vec![
        row(
            "copy loop, checkpoint, kept buffer",
            "keep",
            kept,
            loops,
            "keep",
            Checkpoint,
            ["0.76", "0.82", "0.857"],
        )?,
        row(
            "copy loop, restore, kept buffer",
            "keep",
            kept,
            loops,
            "keep",
            Restore,
            ["0.74", "0.82", "0.857"],
        )?,
        ceiling(measured),
        row(
            "checkpoint end to end, fresh memory",
            "size",
            fresh,
            whole,
            "shim",
            Checkpoint,
            ["0.38", "0.55", "0.75"],
        )?,
        row(
            "the same",
            "size",
            kept,
            whole,
            "shim",
            Checkpoint,
            ["0.45", "-", "-"],
        )?,
        row(
            "checkpoint end to end, kept memory",
            "keep",
            fresh,
            whole,
            "keep",
            Checkpoint,
            ["-", "0.78", "0.82"],
        )?,
        row(
            "the same",
            "keep",
            kept,
            whole,
            "keep",
            Checkpoint,
            ["0.67", "0.78", "0.82"],
        )?,
        row(
            "checkpoint end to end, reserved memory",
            "reserve",
            kept,
            whole,
            "reserve",
            Checkpoint,
            ["-", "0.78", "0.82"],
        )?,
        row(
            "restore end to end",
            "size",
            fresh,
            whole,
            "shim",
            Restore,
            ["0.51-0.60", "0.75", "0.82"],
        )?,
        two(measured, "checkpoint", Checkpoint)?,
        two(measured, "restore", Restore)?,
        row(
            "hosts without THP (4 KiB pages), fresh checkpoint",
            "4k",
            kept,
            whole,
            "shim",
            Checkpoint,
            ["-", "0.35", "0.50"],
        )?,
    ])
}

/// The driver's own loop with copies that cost nothing: nobody who copies for it can be faster.
fn ceiling(measured: &Measured) -> Reach {
    let found = measured.ceilings().into_iter().next_back();
    let ratios = found.as_ref().map(|(_, (ceiling, limit))| {
        let runs = ceiling.runs.iter();
        runs.map(|run| run.gbs / limit.checkpoint)
            .collect::<Vec<f64>>()
    });
    Reach {
        what: "the driver's loop with copies left out, checkpoint: the ceiling".into(),
        mib: found.map_or(0, |(mib, _)| mib),
        measured: ratios.and_then(|ratios| Spread::of(&ratios)),
        goals: ["0.857", "-", "-"],
    }
}

/// Two processes on two GPUs at once: each one's time alone over its time beside the other.
fn two(measured: &Measured, name: &str, call: Call) -> Result<Reach, String> {
    let (alone, both) = (measured.runs("alone")?, measured.runs("both")?);
    let mut ratios = Vec::new();
    for (gpu, run) in &both {
        let lonely = alone.get(gpu).map(|run| run.seconds("shim", call));
        if let Some(time) = lonely.and_then(median) {
            ratios.extend(run.seconds("shim", call).iter().map(|beside| time / beside));
        }
    }
    Ok(Reach {
        what: format!("two processes on two GPUs at once, each against itself alone, {name}"),
        mib: both.values().map(Run::mib).max().unwrap_or(0),
        measured: Spread::of(&ratios),
        goals: ["-", "0.70", "0.95"],
    })
}
