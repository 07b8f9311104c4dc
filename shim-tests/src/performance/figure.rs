//! An SVG that can be read on light and dark pages: it brings its own ground, and changes colours with the reader's scheme.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

/// Text and axes.
pub const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
/// The ground.
pub const GROUND: RGBColor = RGBColor(0xff, 0xff, 0xff);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(0xd0, 0xd7, 0xde);

/// What the three become in the dark.
const DARK: [(RGBColor, &str); 3] = [(INK, "#E6EDF3"), (GROUND, "#0D1117"), (GRID, "#30363D")];

/// Text of `size`.
pub fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// A drawing on an SVG.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws an SVG and writes it to a file.
///
/// # Errors
/// Text for what went wrong.
pub fn write(
    path: &Path,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<(), String> {
    let named = |error: String| format!("{}: {error}", path.display());
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&GROUND)
            .map_err(|error| named(error.to_string()))?;
        draw(&area).map_err(|error| named(error.to_string()))?;
        area.present().map_err(|error| named(error.to_string()))?;
    }
    std::fs::write(path, with_scheme(&text)).map_err(|error| named(error.to_string()))
}

fn with_scheme(svg: &str) -> String {
    let rules: String = DARK
        .iter()
        .map(|(RGBColor(red, green, blue), dark)| {
            let light = format!("#{red:02X}{green:02X}{blue:02X}");
            format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
        })
        .collect();
    let style = format!("<style>@media (prefers-color-scheme: dark){{{rules}}}</style>");
    match svg
        .find("xmlns")
        .and_then(|at| Some(at + svg.get(at..)?.find('>')? + 1))
    {
        Some(at) => format!("{}\n{style}{}", &svg[..at], &svg[at..]),
        None => svg.to_owned(),
    }
}
