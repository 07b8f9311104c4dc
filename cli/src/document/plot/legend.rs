//! The legend above a plot: entries in lines as they fit.

use super::scene::{Anchor, Area, Ink, Scene, Shape};
use super::text::{cut, width};

/// What stands before a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// A mark of a series.
    Mark(usize),
    /// The same, on a line.
    Line(usize),
    /// A hollow mark of no series in particular.
    Hollow,
    /// A piece of a bar.
    Piece(usize),
}

const SIGN: f64 = 22.0;
const GAP: f64 = 18.0;

/// Draws a legend into a width, and returns it; it is as high as it has to be.
pub fn legend(entries: &[(Sign, String)], across: f64, size: f64) -> Scene {
    let mut scene = Scene {
        width: across,
        ..Scene::default()
    };
    let line = size + 9.0;
    let (mut x, mut y) = (0.0, 0.0);
    for (sign, name) in entries {
        let name = cut(name, size, across - SIGN);
        let needs = SIGN + width(&name, size);
        if x > 0.0 && x + needs > across {
            x = 0.0;
            y += line;
        }
        draw(&mut scene, *sign, (x, y + line / 2.0));
        let at = (x + SIGN, y + line / 2.0 + size * 0.35);
        scene.text(at, size, Anchor::Start, Ink::Text, &name);
        x += needs + GAP;
    }
    if !entries.is_empty() {
        scene.height = y + line;
    }
    scene
}

fn draw(scene: &mut Scene, sign: Sign, (x, y): (f64, f64)) {
    let mark = |form: usize, ink: Ink| Shape::Mark {
        at: (x + 9.0, y),
        radius: 5.0,
        form,
        ink,
        hollow: sign == Sign::Hollow,
        says: String::new(),
    };
    match sign {
        Sign::Mark(series) => scene.shapes.push(mark(series, Ink::Series(series))),
        Sign::Hollow => scene.shapes.push(mark(0, Ink::Quiet)),
        Sign::Line(series) => {
            scene.shapes.push(Shape::Path {
                points: vec![(x, y), (x + 18.0, y)],
                ink: Ink::Series(series),
            });
            scene.shapes.push(mark(series, Ink::Series(series)));
        }
        Sign::Piece(piece) => scene.shapes.push(Shape::Bar {
            area: Area {
                x: x + 2.0,
                y: y - 6.5,
                width: 15.0,
                height: 13.0,
            },
            ink: Ink::Series(piece),
            pattern: piece,
            says: String::new(),
        }),
    }
}
