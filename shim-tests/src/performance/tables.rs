//! The tables of docs/performance.md, in Markdown.

use std::fmt::Write;

use super::cycles::Run;
use super::data::{Call, Measured};
use super::reach::{pick, rows, whole, Spread};
use super::tuning::tunings;
use super::variants::variants;
use crate::split::Split;
use crate::table::median;

/// Marks of what was not measured.
const NONE: &str = "not measured";

/// Kinds of steps in which contents are looked at.
const KINDS: [&str; 16] = [
    "size",
    "keep",
    "4k",
    "bare",
    "alone",
    "both",
    "tunekept",
    "tunefresh",
    "zeros",
    "nozeros",
    "reserve",
    "hugetlb",
    "mthp1024",
    "mthp64",
    "mthp1024always",
    "mthp64always",
];

/// All tables.
///
/// # Errors
/// Text, when a result cannot be read.
pub fn markdown(measured: &Measured) -> Result<String, String> {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = machine(&mut out, measured);
    let _ = reach(&mut out, &rows(measured)?);
    let _ = sizes(&mut out, measured)?;
    let _ = left(&mut out, measured)?;
    let _ = small(&mut out, measured)?;
    let _ = tuning(&mut out, measured)?;
    out.push_str(&variants(measured)?);
    let _ = complaints(&mut out, measured)?;
    Ok(out)
}

fn machine(out: &mut String, measured: &Measured) -> std::fmt::Result {
    for part in &measured.parts {
        let limit = part.limit().map_or(NONE.into(), |limit| {
            format!(
                "{:.1} GB/s from the device, {:.1} to it",
                limit.checkpoint, limit.restore
            )
        });
        writeln!(
            out,
            "- `{}`: {}; {}; P: {limit}",
            part.part, part.device, part.machine
        )?;
    }
    writeln!(out)
}

pub fn gib(mib: u64) -> String {
    match mib {
        0 => "-".into(),
        1024.. if mib.is_multiple_of(1024) => format!("{} GiB", mib >> 10),
        1024.. => format!("{:.1} GiB", mib as f64 / 1024.0),
        _ => format!("{mib} MiB"),
    }
}

fn ratio(spread: Option<Spread>) -> String {
    spread.map_or(NONE.into(), |spread| {
        format!(
            "**{:.2}** ({:.2}-{:.2})",
            spread.median, spread.low, spread.high
        )
    })
}

fn reach(out: &mut String, rows: &[super::reach::Reach]) -> std::fmt::Result {
    writeln!(out, "### Reach: ratios to P\n")?;
    writeln!(out, "Median (lowest-highest) of the cycles. The rows of two processes are ratios to themselves alone.\n")?;
    writeln!(
        out,
        "| | process | measured | prototype | reach | dream |\n|---|---|---|---|---|---|"
    )?;
    for row in rows {
        let [prototype, reach, dream] = row.goals;
        writeln!(
            out,
            "| {} | {} | {} | {prototype} | {reach} | {dream} |",
            row.what,
            gib(row.mib),
            ratio(row.measured)
        )?;
    }
    writeln!(out)
}

fn seconds(run: &Run, arm: &str, call: Call) -> String {
    median(run.seconds(arm, call)).map_or("-".into(), |time| format!("{time:.3}"))
}

fn sizes(out: &mut String, measured: &Measured) -> Result<std::fmt::Result, String> {
    let runs = measured.runs("size")?;
    Ok((|| {
        writeln!(out, "### Seconds by size\n")?;
        writeln!(out, "Medians. `limit` is the buffer's bytes over P.\n")?;
        writeln!(out, "| process | buffer | checkpoint: stock | shim | limit | shim to P | restore: stock | shim | limit | shim to P |")?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
        for (mib, run) in &runs {
            write!(out, "| {} | {:.2} GB ", gib(*mib), run.bytes as f64 / 1e9)?;
            for call in [Call::Checkpoint, Call::Restore] {
                let (stock, shim) = (seconds(run, "stock", call), seconds(run, "shim", call));
                let part = median(whole(run, "shim", call)).unwrap_or(0.0);
                write!(
                    out,
                    "| {stock} | {shim} | {:.3} | {part:.2} ",
                    run.least(call)
                )?;
            }
            writeln!(out, "|")?;
        }
        writeln!(out)
    })())
}

