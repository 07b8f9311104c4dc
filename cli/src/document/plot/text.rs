//! How much room words take, without the font in which they will be shown: widths are those of a wide one, so that there is too much room
//! rather than too little.

use console::measure_text_width;

/// The room that a text takes at most.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(letter).sum::<f64>() * size
}

/// Widths in DejaVu Sans, the widest font that a browser is likely to choose, by groups; none is less in the font of PNG.
fn letter(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | '\'' => 0.30,
        ' ' | '.' | ',' | ':' | ';' | 'I' => 0.36,
        'f' | 't' | 'r' | '-' | '(' | ')' | '[' | ']' | '!' | '/' | '\\' => 0.42,
        'm' | 'M' | 'W' | '@' | '%' | '…' => 1.01,
        'w' | '+' | '=' | '<' | '>' | '~' | 'O' | 'Q' | '#' | '_' | '^' => 0.86,
        'A'..='Z' | '&' => 0.78,
        ' '..='~' => 0.65,
        _ => {
            let mut text = [0; 4];
            match measure_text_width(letter.encode_utf8(&mut text)) {
                0 => 0.0,
                1 => 0.9,
                _ => 1.05,
            }
        }
    }
}

/// The text, or as much of its start as there is room for, with an ellipsis.
pub fn cut(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut left = room - width("…", size);
    for character in text.chars() {
        left -= letter(character) * size;
        if left < 0.0 {
            break;
        }
        shown.push(character);
    }
    format!("{}…", shown.trim_end())
}

/// The text in lines of so much room; words that do not fit are broken, and what does not fit into `most` lines is cut.
pub fn wrap(text: &str, size: f64, room: f64, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text
        .split_whitespace()
        .flat_map(|word| broken(word, size, room))
    {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(" ", size) + width(&word, size) <= room => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    if lines.len() > most {
        let rest = lines.split_off(most.saturating_sub(1)).join(" ");
        lines.push(cut(&format!("{rest}…"), size, room));
    }
    lines
}

/// A word in pieces, each of which fits.
fn broken(word: &str, size: f64, room: f64) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut left = room;
    for character in word.chars() {
        let wide = letter(character) * size;
        if wide > left && pieces.last().is_some_and(|piece| !piece.is_empty()) {
            pieces.push(String::new());
            left = room;
        }
        left -= wide;
        if let Some(piece) = pieces.last_mut() {
            piece.push(character);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wide_letters_take_more_room() {
        assert!(width("mmmm", 10.0) > width("iiii", 10.0) * 2.0);
        assert!(width("日本", 10.0) >= 20.0);
        assert_eq!(width("", 10.0), 0.0);
    }

    #[test]
    fn what_does_not_fit_is_cut_with_an_ellipsis() {
        assert_eq!(cut("short", 10.0, 100.0), "short");
        let shown = cut("a name that is far too long", 10.0, 80.0);
        assert!(width(&shown, 10.0) <= 80.0);
        assert!(
            shown.ends_with('…') && shown.starts_with("a name"),
            "{shown}"
        );
    }

    proptest! {
        #[test]
        fn lines_fit(text in "[a-zA-Z0-9 ]{0,80}", room in 30.0..200.0f64) {
            let lines = wrap(&text, 10.0, room, 3);
            prop_assert!(lines.len() <= 3);
            for line in &lines {
                prop_assert!(width(line, 10.0) <= room + 1e-9, "{line}");
            }
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            if !lines.iter().any(|line| line.ends_with('…')) {
                prop_assert_eq!(letters(&lines.concat()), letters(&text));
            }
        }
    }
}
