//! The pictures of a fleet's report, each with its numbers as a table.

use std::fmt::Write as _;

use super::{digits, group_words, moment, table, GROUP};
use crate::document::{Plot, Point, Points, Section, Series, Stacked};
use crate::fleet::collect::{Fleet, Group};
use crate::fleet::phase::PIECES;
use crate::fleet::tally::Tally;
use crate::fleet::timeline::Timeline;

/// Most series of a plot: hosts and their modes; of more the modes alone.
pub(super) const SERIES: usize = 8;
/// Most bars.
const BARS: usize = 12;
const HOUR: f64 = 3600.0;

/// The series of a plot over time: what they are by, and each with its name.
fn series<'a>(fleet: &'a Fleet, direction: &str) -> (&'static str, Vec<(String, &'a Timeline)>) {
    let by_host = fleet.over_time(direction);
    if by_host.len() <= SERIES && fleet.hosts().len() <= SERIES {
        let named = |((host, mode), line): ((&str, &str), _)| (format!("{host}, {mode}"), line);
        return ("host and mode", by_host.into_iter().map(named).collect());
    }
    let by_mode = fleet.over_time_by_mode(direction).into_iter();
    (
        "mode",
        by_mode
            .map(|(mode, line)| (mode.to_owned(), line))
            .collect(),
    )
}

/// Rates over time in one direction; `None`: nobody knows the time.
pub fn over_time(fleet: &Fleet, direction: &str) -> Option<Section> {
    let (first, _) = fleet.span?;
    let (what, lines) = series(fleet, direction);
    let mut series = Vec::new();
    let mut rows = Vec::new();
    for (name, line) in lines {
        let points = line.bins().map(|(second, bin)| {
            rows.push(vec![
                name.clone(),
                moment(second as u64),
                digits(bin.mean()),
                digits(bin.least),
                digits(bin.most),
                bin.count.to_string(),
            ]);
            Point {
                x: ((second - first as f64) / HOUR).max(0.0),
                y: bin.mean(),
                spread: Some((bin.least, bin.most)),
                outlier: false,
            }
        });
        let points = points.collect();
        series.push(Series { name, points });
    }
    Some(Section {
        heading: format!("Rate over time: {direction}"),
        text: format!(
            "A point is the mean of the phases of a stretch of time, with the least and the most, by {what}."
        ),
        plot: Some(Plot::Lines(Points {
            across: format!("hours since {}", moment(first)),
            up: "GB/s".into(),
            series,
            limits: Vec::new(),
        })),
        table: Some(table(
            &[what, "time"],
            &["GB/s mean", "GB/s least", "GB/s most", "phases"],
            rows,
        )),
    })
}

/// Where the time goes, by what phases have in common; `None`: no phase has times.
pub fn split(fleet: &Fleet) -> Option<Section> {
    let common = |group: &Group| Group {
        host: String::new(),
        ..group.clone()
    };
    let mut all: Vec<(Group, Tally)> = fleet.merged(common).into_iter().collect();
    all.retain(|(_, tally)| tally.timed > 0);
    let left_out = all.len().saturating_sub(BARS);
    // Those that most phases belong to, in the order of the tables.
    all.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.phases));
    all.truncate(BARS);
    all.sort_by(|one, other| one.0.cmp(&other.0));
    let bars: Vec<(String, Vec<f64>)> = all
        .iter()
        .map(|(group, tally)| (label(group), tally.milliseconds_per_gb().to_vec()))
        .collect();
    let rows = all.iter().map(|(group, tally)| {
        let pieces = tally.milliseconds_per_gb();
        let mut row = group_words(group);
        row.extend(pieces.map(digits));
        row.push(digits(pieces.iter().sum()));
        row
    });
    let mut numbers = PIECES.to_vec();
    numbers.push("sum");
    let table = table(&GROUP, &numbers, rows.collect());
    let mut text = String::from(
        "Milliseconds for each GB, all hosts together. prefault is making pages before the first copy, as far as no copy ran beside it; \
         driver is everything before, between and after the copies that is neither; munmap comes after the phase's end.",
    );
    if left_out > 0 {
        let _ = write!(text, " {left_out} groups with fewer phases are left out.");
    }
    (!bars.is_empty()).then(|| Section {
        heading: "Where the time goes".into(),
        text,
        plot: Some(Plot::Stacked(Stacked {
            unit: "ms per GB".into(),
            pieces: PIECES.map(String::from).to_vec(),
            bars,
        })),
        table: Some(table),
    })
}

fn label(group: &Group) -> String {
    let kept = if group.kept { ", kept" } else { "" };
    format!(
        "{}, {}, {}{kept}, {}, {} threads",
        group.direction, group.mode, group.pages, group.strategy, group.threads
    )
}
