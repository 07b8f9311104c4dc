//! The plots of a document as PNG, with a font of its own: it works on a machine without fonts. The drawings are those of pages.

mod canvas;

use tiny_skia::Pixmap;

use super::plot::scene::{Anchor, Ink, Scene};
use super::plot::text::wrap;
use super::plot::{scene, WIDE};
use super::words::clean;
use super::Document;
use canvas::Canvas;

/// Pixels for each unit of the drawing.
const SCALE: f32 = 2.0;
/// Height of a picture in pixels that other programs still open.
const TALLEST: f32 = 30_000.0;
/// Room around the drawing.
const MARGIN: f64 = 24.0;

const TITLE: f64 = 22.0;
const HEADING: f64 = 17.0;

/// All plots one below the other, on a light ground.
///
/// # Errors
/// They cannot be drawn: there are too many.
pub fn png(document: &Document) -> Result<Vec<u8>, String> {
    let picture = drawn(document, SCALE)?;
    picture.encode_png().map_err(|error| error.to_string())
}

fn drawn(document: &Document, scale: f32) -> Result<Pixmap, String> {
    let sheet = sheet(&clean(document));
    let size = (
        (sheet.width + 2.0 * MARGIN) as f32,
        (sheet.height + 2.0 * MARGIN) as f32,
    );
    let mut canvas = Canvas::new(size, fitting(scale, size.1), MARGIN as f32)?;
    sheet.shapes.iter().for_each(|shape| canvas.draw(shape));
    Ok(canvas.picture)
}

/// Many plots are drawn smaller rather than not at all.
fn fitting(scale: f32, height: f32) -> f32 {
    scale.min(TALLEST / height)
}

fn sheet(document: &Document) -> Scene {
    let mut sheet = Scene {
        width: WIDE,
        ..Scene::default()
    };
    words(&mut sheet, &document.title, TITLE);
    let mut drawn = 0;
    for section in &document.sections {
        let Some(plot) = &section.plot else {
            continue;
        };
        sheet.height += 22.0;
        words(&mut sheet, &section.heading, HEADING);
        sheet.height += 10.0;
        let scene = scene(plot, WIDE);
        let (down, height) = (sheet.height, scene.height);
        sheet.append(scene, down);
        sheet.height += height;
        drawn += 1;
    }
    if drawn == 0 {
        sheet.height += 10.0;
        words(&mut sheet, "This report has no plot.", HEADING);
    }
    sheet
}

fn words(sheet: &mut Scene, text: &str, size: f64) {
    for line in wrap(text, size, WIDE, 3) {
        sheet.height += size * 1.3;
        let at = (0.0, sheet.height - size * 0.3);
        sheet.text(at, size, Anchor::Start, Ink::Text, &line);
    }
}

#[cfg(test)]
mod tests;
