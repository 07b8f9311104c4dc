//! The report for people and for programs.

use std::io::IsTerminal;

use comfy_table::{presets, Cell, CellAlignment, Color, ContentArrangement, Table};
use serde::Serialize;

use crate::doctor::finding::{Counts, Finding, Group, Verdict};

/// The report as one JSON object.
#[derive(Debug, Serialize)]
pub struct Json<'a> {
    schema: u32,
    version: &'static str,
    verdict: Verdict,
    counts: Counts,
    groups: &'a [Group],
}

impl<'a> Json<'a> {
    /// The object for these findings.
    pub fn new(groups: &'a [Group]) -> Self {
        let counts = Counts::of(groups);
        Json {
            schema: 1,
            version: env!("CARGO_PKG_VERSION"),
            verdict: counts.worst(),
            counts,
            groups,
        }
    }
}

/// The report for people: a line per check, and below those that are not well a line with what to do. `summary` is the last line.
/// Wrapped and coloured where stdout is a terminal, one line each elsewhere.
pub fn text(groups: &[Group], summary: &str) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(if std::io::stdout().is_terminal() {
        ContentArrangement::Dynamic
    } else {
        ContentArrangement::Disabled
    });
    for group in groups {
        table.add_row(vec![Cell::new(""), Cell::new(""), Cell::new("")]);
        // A row of its own would make the first column as wide as the name.
        for (number, finding) in group.findings.iter().enumerate() {
            let name = if number == 0 { group.name } else { "" };
            add(&mut table, name, finding);
        }
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    let lines = lines.join("\n");
    format!("{}\n\n{summary}", lines.trim_start_matches('\n'))
}

fn add(table: &mut Table, group: &str, finding: &Finding) {
    let verdict = Cell::new(finding.verdict.word()).set_alignment(CellAlignment::Left);
    let verdict = match finding.verdict {
        Verdict::Ok => verdict.fg(Color::Green),
        Verdict::Warning => verdict.fg(Color::Yellow),
        Verdict::Failed => verdict.fg(Color::Red),
        Verdict::Unknown => verdict.fg(Color::DarkGrey),
    };
    let cells = [Cell::new(group), verdict, Cell::new(finding.check)];
    table.add_row(cells.into_iter().chain([Cell::new(&finding.found)]));
    if let Some(mend) = &finding.mend {
        let empty = || Cell::new("");
        let mend = Cell::new(format!("-> {mend}"));
        table.add_row([empty(), empty(), empty(), mend]);
    }
}

/// How many findings there are of each kind, and what that means.
pub fn summary(counts: &Counts) -> String {
    let count = |number: usize, one: &str, many: &str| match number {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{number} {many}")),
    };
    let parts = [
        count(counts.ok, "ok", "ok"),
        count(counts.warning, "warning", "warnings"),
        count(counts.failed, "failed", "failed"),
        count(counts.unknown, "unknown", "unknown"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_has_its_line_and_what_to_do_below() {
        let groups = [
            Group {
                name: "machine",
                findings: vec![
                    Finding::ok("huge pages", "madvise"),
                    Finding::warning("defrag", "never", "echo madvise > defrag"),
                ],
            },
            Group {
                name: "driver",
                findings: vec![Finding::failed("kernel driver", "none", "install one")],
            },
        ];
        let text = text(&groups, "summary");
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            words(lines[0]),
            ["machine", "ok", "huge", "pages", "madvise"],
            "{text}"
        );
        assert_eq!(words(lines[1]), ["warning", "defrag", "never"]);
        assert_eq!(words(lines[2]), ["->", "echo", "madvise", ">", "defrag"]);
        assert_eq!(lines[3], "");
        assert_eq!(words(lines[4])[..2], ["driver", "failed"]);
        assert_eq!(lines.last(), Some(&"summary"));
        assert!(lines.iter().all(|line| *line == line.trim_end()));
    }

    #[test]
    fn the_summary_counts_what_is_there() {
        let counts = Counts {
            ok: 12,
            warning: 1,
            failed: 2,
            unknown: 0,
        };
        assert_eq!(summary(&counts), "12 ok, 1 warning, 2 failed");
    }
}
