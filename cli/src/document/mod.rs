//! A report as data: headings, tables and plots, whatever they are about. What makes one (`ab`, `report`) knows nothing of terminals and
//! HTML; what shows one knows nothing of checkpoints.
//!
//! | file | job |
//! |---|---|
//! | [`terminal`](mod@terminal) | tables and bars of characters |
//! | [`markdown`](mod@markdown) | for a pull request |
//! | [`html`](mod@html) | one page with all plots, which needs nothing else |
//! | [`png`](mod@png) | the plots as a picture |
//! | [`plot`] | lays plots out and writes them as SVG |
//! | [`csv`](mod@csv) | rows for a spreadsheet |
//! | [`shown`](mod@shown), [`outputs`] | on stdout as it is; the files that a report is written to |
//! | [`words`] | makes foreign text harmless |

pub mod csv;
#[cfg(test)]
pub mod examples;
pub mod html;
pub mod markdown;
pub mod outputs;
pub mod plot;
pub mod png;
pub mod shown;
pub mod terminal;
pub mod words;

pub use csv::csv;
pub use html::html;
pub use markdown::markdown;
pub use outputs::OutputArgs;
pub use png::png;
pub use shown::shown;
pub use terminal::terminal;

/// A report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// Title.
    pub title: String,
    /// What was measured where: name and value, in the order in which they are shown.
    pub facts: Vec<(String, String)>,
    /// The main results in sentences, the most important first.
    pub findings: Vec<String>,
    /// Doubts, each with advice.
    pub doubts: Vec<Doubt>,
    /// Tables and plots.
    pub sections: Vec<Section>,
}

/// Something that a number should not be trusted for.
#[derive(Debug, Clone, PartialEq)]
pub struct Doubt {
    /// What was seen, in one sentence.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

/// A part of a report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Section {
    /// Heading.
    pub heading: String,
    /// What it shows and how to read it.
    pub text: String,
    /// Plot; its numbers are in `table`.
    pub plot: Option<Plot>,
    /// Table.
    pub table: Option<Table>,
}

/// A table. Each row has as many cells as there are columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// A column of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Column {
    /// Heading, with its unit.
    pub heading: String,
    /// Whether its cells are numbers, which stand right-aligned.
    pub is_number: bool,
}

/// A plot.
#[derive(Debug, Clone, PartialEq)]
pub enum Plot {
    /// A point per cycle, a colour per series, horizontal lines for limits.
    Points(Points),
    /// Bars made of pieces.
    Stacked(Stacked),
    /// Lines over a quantity, with a band where a spread is known.
    Lines(Points),
}

/// Points or lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Points {
    /// What the horizontal axis shows, with its unit.
    pub across: String,
    /// What the vertical axis shows, with its unit.
    pub up: String,
    /// Series.
    pub series: Vec<Series>,
    /// Horizontal lines: label, value.
    pub limits: Vec<(String, f64)>,
}

/// One series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points, by the horizontal quantity.
    pub points: Vec<Point>,
}

/// One point.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Spread: the least and the most that the point may stand for.
    pub spread: Option<(f64, f64)>,
    /// Whether it is an outlier, shown but not counted on.
    pub outlier: bool,
}

/// Bars made of pieces, all in the same unit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stacked {
    /// What the length shows, with its unit.
    pub unit: String,
    /// Names of the pieces, in their order from the axis on.
    pub pieces: Vec<String>,
    /// Bars: a label and as many pieces, of which each is at least 0.
    pub bars: Vec<(String, Vec<f64>)>,
}
