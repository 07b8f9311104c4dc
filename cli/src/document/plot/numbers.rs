//! The numbers of a plot as a table, for who does not see it.

use super::points::plain;
use super::scale::number;
use super::stacked::total;
use crate::document::{Column, Plot, Point, Points, Stacked, Table};

/// All numbers of a plot.
pub fn table(plot: &Plot) -> Table {
    match plot {
        Plot::Points(points) | Plot::Lines(points) => of_points(points),
        Plot::Stacked(stacked) => of_bars(stacked),
    }
}

fn column(heading: &str, is_number: bool) -> Column {
    Column {
        heading: heading.to_owned(),
        is_number,
    }
}

fn of_points(points: &Points) -> Table {
    let all = || points.series.iter().flat_map(|series| &series.points);
    let spread = all().any(|point| point.spread.is_some());
    let outliers = all().any(|point| point.outlier);
    let mut columns = vec![
        column("series", false),
        column(&points.across, true),
        column(&points.up, true),
    ];
    if spread {
        columns.push(column("from", true));
        columns.push(column("to", true));
    }
    if outliers {
        columns.push(column("outlier", false));
    }
    let row = |name: &str, point: &Point| {
        let mut row = vec![name.to_owned(), plain(point.x), number(point.y)];
        if spread {
            let ends = point.spread.map(|(low, high)| [number(low), number(high)]);
            row.extend(ends.unwrap_or_default());
        }
        if outliers {
            row.push(if point.outlier { "yes" } else { "" }.to_owned());
        }
        row
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for series in &points.series {
        rows.extend(series.points.iter().map(|point| row(&series.name, point)));
    }
    for (label, value) in &points.limits {
        let mut limit = vec![label.clone(), String::new(), number(*value)];
        limit.resize(columns.len(), String::new());
        rows.push(limit);
    }
    Table { columns, rows }
}

fn of_bars(stacked: &Stacked) -> Table {
    let mut columns = vec![column("", false)];
    columns.extend(stacked.pieces.iter().map(|piece| column(piece, true)));
    columns.push(column(&format!("total, {}", stacked.unit), true));
    let row = |(label, pieces): &(String, Vec<f64>)| {
        let mut row = vec![label.clone()];
        row.extend(
            pieces
                .iter()
                .take(stacked.pieces.len())
                .map(|piece| number(*piece)),
        );
        row.resize(stacked.pieces.len() + 1, String::new());
        row.push(total(pieces));
        row
    };
    Table {
        rows: stacked.bars.iter().map(row).collect(),
        columns,
    }
}
