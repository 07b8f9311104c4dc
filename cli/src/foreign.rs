//! Text that another process has chosen: its name, its threads' names, the paths of its files.

/// Foreign text (names, paths, arguments) for showing: control characters, terminal sequences and invisible or reordering
/// characters are written as escapes, all else stays.
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

    #[test]
    fn a_name_cannot_command_the_terminal() {
        assert_eq!(printable("\u{1b}]0;x\u{7}\n"), "\\u{1b}]0;x\\u{7}\\n");
        // Once more changes nothing.
        let name = printable("a\rb \\ 'c'");
        assert_eq!(printable(&name), name);
    }
}
