//! Tables that fit: words wrap, numbers never do; columns for which there is no room go into a table below, with the first column again.

use comfy_table::{
    presets, Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Width,
};
use console::measure_text_width;

use super::plots::Look;
use crate::document::{Column, Table};

/// Columns between two.
const GAP: usize = 2;
/// Longer words than this are broken.
const WORD: usize = 22;

/// The table in lines.
pub fn table(table: &Table, look: Look) -> String {
    if table.columns.is_empty() {
        return String::new();
    }
    let parts = parts(table, look.width);
    let parts: Vec<String> = parts
        .iter()
        .map(|columns| part(table, columns, look))
        .collect();
    parts.join("\n")
}

/// Which columns stand together.
fn parts(table: &Table, width: usize) -> Vec<Vec<usize>> {
    let mut parts = vec![vec![0]];
    let first = least(table, 0, width);
    let mut used = first;
    for column in 1..table.columns.len() {
        let needs = GAP + least(table, column, width);
        if used + needs > width && used > first {
            parts.push(vec![0]);
            used = first;
        }
        used += needs;
        if let Some(part) = parts.last_mut() {
            part.push(column);
        }
    }
    parts
}

/// The least width of a column: that of its numbers or its words; so that it has room beside the first one.
fn least(table: &Table, column: usize, width: usize) -> usize {
    let needs = longest_word(&table.columns[column].heading);
    let needs = if table.columns[column].is_number {
        needs.max(widest(table, column))
    } else {
        let cells = table.rows.iter().filter_map(|row| row.get(column));
        let word = cells.map(|cell| longest_word(cell)).fold(0, usize::max);
        needs.max(word.min(WORD))
    };
    needs.min((width - GAP) / 2)
}

fn longest_word(text: &str) -> usize {
    text.split(' ').map(measure_text_width).fold(0, usize::max)
}

fn widest(table: &Table, column: usize) -> usize {
    let cells = table.rows.iter().filter_map(|row| row.get(column));
    cells
        .map(|cell| measure_text_width(cell))
        .fold(0, usize::max)
}

fn part(table: &Table, columns: &[usize], look: Look) -> String {
    let mut drawn = comfy_table::Table::new();
    drawn
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(look.width).unwrap_or(u16::MAX))
        .force_no_tty();
    if look.colour {
        drawn.enforce_styling();
    }
    let chosen = || {
        columns
            .iter()
            .map(|column| (*column, &table.columns[*column]))
    };
    drawn.set_header(
        chosen().map(|(_, column)| cell(&column.heading, column).add_attribute(Attribute::Bold)),
    );
    for row in &table.rows {
        drawn.add_row(
            chosen()
                .map(|(number, column)| cell(row.get(number).map_or("", String::as_str), column)),
        );
    }
    let widths = widths(table, columns, look.width);
    let last = columns.len() - 1;
    for (column, width) in drawn.column_iter_mut().zip(widths) {
        let gap = if column.index == last { 0 } else { GAP };
        column.set_padding((0, gap as u16));
        let fixed = Width::Fixed(u16::try_from(width + gap).unwrap_or(u16::MAX));
        column.set_constraint(ColumnConstraint::Absolute(fixed));
    }
    let mut text = String::new();
    for line in drawn.lines() {
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Widths of columns: what they want where there is room; else those of words are narrowed, the widest first.
fn widths(table: &Table, columns: &[usize], width: usize) -> Vec<usize> {
    let room = (width + GAP).saturating_sub(columns.len() * GAP);
    let least: Vec<usize> = columns
        .iter()
        .map(|column| least(table, *column, width))
        .collect();
    let wanted = columns.iter().zip(&least).map(|(column, least)| {
        let head = measure_text_width(&table.columns[*column].heading);
        let cells = widest(table, *column);
        // A long heading over short cells wraps.
        cells.max(head.min(cells.max(*least).max(14)))
    });
    let mut widths: Vec<usize> = wanted.collect();
    while widths.iter().sum::<usize>() > room {
        let spare = (0..widths.len()).filter(|at| widths[*at] > least[*at]);
        match spare.max_by_key(|at| widths[*at]) {
            Some(at) => widths[at] -= 1,
            None => break,
        }
    }
    widths
}

fn cell(text: &str, column: &Column) -> Cell {
    let alignment = if column.is_number {
        CellAlignment::Right
    } else {
        CellAlignment::Left
    };
    Cell::new(text).set_alignment(alignment)
}

/// A line in pieces of so many columns.
pub fn pieces(line: &str, width: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for character in line.chars() {
        let mut text = [0; 4];
        let wide = measure_text_width(character.encode_utf8(&mut text));
        if used + wide > width.max(2) {
            pieces.push(String::new());
            used = 0;
        }
        used += wide;
        if let Some(piece) = pieces.last_mut() {
            piece.push(character);
        }
    }
    pieces
}
