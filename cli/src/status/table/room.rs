//! Which columns a terminal has room for.

use console::measure_text_width;

use super::columns::COLUMNS;
use crate::status::text::Paper;

/// Columns between two columns.
pub const GAP: usize = 2;
/// A name is cut to no less than this.
const NAME: usize = 8;
/// Columns up to this place in the order go before names are cut.
pub const BEFORE_NAME: u32 = 2;

/// The columns for which there is room. Names are cut in place.
pub fn fitting(cells: &mut [Vec<String>], paper: Paper) -> Vec<usize> {
    let all: Vec<usize> = (0..COLUMNS.len()).collect();
    let Some(room) = paper.width else {
        return all;
    };
    let widths = widths(cells);
    let name = COLUMNS.iter().position(|column| column.head == "NAME");
    let name = name.unwrap_or(0);
    let spare = widths[name].saturating_sub(NAME);
    let over = |shown: &[usize]| {
        let needed = shown.iter().map(|at| widths[*at] + GAP).sum::<usize>();
        needed.saturating_sub(GAP + room)
    };
    let mut shown = all;
    while let Some(next) = next_to_go(&shown) {
        let cut = if COLUMNS[next].spare > BEFORE_NAME {
            spare
        } else {
            0
        };
        if over(&shown) <= cut {
            break;
        }
        shown.retain(|at| *at != next);
    }
    let narrow = widths[name] - over(&shown).min(spare);
    for cell in &mut cells[name] {
        *cell = console::truncate_str(cell, narrow, "…").into_owned();
    }
    shown
}

/// What each column needs.
fn widths(cells: &[Vec<String>]) -> Vec<usize> {
    let columns = COLUMNS.iter().zip(cells);
    columns
        .map(|(column, cells)| {
            let widest = cells.iter().map(|cell| measure_text_width(cell)).max();
            widest.unwrap_or(0).max(column.head.len())
        })
        .collect()
}

/// The column that is left out next.
fn next_to_go(shown: &[usize]) -> Option<usize> {
    let may = shown.iter().filter(|at| COLUMNS[**at].spare > 0);
    may.min_by_key(|at| COLUMNS[**at].spare).copied()
}
