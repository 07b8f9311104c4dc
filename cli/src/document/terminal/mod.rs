//! A document on a terminal: what was found, doubts, tables, and plots in text where they help. `tables` fits tables into the width,
//! `plots` draws with characters.

pub mod plots;
mod tables;

use super::plot::numbers;
use super::words::{clean, paragraphs};
use super::{Document, Plot, Section};
use crate::status::text::Paper;
use plots::Look;

/// No line is made narrower than this.
const NARROWEST: usize = 80;
/// Rows of a plot's own numbers that are shown; more of them are in the files.
const ROWS: usize = 24;

/// The document in lines of so many columns, with or without colours. Bars are made of block characters where the locale has them.
pub fn terminal(document: &Document, width: usize, colour: bool) -> String {
    let look = Look {
        width: width.max(NARROWEST),
        colour,
        unicode: is_unicode(),
    };
    shown(&clean(document), look)
}

/// Whether the locale is one of UTF-8.
pub fn is_unicode() -> bool {
    is_unicode_by(|name| std::env::var(name).ok())
}

fn is_unicode_by(variable: impl Fn(&str) -> Option<String>) -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let set = names.iter().filter_map(|name| variable(name));
    let locale = set.into_iter().find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

fn shown(document: &Document, look: Look) -> String {
    let mut text = format!("{}\n", block(&document.title, 0, look, true));
    if !document.facts.is_empty() {
        text += &format!("\n{}", facts(&document.facts, look));
    }
    if !document.findings.is_empty() {
        text.push('\n');
    }
    for finding in &document.findings {
        text += &item(finding, look, |line| line.to_owned());
    }
    for doubt in &document.doubts {
        text.push('\n');
        let paper = paper(look);
        text += &item(&format!("doubt: {}", doubt.what), look, |line| {
            paper.warning(line)
        });
        text += &format!("{}\n", block(&doubt.advice, 2, look, false));
    }
    for part in &document.sections {
        text += &section(part, look);
    }
    if look.unicode {
        text
    } else {
        ascii(&text)
    }
}

/// Characters of ours that a locale without UTF-8 cannot show. Foreign ones stay: they may well be in its own encoding's reach.
fn ascii(text: &str) -> String {
    text.replace('…', "...")
}

fn paper(look: Look) -> Paper {
    Paper {
        width: Some(look.width),
        colour: look.colour,
    }
}

/// Text in lines below each other, with an indent.
fn block(text: &str, indent: usize, look: Look, bold: bool) -> String {
    let paper = paper(look);
    let lines = paper.wrap(text, indent).into_iter().flat_map(|line| {
        // A word may be longer than a line.
        tables::pieces(&line, look.width - indent)
    });
    let lines = lines.map(|line| {
        let line = if bold { paper.bold(&line) } else { line };
        format!("{}{line}", " ".repeat(indent))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn item(text: &str, look: Look, tint: impl Fn(&str) -> String) -> String {
    let lines = block(text, 2, look, false);
    let lines = lines.lines().enumerate().map(|(number, line)| {
        let start = if number == 0 { "* " } else { "  " };
        format!("{start}{}\n", tint(line.trim_start()))
    });
    lines.collect()
}

fn facts(facts: &[(String, String)], look: Look) -> String {
    let widths = facts
        .iter()
        .map(|(name, _)| console::measure_text_width(name));
    let indent = widths.fold(0, usize::max).min(24) + 2;
    let mut text = String::new();
    for (name, value) in facts {
        let value = block(value, indent, look, false);
        let name_lines = block(name, 0, look, false);
        let room = indent.saturating_sub(console::measure_text_width(name));
        if room >= 2 {
            text += &format!("{name}{}{}\n", " ".repeat(room), value.trim_start());
        } else {
            text += &format!("{name_lines}\n{value}\n");
        }
    }
    text
}

fn section(section: &Section, look: Look) -> String {
    let mut text = format!("\n{}\n", block(&section.heading, 0, look, true));
    for paragraph in paragraphs(&section.text) {
        text += &format!("{}\n", block(paragraph, 0, look, false));
    }
    match &section.plot {
        Some(Plot::Stacked(stacked)) => text += &format!("\n{}", plots::stacked(stacked, look)),
        Some(Plot::Points(points)) => text += &format!("\n{}", plots::strips(points, look)),
        Some(Plot::Lines(_)) | None => {}
    }
    let own = section.table.clone();
    let table = own.or_else(|| {
        let mut table = numbers::table(section.plot.as_ref()?);
        // A row per cycle is what the files are for.
        (table.rows.len() <= ROWS).then(|| std::mem::take(&mut table))
    });
    if let Some(table) = table {
        text += &format!("\n{}", tables::table(&table, look));
    }
    text
}

#[cfg(test)]
mod tests;
