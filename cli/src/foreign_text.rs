//! Text that others chose (names, paths, arguments, the words of a record), made harmless before it is shown: it may come from a
//! process that wants to command the terminal of whoever looks at it.

/// Control characters, terminal sequences and invisible or reordering characters are written as escapes, all else stays.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '"' | '\'' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn foreign_text_cannot_command_the_terminal() {
        for (text, shown) in [
            ("python3", "python3"),
            ("VLLM::Worker (1)", "VLLM::Worker (1)"),
            ("größe 日本", "größe 日本"),
            ("a\nb\tc\0", "a\\nb\\tc\\0"),
            ("\u{1b}[2Jx", "\\u{1b}[2Jx"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("a\u{202e}b\u{200b}", "a\\u{202e}b\\u{200b}"),
            ("it's \\ \"it\"", "it's \\ \"it\""),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_shown_is_a_control_character(text in any::<String>()) {
            prop_assert!(!printable(&text).chars().any(char::is_control));
        }
    }
}
