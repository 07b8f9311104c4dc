use proptest::prelude::*;

use super::scene::{Area, Shape};
use super::*;
use crate::document::examples::{extremes, hostile, points, report};
use crate::document::words::clean;
use crate::document::{Document, Point, Points, Series, Stacked};

fn plots(document: &Document) -> Vec<Plot> {
    let document = clean(document);
    document
        .sections
        .into_iter()
        .filter_map(|part| part.plot)
        .collect()
}

fn overlap(one: &Area, other: &Area) -> bool {
    one.x < other.right() - 0.01
        && other.x < one.right() - 0.01
        && one.y < other.bottom() - 0.01
        && other.y < one.bottom() - 0.01
}

/// Nothing is outside the drawing, is no number, or stands on another word.
fn assert_readable(scene: &Scene) {
    assert!(scene.width.is_finite() && scene.height.is_finite() && scene.height < 1e5);
    let inside = |x: f64, y: f64| {
        x >= -0.5 && x <= scene.width + 0.5 && y >= -0.5 && y <= scene.height + 0.5
    };
    for shape in &scene.shapes {
        let corners = match shape {
            Shape::Bar { area, .. } => vec![(area.x, area.y), (area.right(), area.bottom())],
            Shape::Line { from, to, .. } => vec![*from, *to],
            Shape::Path { points, .. } | Shape::Band { points, .. } => points.clone(),
            Shape::Mark { at, .. } | Shape::Text { at, .. } => vec![*at],
        };
        assert!(
            corners.iter().all(|(x, y)| inside(*x, *y)),
            "outside: {shape:?}"
        );
    }
    let words = scene.words();
    for (at, (area, text)) in words.iter().enumerate() {
        assert!(
            inside(area.x, area.y) && inside(area.right(), area.bottom()),
            "outside: {text}"
        );
        for (other, beside) in &words[at + 1..] {
            assert!(!overlap(area, other), "{text:?} stands on {beside:?}");
        }
    }
}

#[test]
fn examples_are_readable_wide_and_narrow() {
    for document in [report(), extremes(), hostile()] {
        for plot in plots(&document) {
            for width in [NARROW, WIDE] {
                assert_readable(&scene(&plot, width));
            }
        }
    }
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => 1e-3..1e5f64,
        2 => 20.0..60.0f64,
        1 => Just(0.0),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => any::<f64>(),
    ]
}

