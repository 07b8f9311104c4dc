//! Words of lines, each kept once. They come from files: made harmless, cut, and not without number.

use std::collections::HashMap;

use crate::foreign_text::printable;

/// Longest word that is kept; the library's have 16 letters at most.
const LONGEST: usize = 32;
const LONGEST_KEY: usize = 128;
/// Most words, names of hosts among them.
const MOST: usize = 1 << 16;
/// What stands for all further ones.
const OTHERS: &str = "(others)";

/// The words, by number.
#[derive(Debug, Default)]
pub struct Words {
    numbers: HashMap<String, u32>,
    words: Vec<String>,
}

impl Words {
    /// The number of a word.
    pub fn number(&mut self, word: &str) -> u32 {
        if let Some(number) = self.numbers.get(word) {
            return *number;
        }
        // One that is cut is not kept whole as a key either.
        let key = match word.len() {
            0..=LONGEST_KEY => word.to_owned(),
            _ => shown(word),
        };
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        if self.words.len() >= MOST && word != OTHERS {
            return self.number(OTHERS);
        }
        let number = self.words.len() as u32;
        self.words.push(shown(word));
        self.numbers.insert(key, number);
        number
    }

    /// The word.
    pub fn word(&self, number: u32) -> &str {
        self.words
            .get(number as usize)
            .map_or(OTHERS, String::as_str)
    }
}

/// A word as it is kept.
pub fn shown(word: &str) -> String {
    if word.is_empty() {
        return "-".into();
    }
    let cut: String = word.chars().take(LONGEST).collect();
    let shown = printable(&cut);
    shown.chars().take(2 * LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_once_harmless_and_short() {
        let mut words = Words::default();
        let on = words.number("on");
        assert_eq!(words.number("on"), on);
        assert_eq!(words.word(on), "on");
        let odd = words.number("\u{1b}[2J");
        assert_eq!(words.word(odd), "\\u{1b}[2J");
        let empty = words.number("");
        assert_eq!(words.word(empty), "-");
        let long = words.number(&"x".repeat(10_000));
        assert_eq!(words.word(long).len(), LONGEST);
        for letter in ["x", "\u{1f600}", "\u{202e}"] {
            let long = words.number(&letter.repeat(10_000));
            assert_eq!(words.number(&letter.repeat(10_000)), long);
            assert!(words.word(long).chars().count() <= 2 * LONGEST);
        }
    }

    #[test]
    fn there_are_not_more_than_so_many() {
        let mut words = Words::default();
        for number in 0..2 * MOST {
            words.number(&format!("word {number}"));
        }
        assert_eq!(words.words.len(), MOST + 1);
        let further = words.number("one more");
        assert_eq!(words.word(further), OTHERS);
    }
}
