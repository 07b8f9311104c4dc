//! A report on stdout as it is.

use console::Term;

use super::{terminal, Document};

/// Width where stdout is no terminal: that of a log.
const WIDTH: usize = 110;

/// The report as wide as the terminal, with colours where they are wanted.
pub fn shown(document: &Document) -> String {
    let size = Term::stdout().size_checked();
    let width = size.map_or(WIDTH, |(_, columns)| usize::from(columns));
    terminal(document, width, console::colors_enabled())
}
