//! Plots: a [`Plot`] becomes a [`scene::Scene`], which becomes SVG.
//!
//! | file | job |
//! |---|---|
//! | [`scale`] | axes with round ticks; numbers with three digits |
//! | [`points`] | points by series against limits; lines with bands |
//! | [`limits`] | lines of limits, with words that do not touch |
//! | [`stacked`] | bars made of pieces |
//! | [`legend`], [`marks`], [`palette`] | which series is which: names, forms and patterns, colours of both themes |
//! | [`text`] | how much room words take |
//! | [`scene`](mod@scene) | a drawing as data |
//! | [`svg`] | writes it |
//! | [`numbers`] | the numbers of a plot as a table |

pub mod legend;
pub mod limits;
pub mod marks;
pub mod numbers;
pub mod palette;
pub mod points;
pub mod scale;
pub mod scene;
pub mod stacked;
pub mod svg;
pub mod text;

use super::Plot;
use scene::Scene;

/// Width of a plot on a page, and in PNG.
pub const WIDE: f64 = 880.0;
/// Width of a plot on a telephone.
pub const NARROW: f64 = 350.0;

/// Lays a plot out in a width of [`NARROW`] at least.
pub fn scene(plot: &Plot, width: f64) -> Scene {
    match plot {
        Plot::Points(points) => points::scene(points, false, width),
        Plot::Lines(points) => points::scene(points, true, width),
        Plot::Stacked(stacked) => stacked::scene(stacked, width),
    }
}

/// Size of letters in a plot of this width.
fn letters(width: f64) -> f64 {
    if width < 600.0 {
        12.0
    } else {
        13.0
    }
}

#[cfg(test)]
mod tests;
