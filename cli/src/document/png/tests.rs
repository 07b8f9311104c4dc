use tiny_skia::Pixmap;

use super::super::examples::{extremes, hostile, report};
use super::*;
use crate::document::plot::palette::LIGHT;

fn colours(picture: &Pixmap, wanted: &str) -> usize {
    let part = |at: usize| u8::from_str_radix(&wanted[at..at + 2], 16).unwrap();
    let wanted = [part(1), part(3), part(5), 255];
    let pixels = picture.data().chunks_exact(4);
    pixels.filter(|pixel| *pixel == wanted).count()
}

#[test]
fn all_plots_are_drawn_light_at_twice_their_size() {
    let picture = Pixmap::decode_png(&png(&report()).unwrap()).unwrap();
    assert_eq!(picture.width(), 2 * (WIDE as u32 + 48));
    assert!(picture.height() > 2 * 900);
    let all = (picture.width() * picture.height()) as usize;
    assert!(colours(&picture, LIGHT.ground) > all / 2);
    for series in 0..3 {
        assert!(
            colours(&picture, LIGHT.series[series]) > 500,
            "series {series}"
        );
    }
}

#[test]
fn words_are_drawn_with_the_font_that_is_built_in() {
    let words = |title: &str| {
        let document = Document {
            title: title.into(),
            ..Document::default()
        };
        colours(&drawn(&document, SCALE).unwrap(), LIGHT.text)
    };
    let without = words("");
    assert!(words("MMMM") > without + 200);
    // Of each script that the font has.
    for text in ["größe", "размер", "μ ≤ 3", "…"] {
        assert!(words(text) > without + 10, "{text}");
    }
}

#[test]
fn the_room_that_words_get_is_enough_for_that_font() {
    let canvas = Canvas::new((9.0, 9.0), 1.0, 0.0).unwrap();
    for letter in ('!'..='~').chain("äöüßéñ±µ…".chars()) {
        let text = letter.to_string();
        let drawn = f64::from(canvas.width(&text)) / 2048.0 * 10.0;
        let room = crate::document::plot::text::width(&text, 10.0);
        assert!(drawn > 0.0 && drawn <= room, "{text}: {drawn} in {room}");
    }
}

#[test]
fn whatever_is_in_a_report_can_be_drawn() {
    for document in [extremes(), hostile(), Document::default()] {
        let picture = drawn(&document, 0.2).unwrap();
        assert!(colours(&picture, LIGHT.ground) > 100);
    }
}

#[test]
fn many_plots_are_drawn_smaller() {
    assert_eq!(fitting(SCALE, 3000.0), SCALE);
    assert_eq!(fitting(SCALE, 150_000.0) * 150_000.0, TALLEST);
    let document = Document {
        sections: vec![report().sections[2].clone(); 100],
        ..Document::default()
    };
    let many = drawn(&document, 0.1).unwrap();
    assert!(many.height() > 1000);
}
