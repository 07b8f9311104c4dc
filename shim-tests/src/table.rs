//! The table that a run ends with.

use std::fmt::Write;

use crate::cycle::Times;
use crate::run::{Arm, ArmResult, Kind, RunResult};

/// Median; of an even number the mean of the middle two. `None` of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Medians of an arm's step times.
pub fn medians(arm: &ArmResult) -> Option<Times> {
    let of = |step: fn(&Times) -> f64| median(arm.rows.iter().map(|row| step(&row.outcome.times)));
    Some(Times {
        lock: of(|times| times.lock)?,
        checkpoint: of(|times| times.checkpoint)?,
        restore: of(|times| times.restore)?,
        unlock: of(|times| times.unlock)?,
    })
}

/// How many times faster than stock an arm is: checkpoint and restore, by medians. `None` without a stock arm.
pub fn ratios(result: &RunResult, arm: Arm) -> Option<(f64, f64)> {
    let of = |wanted: Arm| {
        let found = result.arms.iter().find(|arm| arm.arm == wanted);
        found.and_then(medians)
    };
    let (stock, other) = (of(Kind::Stock.into())?, of(arm)?);
    Some((
        stock.checkpoint / other.checkpoint,
        stock.restore / other.restore,
    ))
}

/// The run as one row: medians of stock and of the shim, or where that is no arm of the first other.
pub fn summary(result: &RunResult, name: &str) -> String {
    let bytes = result.bytes as f64 / 1e9;
    let times = |found: Option<&ArmResult>| found.and_then(medians);
    let stock = times(result.arms.iter().find(|arm| arm.arm.is(Kind::Stock)));
    let shim = result.arms.iter().find(|arm| arm.arm.is(Kind::Shim));
    let other = result.arms.iter().find(|arm| !arm.arm.is(Kind::Stock));
    let other = times(shim.or(other));
    let pair = |step: fn(&Times) -> f64| {
        let (stock, other) = (stock.as_ref().map(step), other.as_ref().map(step));
        let ratio = stock.zip(other).map(|(stock, other)| stock / other);
        let seconds = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
        format!(
            "{:>7} {:>7} {:>6} {:>5}",
            seconds(stock),
            seconds(other),
            ratio.map_or("-".into(), |ratio| format!("{ratio:.1}x")),
            other.map_or("-".into(), |other| format!("{:.1}", bytes / other))
        )
    };
    let contents = match (result.verified, result.problems.len()) {
        (false, _) => "WRONG".into(),
        (true, 0) => "right".into(),
        (true, problems) => format!("right, {problems} PROBLEMS"),
    };
    format!(
        "{name:<16}{bytes:>7.2} GB   {}   {}   {contents}",
        pair(|times| times.checkpoint),
        pair(|times| times.restore)
    )
}

/// The table as text.
pub fn render(result: &RunResult) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = table(&mut text, result);
    text
}

fn table(out: &mut String, result: &RunResult) -> std::fmt::Result {
    writeln!(
        out,
        "{}, kernel driver {}, {} CPUs, buffer {:.2} GB (from {}){}",
        result.device,
        result.kernel_driver.as_deref().unwrap_or("none"),
        result.cpus,
        result.bytes as f64 / 1e9,
        result.bytes_from,
        if result.frozen { ", frozen world" } else { "" }
    )?;
    let names = result.arms.iter().map(|arm| arm.arm.to_string().len() + 1);
    let width = names.max().unwrap_or(0).max(9);
    writeln!(
        out,
        "{:<width$}{:>7}{:>9}{:>21}{:>21}{:>9}  contents",
        "arm", "cycle", "lock s", "checkpoint s (GB/s)", "restore s (GB/s)", "unlock s"
    )?;
    rows(out, result, width)?;
    for arm in &result.arms {
        if let Some(times) = medians(arm) {
            line(out, (arm.arm, width), "median", &times, result.bytes, "")?;
        }
    }
    for arm in result.arms.iter().filter(|arm| !arm.arm.is(Kind::Stock)) {
        if let Some((checkpoint, restore)) = ratios(result, arm.arm) {
            let name = arm.arm;
            writeln!(
                out,
                "{name} against stock: checkpoint {checkpoint:.1}x, restore {restore:.1}x"
            )?;
        }
    }
    for problem in &result.problems {
        writeln!(out, "PROBLEM {problem}")?;
    }
    Ok(())
}

fn rows(out: &mut String, result: &RunResult, width: usize) -> std::fmt::Result {
    for arm in &result.arms {
        for (number, row) in arm.rows.iter().enumerate() {
            let mut contents = match row.wrong_words {
                None => "not looked at".to_owned(),
                Some(0) => "right".to_owned(),
                Some(wrong) => format!("{wrong} WRONG WORDS"),
            };
            if let Some(reserved) = &row.reserved {
                // Writing to a String does not fail.
                let _ = write!(contents, "; reserve took {:.3} s before", reserved.seconds);
            }
            let cycle = (number + 1).to_string();
            line(
                out,
                (arm.arm, width),
                &cycle,
                &row.outcome.times,
                result.bytes,
                &contents,
            )?;
        }
    }
    Ok(())
}

fn line(
    out: &mut String,
    (arm, width): (Arm, usize),
    cycle: &str,
    times: &Times,
    bytes: u64,
    contents: &str,
) -> std::fmt::Result {
    let rate = |seconds: f64| format!("{seconds:.3} ({:.1})", bytes as f64 / 1e9 / seconds);
    let line = format!(
        "{:<width$}{cycle:>7}{:>9.3}{:>21}{:>21}{:>9.3}  {contents}",
        arm,
        times.lock,
        rate(times.checkpoint),
        rate(times.restore),
        times.unlock
    );
    writeln!(out, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_nothing() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
        assert_eq!(median([]), None);
    }
}
