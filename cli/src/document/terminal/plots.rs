//! Plots made of characters: bars of pieces, and where the points of each series lie.

use console::{measure_text_width, truncate_str, Color};

use crate::document::plot::scale::{number, Axis};
use crate::document::plot::stacked::{drawn, total};
use crate::document::{Points, Series, Stacked};

/// How things are drawn.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns.
    pub width: usize,
    /// Whether colours are wanted.
    pub colour: bool,
    /// Whether characters beyond ASCII can be shown.
    pub unicode: bool,
}

const BLOCKS: [char; 8] = ['█', '░', '▓', '▒', '■', '╱', '▤', '╳'];
const LETTERS: [char; 8] = ['#', '.', '=', 'o', '+', '/', '%', 'x'];
const COLOURS: [Color; 6] = [
    Color::Red,
    Color::Cyan,
    Color::Magenta,
    Color::Yellow,
    Color::Blue,
    Color::Green,
];
/// Most columns of a label.
const LABEL: usize = 28;
/// Bars and strips longer than this are not easier to read.
const LONGEST: usize = 100;

/// Bars, a line each, and which piece is which.
pub fn stacked(stacked: &Stacked, look: Look) -> String {
    let labels = labels(stacked.bars.iter().map(|(label, _)| label), look);
    let totals: Vec<String> = stacked
        .bars
        .iter()
        .map(|(_, pieces)| total(pieces))
        .collect();
    let indent = widest(&labels) + 1;
    let room = look
        .width
        .saturating_sub(indent + widest(&totals) + 1)
        .clamp(1, LONGEST);
    let sums = stacked
        .bars
        .iter()
        .map(|(_, pieces)| drawn(pieces).sum::<f64>());
    let longest = sums.fold(0.0, f64::max);
    let mut text = String::new();
    for (((_, pieces), label), total) in stacked.bars.iter().zip(&labels).zip(&totals) {
        let blanks = " ".repeat(indent - measure_text_width(label));
        let bar = bar(pieces, longest, room, look);
        text += &format!("{label}{blanks}{bar} {total}\n");
    }
    let blanks = " ".repeat(indent);
    let names = stacked.pieces.iter().enumerate();
    let names = names.map(|(at, name)| (sign(at, 1, look), name.clone()));
    text + &legend(
        names.chain([(String::new(), format!("({})", stacked.unit))]),
        &blanks,
        look,
    )
}

/// The pieces of a bar. Ends are rounded rather than lengths, so that equal sums are equally long.
fn bar(pieces: &[f64], longest: f64, room: usize, look: Look) -> String {
    let end = |sum: f64| {
        if longest > 0.0 {
            (sum / longest * room as f64).round() as usize
        } else {
            0
        }
    };
    let (mut sum, mut text) = (0.0, String::new());
    for (at, piece) in drawn(pieces).enumerate() {
        let from = end(sum);
        sum += piece;
        text += &sign(at, end(sum) - from, look);
    }
    text
}

fn sign(at: usize, count: usize, look: Look) -> String {
    let signs = if look.unicode { BLOCKS } else { LETTERS };
    let text = signs[at % signs.len()].to_string().repeat(count);
    let tint = COLOURS[at % COLOURS.len()];
    let styled = console::style(text)
        .fg(tint)
        .force_styling(look.colour && count > 0);
    styled.to_string()
}

fn labels<'a>(labels: impl Iterator<Item = &'a String>, look: Look) -> Vec<String> {
    let more = if look.unicode { "…" } else { "..." };
    labels
        .map(|label| truncate_str(label, LABEL, more).into_owned())
        .collect()
}

fn widest(texts: &[String]) -> usize {
    texts
        .iter()
        .map(|text| measure_text_width(text))
        .fold(0, usize::max)
}

