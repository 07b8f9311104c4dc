//! Forms of marks and patterns on bars: they tell series and pieces apart where colours do not.

use std::f64::consts::TAU;

use super::scene::Area;

/// How many forms there are.
pub const FORMS: usize = 12;
/// How many patterns there are, the plain one among them.
pub const PATTERNS: usize = 5;

/// The outline of a mark; `None` for a circle. All take about the same area.
pub fn outline(form: usize, (x, y): (f64, f64), radius: f64) -> Option<Vec<(f64, f64)>> {
    let regular = |corners: u32, turn: f64, size: f64| -> Vec<(f64, f64)> {
        let corner = |number: u32| {
            let angle = TAU * (f64::from(number) / f64::from(corners) + turn);
            (
                x + angle.sin() * radius * size,
                y - angle.cos() * radius * size,
            )
        };
        (0..corners).map(corner).collect()
    };
    let points = match form % FORMS {
        0 => return None,
        1 => regular(4, 0.125, 1.25),
        2 => regular(3, 0.0, 1.4),
        3 => regular(4, 0.0, 1.3),
        4 => regular(3, 0.5, 1.4),
        5 => star((x, y), radius * 1.5, radius * 0.6, 5),
        6 => cross((x, y), radius * 1.25, radius * 0.45, 0.0),
        7 => cross((x, y), radius * 1.25, radius * 0.45, 0.125),
        8 => regular(3, 0.25, 1.4),
        9 => regular(3, 0.75, 1.4),
        10 => regular(6, 0.0, 1.15),
        _ => star((x, y), radius * 1.5, radius * 0.5, 4),
    };
    Some(points)
}

fn star((x, y): (f64, f64), outer: f64, inner: f64, rays: u32) -> Vec<(f64, f64)> {
    let corner = |number: u32| {
        let angle = TAU * f64::from(number) / f64::from(2 * rays);
        let far = if number.is_multiple_of(2) {
            outer
        } else {
            inner
        };
        (x + angle.sin() * far, y - angle.cos() * far)
    };
    (0..2 * rays).map(corner).collect()
}

fn cross((x, y): (f64, f64), long: f64, half: f64, turn: f64) -> Vec<(f64, f64)> {
    let corners = [
        (-half, -long),
        (half, -long),
        (half, -half),
        (long, -half),
        (long, half),
        (half, half),
        (half, long),
        (-half, long),
        (-half, half),
        (-long, half),
        (-long, -half),
        (-half, -half),
    ];
    let (sin, cos) = (turn * TAU).sin_cos();
    let turned =
        |(across, down): (f64, f64)| (x + across * cos - down * sin, y + across * sin + down * cos);
    corners.map(turned).to_vec()
}

/// The lines of a pattern inside a bar.
pub fn pattern(kind: usize, area: &Area) -> Vec<((f64, f64), (f64, f64))> {
    match kind % PATTERNS {
        0 => Vec::new(),
        1 => slanted(area, 7.0, false),
        2 => upright(area, 5.0),
        3 => slanted(area, 7.0, true),
        _ => level(area, 5.0),
    }
}

fn slanted(area: &Area, gap: f64, falling: bool) -> Vec<((f64, f64), (f64, f64))> {
    let mut lines = Vec::new();
    let mut start = area.x - area.height + gap / 2.0;
    while start < area.right() {
        // From (start, bottom) to (start + height, top), cut to the bar.
        let (left, right) = (start.max(area.x), (start + area.height).min(area.right()));
        if left < right {
            let (low, high) = (left - start, right - start);
            let down = |along: f64| {
                if falling {
                    area.y + along
                } else {
                    area.bottom() - along
                }
            };
            lines.push(((left, down(low)), (right, down(high))));
        }
        start += gap;
    }
    lines
}

fn upright(area: &Area, gap: f64) -> Vec<((f64, f64), (f64, f64))> {
    let count = (area.width / gap).floor() as u32;
    let line = |number: u32| {
        let x = area.x + gap * (f64::from(number) + 0.5);
        ((x, area.y), (x, area.bottom()))
    };
    (0..count).map(line).collect()
}

fn level(area: &Area, gap: f64) -> Vec<((f64, f64), (f64, f64))> {
    let count = (area.height / gap).floor() as u32;
    let line = |number: u32| {
        let y = area.y + gap * (f64::from(number) + 0.5);
        ((area.x, y), (area.right(), y))
    };
    (0..count).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_differ() {
        let forms: Vec<_> = (0..FORMS)
            .map(|form| outline(form, (0.0, 0.0), 4.0))
            .collect();
        for (at, form) in forms.iter().enumerate() {
            assert!(!forms[..at].contains(form), "form {at}");
        }
    }

    proptest! {
        #[test]
        fn patterns_stay_inside_their_bar(
            kind in 0..PATTERNS,
            x in 0.0..500.0f64,
            width in 0.0..500.0f64,
            height in 1.0..40.0f64,
        ) {
            let area = Area { x, y: 10.0, width, height };
            for (from, to) in pattern(kind, &area) {
                for (x, y) in [from, to] {
                    prop_assert!(x >= area.x - 1e-6 && x <= area.right() + 1e-6);
                    prop_assert!(y >= area.y - 1e-6 && y <= area.bottom() + 1e-6);
                }
            }
        }
    }
}
