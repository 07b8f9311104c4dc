//! The report for people and for programs.

use std::io::IsTerminal;

use comfy_table::{presets, Cell, Color, ColumnConstraint, ContentArrangement, Table, Width};
use serde::Serialize;

use crate::doctor::finding::{Counts, Finding, Group, Verdict};
use crate::foreign_text::printable;

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
    let checks = groups.iter().flat_map(|group| &group.findings);
    let widest = checks.map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for group in groups {
        let table = table(&group.findings, widest);
        text += &format!("{}\n", group.name);
        for line in table.lines() {
            text += &format!(" {}\n", line.trim_end());
        }
        text.push('\n');
    }
    text + summary
}

/// The findings of a group; the check's column is as wide as in the other groups.
fn table(findings: &[Finding], widest: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        // One less for the blank in front.
        if let Some(width) = table.width() {
            table.set_width(width.saturating_sub(1));
        }
    } else {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    findings.iter().for_each(|finding| add(&mut table, finding));
    let padded = |width: usize| Width::Fixed(u16::try_from(width + 2).unwrap_or(u16::MAX));
    let widths = [Verdict::Warning.word().len(), widest];
    for (number, width) in widths.into_iter().enumerate() {
        if let Some(column) = table.column_mut(number) {
            column.set_constraint(ColumnConstraint::Absolute(padded(width)));
        }
    }
    table
}

fn add(table: &mut Table, finding: &Finding) {
    let verdict = Cell::new(finding.verdict.word());
    let verdict = match finding.verdict {
        Verdict::Ok => verdict.fg(Color::Green),
        Verdict::Warning => verdict.fg(Color::Yellow),
        Verdict::Failed => verdict.fg(Color::Red),
        Verdict::Unknown => verdict.fg(Color::DarkGrey),
    };
    table.add_row([
        verdict,
        Cell::new(finding.check),
        Cell::new(printable(&finding.found)),
    ]);
    if let Some(mend) = &finding.mend {
        let mend = Cell::new(format!("-> {}", printable(mend)));
        table.add_row([Cell::new(""), Cell::new(""), mend]);
    }
}

/// How many findings there are of each kind, and what that means. `what`: what cannot work when something failed.
pub fn summary(counts: &Counts, what: &str) -> String {
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
    let parts = parts.join(", ");
    match counts.failed {
        0 => parts,
        _ => format!("{parts}: {what} cannot work until what failed is mended"),
    }
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
        assert_eq!(
            lines[..6],
            [
                "machine",
                "  ok       huge pages     madvise",
                "  warning  defrag         never",
                "                          -> echo madvise > defrag",
                "",
                "driver",
            ],
            "{text}"
        );
        assert!(
            lines[6].starts_with("  failed   kernel driver  none"),
            "{text}"
        );
        assert_eq!(lines.last(), Some(&"summary"));
        assert!(lines.iter().all(|line| *line == line.trim_end()));
    }

    /// Paths in images are foreign.
    #[test]
    fn what_is_found_cannot_command_the_terminal() {
        let findings = vec![Finding::failed(
            "library",
            "/a\x1b[2Jb",
            "install /a\x1b[2Jb",
        )];
        let text = text(
            &[Group {
                name: "restore",
                findings,
            }],
            "",
        );
        assert!(!text.contains('\x1b') && text.contains("/a"), "{text:?}");
    }

    #[test]
    fn the_summary_counts_what_is_there() {
        let counts = Counts {
            ok: 12,
            warning: 1,
            failed: 2,
            unknown: 0,
        };
        assert_eq!(
            summary(&counts, "checkpoints"),
            "12 ok, 1 warning, 2 failed: checkpoints cannot work until what failed is mended"
        );
    }
}
