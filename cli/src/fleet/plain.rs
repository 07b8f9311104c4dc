//! A report on a terminal, as plain text.

use std::fmt::Write as _;

use comfy_table::{presets, CellAlignment, ContentArrangement, Table as Drawn};

use crate::document::{Document, Table};

/// Everything but the plots, whose numbers are in their tables.
pub fn text(document: &Document) -> String {
    let mut text = format!("{}\n\n", document.title);
    for (name, value) in &document.facts {
        let _ = writeln!(text, "{name:<9} {value}");
    }
    for finding in &document.findings {
        let _ = write!(text, "\n{finding}");
    }
    text.push('\n');
    for doubt in &document.doubts {
        let _ = writeln!(text, "\ndoubt: {}\n       {}", doubt.what, doubt.advice);
    }
    for section in &document.sections {
        let _ = write!(text, "\n{}\n{}\n", section.heading, section.text);
        if let Some(table) = &section.table {
            let _ = writeln!(text, "{}", drawn(table));
        }
    }
    text
}

fn drawn(table: &Table) -> Drawn {
    let mut drawn = Drawn::new();
    drawn
        .load_style(presets::ASCII_MARKDOWN)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(table.columns.iter().map(|column| column.heading.as_str()));
    for row in &table.rows {
        drawn.add_row(row);
    }
    for (place, column) in table.columns.iter().enumerate() {
        if let Some(drawn) = drawn.column_mut(place).filter(|_| column.is_number) {
            drawn.set_cell_alignment(CellAlignment::Right);
        }
    }
    drawn
}
