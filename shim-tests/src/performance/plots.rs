//! The two plots: where the time of each call goes, and how seconds grow with size.

use std::path::Path;

use plotters::prelude::*;

use super::cycles::Run;
use super::data::{Call, Measured};
use super::figure::{font, write, Area, GRID, INK};
use super::reach::pick;
use crate::split::Split;
use crate::table::median;

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Colours of the pieces, in the order of [`Split::pieces`]: apart in brightness too, and readable on both grounds.
const PIECES: [RGBColor; 7] = [
    RGBColor(0x8c, 0x5f, 0xb8),
    RGBColor(0xc9, 0xa0, 0xdc),
    RGBColor(0x1f, 0x9e, 0x89),
    RGBColor(0xe8, 0xa3, 0x38),
    RGBColor(0x6b, 0x4c, 0x2f),
    RGBColor(0xd1, 0x49, 0x5b),
    RGBColor(0x8a, 0x93, 0x9b),
];
const LIMIT: RGBColor = RGBColor(0x4c, 0x8b, 0xd6);
const PREFAULT: RGBColor = RGBColor(0x8c, 0x5f, 0xb8);
const STOCK: RGBColor = RGBColor(0xd1, 0x49, 0x5b);
const SHIM: RGBColor = RGBColor(0x1f, 0x9e, 0x89);

/// Process that the time split shows.
const SPLIT_MIB: u64 = 24 << 10;

/// Height of the legend of the time split.
const LEGEND: u32 = 56;
/// Room below the last panel.
const FOOT: u32 = 8;

/// A bar: its pieces one after the other, and how long prefault went on beside them.
struct Bar {
    name: &'static str,
    pieces: Vec<(RGBColor, f64)>,
    prefault: f64,
}

impl Bar {
    fn of(name: &'static str, split: &Split) -> Self {
        let pieces = split.pieces().map(|(_, piece)| piece.max(0.0));
        Bar {
            name,
            pieces: PIECES.into_iter().zip(pieces).collect(),
            prefault: split.prefault,
        }
    }

    fn whole(name: &'static str, color: RGBColor, seconds: f64) -> Self {
        Bar {
            name,
            pieces: vec![(color, seconds)],
            prefault: 0.0,
        }
    }

    fn seconds(&self) -> f64 {
        self.pieces.iter().map(|(_, piece)| piece).sum()
    }
}

/// Draws where the time of each call goes: stock, shim with fresh and kept memory, and the limit; each call once with stock and
/// once without, where stock would leave no room for the others.
///
/// # Errors
/// Text, when nothing was measured or the file cannot be written.
pub fn plot_splits(measured: &Measured, path: &Path) -> Result<(), String> {
    let (mib, fresh) = pick(measured.runs("size")?, SPLIT_MIB).ok_or("no step size-N")?;
    let kept = measured.runs("keep")?.remove(&mib);
    let mut panels = Vec::new();
    for (call, name) in [(Call::Checkpoint, "Checkpoint"), (Call::Restore, "Restore")] {
        let with_stock = bars(&fresh, kept.as_ref(), call);
        let without = bars(&fresh, kept.as_ref(), call).into_iter();
        let without: Vec<Bar> = without.filter(|bar| bar.name != "stock").collect();
        let size = format!("{:.1} GB", fresh.bytes as f64 / 1e9);
        panels.push((format!("{name} of {size}"), with_stock));
        panels.push((format!("{name} of {size}, without stock"), without));
    }
    let height = |bars: &[Bar]| 84 + 26 * bars.len() as u32;
    let all: u32 = panels.iter().map(|(_, bars)| height(bars)).sum();
    write(path, (900, LEGEND + all + FOOT), |area| {
        let (top, rest) = area.split_vertically(LEGEND);
        legend(&top)?;
        let mut left = rest;
        for (title, bars) in &panels {
            let (here, below) = left.split_vertically(height(bars));
            panel(&here, title, bars)?;
            left = below;
        }
        Ok(())
    })
}

fn bars(fresh: &Run, kept: Option<&Run>, call: Call) -> Vec<Bar> {
    let mut bars = Vec::new();
    match (
        fresh.split("observe", call),
        median(fresh.seconds("stock", call)),
    ) {
        (Some(split), _) => bars.push(Bar::of("stock", &split)),
        (None, Some(seconds)) => bars.push(Bar::whole("stock", PIECES[6], seconds)),
        (None, None) => {}
    }
    bars.extend(
        fresh
            .split("shim", call)
            .map(|split| Bar::of("shim, fresh memory", &split)),
    );
    let kept = kept.and_then(|run| run.split("keep", call));
    bars.extend(kept.map(|split| Bar::of("shim, kept buffer", &split)));
    bars.push(Bar::whole("limit", LIMIT, fresh.least(call)));
    bars
}

fn legend(area: &Area<'_>) -> Drawn {
    let empty = Split::default();
    let names = empty.pieces().map(|(name, _)| name);
    let mut entries: Vec<(&str, RGBColor, i32)> = names
        .into_iter()
        .zip(PIECES)
        .map(|(name, color)| (name, color, 12))
        .collect();
    entries.push(("prefault, beside the others", PREFAULT, 4));
    entries.push(("limit: bytes / pinned rate", LIMIT, 12));
    for (index, (name, color, height)) in entries.into_iter().enumerate() {
        let (x, y) = (16 + 176 * (index % 5) as i32, 12 + 22 * (index / 5) as i32);
        let from = (x, y + 6 - height / 2);
        area.draw(&Rectangle::new(
            [from, (x + 12, from.1 + height)],
            color.filled(),
        ))?;
        area.draw(&Text::new(name, (x + 18, y), font(13)))?;
    }
    Ok(())
}

