//! A line of output that is waited for: one sign that a program is ready.

use regex::Regex;

use crate::values;

/// What a line must contain, or match.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// This text.
    Text(String),
    /// This expression.
    Regex(Regex),
}

impl Pattern {
    /// From `TEXT` or `/REGEX/`.
    ///
    /// # Errors
    /// The expression makes no sense.
    pub fn new(text: &str) -> Result<Self, String> {
        let inner = text
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'));
        match inner.filter(|inner| !inner.is_empty()) {
            None => Ok(Pattern::Text(text.to_owned())),
            Some(inner) => Regex::new(inner).map(Pattern::Regex).map_err(|error| {
                values::takes(format!("a text, or /REGEX/ ({})", in_one_line(&error)))
            }),
        }
    }

    /// As it is written.
    pub fn shown(&self) -> String {
        match self {
            Pattern::Text(text) => text.clone(),
            Pattern::Regex(regex) => format!("/{regex}/"),
        }
    }

    /// Whether a line does.
    pub fn fits(&self, line: &str) -> bool {
        match self {
            Pattern::Text(text) => line.contains(text),
            Pattern::Regex(regex) => regex.is_match(line),
        }
    }
}

/// Without the expression, which is printed in front, and the mark below it.
fn in_one_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let last = last.unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_contains_a_text_or_matches() {
        let fits = |pattern: &str, line: &str| Pattern::new(pattern).unwrap().fits(line);
        assert!(fits(
            "startup complete",
            "INFO: Application startup complete."
        ));
        assert!(!fits("startup complete", "startup"));
        assert!(fits(r"/^ready \d+$/", "ready 42") && !fits(r"/^ready \d+$/", "not ready 42"));
        assert_eq!(Pattern::new("/^a$/").unwrap().shown(), "/^a$/");
        assert!(fits("/", "a/b") && fits("//", "http://x"));
        assert_eq!(
            Pattern::new("/(/").unwrap_err(),
            "it takes a text, or /REGEX/ (unclosed group)"
        );
    }
}
