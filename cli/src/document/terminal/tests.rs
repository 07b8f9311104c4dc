use console::{measure_text_width, strip_ansi_codes};

use super::super::examples::{extremes, hostile, report};
use super::*;
use crate::document::{Column, Table};

fn look(width: usize) -> Look {
    Look {
        width,
        colour: false,
        unicode: true,
    }
}

fn lines(document: &Document, look: Look) -> Vec<String> {
    shown(&clean(document), look)
        .lines()
        .map(String::from)
        .collect()
}

#[test]
fn lines_fit_and_have_nothing_behind_them() {
    for document in [report(), hostile(), extremes(), Document::default()] {
        for width in [80, 81, 100, 200] {
            for unicode in [true, false] {
                let look = Look {
                    unicode,
                    ..look(width)
                };
                for line in lines(&document, look) {
                    assert!(measure_text_width(&line) <= width, "{width}: {line}");
                    assert_eq!(line.trim_end(), line);
                }
            }
        }
    }
}

#[test]
fn less_than_80_columns_are_taken_as_80() {
    assert_eq!(
        terminal(&report(), 10, false),
        terminal(&report(), 80, false)
    );
}

#[test]
fn colours_change_nothing_but_colours() {
    let plain = terminal(&report(), 100, false);
    let coloured = terminal(&report(), 100, true);
    assert!(!plain.contains('\u{1b}') && coloured.contains('\u{1b}'));
    let stripped = strip_ansi_codes(&coloured);
    for (plain, coloured) in plain.lines().zip(stripped.lines()) {
        assert_eq!(plain, coloured.trim_end());
    }
}

#[test]
fn a_locale_without_utf8_gets_ascii() {
    let look = Look {
        unicode: false,
        ..look(80)
    };
    assert!(shown(&clean(&report()), look).is_ascii());
    let locale = |set: &'static [(&str, &str)]| {
        is_unicode_by(|name| {
            set.iter()
                .find(|(set, _)| *set == name)
                .map(|(_, value)| (*value).to_owned())
        })
    };
    assert!(locale(&[("LANG", "de_DE.UTF-8")]));
    assert!(locale(&[
        ("LC_ALL", ""),
        ("LC_CTYPE", "C.utf8"),
        ("LANG", "C")
    ]));
    assert!(!locale(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]));
    assert!(!locale(&[]));
}

#[test]
fn doubts_have_their_advice() {
    let document = report();
    let all = shown(&clean(&document), look(200));
    for doubt in &document.doubts {
        let at = all.find(&doubt.what).unwrap();
        assert!(all[at..].lines().nth(1).unwrap().contains(&doubt.advice));
    }
}

#[test]
fn numbers_end_below_each_other() {
    let column = |heading: &str, is_number| Column {
        heading: heading.into(),
        is_number,
    };
    let table = Table {
        columns: vec![
            column("name", false),
            column("GB/s", true),
            column("word", false),
        ],
        rows: vec![
            vec!["a".into(), "1".into(), "x".into()],
            vec!["b".into(), "1000.5".into(), "longer".into()],
        ],
    };
    let text = tables::table(&table, look(80));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "name    GB/s  word");
    assert_eq!(lines[1], "a          1  x");
    assert_eq!(lines[2], "b     1000.5  longer");
}

#[test]
fn what_has_no_room_goes_below_with_the_first_column() {
    let columns = (0..12).map(|number| Column {
        heading: format!("column {number}"),
        is_number: number > 0,
    });
    let table = Table {
        columns: columns.collect(),
        rows: vec![(0..12).map(|number| format!("cell{number}x")).collect()],
    };
    let text = tables::table(&table, look(80));
    assert!(
        text.lines().all(|line| measure_text_width(line) <= 80),
        "{text}"
    );
    for number in 0..12 {
        assert!(text.contains(&format!("cell{number}x")), "{text}");
    }
    assert_eq!(text.matches("cell0x").count(), 2, "{text}");
}

#[test]
fn equal_sums_are_equally_long_and_pieces_have_signs_of_their_own() {
    let stacked = crate::document::Stacked {
        unit: "s".into(),
        pieces: vec!["a".into(), "b".into(), "c".into()],
        bars: vec![
            ("x".into(), vec![1.0, 1.0, 1.0]),
            ("y".into(), vec![0.4, 0.3, 2.3]),
            ("z".into(), vec![1.5, 0.0, 0.0]),
        ],
    };
    let text = plots::stacked(
        &stacked,
        Look {
            unicode: false,
            ..look(80)
        },
    );
    let bar = |line: usize| {
        text.lines()
            .nth(line)
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert_eq!(bar(0).len(), bar(1).len());
    assert_eq!(bar(0).len().div_ceil(2), bar(2).len());
    let count = |sign| bar(0).matches(sign).count();
    assert!(count('#') > 20 && count('.') > 20 && count('=') > 20);
    assert!(text.contains("# a   . b   = c   (s)"));
}

#[test]
fn strips_show_points_outliers_and_limits() {
    let points = crate::document::examples::points(&["slow", "fast"], &[5.0, 50.0], 20);
    let text = plots::strips(
        &points,
        Look {
            unicode: false,
            ..look(80)
        },
    );
    let lines: Vec<&str> = text.lines().collect();
    let at = |line: usize, sign: char| lines[line][5..].find(sign).unwrap();
    assert!(lines[0].starts_with("slow ") && lines[1].starts_with("fast "));
    assert!(at(0, 'o') < at(1, 'o'));
    assert!(at(0, '|') > at(1, 'o'));
    assert!(lines[2].trim_start().starts_with('0'));
}
