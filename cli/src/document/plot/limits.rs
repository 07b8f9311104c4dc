//! Limits of a plot: dashed lines, each with its words at its end, which stand apart where lines are close.

use super::scale::number;
use super::scene::{Anchor, Area, Ink, Scene, Shape};
use super::text::wrap;
use crate::document::Points;

/// A limit's line, and what is written at its end.
pub struct Limit {
    /// Its number.
    pub value: f64,
    /// Its words in lines.
    pub lines: Vec<String>,
}

/// The limits of points that are numbers.
pub fn limits(points: &Points, width: f64, size: f64) -> Vec<Limit> {
    let (room, most) = if width < 600.0 { (86.0, 4) } else { (170.0, 3) };
    let limits = points.limits.iter().filter(|(_, value)| value.is_finite());
    limits
        .map(|(label, value)| Limit {
            value: *value,
            lines: wrap(&format!("{label} {}", number(*value)), size, room, most),
        })
        .collect()
}

/// Height of what is written at a limit.
pub fn block(limit: &Limit, size: f64) -> f64 {
    limit.lines.len() as f64 * (size + 2.0) + 4.0
}

/// Draws them in an area; `up` says where in it a number is.
pub fn draw(scene: &mut Scene, area: Area, size: f64, limits: &[Limit], up: impl Fn(f64) -> f64) {
    let height = |limit: &Limit| block(limit, size);
    let wanted: Vec<(f64, f64)> = limits
        .iter()
        .map(|limit| (up(limit.value), height(limit)))
        .collect();
    let middles = apart(&wanted, area.y, area.bottom());
    for ((limit, (y, height)), middle) in limits.iter().zip(&wanted).zip(middles) {
        scene.shapes.push(Shape::Line {
            from: (area.x, *y),
            to: (area.right(), *y),
            ink: Ink::Limit,
            width: 1.5,
            dashed: true,
        });
        scene.line(
            (area.right(), *y),
            (area.right() + 10.0, middle),
            Ink::Limit,
        );
        for (number, line) in limit.lines.iter().enumerate() {
            let down = middle - height / 2.0 + 2.0 + (number as f64 + 0.8) * (size + 2.0);
            let at = (area.right() + 14.0, down);
            scene.text(at, size, Anchor::Start, Ink::Limit, line);
        }
    }
}

/// Middles of blocks (wanted middle, height) that do not touch, between two ends where there is room, in the order in which they came.
fn apart(wanted: &[(f64, f64)], low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].0.total_cmp(&wanted[*other].0));
    let mut middles: Vec<f64> = wanted.iter().map(|(middle, _)| *middle).collect();
    let mut free = low;
    for at in &order {
        let half = wanted[*at].1 / 2.0;
        middles[*at] = middles[*at].max(free + half);
        free = middles[*at] + half;
    }
    let mut free = high;
    for at in order.iter().rev() {
        let half = wanted[*at].1 / 2.0;
        middles[*at] = middles[*at].min(free - half);
        free = middles[*at] - half;
    }
    middles
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_are_apart(wanted in prop::collection::vec((0.0..300.0f64, 10.0..30.0f64), 0..8)) {
            let middles = apart(&wanted, 0.0, 300.0);
            let mut blocks: Vec<_> = middles.iter().zip(&wanted).map(|(middle, (_, height))| (middle - height / 2.0, middle + height / 2.0)).collect();
            blocks.sort_by(|one, other| one.0.total_cmp(&other.0));
            prop_assert!(blocks.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-6), "{blocks:?}");
            prop_assert!(blocks.iter().all(|(low, high)| *low >= -1e-6 && *high <= 300.0 + 1e-6));
        }
    }

    #[test]
    fn a_block_that_has_room_stays_where_it_belongs() {
        assert_eq!(
            apart(&[(200.0, 20.0), (100.0, 20.0)], 0.0, 300.0),
            [200.0, 100.0]
        );
    }
}
