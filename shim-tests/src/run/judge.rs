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
            if arm.arm.is(Kind::Reserve) {
                found.extend(reserve_problems(row, number > 0));
            }
            if !arm.arm.is(Kind::Stock) {
                let beside = stock.and_then(|stock| stock.rows.get(number).or(stock.rows.last()));
                let beside = beside.map(|row| &row.growth);
                found.extend(if busy {
                    row.growth.leaks_of_busy(beside)
                } else {
                    row.growth.leaks(beside, stays(row))
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

/// Bytes of the shim's that stay in memory after a cycle, in one mapping: a kept buffer, or none of a reserved one, whose addresses alone
/// are left. Whether its arm is to have such a thing is not asked here.
fn stays(row: &Row) -> Option<u64> {
    let buffer = &row.outcome.record.as_ref()?.buffer;
    match () {
        () if buffer.state.is("kept") => Some(buffer.mapped),
        () if buffer.state.is("reserved") => Some(0),
        () => None,
    }
}

/// Whether the range was filled before the cycle, by the tool's account and by the record's: a cycle that found it full in part measures
/// something else.
fn reserve_problems(row: &Row, has_range: bool) -> Vec<String> {
    let mut problems = Vec::new();
    match (&row.reserved, has_range) {
        (None, true) => problems.push("nobody filled the reserved range".into()),
        (Some(_), false) => problems.push("a range was filled before there was one".into()),
        (Some(reserved), true) => problems.extend(reserved.problem()),
        (None, false) => {}
    }
    if let Some(phase) = &row.outcome.checkpoint {
        if phase.kept != has_range {
            let found = if phase.kept { "full" } else { "not full" };
            problems.push(format!(
                "checkpoint: the reserved range was {found}, {} of {} bytes were prefaulted",
                phase.prefaulted, phase.expected
            ));
        } else if phase.kept && phase.prefaulted > 0 {
            problems.push(format!(
                "checkpoint: {} bytes of a full range were prefaulted",
                phase.prefaulted
            ));
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
            (_, Some(phase)) => problems.extend(
                arm.pages
                    .filter(|asked| !phase.pages.is(asked.word()))
                    .map(|asked| format!("{name}: pages {}, not {}", phase.pages, asked.word())),
            ),
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
    if arm.sparse && !record.options.sparse {
        problems.push("the shim does not leave zeros out".into());
    }
    let rest = match arm.kind {
        Kind::Keep => "kept",
        Kind::Reserve => "reserved",
        _ => "none",
    };
    if !record.buffer.state.is(rest) {
        problems.push(format!(
            "the buffer is {} after the cycle",
            record.buffer.state
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use cudasnap_cli::process::observe::Holdings;
    use cudasnap_cli::record::view::{PhaseView, RecordView};
    use cudasnap_wire::{Direction, PageKind, Record};

    use super::*;
    use crate::cycle::Times;
    use crate::leaks::Growth;
    use crate::run::Reserved;
    use crate::split::Splits;

    const BYTES: u64 = 1 << 30;

    fn phase(record: &Record, direction: Direction, kept: bool) -> PhaseView {
        let phase = &record.current;
        phase.direction.store(direction.number(), Relaxed);
        phase.expected.store(BYTES, Relaxed);
        phase.copied.store(BYTES, Relaxed);
        phase.kept.store(kept.into(), Relaxed);
        phase.pages.store(PageKind::Thp.number(), Relaxed);
        RecordView::new(record).current
    }

    /// A cycle of a process whose buffer is in the state of this number after it, and which has one mapping more than before.
    fn row(state: u32, kept: bool, reserved: Option<i32>, anonymous: i64) -> Row {
        let record = Record::new(1);
        record.counters.answered.store(1, Relaxed);
        record.buffer.state.store(state, Relaxed);
        record.buffer.mapped.store(BYTES, Relaxed);
        let holdings = Holdings {
            threads: Vec::new(),
            descriptors: Vec::new(),
            mappings: 0,
            address_space: 0,
            anonymous: 0,
            resident: 0,
        };
        Row {
            outcome: Outcome {
                times: Times::default(),
                mapped_bytes: BYTES,
                checkpoint: Some(phase(&record, Direction::Checkpoint, kept)),
                restore: Some(phase(&record, Direction::Restore, kept)),
                checkpointed: holdings,
                record: Some(RecordView::new(&record)),
                strays: Vec::new(),
            },
            reserved: reserved.map(|status| Reserved {
                seconds: 1.0,
                status: Some(status),
                said: "stopped".into(),
            }),
            split: Splits {
                checkpoint: None,
                restore: None,
            },
            wrong_words: Some(0),
            growth: Growth {
                new_threads: Vec::new(),
                threads: 0,
                descriptors: 0,
                mappings: 1,
                anonymous,
            },
        }
    }

    fn problems_of(arm: &str, rows: Vec<Row>) -> Vec<String> {
        let arm = ArmResult {
            arm: arm.parse().unwrap(),
            pid: 1,
            rows,
            stderr: String::new(),
        };
        problems(&[arm], false)
    }

    const NONE: u32 = 0;
    const KEPT: u32 = 2;
    const RESERVED: u32 = 4;

    #[test]
    fn a_reserved_range_is_to_be_found_full_from_the_second_cycle_on() {
        let first = || row(RESERVED, false, None, 0);
        let good = vec![first(), row(RESERVED, true, Some(0), 0)];
        assert_eq!(problems_of("reserve", good), Vec::<String>::new());
        for (second, said) in [
            (row(RESERVED, false, Some(0), 0), "was not full"),
            (row(RESERVED, true, Some(5), 0), "status 5: stopped"),
            (row(RESERVED, true, None, 0), "nobody filled"),
            (row(NONE, true, Some(0), 0), "the buffer is none"),
        ] {
            let found = problems_of("reserve", vec![first(), second]);
            assert!(
                found.iter().any(|problem| problem.contains(said)),
                "{said}: {found:?}"
            );
            let place = |problem: &String| problem.starts_with("reserve, cycle 2: ");
            assert!(found.iter().all(place), "{found:?}");
        }
        let found = problems_of("reserve", vec![row(RESERVED, true, None, 0)]);
        assert!(found[0].contains("was full"), "{found:?}");
    }

    #[test]
    fn of_a_reserved_range_addresses_may_stay_and_of_a_kept_buffer_memory() {
        let grown = BYTES as i64;
        let none = Vec::<String>::new();
        assert_eq!(
            problems_of("keep", vec![row(KEPT, false, None, grown)]),
            none
        );
        let found = problems_of("reserve", vec![row(RESERVED, false, None, grown)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("private resident bytes"), "{found:?}");
    }

    #[test]
    fn an_arm_with_kinds_of_pages_is_to_have_them_and_zeros_are_to_be_left_out() {
        let rows = || vec![row(KEPT, false, None, 0)];
        assert_eq!(problems_of("keep:thp", rows()), Vec::<String>::new());
        let found = problems_of("keep:hugetlb", rows());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("pages thp, not hugetlb"), "{found:?}");
        let found = problems_of("keep:sparse", rows());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("zeros"), "{found:?}");
    }
}