fn legend(entries: impl Iterator<Item = (String, String)>, indent: &str, look: Look) -> String {
    let room = look.width - indent.len();
    let mut lines = vec![String::new()];
    for (sign, name) in entries {
        let name = truncate_str(&name, room - 3, "...");
        let entry = if sign.is_empty() {
            name.into_owned()
        } else {
            format!("{sign} {name}")
        };
        let line = lines.last().map_or(0, |line| measure_text_width(line));
        if line > 0 && line + 3 + measure_text_width(&entry) > room {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push_str("   ");
            }
            line.push_str(&entry);
        }
    }
    let lines = lines.iter().map(|line| format!("{indent}{line}\n"));
    lines.collect()
}

/// A line per series: where its points lie, more of them darker; `o` is an outlier, `|` a limit.
pub fn strips(points: &Points, look: Look) -> String {
    let labels = labels(points.series.iter().map(|series| &series.name), look);
    let indent = widest(&labels) + 1;
    let room = look.width.saturating_sub(indent + 2).clamp(20, LONGEST);
    let heights = || {
        let points = points.series.iter().flat_map(|series| &series.points);
        points.map(|point| point.y).filter(|y| y.is_finite())
    };
    if heights().next().is_none() {
        return String::new();
    }
    let limits = points.limits.iter().map(|(_, value)| *value);
    let axis = Axis::amounts(heights().chain(limits), room / 12);
    let mut text = String::new();
    for (series, label) in points.series.iter().zip(&labels) {
        let blanks = " ".repeat(indent - measure_text_width(label));
        let strip = strip(series, &points.limits, &axis, room, look);
        text += &format!("{label}{blanks}{}\n", strip.trim_end());
    }
    text += &format!("{}{}\n", " ".repeat(indent), ruler(&axis, room));
    let limits = points.limits.iter().map(|(label, value)| {
        let limit = if look.unicode { "┊" } else { "|" };
        (limit.to_owned(), format!("{label} {}", number(*value)))
    });
    let outliers = points
        .series
        .iter()
        .any(|series| series.points.iter().any(|point| point.outlier));
    let outlier = outliers.then(|| ("o".to_owned(), "outlier".to_owned()));
    let unit = [(String::new(), format!("({})", points.up))];
    text + &legend(limits.chain(outlier).chain(unit), &" ".repeat(indent), look)
}

fn strip(
    series: &Series,
    limits: &[(String, f64)],
    axis: &Axis,
    room: usize,
    look: Look,
) -> String {
    let dots = if look.unicode {
        ['·', '•', '▪', '█']
    } else {
        ['.', ':', '*', '#']
    };
    let column = |value: f64| (axis.place(value) * (room - 1) as f64).round() as usize;
    let mut counts = vec![0usize; room];
    let mut strip = vec![' '; room];
    for (_, value) in limits.iter().filter(|(_, value)| value.is_finite()) {
        strip[column(*value)] = if look.unicode { '┊' } else { '|' };
    }
    let shown = || series.points.iter().filter(|point| point.y.is_finite());
    for point in shown().filter(|point| point.outlier) {
        strip[column(point.y)] = 'o';
    }
    for point in shown().filter(|point| !point.outlier) {
        let at = column(point.y);
        counts[at] += 1;
        strip[at] = dots[match counts[at] {
            1 => 0,
            2..=3 => 1,
            4..=9 => 2,
            _ => 3,
        }];
    }
    strip.into_iter().collect()
}

/// The axis below the strips.
fn ruler(axis: &Axis, room: usize) -> String {
    let mut line = vec![' '; room + 2];
    let mut free = 0;
    for tick in &axis.ticks {
        let label: Vec<char> = axis.label(*tick).chars().collect();
        let middle = (axis.place(*tick) * (room - 1) as f64).round() as usize;
        let from = middle
            .saturating_sub(label.len() / 2)
            .min((room + 2).saturating_sub(label.len()));
        if from >= free {
            for (at, character) in label.iter().enumerate() {
                line[from + at] = *character;
            }
            free = from + label.len() + 1;
        }
    }
    let line: String = line.into_iter().collect();
    line.trim_end().to_owned()
}