fn panel(area: &Area<'_>, title: &str, bars: &[Bar]) -> Drawn {
    let longest = bars.iter().map(Bar::seconds).fold(0.0, f64::max);
    let count = bars.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(title, font(15))
        .margin_left(16)
        .margin_right(24)
        .x_label_area_size(38)
        .y_label_area_size(140)
        .build_cartesian_2d(0.0..longest * 1.12, 0.0..count)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(font(13))
        .x_desc("seconds")
        .x_labels(8)
        .draw()?;
    for (index, bar) in bars.iter().enumerate() {
        // The first bar is the uppermost.
        let base = count - 1.0 - index as f64;
        let mut at = 0.0;
        for (color, seconds) in &bar.pieces {
            let corners = [(at, base + 0.24), (at + seconds, base + 0.86)];
            chart.draw_series([Rectangle::new(corners, color.filled())])?;
            at += seconds;
        }
        let corners = [(0.0, base + 0.06), (bar.prefault, base + 0.18)];
        if bar.prefault > 0.0 {
            chart.draw_series([Rectangle::new(corners, PREFAULT.filled())])?;
        }
        let (_, y) = chart.backend_coord(&(0.0, base + 0.55));
        let (x, _) = chart.backend_coord(&(at, 0.0));
        let origin = area.get_base_pixel();
        let text = format!("{at:.3} s");
        area.draw(&Text::new(
            text,
            (x - origin.0 + 6, y - origin.1 - 6),
            font(13),
        ))?;
        area.draw(&Text::new(bar.name, (20, y - origin.1 - 6), font(13)))?;
    }
    Ok(())
}

/// Points of one line: sizes in GB, seconds.
type Points = Vec<(f64, f64)>;

/// Draws seconds over size for both calls: stock, shim, limit.
///
/// # Errors
/// Text, when nothing was measured or the file cannot be written.
pub fn plot_sizes(measured: &Measured, path: &Path) -> Result<(), String> {
    let runs = measured.runs("size")?;
    if runs.is_empty() {
        return Err("no step size-N".into());
    }
    let points = |time: &dyn Fn(&Run) -> Option<f64>| -> Points {
        runs.values()
            .filter_map(|run| Some((run.bytes as f64 / 1e9, time(run)?)))
            .collect()
    };
    let mut panels = Vec::new();
    for (call, title) in [(Call::Checkpoint, "Checkpoint"), (Call::Restore, "Restore")] {
        let arm = |arm: &'static str| move |run: &Run| median(run.seconds(arm, call));
        let lines = [
            ("stock", STOCK, points(&arm("stock"))),
            ("shim", SHIM, points(&arm("shim"))),
            ("limit", LIMIT, points(&|run| Some(run.least(call)))),
        ];
        panels.push((title, lines));
    }
    let all = || {
        panels
            .iter()
            .flat_map(|(_, lines)| lines.iter().flat_map(|line| &line.2))
    };
    let bounds = Bounds {
        // Room for the lines' names.
        x: range(all().map(|point| point.0), 2.2),
        y: range(all().map(|point| point.1), 1.5),
    };
    write(path, (900, 430), |area| {
        for (side, (title, lines)) in area.split_evenly((1, 2)).iter().zip(&panels) {
            lines_over_size(side, title, lines, &bounds)?;
        }
        Ok(())
    })
}

struct Bounds {
    x: std::ops::Range<f64>,
    y: std::ops::Range<f64>,
}

/// A range with some room around the values, for a logarithmic axis.
fn range(values: impl Iterator<Item = f64>, room: f64) -> std::ops::Range<f64> {
    let (low, high) = values.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    low / 1.3..high * room
}

/// 1, 2, 5, 10, ... within a range.
fn ticks(range: &std::ops::Range<f64>) -> Vec<f64> {
    let all = (-4..6).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
    all.filter(|tick| range.contains(tick)).collect()
}

fn lines_over_size(
    area: &Area<'_>,
    title: &str,
    lines: &[(&'static str, RGBColor, Points)],
    bounds: &Bounds,
) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .caption(title, font(15))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(58)
        .build_cartesian_2d(
            bounds
                .x
                .clone()
                .log_scale()
                .with_key_points(ticks(&bounds.x)),
            bounds
                .y
                .clone()
                .log_scale()
                .with_key_points(ticks(&bounds.y)),
        )?;
    let plain = |value: &f64| format!("{value}");
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(font(13))
        .x_desc("buffer, GB")
        .y_desc("seconds")
        .x_label_formatter(&plain)
        .y_label_formatter(&plain)
        .draw()?;
    for (name, color, points) in lines {
        let style = color.stroke_width(2);
        chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        chart.draw_series(
            points
                .iter()
                .map(|point| Circle::new(*point, 3, color.filled())),
        )?;
        if let Some(last) = points.last() {
            let (x, y) = chart.backend_coord(last);
            let origin = area.get_base_pixel();
            // Behind its end: lines that rise would cross a label above or below.
            let at = (x - origin.0 + 8, y - origin.1 - 8);
            area.draw(&Text::new(*name, at, font(14).color(color)))?;
        }
    }
    Ok(())
}
