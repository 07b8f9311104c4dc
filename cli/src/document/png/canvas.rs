//! Draws the shapes of a drawing into pixels, in the light colours.

use tiny_skia::{
    Color, FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, Stroke, StrokeDash, Transform,
};
use ttf_parser::{Face, OutlineBuilder};

use crate::document::plot::marks::{outline, pattern};
use crate::document::plot::palette::LIGHT;
use crate::document::plot::scene::{
    Anchor, Area, Ink, Shape, BAND_OPACITY, DASH, EDGED, HOLLOW, PATH, PATTERN_OPACITY,
};

/// See `font/README.md` for where it is from and its licence.
const FONT: &[u8] = include_bytes!("../font/OpenSans-Subset.ttf");

type Point = (f64, f64);

/// What is drawn on.
pub struct Canvas {
    /// The pixels.
    pub picture: Pixmap,
    face: Face<'static>,
    place: Transform,
}

impl Canvas {
    /// An empty one of the size times the scale, whose origin is `margin` away from the corner.
    pub fn new(size: (f32, f32), scale: f32, margin: f32) -> Result<Self, String> {
        let pixels = |length: f32| (length * scale).ceil() as u32;
        let mut picture = Pixmap::new(pixels(size.0), pixels(size.1))
            .ok_or("the plots are too large for a picture")?;
        picture.fill(colour(Ink::Ground, 1.0));
        Ok(Canvas {
            picture,
            face: Face::parse(FONT, 0).map_err(|error| error.to_string())?,
            place: Transform::from_scale(scale, scale).pre_translate(margin, margin),
        })
    }

    /// Draws a shape.
    pub fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Bar {
                area, ink, pattern, ..
            } => self.bar(area, *ink, *pattern),
            Shape::Line {
                from,
                to,
                ink,
                width,
                dashed,
            } => {
                let dash = [DASH.0 as f32, DASH.1 as f32];
                let dash = dashed
                    .then(|| StrokeDash::new(dash.to_vec(), 0.0))
                    .flatten();
                self.stroke(&[*from, *to], *ink, (*width, 1.0), dash);
            }
            Shape::Path { points, ink } => self.stroke(points, *ink, (PATH, 1.0), None),
            Shape::Band { points, ink } => self.fill(closed(points), *ink, BAND_OPACITY),
            Shape::Mark {
                at,
                radius,
                form,
                ink,
                hollow,
                ..
            } => self.mark(mark(*form, *at, *radius), *ink, *hollow),
            Shape::Text {
                at,
                size,
                anchor,
                ink,
                text,
            } => self.text(*at, *size, *anchor, *ink, text),
        }
    }

    fn fill(&mut self, path: Option<Path>, ink: Ink, opacity: f64) {
        if let Some(path) = path {
            let paint = paint(ink, opacity);
            self.picture
                .fill_path(&path, &paint, FillRule::Winding, self.place, None);
        }
    }

    fn stroke(
        &mut self,
        points: &[Point],
        ink: Ink,
        (width, opacity): (f64, f64),
        dash: Option<StrokeDash>,
    ) {
        let stroke = Stroke {
            width: width as f32,
            line_join: LineJoin::Round,
            dash,
            ..Stroke::default()
        };
        if let Some(path) = through(points).finish() {
            let paint = paint(ink, opacity);
            self.picture
                .stroke_path(&path, &paint, &stroke, self.place, None);
        }
    }

    fn bar(&mut self, area: &Area, ink: Ink, kind: usize) {
        let (right, bottom) = (area.right(), area.bottom());
        let corners = [
            (area.x, area.y),
            (right, area.y),
            (right, bottom),
            (area.x, bottom),
        ];
        self.fill(closed(&corners), ink, 1.0);
        for (from, to) in pattern(kind, area) {
            self.stroke(&[from, to], Ink::Ground, (1.0, PATTERN_OPACITY), None);
        }
        if area.width > EDGED {
            self.stroke(&corners[1..3], Ink::Ground, (1.0, 1.0), None);
        }
    }

    fn mark(&mut self, path: Option<Path>, ink: Ink, hollow: bool) {
        if !hollow {
            self.fill(path, ink, 1.0);
        } else if let Some(path) = path {
            let stroke = Stroke {
                width: HOLLOW as f32,
                ..Stroke::default()
            };
            let paint = paint(ink, 1.0);
            self.picture
                .stroke_path(&path, &paint, &stroke, self.place, None);
        }
    }

    fn text(&mut self, at: Point, size: f64, anchor: Anchor, ink: Ink, text: &str) {
        let scale = size as f32 / f32::from(self.face.units_per_em());
        let width = self.width(text) * scale;
        let start = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        let mut letters = Letters {
            path: PathBuilder::new(),
            at: (at.0 as f32 - start, at.1 as f32),
            scale,
        };
        for letter in text.chars() {
            // A letter that the font lacks is its empty box.
            let glyph = self.face.glyph_index(letter).unwrap_or_default();
            // One without an outline is a blank.
            let _ = self.face.outline_glyph(glyph, &mut letters);
            letters.at.0 += f32::from(self.face.glyph_hor_advance(glyph).unwrap_or(0)) * scale;
        }
        self.fill(letters.path.finish(), ink, 1.0);
    }

    /// Width of a text in the units of the font.
    pub fn width(&self, text: &str) -> f32 {
        let advance = |letter: char| {
            let glyph = self.face.glyph_index(letter).unwrap_or_default();
            f32::from(self.face.glyph_hor_advance(glyph).unwrap_or(0))
        };
        text.chars().map(advance).sum()
    }
}

fn colour(ink: Ink, opacity: f64) -> Color {
    let hex = LIGHT.colour(ink);
    let part = |at: usize| {
        let part = hex.get(at..at + 2).map(|part| u8::from_str_radix(part, 16));
        part.and_then(Result::ok).unwrap_or(0)
    };
    let mut colour = Color::from_rgba8(part(1), part(3), part(5), 255);
    colour.set_alpha(opacity as f32);
    colour
}

fn paint(ink: Ink, opacity: f64) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color(colour(ink, opacity));
    paint.anti_alias = true;
    paint
}

fn through(points: &[Point]) -> PathBuilder {
    let mut path = PathBuilder::new();
    for (number, (x, y)) in points.iter().enumerate() {
        if number == 0 {
            path.move_to(*x as f32, *y as f32);
        } else {
            path.line_to(*x as f32, *y as f32);
        }
    }
    path
}

fn closed(points: &[Point]) -> Option<Path> {
    let mut path = through(points);
    path.close();
    path.finish()
}

fn mark(form: usize, at: Point, radius: f64) -> Option<Path> {
    match outline(form, at, radius) {
        None => PathBuilder::from_circle(at.0 as f32, at.1 as f32, radius as f32),
        Some(points) => closed(&points),
    }
}

/// Letters side by side, as the outlines of the font say.
struct Letters {
    path: PathBuilder,
    at: (f32, f32),
    scale: f32,
}

impl Letters {
    /// Fonts count upwards.
    fn place(&self, x: f32, y: f32) -> (f32, f32) {
        (self.at.0 + x * self.scale, self.at.1 - y * self.scale)
    }
}

impl OutlineBuilder for Letters {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.place(x1, y1), self.place(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2)) = (self.place(x1, y1), self.place(x2, y2));
        let (x, y) = self.place(x, y);
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}
