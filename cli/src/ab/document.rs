//! The report on a run, as data for whoever shows it. `facts` are what was measured where, `plots` its pictures.

mod facts;
mod plots;

use super::data::{Measured, Workload};
use super::doubts;
use super::doubts::look::is_wrong_in;
use super::stats::Spread;
use super::summary::{calls, confidence, Calls, Comparison, Direction};
use crate::document::{Column, Document, Doubt, Section, Table};
use crate::foreign_text::printable;
use crate::status::text::count;
use facts::{contents, facts};
use plots::{over_cycles, over_sizes, split};

/// Makes it.
pub fn document(measured: &Measured) -> Document {
    let mut document = Document {
        title: title(measured),
        facts: facts(measured),
        findings: wrong_contents(measured),
        doubts: Vec::new(),
        sections: Vec::new(),
    };
    let confidence = confidence(measured);
    for workload in &measured.workloads {
        let prefix = prefix(measured, workload);
        let all =
            Direction::ALL.map(|direction| (direction, calls(workload, direction, confidence)));
        for (direction, calls) in &all {
            document
                .findings
                .extend(findings(&prefix, *direction, calls));
        }
        document.sections.push(results(&prefix, &all));
        for (direction, calls) in &all {
            document
                .sections
                .extend(over_cycles(&prefix, workload, *direction, calls));
        }
        document.sections.extend(split(&prefix, &all));
    }
    for direction in Direction::ALL {
        document
            .sections
            .extend(over_sizes(measured, direction, confidence));
    }
    let doubts = doubts::look(measured).into_iter().map(|doubt| Doubt {
        what: sentence(&doubt.what()),
        advice: sentence(doubt.advice()),
    });
    document.doubts = doubts.collect();
    document
}

/// Comes before every ratio: nobody needs to know how fast contents went wrong.
fn wrong_contents(measured: &Measured) -> Vec<String> {
    let wrong = measured.workloads.iter().filter(|one| is_wrong_in(one));
    let told = wrong.map(|workload| {
        format!(
            "{}Contents were {}: the numbers are worthless",
            prefix(measured, workload),
            contents(std::slice::from_ref(workload))
        )
    });
    told.collect()
}

fn title(measured: &Measured) -> String {
    let names: Vec<String> = measured
        .workloads
        .iter()
        .map(|workload| printable(&workload.name))
        .collect();
    format!("Checkpoint and restore of {}", names.join(", "))
}

fn prefix(measured: &Measured, workload: &Workload) -> String {
    match measured.workloads.len() {
        1 => String::new(),
        _ => format!("{}: ", printable(&workload.name)),
    }
}

/// Begins with a capital letter, ends with a full stop.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string());
    let mut whole = first.unwrap_or_default() + characters.as_str();
    if !whole.ends_with('.') {
        whole.push('.');
    }
    whole
}

