//! Horizontal bars made of pieces, with their totals.

use super::legend::{legend, Sign};
use super::letters;
use super::scale::{number, Axis};
use super::scene::{Anchor, Area, Ink, Scene, Shape};
use super::text::{cut, width, wrap};
use crate::document::Stacked;

const BAR: f64 = 22.0;
const GAP: f64 = 14.0;

/// A bar, its label broken into lines.
struct Row<'a> {
    label: &'a str,
    lines: Vec<String>,
    pieces: &'a [f64],
    total: String,
}

/// Where the bars are drawn.
struct Frame {
    left: f64,
    room: f64,
    axis: Axis,
    size: f64,
    /// Whether labels stand above their bars rather than before them.
    above: bool,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        self.left + self.axis.place(value) * self.room
    }

    fn label(&self, row: &Row<'_>) -> f64 {
        row.lines.len() as f64 * (self.size + 2.0)
    }

    fn height(&self, row: &Row<'_>) -> f64 {
        let label = self.label(row);
        if self.above {
            label + 4.0 + BAR + GAP
        } else {
            label.max(BAR) + GAP
        }
    }
}

/// Lays bars out.
pub fn scene(stacked: &Stacked, across: f64) -> Scene {
    let size = letters(across);
    let mut scene = Scene {
        width: across,
        told: told(stacked),
        ..Scene::default()
    };
    let pieces = stacked.pieces.iter().enumerate();
    let entries: Vec<_> = pieces
        .map(|(at, name)| (Sign::Piece(at), name.clone()))
        .collect();
    let legend = legend(&entries, across, size);
    let top = legend.height + 10.0;
    scene.append(legend, 0.0);
    let above = across < 600.0;
    let rows = rows(stacked, if above { across } else { across * 0.28 }, size);
    let frame = frame(stacked, &rows, above, across);
    let heights = rows.iter().map(|row| frame.height(row)).sum::<f64>();
    let bottom = top + heights.max(BAR + GAP);
    axis(&mut scene, &frame, stacked, (top, bottom));
    let mut y = top;
    for row in &rows {
        draw(&mut scene, &frame, stacked, row, y);
        y += frame.height(row);
    }
    if rows.is_empty() {
        let at = (frame.left + frame.room / 2.0, top + BAR);
        scene.text(at, size, Anchor::Middle, Ink::Quiet, "no numbers");
    }
    scene
}

fn rows(stacked: &Stacked, room: f64, size: f64) -> Vec<Row<'_>> {
    let bars = stacked.bars.iter();
    bars.map(|(label, pieces)| Row {
        label,
        lines: wrap(label, size, room, 3),
        pieces,
        total: total(pieces),
    })
    .collect()
}

/// The sum of a bar; `?` when a piece is no number.
pub fn total(pieces: &[f64]) -> String {
    number(pieces.iter().sum())
}

/// The pieces as long as they are drawn: what is no number has no length.
pub fn drawn(pieces: &[f64]) -> impl Iterator<Item = f64> + '_ {
    let known = |piece: &f64| {
        if piece.is_finite() {
            piece.max(0.0)
        } else {
            0.0
        }
    };
    pieces.iter().map(known)
}

fn frame(stacked: &Stacked, rows: &[Row<'_>], above: bool, across: f64) -> Frame {
    let size = letters(across);
    let widest = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| width(text, size)).fold(0.0, f64::max)
    };
    let left = if above {
        1.0
    } else {
        widest(&mut rows.iter().flat_map(|row| &row.lines)) + 10.0
    };
    let right = widest(&mut rows.iter().map(|row| &row.total)) + 10.0;
    let lengths = || {
        stacked
            .bars
            .iter()
            .map(|(_, pieces)| drawn(pieces).sum::<f64>())
    };
    let tries = || (1..=8).rev().map(|wanted| Axis::lengths(lengths(), wanted));
    // The last label has its middle at the end of the axis, and a total may be shorter than half of it (`?`).
    let last = |axis: Axis| {
        axis.ticks
            .iter()
            .map(|tick| width(&axis.label(*tick), size))
            .fold(0.0, f64::max)
    };
    let overhang = tries().map(last).fold(0.0, f64::max) / 2.0;
    let room = across - left - right.max(30.0).max(overhang);
    let fits = |axis: &Axis| {
        let widths = axis
            .ticks
            .iter()
            .map(|tick| width(&axis.label(*tick), size) + 12.0);
        widths.fold(0.0, f64::max) * (axis.ticks.len() as f64 - 1.0) <= room
    };
    let axis = tries().find(fits);
    Frame {
        left,
        room,
        axis: axis.unwrap_or_else(|| Axis::lengths(lengths(), 1)),
        size,
        above,
    }
}

