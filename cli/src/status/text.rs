//! Words on a terminal: foreign text made harmless, lines that fit.

use console::{measure_text_width, truncate_str, Term};

use crate::foreign_text::printable;

/// What is written on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paper {
    /// Columns; `None` when it is no terminal: then nothing is shortened or wrapped.
    pub width: Option<usize>,
    /// Whether colours are wanted.
    pub colour: bool,
}

impl Paper {
    /// This process's stdout.
    pub fn of_stdout() -> Self {
        let size = Term::stdout().size_checked();
        Paper {
            width: size.map(|(_, columns)| usize::from(columns).max(40)),
            colour: size.is_some() && console::colors_enabled(),
        }
    }

    /// A file or pipe.
    pub fn plain() -> Self {
        Paper {
            width: None,
            colour: false,
        }
    }

    /// The text in bold where there are colours.
    pub fn bold(self, text: &str) -> String {
        console::style(text)
            .bold()
            .force_styling(self.colour)
            .to_string()
    }

    /// The text as a warning looks.
    pub fn warning(self, text: &str) -> String {
        console::style(text)
            .yellow()
            .force_styling(self.colour)
            .to_string()
    }

    /// Breaks a text between words, so that it fits beside an indent of so many columns.
    pub fn wrap(self, text: &str, indent: usize) -> Vec<String> {
        let Some(width) = self.width else {
            return vec![text.to_owned()];
        };
        let room = width.saturating_sub(indent).max(20);
        let mut lines = vec![String::new()];
        for word in words(text) {
            let line = lines.last().map_or(0, |line| measure_text_width(line));
            if line > 0 && line + 1 + measure_text_width(&word) > room {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(&word);
            }
        }
        lines
    }
}

/// The words of a text; a number and its unit are one.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 15] = [
        "s", "ms", "us", "min", "h", "days", "B", "kB", "MB", "GB", "TB", "PB", "GB/s", "%", "ago",
    ];
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let plain = word.trim_end_matches([',', ';', ':']);
        let number = |last: &&mut String| {
            last.ends_with(|last: char| last.is_ascii_digit())
                || plain == "ago" && UNITS.iter().any(|unit| last.ends_with(unit))
        };
        match words.last_mut().filter(number) {
            Some(last) if UNITS.contains(&plain) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// The same, cut to so many columns.
pub fn printable_within(text: &str, columns: usize) -> String {
    truncate_str(&printable(text), columns, "…").into_owned()
}

/// `1 process`, `3 processes`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_cut() {
        assert_eq!(printable_within("abcdefgh", 5), "abcd…");
        assert_eq!(printable_within("\u{1b}", 9), "\\u{1b}");
    }

    #[test]
    fn lines_fit_and_lose_no_word() {
        let paper = Paper {
            width: Some(30),
            colour: false,
        };
        let text = "one two three four five six seven eight nine ten";
        let lines = paper.wrap(text, 8);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= 22));
        assert_eq!(lines.join(" "), text);
        for line in paper.wrap("in 1.23 ms, then 21.3 GB/s, 5.36 s ago, 100 % of it", 8) {
            assert!(!line.starts_with(['m', 'G', 's', 'a', '%']), "{line}");
        }
        assert_eq!(Paper::plain().wrap(text, 8), [text]);
    }
}
