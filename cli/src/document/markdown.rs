//! A document as Markdown for a pull request: tables, and bars as text. Foreign text can neither format nor notify anybody.

use console::measure_text_width;

use super::terminal::plots;
use super::words::{clean, numbers, paragraphs};
use super::{Document, Plot, Section, Table};

/// Longer tables are folded.
const LONG: usize = 30;
/// Columns of bars in a code block; wider ones would have to be scrolled in a pull request.
const CODE: usize = 90;

/// The document as Markdown.
pub fn markdown(document: &Document) -> String {
    let document = clean(document);
    let mut parts = vec![format!("# {}", escaped(&document.title))];
    if let Some((first, others)) = document.findings.split_first() {
        parts.push(format!("**{}**", escaped(first)));
        parts.push(list(others.iter().map(|finding| escaped(finding))));
    }
    let facts = document.facts.iter();
    parts.push(list(facts.map(|(name, value)| {
        format!("{}: {}", escaped(name), escaped(value))
    })));
    if !document.doubts.is_empty() {
        parts.push("## Doubts".to_owned());
        let doubts = document.doubts.iter();
        parts.push(list(doubts.map(|doubt| {
            format!("**{}** {}", escaped(&doubt.what), escaped(&doubt.advice))
        })));
    }
    parts.extend(document.sections.iter().flat_map(section));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n") + "\n"
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|item| format!("- {item}")).collect();
    items.join("\n")
}

fn section(section: &Section) -> Vec<String> {
    let mut parts = vec![format!("## {}", escaped(&section.heading))];
    parts.extend(paragraphs(&section.text).map(escaped));
    if let Some(Plot::Stacked(stacked)) = &section.plot {
        let look = plots::Look {
            width: CODE,
            colour: false,
            unicode: true,
        };
        parts.push(code(&plots::stacked(stacked, look)));
    }
    if let Some(table) = numbers(section) {
        parts.push(if table.rows.len() > LONG {
            let count = table.rows.len();
            format!(
                "<details><summary>{count} rows</summary>\n\n{}\n\n</details>",
                rows(&table)
            )
        } else {
            rows(&table)
        });
    }
    parts
}

/// A code block, whose fence is in none of its lines.
fn code(text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}text\n{}\n{fence}", text.trim_end())
}

/// A table that is aligned in its source too.
fn rows(table: &Table) -> String {
    let heads: Vec<String> = table
        .columns
        .iter()
        .map(|column| escaped(&column.heading))
        .collect();
    let cells: Vec<Vec<String>> = table
        .rows
        .iter()
        .map(|row| row.iter().map(|cell| escaped(cell)).collect())
        .collect();
    let widths: Vec<usize> = (0..heads.len())
        .map(|column| {
            let all = cells.iter().map(|row| &row[column]).chain([&heads[column]]);
            all.map(|cell| measure_text_width(cell)).fold(3, usize::max)
        })
        .collect();
    let line = |row: &[String]| {
        let padded = row.iter().zip(&widths).zip(&table.columns);
        let padded: Vec<String> = padded
            .map(|((cell, width), column)| {
                let blanks = " ".repeat(width.saturating_sub(measure_text_width(cell)));
                if column.is_number {
                    format!("{blanks}{cell}")
                } else {
                    format!("{cell}{blanks}")
                }
            })
            .collect();
        format!("| {} |", padded.join(" | "))
    };
    let rule: Vec<String> = widths
        .iter()
        .zip(&table.columns)
        .map(|(width, column)| {
            let dashes = "-".repeat(width.saturating_sub(1));
            if column.is_number {
                format!("{dashes}:")
            } else {
                format!("{dashes}-")
            }
        })
        .collect();
    let mut lines = vec![line(&heads), format!("| {} |", rule.join(" | "))];
    lines.extend(cells.iter().map(|row| line(row)));
    lines.join("\n")
}

/// Text that is shown as it is: nothing in it formats, links, names a person or an issue.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let characters: Vec<char> = text.chars().collect();
    for (at, character) in characters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| characters.get(at));
        let after = characters.get(at + 1);
        match character {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '\\' | '`' | '*' | '[' | ']' | '|' | '~' | '$' => {
                shown.push('\\');
                shown.push(*character);
            }
            // Inside a word it formats nothing: CUDASNAP_PAGES.
            '_' if !(is_letter(before) && is_letter(after)) => shown.push_str("\\_"),
            // An empty comment parts what would be a mention, an issue or a link.
            '@' | '#' if after.is_some_and(|after| !after.is_whitespace()) => {
                shown.push(*character);
                shown.push_str("<!-- -->");
            }
            ':' if after == Some(&'/') => shown.push_str(":<!-- -->"),
            '.' if before == Some(&'w') && is_letter(after) => shown.push_str(".<!-- -->"),
            // Only at the start: a heading, an item of a list, a rule.
            '#' | '-' | '+' | '=' if at == 0 && ends(character, after) => {
                shown.push('\\');
                shown.push(*character);
            }
            '.' | ')' if is_count(&characters[..at]) && ends(character, after) => {
                shown.push('\\');
                shown.push(*character);
            }
            _ => shown.push(*character),
        }
    }
    shown
}

/// Whether a sign at the start of a line is one of Markdown: nothing, a blank or the same sign comes after it.
fn ends(sign: &char, after: Option<&char>) -> bool {
    after.is_none_or(|after| after.is_whitespace() || after == sign)
}

fn is_count(before: &[char]) -> bool {
    !before.is_empty() && before.iter().all(char::is_ascii_digit)
}

fn is_letter(character: Option<&char>) -> bool {
    character.is_some_and(|character| character.is_alphanumeric())
}

#[cfg(test)]
mod tests;
