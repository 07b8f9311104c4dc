//! Points by series against limits, and lines over a quantity with bands.

use super::legend::{legend, Sign};
use super::letters;
use super::limits::{block, draw, limits, Limit};
use super::scale::{number, Axis};
use super::scene::{Anchor, Area, Ink, Scene, Shape};
use super::text::{cut, width};
use crate::document::{Point, Points, Series};

/// More points than this say nothing when they are pointed at: the file would become too large.
const SPEAKING: usize = 600;
/// From a tick to what is written at it.
const NEAR: f64 = 6.0;

/// Where the numbers are drawn.
struct Frame {
    area: Area,
    across: Axis,
    up: Axis,
    size: f64,
    lines: bool,
}

/// Lays points out, as lines if wanted.
pub fn scene(points: &Points, lines: bool, width: f64) -> Scene {
    let size = letters(width);
    let mut scene = Scene {
        width,
        told: told(points),
        ..Scene::default()
    };
    let legend = legend(&entries(points, lines), width, size);
    let top = legend.height;
    scene.append(legend, 0.0);
    let limits = limits(points, width, size);
    let frame = frame(points, lines, &limits, (top, width));
    axes(&mut scene, &frame, points);
    draw(&mut scene, frame.area, frame.size, &limits, |value| {
        frame.place(0.0, value).1
    });
    for (number, series) in points.series.iter().enumerate() {
        if lines {
            line(&mut scene, &frame, number, series);
        }
    }
    let speaking = count(points) <= SPEAKING;
    let radius = radius(count(points), width);
    for (number, series) in points.series.iter().enumerate() {
        for point in shown(series) {
            spread(&mut scene, &frame, number, point);
            let says = if speaking {
                says(points, series, point)
            } else {
                String::new()
            };
            scene.shapes.push(Shape::Mark {
                at: frame.place(point.x, point.y),
                radius,
                form: number,
                ink: Ink::Series(number),
                hollow: point.outlier,
                says,
            });
        }
    }
    foot(&mut scene, &frame, points);
    scene
}

fn shown(series: &Series) -> impl Iterator<Item = &Point> {
    series
        .points
        .iter()
        .filter(|point| point.x.is_finite() && point.y.is_finite())
}

fn count(points: &Points) -> usize {
    points
        .series
        .iter()
        .map(|series| shown(series).count())
        .sum()
}

/// Points that cannot be drawn, because a number is none.
fn missing(points: &Points) -> usize {
    let all: usize = points.series.iter().map(|series| series.points.len()).sum();
    all - count(points)
}

fn radius(count: usize, width: f64) -> f64 {
    let room = if width < 600.0 { 0.75 } else { 1.0 };
    match count {
        0..=120 => 4.6 * room,
        121..=400 => 3.6 * room,
        401..=1500 => 2.8 * room,
        _ => 2.2 * room,
    }
}

fn entries(points: &Points, lines: bool) -> Vec<(Sign, String)> {
    let sign = if lines { Sign::Line } else { Sign::Mark };
    let named = points.series.iter().enumerate();
    let mut entries: Vec<_> = named
        .map(|(number, series)| (sign(number), series.name.clone()))
        .collect();
    if points
        .series
        .iter()
        .any(|series| shown(series).any(|point| point.outlier))
    {
        entries.push((Sign::Hollow, "outlier".to_owned()));
    }
    entries
}

fn frame(points: &Points, lines: bool, limits: &[Limit], (top, across): (f64, f64)) -> Frame {
    let size = letters(across);
    let widest = |words: &mut dyn Iterator<Item = &String>| {
        words.map(|text| width(text, size)).fold(0.0, f64::max)
    };
    let blocks: f64 = limits.iter().map(|limit| block(limit, size)).sum();
    let height = f64::max(if across < 600.0 { 220.0 } else { 300.0 }, blocks + 8.0);
    let up = Axis::amounts(heights(points), (height / 46.0) as usize);
    let labels: Vec<String> = up.ticks.iter().map(|tick| up.label(*tick)).collect();
    let left = (widest(&mut labels.iter()) + NEAR + 2.0).max(30.0);
    let gutter = widest(&mut limits.iter().flat_map(|limit| &limit.lines));
    let right = if limits.is_empty() {
        30.0
    } else {
        gutter + 20.0
    };
    let area = Area {
        x: left,
        y: top + size + 18.0,
        width: across - left - right,
        height,
    };
    Frame {
        across: axis_across(points, lines, area.width, size),
        area,
        up,
        size,
        lines,
    }
}

