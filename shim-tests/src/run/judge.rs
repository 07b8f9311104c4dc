//! What of a run was not as it should be.

use super::{Arm, ArmResult, Kind, Row};
use crate::cycle::Outcome;

/// Whether nothing was ever wrong, and the last cycle was looked at.
pub fn is_verified(rows: &[Row]) -> bool {
    let last = rows.last().and_then(|row| row.wrong_words);
    last == Some(0) && rows.iter().all(|row| row.wrong_words.unwrap_or(0) == 0)
}

/// Everything that an arm did and should not have done, a sentence each.
pub fn problems(arms: &[ArmResult], busy: bool) -> Vec<String> {
    let stock = arms.iter().find(|arm| arm.arm.is(Kind::Stock));
    let mut problems = Vec::new();
    for arm in arms {
        for (number, row) in arm.rows.iter().enumerate() {
            let mut found = effect_problems(arm.arm, &row.outcome);
            if !arm.arm.is(Kind::Stock) {
                let beside = stock.and_then(|stock| stock.rows.get(number).or(stock.rows.last()));
                let kept = row.outcome.record.as_ref().map(|record| &record.buffer);
                let kept = kept
                    .filter(|buffer| arm.arm.is(Kind::Keep) && buffer.state.is("kept"))
                    .map(|buffer| buffer.mapped);
                let beside = beside.map(|row| &row.growth);
                found.extend(if busy {
                    row.growth.leaks_of_busy(beside)
                } else {
                    row.growth.leaks(beside, kept)
                });
            }
            found.extend(
                row.outcome
                    .strays
                    .iter()
                    .map(|stray| format!("thread between the phases: {stray}")),
            );
            let place = format!("{}, cycle {}", arm.arm, number + 1);
            problems.extend(found.iter().map(|problem| format!("{place}: {problem}")));
        }
    }
    problems
}

/// Whether the shim did in this cycle what its arm says: proof that it was there, or that it kept out of the way.
fn effect_problems(arm: Arm, outcome: &Outcome) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, phase) in [
        ("checkpoint", &outcome.checkpoint),
        ("restore", &outcome.restore),
    ] {
        match (arm.kind, phase) {
            (Kind::Stock, _) | (Kind::Off, None) => {}
            (Kind::Off, Some(_)) => problems.push(format!("{name}: recorded although off")),
            (_, None) => problems.push(format!("{name}: the shim recorded no phase")),
            (_, Some(phase)) if !phase.is_effective() => problems.push(format!(
                "{name}: {} of {} bytes went through the shim",
                phase.copied, phase.expected
            )),
            (Kind::Observe, Some(phase)) if !phase.pages.is("driver") => {
                problems.push(format!("{name}: pages {} although observing", phase.pages));
            }
            _ => {}
        }
    }
    let Some(record) = &outcome.record else {
        return problems;
    };
    if (record.counters.answered > 0) != arm.answers() {
        problems.push(format!(
            "the shim answered {} requests",
            record.counters.answered
        ));
    }
    let rest = if arm.is(Kind::Keep) { "kept" } else { "none" };
    if !record.buffer.state.is(rest) {
        problems.push(format!(
            "the buffer is {} after the cycle",
            record.buffer.state
        ));
    }
    problems
}
