//! Writes a drawing as SVG. Shapes have their colour from a class; see [`super::palette`].

use std::fmt::Write;

use super::marks::{outline, pattern};
use super::palette::class;
use super::scene::{
    Anchor, Area, Ink, Scene, Shape, BAND_OPACITY, DASH, EDGED, HOLLOW, PATH, PATTERN_OPACITY,
};
use crate::document::words::escaped;

/// Fonts, in the order of preference.
pub const FONTS: &str = "'Open Sans','Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif";

/// An SVG inside a page, which has the rules for its colours. `id` is of no other element of the page.
pub fn inline(scene: &Scene, title: &str, id: &str, names: &str) -> String {
    format!(
        "<svg class=\"{names}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\" viewBox=\"0 0 {} {}\" \
         font-family=\"{FONTS}\">\n<title id=\"{id}-title\">{}</title>\n<desc id=\"{id}-desc\">{}</desc>\n{}</svg>\n",
        short(scene.width),
        short(scene.height),
        escaped(title),
        escaped(&scene.told),
        shapes(scene)
    )
}

fn shapes(scene: &Scene) -> String {
    scene.shapes.iter().map(shape).collect()
}

fn shape(shape: &Shape) -> String {
    match shape {
        Shape::Bar {
            area,
            ink,
            pattern,
            says,
        } => bar(area, *ink, *pattern, says),
        Shape::Line {
            from,
            to,
            ink,
            width,
            dashed,
        } => {
            let dashes = if *dashed {
                format!(" stroke-dasharray=\"{} {}\"", DASH.0, DASH.1)
            } else {
                String::new()
            };
            let width = format!(" stroke-width=\"{}\"{dashes}", short(*width));
            stroked(*ink, &joined(&[*from, *to]), &width)
        }
        Shape::Path { points, ink } => stroked(
            *ink,
            &joined(points),
            &format!(" stroke-width=\"{PATH}\" stroke-linejoin=\"round\""),
        ),
        Shape::Band { points, ink } => format!(
            "<path class=\"{}\" fill=\"currentColor\" fill-opacity=\"{BAND_OPACITY}\" d=\"{}Z\"/>\n",
            class(*ink),
            joined(points)
        ),
        Shape::Mark {
            at,
            radius,
            form,
            ink,
            hollow,
            says,
        } => mark(&outlined(*form, *at, *radius), *ink, *hollow, says),
        Shape::Text {
            at,
            size,
            anchor,
            ink,
            text,
        } => text_at(*at, *size, *anchor, *ink, text),
    }
}

fn text_at(at: (f64, f64), size: f64, anchor: Anchor, ink: Ink, text: &str) -> String {
    let anchor = match anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    format!(
        "<text class=\"{}\" fill=\"currentColor\" x=\"{}\" y=\"{}\" font-size=\"{}\"{anchor}>{}</text>\n",
        class(ink),
        short(at.0),
        short(at.1),
        short(size),
        escaped(text)
    )
}

fn bar(area: &Area, ink: Ink, kind: usize, says: &str) -> String {
    let mut lines = String::new();
    for (from, to) in pattern(kind, area) {
        lines += &joined(&[from, to]);
    }
    // The edge in the colour of the ground keeps pieces apart.
    let shape = format!(
        "<rect class=\"{}\" fill=\"currentColor\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">",
        class(ink),
        short(area.x),
        short(area.y),
        short(area.width),
        short(area.height)
    );
    let told = if says.is_empty() {
        String::new()
    } else {
        format!("<title>{}</title>", escaped(says))
    };
    let mut drawn = format!("{shape}{told}</rect>\n");
    if !lines.is_empty() {
        drawn += &stroked(
            Ink::Ground,
            &lines,
            &format!(
                " stroke-width=\"1\" stroke-opacity=\"{PATTERN_OPACITY}\" pointer-events=\"none\""
            ),
        );
    }
    if area.width > EDGED {
        let edge = [(area.right(), area.y), (area.right(), area.bottom())];
        drawn += &stroked(Ink::Ground, &joined(&edge), " stroke-width=\"1\"");
    }
    drawn
}

/// The element of a mark and its form.
fn outlined(form: usize, at: (f64, f64), radius: f64) -> (&'static str, String) {
    match outline(form, at, radius) {
        None => {
            let (x, y, radius) = (short(at.0), short(at.1), short(radius));
            ("circle", format!("cx=\"{x}\" cy=\"{y}\" r=\"{radius}\""))
        }
        Some(points) => ("path", format!("d=\"{}Z\"", joined(&points))),
    }
}

fn mark((name, form): &(&str, String), ink: Ink, hollow: bool, says: &str) -> String {
    let paint = if hollow {
        format!("fill=\"none\" stroke=\"currentColor\" stroke-width=\"{HOLLOW}\" pointer-events=\"all\"")
    } else {
        "fill=\"currentColor\"".to_owned()
    };
    let start = format!("<{name} class=\"{}\" {paint} {form}", class(ink));
    if says.is_empty() {
        format!("{start}/>\n")
    } else {
        format!("{start}><title>{}</title></{name}>\n", escaped(says))
    }
}

fn stroked(ink: Ink, path: &str, rest: &str) -> String {
    format!(
        "<path class=\"{}\" fill=\"none\" stroke=\"currentColor\"{rest} d=\"{path}\"/>\n",
        class(ink)
    )
}

fn joined(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (number, (x, y)) in points.iter().enumerate() {
        let command = if number == 0 { 'M' } else { 'L' };
        // Writing to a String does not fail.
        let _ = write!(path, "{command}{} {}", short(*x), short(*y));
    }
    path
}

/// A coordinate with one decimal at most.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}