/// A part of the baseline's time, with so many digits that the ends of its interval differ.
fn ratio(value: f64, comparison: &Comparison) -> String {
    let width = comparison
        .interval
        .map_or(1.0, |interval| interval.high - interval.low);
    let digits = match width {
        width if width >= 0.02 => 2,
        width if width >= 0.002 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

fn seconds(value: f64) -> String {
    format!("{value:.3}")
}

/// Its real confidence, never rounded up to certainty.
fn percent_of_confidence(confidence: f64) -> String {
    let percent = (confidence * 1000.0).floor() / 10.0;
    if percent.fract() < 0.05 {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.1} %")
    }
}

fn interval(comparison: &Comparison) -> String {
    let pairs = count(comparison.pairs, "pair", "pairs");
    let Some(interval) = comparison.interval else {
        return format!("no interval, {pairs}");
    };
    format!(
        "{} interval {} to {}, {pairs}",
        percent_of_confidence(interval.confidence),
        ratio(interval.low, comparison),
        ratio(interval.high, comparison)
    )
}

fn findings(prefix: &str, direction: Direction, all: &[Calls]) -> Vec<String> {
    let Some(baseline) = all.first() else {
        return Vec::new();
    };
    let others = all.iter().skip(1).filter_map(|calls| {
        let comparison = calls.ratio.as_ref()?;
        let lead = match comparison.is_shown() {
            true => format!("{prefix}{}", direction.title()),
            false => format!("{prefix}{}, no difference shown", direction.title()),
        };
        Some(format!(
            "{lead}: {} takes {} of {}'s time ({})",
            printable(&calls.variant),
            ratio(comparison.ratio, comparison),
            printable(&baseline.variant),
            interval(comparison)
        ))
    });
    others.collect()
}

fn column(heading: &str, is_number: bool) -> Column {
    Column {
        heading: heading.into(),
        is_number,
    }
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".into())
}

fn results(prefix: &str, all: &[(Direction, Vec<Calls>)]) -> Section {
    let columns = vec![
        column("Call", false),
        column("Variant", false),
        column("Cycles", true),
        column("Median, s", true),
        column("Middle half, s", true),
        column("GB/s", true),
        column("% of limit", true),
        column("Part of baseline", true),
        column("Interval", true),
        column("Confidence", true),
    ];
    let mut rows = Vec::new();
    for (direction, calls) in all {
        rows.extend(calls.iter().map(|calls| row(*direction, calls)));
    }
    Section {
        heading: format!("{prefix}Results"),
        text: "Seconds inside the driver's call. A part of the baseline is the median of the ratios of each round's two calls; its interval \
               contains the true median with at least the confidence beside it, whatever the distribution."
            .into(),
        plot: None,
        table: Some(Table { columns, rows }),
    }
}

fn row(direction: Direction, calls: &Calls) -> Vec<String> {
    let against = calls.ratio.as_ref();
    let interval = against.and_then(|against| against.interval);
    let half = |spread: Spread| format!("{} to {}", seconds(spread.low), seconds(spread.high));
    vec![
        direction.name().to_string(),
        printable(&calls.variant),
        calls.made.len().to_string(),
        or_dash(calls.seconds.map(|spread| seconds(spread.median))),
        or_dash(calls.seconds.map(half)),
        or_dash(calls.rate.map(|rate| format!("{:.2}", rate.median))),
        or_dash(calls.of_limit.map(|part| format!("{:.0}", part * 100.0))),
        or_dash(against.map(|against| ratio(against.ratio, against))),
        or_dash(against.zip(interval).map(|(against, found)| {
            let (low, high) = (ratio(found.low, against), ratio(found.high, against));
            format!("{low} to {high}")
        })),
        or_dash(interval.map(|found| percent_of_confidence(found.confidence))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab::made_up;
    use crate::document::{Plot, Points};

    fn assert_sound(document: &Document) {
        for section in &document.sections {
            let table = section.table.as_ref().expect("numbers as text");
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len(), "{}", section.heading);
            }
            if let Some(Plot::Stacked(stacked)) = &section.plot {
                for (label, pieces) in &stacked.bars {
                    assert_eq!(pieces.len(), stacked.pieces.len());
                    assert!(pieces.iter().all(|piece| *piece >= 0.0), "{label}");
                }
            }
        }
    }

    #[test]
    fn the_findings_are_sentences_with_interval_and_pairs() {
        let made = document(&made_up::run(10, 3.0));
        assert_sound(&made);
        assert_eq!(made.findings.len(), 2);
        let first = &made.findings[0];
        assert!(
            first.starts_with("Checkpoint: on takes 0.3333 of observe's time (97.8 % interval 0.3327 to 0.3340, 10 pairs)"),
            "{first}"
        );
        assert_eq!(made.doubts, []);
    }

    #[test]
    fn no_difference_is_told_as_such() {
        let made = document(&made_up::run(10, 1.0));
        assert!(
            made.findings[0].starts_with("Checkpoint, no difference shown: on takes 1.00"),
            "{}",
            made.findings[0]
        );
        let few = document(&made_up::run(4, 3.0));
        assert!(few.findings[0].ends_with("(no interval, 4 pairs)"));
        assert!(few.doubts[0].what.ends_with("which takes 6."));
        let one = document(&made_up::run(1, 3.0));
        assert!(one.findings[0].ends_with("(no interval, 1 pair)"));
    }

    #[test]
    fn wrong_contents_come_first_and_are_a_fact() {
        let told = |run: &Measured| {
            let made = document(run);
            let fact = made.facts.iter().find(|(name, _)| name == "Contents");
            (made.findings[0].clone(), fact.unwrap().1.clone())
        };
        let mut run = made_up::run(6, 3.0);
        assert_eq!(told(&run).1, "right after 14 cycles");
        for cycle in &mut run.workloads[0].cycles {
            cycle.verified = Some(cycle.number % 2 == 0);
        }
        let (first, fact) = told(&run);
        assert_eq!(fact, "wrong after 7 of 14 cycles");
        assert_eq!(
            first,
            "Contents were wrong after 7 of 14 cycles: the numbers are worthless"
        );
        // In one size of several: the finding says in which.
        run.workloads.push(made_up::run(6, 3.0).workloads.remove(0));
        run.workloads[0].name = "8 GiB".into();
        let (first, fact) = told(&run);
        assert_eq!(fact, "wrong after 7 of 28 cycles");
        assert!(first.starts_with("8 GiB: Contents were wrong after 7 of 14"));
        run.workloads.truncate(1);
        run.workloads[0].cycles.truncate(1);
        assert_eq!(contents(&run.workloads), "wrong after 1 of 1 cycle");
        run.workloads[0].cycles[0].verified = Some(true);
        let fact = |run: &Measured| contents(&run.workloads);
        assert_eq!(fact(&run), "right after 1 cycle");
        run.workloads[0].cycles[0].verified = None;
        assert_eq!(fact(&run), "not asked for");
    }

    #[test]
    fn plots_have_the_limit_and_every_cycle() {
        let made = document(&made_up::run(10, 3.0));
        let plots: Vec<&Plot> = made
            .sections
            .iter()
            .filter_map(|section| section.plot.as_ref())
            .collect();
        let Plot::Points(checkpoint) = plots[0] else {
            panic!("{plots:?}");
        };
        assert_eq!(checkpoint.limits[0].1, 50.0);
        assert_eq!(checkpoint.series.len(), 2);
        assert!(checkpoint
            .series
            .iter()
            .all(|series| series.points.len() == 10));
        let Plot::Points(restore) = plots[1] else {
            panic!("{plots:?}");
        };
        assert_eq!(restore.limits[0].1, 55.0);
        let Plot::Stacked(stacked) = plots[2] else {
            panic!("{plots:?}");
        };
        assert_eq!(stacked.bars.len(), 4);
        assert!(!stacked.pieces.contains(&"not seen from inside".to_string()));
    }

    #[test]
    fn several_sizes_are_lines() {
        let mut run = made_up::run(6, 3.0);
        let mut larger = run.workloads[0].clone();
        larger.name = "24 GiB".into();
        for cycle in &mut larger.cycles {
            for phase in [&mut cycle.checkpoint, &mut cycle.restore] {
                phase.as_mut().unwrap().bytes *= 3;
            }
        }
        run.workloads.insert(0, larger);
        let made = document(&run);
        assert_sound(&made);
        assert!(made.findings[0].starts_with("24 GiB: Checkpoint: on takes"));
        let lines = made
            .sections
            .iter()
            .filter_map(|section| match &section.plot {
                Some(Plot::Lines(points)) => Some(points),
                _ => None,
            });
        let lines: Vec<&Points> = lines.collect();
        assert_eq!(lines.len(), 2);
        for series in &lines[0].series {
            let across: Vec<f64> = series.points.iter().map(|point| point.x).collect();
            assert_eq!(across, [1.0, 3.0]);
        }
    }

    #[test]
    fn nothing_measured_is_still_a_report() {
        let mut run = made_up::run(1, 3.0);
        run.workloads[0].cycles.clear();
        run.stopped = Some("the process \u{7}ended".into());
        let made = document(&run);
        assert_sound(&made);
        assert_eq!(made.findings, [""; 0]);
        assert_eq!(
            made.doubts[0].what,
            "The run ended early: the process \\u{7}ended."
        );
    }

    #[test]
    fn confidence_is_never_rounded_up() {
        assert_eq!(percent_of_confidence(1.0 - 22.0 / 1024.0), "97.8 %");
        assert_eq!(percent_of_confidence(0.99996), "99.9 %");
        assert_eq!(percent_of_confidence(0.95), "95 %");
    }
}
