//! A document as one HTML file that needs nothing else: no network, no script, no font. Light and dark as the reader's screen is, light in
//! print. What a plot shows can be read as a table below it.

use super::plot::palette::{rules, DARK, LIGHT};
use super::plot::{scene, svg, NARROW, WIDE};
use super::words::{clean, escaped, numbers, paragraphs};
use super::{Document, Doubt, Section, Table};

/// Nothing may be loaded or run, from anywhere; styles are in the file.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// Colours that plots do not have: links, and the edge beside doubts.
const LIGHT_PAGE: &str = "--link:#0550ae;--doubt:#b35900;";
const DARK_PAGE: &str = "--link:#79b8ff;--doubt:#f0a355;";
/// From so many sections on, links to them stand in front.
const MANY: usize = 4;
/// Rows of a folded table that is printed all the same.
const SHORT: usize = 40;

/// The document as a page.
pub fn html(document: &Document) -> String {
    let document = &clean(document);
    let title = escaped(&document.title);
    let sections: String = document
        .sections
        .iter()
        .enumerate()
        .map(|(number, part)| section(number + 1, part))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{}{}{}{}{sections}</main>\n</body>\n</html>\n",
        sheet(),
        findings(&document.findings),
        facts(&document.facts),
        doubts(&document.doubts),
        contents(&document.sections)
    )
}

fn sheet() -> String {
    format!(
        ":root{{{}{LIGHT_PAGE}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{}{DARK_PAGE}}}}}\n{}\n{}",
        LIGHT.properties(),
        DARK.properties(),
        rules(),
        include_str!("html.css")
    )
}

fn findings(findings: &[String]) -> String {
    let Some((first, others)) = findings.split_first() else {
        return String::new();
    };
    let items: String = others
        .iter()
        .map(|finding| format!("<li>{}</li>\n", escaped(finding)))
        .collect();
    let others = if items.is_empty() {
        items
    } else {
        format!("<ul>\n{items}</ul>\n")
    };
    format!("<p class=\"lead\">{}</p>\n{others}", escaped(first))
}

fn facts(facts: &[(String, String)]) -> String {
    if facts.is_empty() {
        return String::new();
    }
    let facts: String = facts
        .iter()
        .map(|(name, value)| {
            let (name, value) = (escaped(name), escaped(value));
            format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n")
        })
        .collect();
    format!("<dl>\n{facts}</dl>\n")
}

fn doubts(doubts: &[Doubt]) -> String {
    if doubts.is_empty() {
        return String::new();
    }
    let items: String = doubts
        .iter()
        .map(|doubt| {
            let (what, advice) = (escaped(&doubt.what), escaped(&doubt.advice));
            format!("<li>{what} <span>{advice}</span></li>\n")
        })
        .collect();
    format!("<aside aria-labelledby=\"doubts\">\n<h2 id=\"doubts\">Doubts</h2>\n<ul>\n{items}</ul>\n</aside>\n")
}

fn contents(sections: &[Section]) -> String {
    if sections.len() < MANY {
        return String::new();
    }
    let items: String = sections
        .iter()
        .enumerate()
        .map(|(number, section)| {
            let heading = escaped(&section.heading);
            format!("<li><a href=\"#part-{}\">{heading}</a></li>\n", number + 1)
        })
        .collect();
    format!("<nav aria-label=\"Contents\">\n<ul>\n{items}</ul>\n</nav>\n")
}

fn section(number: usize, section: &Section) -> String {
    let heading = escaped(&section.heading);
    let text: String = paragraphs(&section.text)
        .map(|paragraph| format!("<p>{}</p>\n", escaped(paragraph)))
        .collect();
    let table = numbers(section);
    let body = match &section.plot {
        Some(plot) => {
            let drawn = |width: f64, name: &str| {
                let id = format!("plot-{number}-{name}");
                svg::inline(&scene(plot, width), &section.heading, &id, name)
            };
            let caption = if text.is_empty() {
                format!("<figcaption class=\"unseen\">{heading}</figcaption>\n")
            } else {
                format!("<figcaption>{text}</figcaption>\n")
            };
            let (wide, narrow) = (drawn(WIDE, "wide"), drawn(NARROW, "narrow"));
            let table = table.map(|numbers| folded(&numbers, &section.heading));
            format!(
                "<figure>\n{caption}{wide}{narrow}</figure>\n{}",
                table.unwrap_or_default()
            )
        }
        None => {
            let table = table.map(|numbers| shown(&numbers, &section.heading));
            format!("{text}{}", table.unwrap_or_default())
        }
    };
    format!("<section aria-labelledby=\"part-{number}\">\n<h2 id=\"part-{number}\">{heading}</h2>\n{body}</section>\n")
}

fn folded(table: &Table, heading: &str) -> String {
    let class = if table.rows.len() <= SHORT {
        " class=\"short\""
    } else {
        ""
    };
    format!(
        "<details{class}>\n<summary>Numbers as a table</summary>\n{}</details>\n",
        shown(table, heading)
    )
}

/// A table. It can be scrolled when it is too wide, with the keyboard too.
fn shown(table: &Table, heading: &str) -> String {
    let heading = escaped(heading);
    let class = |column: usize| {
        let is_number = table
            .columns
            .get(column)
            .is_some_and(|column| column.is_number);
        if is_number {
            " class=\"number\""
        } else {
            ""
        }
    };
    let heads: String = table
        .columns
        .iter()
        .enumerate()
        .map(|(number, column)| {
            let name = escaped(&column.heading);
            format!("<th scope=\"col\"{}>{name}</th>", class(number))
        })
        .collect();
    let cell = |(column, cell): (usize, &String)| {
        let (class, cell) = (class(column), escaped(cell));
        // The first column names the row.
        if column == 0 {
            format!("<th scope=\"row\"{class}>{cell}</th>")
        } else {
            format!("<td{class}>{cell}</td>")
        }
    };
    let rows: String = table
        .rows
        .iter()
        .map(|row| {
            let cells: String = row.iter().enumerate().map(cell).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{heading}: numbers\">\n<table>\n\
         <caption class=\"unseen\">{heading}</caption>\n<thead>\n<tr>{heads}</tr>\n</thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )
}

#[cfg(test)]
mod tests;
