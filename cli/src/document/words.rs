//! Words of a document: foreign text made harmless, once for all ways to show it, and escaped for each of them.

use super::{Column, Document, Doubt, Plot, Points, Section, Stacked, Table};
use crate::foreign_text::printable;

/// The document with all its text printable. Lines of a section's text stay apart.
pub fn clean(document: &Document) -> Document {
    let texts = |texts: &[String]| texts.iter().map(|text| printable(text)).collect();
    let fact = |(name, value): &(String, String)| (printable(name), printable(value));
    let doubt = |doubt: &Doubt| Doubt {
        what: printable(&doubt.what),
        advice: printable(&doubt.advice),
    };
    Document {
        title: printable(&document.title),
        facts: document.facts.iter().map(fact).collect(),
        findings: texts(&document.findings),
        doubts: document.doubts.iter().map(doubt).collect(),
        sections: document.sections.iter().map(section).collect(),
    }
}

fn section(section: &Section) -> Section {
    let lines: Vec<String> = section.text.lines().map(printable).collect();
    Section {
        heading: printable(&section.heading),
        text: lines.join("\n"),
        plot: section.plot.as_ref().map(plot),
        table: section.table.as_ref().map(table),
    }
}

fn table(table: &Table) -> Table {
    let column = |column: &Column| Column {
        heading: printable(&column.heading),
        is_number: column.is_number,
    };
    let row = |row: &Vec<String>| {
        // As many cells as columns, whatever came.
        let mut cells: Vec<String> = row.iter().map(|cell| printable(cell)).collect();
        cells.resize(table.columns.len(), String::new());
        cells
    };
    Table {
        columns: table.columns.iter().map(column).collect(),
        rows: table.rows.iter().map(row).collect(),
    }
}

fn plot(plot: &Plot) -> Plot {
    match plot {
        Plot::Points(points) => Plot::Points(clean_points(points)),
        Plot::Lines(points) => Plot::Lines(clean_points(points)),
        Plot::Stacked(stacked) => Plot::Stacked(Stacked {
            unit: printable(&stacked.unit),
            pieces: stacked
                .pieces
                .iter()
                .map(|piece| printable(piece))
                .collect(),
            bars: stacked
                .bars
                .iter()
                .map(|(label, pieces)| (printable(label), pieces.clone()))
                .collect(),
        }),
    }
}

fn clean_points(points: &Points) -> Points {
    let mut clean = points.clone();
    clean.across = printable(&points.across);
    clean.up = printable(&points.up);
    for series in &mut clean.series {
        series.name = printable(&series.name);
    }
    for (label, _) in &mut clean.limits {
        *label = printable(label);
    }
    clean
}

/// Paragraphs of a text.
pub fn paragraphs(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// Text for HTML and SVG, in an element or in a quoted attribute.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            _ => shown.push(character),
        }
    }
    shown
}

/// The table of a section: its own, or the numbers of its plot.
pub fn numbers(section: &Section) -> Option<Table> {
    let own = section.table.clone();
    own.or_else(|| section.plot.as_ref().map(super::plot::numbers::table))
}