fn axis(scene: &mut Scene, frame: &Frame, stacked: &Stacked, (top, bottom): (f64, f64)) {
    let size = frame.size;
    // An axis of nothing would make numbers up.
    let ticks = frame.axis.ticks.iter().filter(|_| !stacked.bars.is_empty());
    for tick in ticks {
        let x = frame.x(*tick);
        // Lines would cross the labels above bars.
        let from = if frame.above { bottom } else { top };
        scene.line((x, from), (x, bottom + 4.0), Ink::Grid);
        let label = frame.axis.label(*tick);
        // The first one may stand at the left edge.
        let at = (x.max(width(&label, size) / 2.0), bottom + 6.0 + size);
        scene.text(at, size, Anchor::Middle, Ink::Quiet, &label);
    }
    if !frame.above {
        scene.line((frame.left, top), (frame.left, bottom), Ink::Quiet);
    }
    let y = bottom + size * 2.0 + 12.0;
    let title = cut(&stacked.unit, size, scene.width);
    let half = width(&title, size) / 2.0;
    let middle = (frame.left + frame.room / 2.0).clamp(half, (scene.width - half).max(half));
    scene.text((middle, y), size, Anchor::Middle, Ink::Quiet, &title);
    scene.height = y + 8.0;
}

fn draw(scene: &mut Scene, frame: &Frame, stacked: &Stacked, row: &Row<'_>, y: f64) {
    let (size, label) = (frame.size, frame.label(row));
    let space = frame.height(row) - GAP;
    // Labels before the bar and the bar have the same middle.
    let (text, bar) = if frame.above {
        (y, y + label + 4.0)
    } else {
        (y + (space - label) / 2.0, y + (space - BAR) / 2.0)
    };
    for (number, line) in row.lines.iter().enumerate() {
        let down = text + (number as f64 + 0.8) * (size + 2.0);
        let (x, anchor) = if frame.above {
            (0.0, Anchor::Start)
        } else {
            (frame.left - 8.0, Anchor::End)
        };
        scene.text((x, down), size, anchor, Ink::Text, line);
    }
    if frame.above {
        for (number, tick) in frame.axis.ticks.iter().enumerate() {
            let x = frame.x(*tick);
            let ink = if number == 0 { Ink::Quiet } else { Ink::Grid };
            scene.line((x, bar - 3.0), (x, bar + BAR + 3.0), ink);
        }
    }
    let end = pieces(scene, frame, stacked, row, bar);
    let at = (end + 6.0, bar + BAR / 2.0 + size * 0.35);
    scene.text(at, size, Anchor::Start, Ink::Text, &row.total);
}

/// Draws the pieces of a bar, and returns where it ends.
fn pieces(scene: &mut Scene, frame: &Frame, stacked: &Stacked, row: &Row<'_>, y: f64) -> f64 {
    let mut sum = 0.0;
    for (piece, length) in drawn(row.pieces).enumerate() {
        let (from, to) = (frame.x(sum), frame.x(sum + length));
        sum += length;
        if length > 0.0 {
            let name = stacked.pieces.get(piece).map_or("", String::as_str);
            scene.shapes.push(Shape::Bar {
                area: Area {
                    x: from,
                    y,
                    width: to - from,
                    height: BAR,
                },
                ink: Ink::Series(piece),
                pattern: piece,
                says: format!("{}: {name} {}", row.label, number(length)),
            });
        }
    }
    frame.x(sum)
}

fn told(stacked: &Stacked) -> String {
    let mut sentences = vec![format!("Bars in {}.", stacked.unit)];
    for (label, pieces) in &stacked.bars {
        let parts: Vec<String> = stacked
            .pieces
            .iter()
            .zip(pieces)
            .map(|(name, piece)| format!("{name} {}", number(*piece)))
            .collect();
        sentences.push(format!(
            "{label}: {} ({}).",
            total(pieces),
            parts.join(", ")
        ));
    }
    sentences.join(" ")
}