fn any_points() -> impl Strategy<Value = Points> {
    let point = (0u32..500, any_number(), any::<bool>(), any::<bool>());
    let point = point.prop_map(|(x, y, spread, outlier)| Point {
        x: f64::from(x),
        y,
        spread: spread.then_some((y * 0.9, y * 1.1)),
        outlier,
    });
    let series = ("[a-zA-Z0-9:=,]{0,40}", prop::collection::vec(point, 0..30));
    let series = series.prop_map(|(name, points)| Series { name, points });
    let limits = prop::collection::vec(("[a-z ]{0,50}", any_number()), 0..4);
    (prop::collection::vec(series, 0..13), limits).prop_map(|(series, limits)| Points {
        across: "cycle".into(),
        up: "GB/s".into(),
        series,
        limits,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn points_and_lines_are_readable_whatever_they_are(points in any_points()) {
        for plot in [Plot::Points(points.clone()), Plot::Lines(points)] {
            for width in [NARROW, WIDE] {
                assert_readable(&scene(&plot, width));
            }
        }
    }

    #[test]
    fn bars_are_readable_whatever_they_are(
        pieces in prop::collection::vec("[a-zA-Z0-9 ]{0,30}", 0..9),
        bars in prop::collection::vec(("[a-zA-Z0-9:=, ]{0,70}", prop::collection::vec(any_number().prop_map(f64::abs), 9)), 0..12),
    ) {
        let count = pieces.len();
        let bars = bars.into_iter().map(|(label, bar)| (label, bar[..count].to_vec()));
        let plot = Plot::Stacked(Stacked { unit: "seconds".into(), pieces, bars: bars.collect() });
        for width in [NARROW, WIDE] {
            assert_readable(&scene(&plot, width));
        }
    }
}

/// A total that is not known is narrower than the last number below the axis.
#[test]
fn the_last_number_below_the_axis_is_inside() {
    let bars = vec![(String::new(), vec![f64::NAN, 1.679_879_375_653_837_2e246])];
    let plot = Plot::Stacked(Stacked {
        unit: "seconds".into(),
        pieces: vec![String::new(); 2],
        bars,
    });
    for width in [NARROW, WIDE] {
        assert_readable(&scene(&plot, width));
    }
}

/// Marks with a place, without those of the legend.
fn marks(scene: &Scene) -> Vec<(usize, bool, (f64, f64))> {
    let marks = scene.shapes.iter().filter_map(|shape| match shape {
        Shape::Mark {
            at,
            form,
            hollow,
            says,
            ..
        } if !says.is_empty() => Some((*form, *hollow, *at)),
        _ => None,
    });
    marks.collect()
}

#[test]
fn each_point_has_a_mark_and_outliers_are_hollow() {
    let plot = points(&["observe", "on"], &[2.5, 25.0], 20);
    let scene = scene(&Plot::Points(plot.clone()), WIDE);
    let marks = marks(&scene);
    assert_eq!(marks.len(), 40);
    let points: Vec<&Point> = plot
        .series
        .iter()
        .flat_map(|series| &series.points)
        .collect();
    for ((_, hollow, _), point) in marks.iter().zip(&points) {
        assert_eq!(*hollow, point.outlier);
    }
    assert_eq!(marks.iter().filter(|(form, ..)| *form == 0).count(), 20);
    // The higher number is higher up, the later cycle further right.
    assert!(marks[0].2 .1 > marks[20].2 .1);
    let mut order: Vec<usize> = (0..40).collect();
    order.sort_by(|one, other| points[*one].x.total_cmp(&points[*other].x));
    assert!(order
        .windows(2)
        .all(|pair| marks[pair[0]].2 .0 < marks[pair[1]].2 .0));
}

#[test]
fn a_limit_has_a_line_and_its_words_at_the_end_of_it() {
    let scene = scene(&Plot::Points(points(&["on"], &[25.0], 5)), WIDE);
    let dashed = scene.shapes.iter().filter_map(|shape| match shape {
        Shape::Line {
            from,
            to,
            dashed: true,
            ..
        } => Some((*from, *to)),
        _ => None,
    });
    let lines: Vec<_> = dashed.collect();
    assert_eq!(lines.len(), 2);
    let highest_mark = marks(&scene)
        .iter()
        .map(|(_, _, at)| at.1)
        .fold(f64::MAX, f64::min);
    for (from, to) in &lines {
        assert!(from.1 == to.1 && from.1 < highest_mark);
    }
    let words = scene.words();
    let (area, _) = words
        .iter()
        .find(|(_, text)| text.contains("to host"))
        .unwrap();
    assert!(area.x > lines[0].1 .0 && (area.y - lines[0].0 .1).abs() < 30.0);
    assert!(words.iter().any(|(_, text)| text.contains("55.3")));
}

#[test]
fn pieces_follow_each_other_in_proportion() {
    let stacked = Stacked {
        unit: "s".into(),
        pieces: vec!["a".into(), "b".into(), "c".into()],
        bars: vec![
            ("bar".into(), vec![1.0, 0.0, 3.0]),
            ("half".into(), vec![1.0, f64::NAN, 1.0]),
        ],
    };
    let scene = scene(&Plot::Stacked(stacked), WIDE);
    let bars = scene.shapes.iter().filter_map(|shape| match shape {
        Shape::Bar { area, says, .. } if !says.is_empty() => Some(*area),
        _ => None,
    });
    let bars: Vec<Area> = bars.collect();
    assert_eq!(bars.len(), 4, "a piece of nothing is not drawn");
    assert!((bars[1].width / bars[0].width - 3.0).abs() < 1e-6);
    assert!((bars[0].right() - bars[1].x).abs() < 1e-6);
    let totals: Vec<&str> = scene.words().iter().map(|(_, text)| *text).collect();
    assert!(
        totals.contains(&"4.00") && totals.contains(&"?"),
        "{totals:?}"
    );
}

#[test]
fn a_band_is_as_wide_as_the_spread() {
    let scene = scene(&Plot::Lines(crate::document::examples::scaling()), WIDE);
    let bands = scene.shapes.iter().filter_map(|shape| match shape {
        Shape::Band { points, .. } => Some(points),
        _ => None,
    });
    let bands: Vec<_> = bands.collect();
    assert_eq!(bands.len(), 3);
    for band in bands {
        assert_eq!(band.len(), 10);
        for at in 0..5 {
            let (upper, lower) = (band[at], band[9 - at]);
            assert!(upper.0 == lower.0 && upper.1 < lower.1);
        }
    }
}

#[test]
fn what_is_no_number_is_left_out_and_told() {
    let mut plot = points(&["on"], &[25.0], 3);
    plot.series[0].points[1].y = f64::NAN;
    let scene = scene(&Plot::Points(plot), WIDE);
    assert_eq!(marks(&scene).len(), 2);
    assert!(scene
        .words()
        .iter()
        .any(|(_, text)| *text == "1 without a number, not shown"));
}

#[test]
fn an_svg_is_well_formed_and_has_only_classes_for_colours() {
    for document in [report(), extremes(), hostile()] {
        for (number, plot) in plots(&document).iter().enumerate() {
            let drawn = scene(plot, WIDE);
            let text = svg::inline(&drawn, "a <title>", "id", "wide");
            let xml = roxmltree::Document::parse(&text).unwrap();
            let root = xml.root_element();
            assert_eq!(root.attribute("role"), Some("img"), "plot {number}");
            for node in root.descendants().filter(|node| node.is_element()) {
                for name in ["fill", "stroke"] {
                    let value = node.attribute(name);
                    assert!(
                        matches!(value, None | Some("none" | "currentColor")),
                        "{value:?}"
                    );
                }
                assert!(
                    !["script", "image", "use", "foreignObject"].contains(&node.tag_name().name())
                );
            }
            let texts = root.descendants().filter(|node| node.has_tag_name("text"));
            let texts: Vec<&str> = texts.filter_map(|node| node.text()).collect();
            let words: Vec<&str> = drawn
                .words()
                .into_iter()
                .map(|(_, text)| text)
                .filter(|text| !text.is_empty())
                .collect();
            assert_eq!(texts, words);
        }
    }
}

#[test]
fn the_table_has_all_numbers_of_a_plot() {
    let plot = points(&["observe", "on"], &[2.5, 25.0], 20);
    let table = numbers::table(&Plot::Points(plot.clone()));
    assert_eq!(table.rows.len(), 42);
    assert!(table
        .rows
        .iter()
        .all(|row| row.len() == table.columns.len()));
    assert_eq!(table.rows[9][3], "yes", "an outlier");
    let table = numbers::table(&Plot::Stacked(crate::document::examples::split()));
    assert_eq!(
        table.rows[0],
        [
            "checkpoint, observe",
            "0.0100",
            "0",
            "0",
            "8.90",
            "1.30",
            "0",
            "10.2"
        ]
    );
}
