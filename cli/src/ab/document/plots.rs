//! The plots, each with its numbers as a table.

use super::{column, or_dash, seconds};
use crate::ab::data::{Measured, Workload};
use crate::ab::stats::{median, Spread};
use crate::ab::summary::{calls, usual_bytes, Calls, Direction, PIECES};
use crate::document::{Plot, Point, Points, Section, Series, Stacked, Table};
use crate::foreign_text::printable;

fn limits(workload: &Workload, direction: Direction) -> Vec<(String, f64)> {
    let limit = workload.limit.as_ref().map(|limit| direction.limit(limit));
    limit.map(limit_line).into_iter().collect()
}

/// A point per cycle.
pub fn over_cycles(
    prefix: &str,
    workload: &Workload,
    direction: Direction,
    all: &[Calls],
) -> Option<Section> {
    let known = all.iter().any(|calls| calls.rate.is_some());
    let series = all.iter().map(|calls| Series {
        name: printable(&calls.variant),
        points: calls
            .made
            .iter()
            .filter_map(|call| {
                Some(Point {
                    x: f64::from(call.cycle),
                    y: if known { call.rate? } else { call.seconds },
                    spread: None,
                    outlier: call.outlier,
                })
            })
            .collect(),
    });
    let (up, what, limits) = match known {
        true => ("GB/s", "GB/s", limits(workload, direction)),
        false => ("seconds", "Seconds", Vec::new()),
    };
    let points = Points {
        across: "cycle".into(),
        up: up.into(),
        series: series.collect(),
        limits,
    };
    let any = points.series.iter().any(|series| !series.points.is_empty());
    any.then(|| Section {
        heading: format!("{prefix}{what} of each {}", direction.name()),
        text: "Cycles in the order in which they were made, without warm-ups. Outliers are marked; they count all the same.".into(),
        table: Some(numbers_of(direction, all)),
        plot: Some(Plot::Points(points)),
    })
}

fn numbers_of(direction: Direction, all: &[Calls]) -> Table {
    let mut rows: Vec<(u32, Vec<String>)> = Vec::new();
    for calls in all {
        for call in &calls.made {
            let row = vec![
                call.cycle.to_string(),
                call.round.to_string(),
                printable(&calls.variant),
                seconds(call.seconds),
                or_dash(call.rate.map(|rate| format!("{rate:.2}"))),
                if call.outlier { "outlier" } else { "" }.to_string(),
            ];
            rows.push((call.cycle, row));
        }
    }
    rows.sort_by_key(|(cycle, _)| *cycle);
    Table {
        columns: vec![
            column("Cycle", true),
            column("Round", true),
            column("Variant", false),
            column(&format!("{}, s", direction.title()), true),
            column("GB/s", true),
            column("Remark", false),
        ],
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    }
}

/// Where the time goes, in bars.
pub fn split(prefix: &str, all: &[(Direction, Vec<Calls>)]) -> Option<Section> {
    let mut bars = Vec::new();
    for (direction, calls) in all {
        for calls in calls {
            if let Some(pieces) = calls.pieces {
                let label = format!("{}, {}", direction.name(), printable(&calls.variant));
                bars.push((label, pieces));
            }
        }
    }
    // A piece that nobody has needs no colour.
    let used: Vec<usize> = (0..PIECES.len())
        .filter(|at| bars.iter().any(|(_, pieces)| pieces[*at] > 0.0))
        .collect();
    if used.is_empty() {
        return None;
    }
    let columns = std::iter::once(column("Call", false)).chain(
        used.iter()
            .map(|at| column(&format!("{}, s", PIECES[*at]), true)),
    );
    let rows = bars.iter().map(|(label, pieces)| {
        let cells = used.iter().map(|at| seconds(pieces[*at]));
        std::iter::once(label.clone()).chain(cells).collect()
    });
    let table = Table {
        columns: columns.collect(),
        rows: rows.collect(),
    };
    let stacked = Stacked {
        unit: "seconds".into(),
        pieces: used.iter().map(|at| PIECES[*at].to_string()).collect(),
        bars: bars
            .iter()
            .map(|(label, pieces)| (label.clone(), used.iter().map(|at| pieces[*at]).collect()))
            .collect(),
    };
    Some(Section {
        heading: format!("{prefix}Where the time goes"),
        text: "Medians of the pieces of the driver's call, as the library saw them from inside. Pages are touched ahead beside the later \
               pieces, not in one of their own; without the library nothing is seen from inside."
            .into(),
        plot: Some(Plot::Stacked(stacked)),
        table: Some(table),
    })
}

/// For runs over several sizes.
pub fn over_sizes(measured: &Measured, direction: Direction, confidence: f64) -> Option<Section> {
    if measured.workloads.len() < 2 {
        return None;
    }
    let mut series: Vec<Series> = Vec::new();
    let mut rows = Vec::new();
    for workload in &measured.workloads {
        let size = usual_bytes(workload, direction).map(|bytes| bytes / 1e9);
        for calls in calls(workload, direction, confidence) {
            let Some((size, rate)) = size.zip(calls.rate) else {
                continue;
            };
            rows.push(vec![
                printable(&workload.name),
                printable(&calls.variant),
                format!("{size:.2}"),
                format!("{:.2}", rate.median),
                format!("{:.2} to {:.2}", rate.low, rate.high),
            ]);
            add(&mut series, printable(&calls.variant), size, rate);
        }
    }
    for series in &mut series {
        series
            .points
            .sort_by(|one, other| one.x.total_cmp(&other.x));
    }
    (!rows.is_empty()).then(|| Section {
        heading: format!("{} over size", direction.title()),
        text: "Median of each size, with its middle half.".into(),
        plot: Some(Plot::Lines(Points {
            across: "GB in the driver's buffer".into(),
            up: "GB/s".into(),
            series,
            limits: limit_of_all(measured, direction),
        })),
        table: Some(Table {
            columns: vec![
                column("Program", false),
                column("Variant", false),
                column("GB", true),
                column("GB/s", true),
                column("Middle half, GB/s", true),
            ],
            rows,
        }),
    })
}

fn add(series: &mut Vec<Series>, name: String, size: f64, rate: Spread) {
    let point = Point {
        x: size,
        y: rate.median,
        spread: Some((rate.low, rate.high)),
        outlier: false,
    };
    match series.iter_mut().find(|series| series.name == name) {
        Some(series) => series.points.push(point),
        None => series.push(Series {
            name,
            points: vec![point],
        }),
    }
}

/// It was measured anew for each size.
fn limit_of_all(measured: &Measured, direction: Direction) -> Vec<(String, f64)> {
    let limits = measured.workloads.iter();
    let limits = limits.filter_map(|workload| workload.limit.as_ref());
    let limits: Vec<f64> = limits.map(|limit| direction.limit(limit)).collect();
    median(&limits).map(limit_line).into_iter().collect()
}

fn limit_line(limit: f64) -> (String, f64) {
    ("pinned copies".to_string(), limit)
}