fn heights(points: &Points) -> impl Iterator<Item = f64> + '_ {
    let spreads = |point: &Point| {
        let (low, high) = point.spread.unwrap_or((point.y, point.y));
        [point.y, low, high]
    };
    let limits = points.limits.iter().map(|(_, value)| *value);
    let all = points.series.iter().flat_map(shown).flat_map(spreads);
    all.chain(limits)
}

/// An axis whose labels do not touch each other.
fn axis_across(points: &Points, lines: bool, room: f64, size: f64) -> Axis {
    let values = || points.series.iter().flat_map(shown).map(|point| point.x);
    let whole = values().all(|value| value.fract() == 0.0);
    let of = |wanted: usize| {
        if lines || !whole {
            Axis::amounts(values(), wanted)
        } else {
            Axis::counts(values(), wanted)
        }
    };
    let fits = |axis: &Axis| {
        let mut from = f64::MIN;
        axis.ticks.iter().all(|tick| {
            let (middle, wide) = (axis.place(*tick) * room, width(&axis.label(*tick), size));
            let free = middle - wide / 2.0 >= from;
            from = middle + wide / 2.0 + 8.0;
            free
        })
    };
    let tries = (1..=10).rev().map(of);
    tries.into_iter().find(fits).unwrap_or_else(|| {
        let mut axis = of(1);
        axis.ticks.truncate(1);
        axis
    })
}

impl Frame {
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let area = &self.area;
        (
            area.x + self.across.place(x) * area.width,
            area.bottom() - self.up.place(y) * area.height,
        )
    }
}

fn named(what: &str, axis: &Axis) -> String {
    if axis.logarithmic {
        format!("{what} (logarithmic)")
    } else {
        what.to_owned()
    }
}

fn axes(scene: &mut Scene, frame: &Frame, points: &Points) {
    let (area, size) = (frame.area, frame.size);
    let title = cut(&named(&points.up, &frame.up), size, scene.width);
    scene.text(
        (0.0, area.y - 13.0),
        size,
        Anchor::Start,
        Ink::Quiet,
        &title,
    );
    if count(points) == 0 {
        let middle = (area.x + area.width / 2.0, area.y + area.height / 2.0);
        scene.text(middle, size, Anchor::Middle, Ink::Quiet, "no numbers");
    }
    let ends = (area.x, area.right());
    // An axis of nothing would make numbers up.
    if count(points) > 0 || !points.limits.is_empty() {
        for tick in &frame.up.ticks {
            let y = area.bottom() - frame.up.place(*tick) * area.height;
            scene.line((ends.0, y), (ends.1, y), Ink::Grid);
            let at = (area.x - NEAR, y + size * 0.35);
            scene.text(at, size, Anchor::End, Ink::Quiet, &frame.up.label(*tick));
        }
    }
    if count(points) > 0 {
        ticks_across(scene, frame);
    }
    scene.line((ends.0, area.bottom()), (ends.1, area.bottom()), Ink::Quiet);
}

fn ticks_across(scene: &mut Scene, frame: &Frame) {
    let (area, size) = (frame.area, frame.size);
    for tick in &frame.across.ticks {
        let x = area.x + frame.across.place(*tick) * area.width;
        scene.line((x, area.bottom()), (x, area.bottom() + 4.0), Ink::Quiet);
        let at = (x, area.bottom() + NEAR + size);
        let label = frame.across.label(*tick);
        scene.text(at, size, Anchor::Middle, Ink::Quiet, &label);
    }
}

