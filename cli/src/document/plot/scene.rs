//! A drawing as data: shapes with places, and colours by their meaning. What lays a plot out makes one; what writes SVG reads it; tests look
//! whether anything overlaps.

use super::text::width;

/// Opacity of a band.
pub const BAND_OPACITY: f64 = 0.18;
/// Opacity of a pattern on a bar.
pub const PATTERN_OPACITY: f64 = 0.6;
/// Width of the edge of a hollow mark.
pub const HOLLOW: f64 = 1.6;
/// Width of a line through points.
pub const PATH: f64 = 2.0;
/// A dash, and the gap after it.
pub const DASH: (f64, f64) = (6.0, 4.0);
/// Narrower bars have no edge that keeps them apart from the next one.
pub const EDGED: f64 = 3.0;

/// What a colour stands for; the theme says what it looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// Words and axes.
    Text,
    /// Words that matter less.
    Quiet,
    /// Lines behind the numbers.
    Grid,
    /// The ground.
    Ground,
    /// Limits.
    Limit,
    /// A series or a piece, by its number.
    Series(usize),
}

/// Where a text stands relative to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// It starts there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// A rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Area {
    /// Right edge.
    pub fn right(&self) -> f64 {
        self.x + self.width
    }

    /// Lower edge.
    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }
}

/// A shape.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A filled rectangle, and what it says when it is pointed at.
    Bar {
        /// Where.
        area: Area,
        /// Colour.
        ink: Ink,
        /// Number of the pattern on it.
        pattern: usize,
        /// Words.
        says: String,
    },
    /// A straight line.
    Line {
        /// Start.
        from: (f64, f64),
        /// End.
        to: (f64, f64),
        /// Colour.
        ink: Ink,
        /// Width.
        width: f64,
        /// Whether it is dashed.
        dashed: bool,
    },
    /// A line through points.
    Path {
        /// The points.
        points: Vec<(f64, f64)>,
        /// Colour.
        ink: Ink,
    },
    /// A translucent area inside points.
    Band {
        /// Its outline.
        points: Vec<(f64, f64)>,
        /// Colour.
        ink: Ink,
    },
    /// A mark, and what it says when it is pointed at.
    Mark {
        /// Its middle.
        at: (f64, f64),
        /// From there to its edge.
        radius: f64,
        /// Number of its form.
        form: usize,
        /// Colour.
        ink: Ink,
        /// Whether only its edge is drawn.
        hollow: bool,
        /// Words.
        says: String,
    },
    /// Text in one line.
    Text {
        /// Where its base line is.
        at: (f64, f64),
        /// Size of the letters.
        size: f64,
        /// Where it stands.
        anchor: Anchor,
        /// Colour.
        ink: Ink,
        /// The words.
        text: String,
    },
}

/// A drawing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scene {
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
    /// Its numbers in a sentence, for who does not see it.
    pub told: String,
    /// Shapes, the hindmost first.
    pub shapes: Vec<Shape>,
}

impl Scene {
    /// Adds a text.
    pub fn text(&mut self, at: (f64, f64), size: f64, anchor: Anchor, ink: Ink, text: &str) {
        self.shapes.push(Shape::Text {
            at,
            size,
            anchor,
            ink,
            text: text.to_owned(),
        });
    }

    /// Adds a thin line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), ink: Ink) {
        self.shapes.push(Shape::Line {
            from,
            to,
            ink,
            width: 1.0,
            dashed: false,
        });
    }

    /// Adds the shapes of another one, so far down.
    pub fn append(&mut self, other: Scene, down: f64) {
        self.shapes
            .extend(other.shapes.into_iter().map(|shape| shape.moved(down)));
    }

    /// The room that each text takes.
    pub fn words(&self) -> Vec<(Area, &str)> {
        self.shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Text {
                    at,
                    size,
                    anchor,
                    text,
                    ..
                } => Some((room(*at, *size, *anchor, text), text.as_str())),
                _ => None,
            })
            .collect()
    }
}

/// The room of a text: its letters from the top of a capital to below the base line.
fn room(at: (f64, f64), size: f64, anchor: Anchor, text: &str) -> Area {
    let width = width(text, size);
    let x = match anchor {
        Anchor::Start => at.0,
        Anchor::Middle => at.0 - width / 2.0,
        Anchor::End => at.0 - width,
    };
    Area {
        x,
        y: at.1 - size * 0.75,
        width,
        height: size,
    }
}

impl Shape {
    fn moved(mut self, down: f64) -> Self {
        let shift = |point: &mut (f64, f64)| point.1 += down;
        match &mut self {
            Shape::Bar { area, .. } => area.y += down,
            Shape::Line { from, to, .. } => {
                shift(from);
                shift(to);
            }
            Shape::Path { points, .. } | Shape::Band { points, .. } => {
                points.iter_mut().for_each(shift)
            }
            Shape::Mark { at, .. } | Shape::Text { at, .. } => shift(at),
        }
        self
    }
}