/// What each call spends, by pieces.
fn left(out: &mut String, measured: &Measured) -> Result<std::fmt::Result, String> {
    let mut lines: Vec<(String, Split, f64)> = Vec::new();
    for (name, kind, wanted, arm) in [
        ("stock, as `observe` sees it", "size", 24 << 10, "observe"),
        ("shim, fresh memory", "size", 24 << 10, "shim"),
        ("shim, kept buffer", "keep", 24 << 10, "keep"),
        ("shim, reserved memory", "reserve", 24 << 10, "reserve"),
        ("shim, 4 KiB pages", "4k", 24 << 10, "shim"),
        ("shim, hugetlb pool", "hugetlb", 24 << 10, "shim:hugetlb"),
        ("shim, fresh memory", "size", 48 << 10, "shim"),
        ("shim, kept buffer", "keep", 48 << 10, "keep"),
    ] {
        if let Some((mib, run)) = pick(measured.runs(kind)?, wanted) {
            for (call, text) in [(Call::Checkpoint, "checkpoint"), (Call::Restore, "restore")] {
                if let Some(split) = run.split(arm, call) {
                    let line = format!("{text}, {}, {name}", gib(mib));
                    if !lines.iter().any(|(known, ..)| *known == line) {
                        lines.push((line, split, run.least(call)));
                    }
                }
            }
        }
    }
    Ok((|| {
        writeln!(out, "### Where the time goes, in milliseconds\n")?;
        writeln!(out, "Medians of each piece, so that they need not add up exactly. Prefault goes on beside the others.\n")?;
        let Some((_, any, _)) = lines.first() else {
            return writeln!(out, "{NONE}\n");
        };
        let names = any.pieces().map(|(name, _)| name).join(" | ");
        writeln!(
            out,
            "| | call | {names} | prefault | limit | call less limit |"
        )?;
        writeln!(out, "|---{}|", "|---".repeat(any.pieces().len() + 4))?;
        for (name, split, least) in &lines {
            let cells = split
                .pieces()
                .map(|(_, piece)| format!("{:.1}", piece * 1e3));
            writeln!(
                out,
                "| {name} | {:.1} | {} | {:.1} | {:.1} | {:.1} |",
                split.call * 1e3,
                cells.join(" | "),
                split.prefault * 1e3,
                least * 1e3,
                (split.call - least) * 1e3
            )?;
        }
        writeln!(out)
    })())
}

/// A bare context in every mode, against stock in the same run.
fn small(out: &mut String, measured: &Measured) -> Result<std::fmt::Result, String> {
    let Some((_, run)) = measured.runs("bare")?.into_iter().next_back() else {
        return Ok(writeln!(
            out,
            "### A small process, in every mode\n\n{NONE}\n"
        ));
    };
    Ok((|| {
        writeln!(out, "### A small process, in every mode\n")?;
        writeln!(
            out,
            "A bare context, buffer {:.0} MB. Seconds: median (lowest-highest); below 1.00 of stock is faster.\n",
            run.bytes as f64 / 1e6
        )?;
        writeln!(
            out,
            "| | checkpoint | of stock | restore | of stock |\n|---|---|---|---|---|"
        )?;
        for arm in ["stock", "shim", "keep", "observe", "off"] {
            write!(out, "| {arm} ")?;
            for call in [Call::Checkpoint, Call::Restore] {
                let stock = median(run.seconds("stock", call)).unwrap_or(f64::NAN);
                let cells = Spread::of(&run.seconds(arm, call)).map(|spread| {
                    let Spread { median, low, high } = spread;
                    format!(
                        "| {median:.3} ({low:.3}-{high:.3}) | {:.2} ",
                        median / stock
                    )
                });
                write!(out, "{}", cells.unwrap_or_else(|| "| - | - ".into()))?;
            }
            writeln!(out, "|")?;
        }
        writeln!(out)
    })())
}

/// Nothing where nothing was measured: the other tables are of another part.
fn tuning(out: &mut String, measured: &Measured) -> Result<std::fmt::Result, String> {
    let found = tunings(measured)?;
    if found.is_empty() {
        return Ok(Ok(()));
    }
    Ok((|| {
        writeln!(out, "### Self-tuning\n")?;
        writeln!(out, "Seconds, medians of cycles that took turns. Loss: what a tuned cycle took more than the best fixed way's of the same round, median")?;
        writeln!(out, "and 95 % interval, in percent.\n")?;
        writeln!(out, "| process | | fixed ways | tuned | loss | pairs | went on with |\n|---|---|---|---|---|---|---|")?;
        for row in &found {
            let fixed: Vec<String> = row
                .fixed
                .iter()
                .map(|(way, time)| format!("{way} {time:.3}"))
                .collect();
            let chosen: Vec<String> = row
                .chosen
                .iter()
                .map(|(way, count)| format!("{way} ({count})"))
                .collect();
            let (loss, low, high) = row.loss;
            writeln!(
                out,
                "| {} | {} | {} | {:.3} | {:+.1} ({:+.1} to {:+.1}) | {} | {} |",
                gib(row.mib),
                row.what,
                fixed.join(", "),
                row.tuned,
                loss * 100.0,
                low * 100.0,
                high * 100.0,
                row.pairs,
                chosen.join(", ")
            )?;
        }
        writeln!(out)
    })())
}

fn complaints(out: &mut String, measured: &Measured) -> Result<std::fmt::Result, String> {
    let mut found = measured.missing();
    for kind in KINDS {
        for (number, run) in measured.runs(kind)? {
            if !run.complaint.is_empty() {
                found.push(format!("{kind}-{number}: {}", run.complaint));
            }
        }
    }
    Ok((|| {
        if found.is_empty() {
            return writeln!(
                out,
                "Contents were right after every run, and nothing was left behind."
            );
        }
        writeln!(out, "Not as it should be:\n")?;
        found.iter().try_for_each(|line| writeln!(out, "- {line}"))
    })())
}