/// The name of the axis across and what was left out, below the plot; and how high all of it is.
fn foot(scene: &mut Scene, frame: &Frame, points: &Points) {
    let (area, size) = (frame.area, frame.size);
    let mut y = area.bottom() + NEAR + size * 2.0 + 6.0;
    let title = cut(&named(&points.across, &frame.across), size, scene.width);
    // In the middle below the plot, as far as it does not stick out.
    let half = width(&title, size) / 2.0;
    let middle = (area.x + area.width / 2.0).clamp(half, (scene.width - half).max(half));
    scene.text((middle, y), size, Anchor::Middle, Ink::Quiet, &title);
    let missing = missing(points);
    if missing > 0 {
        y += size + 6.0;
        let text = format!("{missing} without a number, not shown");
        scene.text((0.0, y), size, Anchor::Start, Ink::Quiet, &text);
    }
    scene.height = y + 8.0;
}

fn line(scene: &mut Scene, frame: &Frame, number: usize, series: &Series) {
    let mut points: Vec<&Point> = shown(series).collect();
    points.sort_by(|one, other| one.x.total_cmp(&other.x));
    let known = |point: &&Point| {
        let (low, high) = point.spread?;
        (low.is_finite() && high.is_finite()).then_some((point.x, low, high))
    };
    for part in points.split(|point| known(point).is_none()) {
        let spreads: Vec<_> = part.iter().filter_map(known).collect();
        if spreads.len() < 2 {
            continue;
        }
        let upper = spreads.iter().map(|(x, _, high)| frame.place(*x, *high));
        let lower = spreads
            .iter()
            .rev()
            .map(|(x, low, _)| frame.place(*x, *low));
        scene.shapes.push(Shape::Band {
            points: upper.chain(lower).collect(),
            ink: Ink::Series(number),
        });
    }
    if points.len() > 1 {
        scene.shapes.push(Shape::Path {
            points: points
                .iter()
                .map(|point| frame.place(point.x, point.y))
                .collect(),
            ink: Ink::Series(number),
        });
    }
}

/// The spread of a point that is in no band.
fn spread(scene: &mut Scene, frame: &Frame, number: usize, point: &Point) {
    let Some((low, high)) = point.spread else {
        return;
    };
    if low.is_finite() && high.is_finite() {
        let width = if frame.lines { 1.0 } else { 1.5 };
        scene.shapes.push(Shape::Line {
            from: frame.place(point.x, low),
            to: frame.place(point.x, high),
            ink: Ink::Series(number),
            width,
            dashed: false,
        });
    }
}

fn says(points: &Points, series: &Series, point: &Point) -> String {
    let outlier = if point.outlier { ", outlier" } else { "" };
    format!(
        "{}: {} {}, {} {}{outlier}",
        series.name,
        points.up,
        number(point.y),
        points.across,
        plain(point.x)
    )
}

/// A whole number as it is, another with three digits.
pub fn plain(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e9 {
        format!("{value}")
    } else {
        number(value)
    }
}

fn told(points: &Points) -> String {
    let mut sentences = vec![format!("{} by {}.", points.up, points.across)];
    for series in &points.series {
        sentences.push(match reach(series) {
            Some((low, high)) => format!(
                "{}: {} from {} to {}.",
                series.name,
                counted(shown(series).count()),
                number(low),
                number(high)
            ),
            None => format!("{}: no numbers.", series.name),
        });
    }
    for (label, value) in &points.limits {
        sentences.push(format!("Limit, {label}: {}.", number(*value)));
    }
    sentences.join(" ")
}

fn counted(count: usize) -> String {
    format!("{count} {}", if count == 1 { "point" } else { "points" })
}

fn reach(series: &Series) -> Option<(f64, f64)> {
    let heights = || shown(series).map(|point| point.y);
    Some((heights().reduce(f64::min)?, heights().reduce(f64::max)?))
}
