//! A fleet as a report, as data for whoever shows it. `plots` are its pictures.

mod plots;

use std::time::{Duration, UNIX_EPOCH};

use crate::document::{Column, Document, Section, Table};
use crate::units;

use super::collect::{Fleet, Group};
use super::doubts;
use super::tally::{Spread, Tally, ERROR, FEW};
use plots::{over_time, split};

const DIRECTIONS: [&str; 2] = ["checkpoint", "restore"];
/// Makes the report.
pub fn document(fleet: &Fleet) -> Document {
    let mut sections = vec![all_hosts(fleet)];
    sections.extend(
        DIRECTIONS
            .iter()
            .filter_map(|direction| over_time(fleet, direction)),
    );
    sections.extend(split(fleet));
    sections.push(groups(fleet));
    sections.extend(steps(fleet));
    sections.extend(misread(fleet));
    sections.retain(|section| {
        let table = section.table.as_ref();
        table.is_none_or(|table| !table.rows.is_empty())
    });
    Document {
        title: "Checkpoints and restores of a fleet".into(),
        facts: facts(fleet),
        findings: findings(fleet),
        doubts: doubts::of(fleet).iter().map(doubts::Doubt::told).collect(),
        sections,
    }
}

fn facts(fleet: &Fleet) -> Vec<(String, String)> {
    let mut facts = vec![
        ("files", fleet.files.to_string()),
        ("lines", fleet.lines.to_string()),
        ("phases", fleet.phases.to_string()),
        ("hosts", fleet.hosts().len().to_string()),
    ];
    if let Some((first, last)) = fleet.span {
        facts.push(("from", moment(first)));
        facts.push(("to", moment(last)));
    }
    let error = format!(
        "medians and the like are exact of up to {FEW} phases, and of more within {} %, since not every number is kept",
        ERROR * 100.0
    );
    facts.push(("accuracy", error));
    let facts = facts.into_iter();
    facts
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn moment(second: u64) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(second));
    time.map_or_else(String::new, |time| {
        humantime::format_rfc3339_seconds(time).to_string()
    })
}

/// What each direction and mode came to.
fn findings(fleet: &Fleet) -> Vec<String> {
    let all = fleet.merged(|group| (group.direction.clone(), group.mode.clone()));
    let told = all.iter().filter_map(|((direction, mode), tally)| {
        let spread = tally.rates.spread()?;
        if tally.phases == 1 {
            let rate = digits(spread.median);
            return Some(format!("{direction}, {mode}: median {rate} GB/s over 1 phase"));
        }
        Some(format!(
            "{direction}, {mode}: median {} GB/s over {} phases, 90 % of them between {} and {} GB/s",
            digits(spread.median),
            tally.phases,
            digits(spread.low),
            digits(spread.high)
        ))
    });
    told.collect()
}

const NUMBERS: [&str; 11] = [
    "phases",
    "bytes",
    "GB/s 5 %",
    "GB/s median",
    "GB/s 95 %",
    "s 5 %",
    "s median",
    "s 95 %",
    "ineffective",
    "steps down",
    "through the library, %",
];

fn numbers(tally: &Tally) -> Vec<String> {
    let of = |spread: Option<Spread>| {
        let three = spread.map(|spread| [spread.low, spread.median, spread.high]);
        three.map_or([(); 3].map(|()| "-".into()), |three| three.map(digits))
    };
    let through = match tally.bytes {
        0 => "-".into(),
        bytes => format!("{:.1}", 100.0 * tally.copied as f64 / bytes as f64),
    };
    let mut cells = vec![tally.phases.to_string(), units::bytes(tally.bytes)];
    cells.extend(of(tally.rates.spread()));
    cells.extend(of(tally.seconds.spread()));
    cells.extend([
        tally.ineffective.to_string(),
        tally.steps_down().to_string(),
        through,
    ]);
    cells
}

fn table(words: &[&str], numbers: &[&str], rows: Vec<Vec<String>>) -> Table {
    let column = |is_number| {
        move |heading: &&str| Column {
            heading: (*heading).to_owned(),
            is_number,
        }
    };
    let words = words.iter().map(column(false));
    Table {
        columns: words.chain(numbers.iter().map(column(true))).collect(),
        rows,
    }
}

fn all_hosts(fleet: &Fleet) -> Section {
    let all = fleet.merged(|group| (group.direction.clone(), group.mode.clone()));
    let rows = all.iter().map(|((direction, mode), tally)| {
        let mut row = vec![direction.clone(), mode.clone()];
        row.extend(numbers(tally));
        row
    });
    Section {
        heading: "All hosts".into(),
        text: "Rates are bytes copied through the library divided by the time from the phase's first call to its end. \
               Of few phases the 5 % and 95 % are hardly more than the extremes."
            .into(),
        plot: None,
        table: Some(table(&["direction", "mode"], &NUMBERS, rows.collect())),
    }
}

fn group_words(group: &Group) -> Vec<String> {
    vec![
        group.direction.clone(),
        group.mode.clone(),
        group.pages.clone(),
        if group.kept { "kept" } else { "new" }.into(),
        group.strategy.clone(),
        group.threads.to_string(),
    ]
}

/// What phases of a group have in common beside the host; the headings of [`group_words`].
const GROUP: [&str; 6] = [
    "direction",
    "mode",
    "pages",
    "buffer",
    "strategy",
    "threads",
];

fn groups(fleet: &Fleet) -> Section {
    let rows = fleet.groups().into_iter().map(|(group, tally)| {
        let mut row = vec![group.host.clone()];
        row.extend(group_words(&group));
        row.extend(numbers(tally));
        row
    });
    let words: Vec<&str> = ["host"].into_iter().chain(GROUP).collect();
    Section {
        heading: "Groups".into(),
        text: "Phases that have everything in common that makes a difference.".into(),
        plot: None,
        table: Some(table(&words, &NUMBERS, rows.collect())),
    }
}

fn steps(fleet: &Fleet) -> Option<Section> {
    let by_host = fleet.merged(|group| group.host.clone());
    let rows: Vec<Vec<String>> = by_host
        .iter()
        .flat_map(|(host, tally)| {
            let steps = tally.steps.iter();
            steps.map(move |(reason, count)| vec![host.clone(), reason.clone(), count.to_string()])
        })
        .collect();
    (!rows.is_empty()).then(|| Section {
        heading: "Steps down".into(),
        text: "What the library did less well than it wished, by reason: what is new from line to line of a process.".into(),
        plot: None,
        table: Some(table(&["host", "reason"], &["times"], rows)),
    })
}

fn misread(fleet: &Fleet) -> Option<Section> {
    let misread = fleet.misread();
    let rows = misread.iter().map(|(option, phases, hosts)| {
        vec![(*option).to_owned(), hosts.join(", "), phases.to_string()]
    });
    (!misread.is_empty()).then(|| Section {
        heading: "Options that were not understood".into(),
        text: "Their defaults were in force.".into(),
        plot: None,
        table: Some(table(&["option", "hosts"], &["phases"], rows.collect())),
    })
}

/// Three digits, at least.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 || v == 0.0 => 2,
        v if v >= 0.09995 => 3,
        _ => 5,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::super::collect::tests::{fleet, line};
    use super::plots::SERIES;
    use super::*;
    use crate::document::Plot;

    fn section<'a>(document: &'a Document, heading: &str) -> &'a Section {
        let mut sections = document.sections.iter();
        let found = sections.find(|section| section.heading == heading);
        found.unwrap_or_else(|| panic!("{heading} is missing: {document:#?}"))
    }

    fn shown() -> Document {
        let text = [
            line(&[]),
            line(&[
                ("mode", "observe".into()),
                ("effective", false.into()),
                ("total_ns", 10_000_000_000u64.into()),
            ]),
            line(&[
                ("phase", "restore".into()),
                ("steps_down", serde_json::json!({"no-thread": 2})),
            ]),
            line(&[("not_understood", serde_json::json!(["CUDASNAP_LOG"]))]),
        ]
        .join("\n");
        document(&fleet(&[("a", &text), ("b", &line(&[]))]))
    }

    #[test]
    fn every_table_is_rectangular_and_every_plot_has_its_numbers() {
        let document = shown();
        for section in &document.sections {
            let table = section.table.as_ref().unwrap();
            assert!(!table.rows.is_empty(), "{}", section.heading);
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len(), "{}", section.heading);
            }
            match &section.plot {
                Some(Plot::Stacked(stacked)) => {
                    assert_eq!(stacked.bars.len(), table.rows.len());
                    for (_, pieces) in &stacked.bars {
                        assert_eq!(pieces.len(), stacked.pieces.len());
                        assert!(pieces.iter().all(|piece| *piece >= 0.0));
                    }
                }
                Some(Plot::Lines(lines)) => {
                    let points: usize = lines.series.iter().map(|series| series.points.len()).sum();
                    assert_eq!(points, table.rows.len());
                }
                _ => {}
            }
        }
    }

    #[test]
    fn medians_are_told_by_direction_and_mode() {
        let document = shown();
        assert!(
            document.findings[0].starts_with("checkpoint, observe: median 2.0"),
            "{:?}",
            document.findings
        );
        assert_eq!(
            document.findings[0],
            "checkpoint, observe: median 2.00 GB/s over 1 phase"
        );
        assert!(document.findings[1].starts_with("checkpoint, on: median 20.0 GB/s over 3 phases"));
        assert_eq!(document.findings.len(), 3);
        let all = section(&document, "All hosts").table.as_ref().unwrap();
        assert_eq!(all.rows[1][..4], ["checkpoint", "on", "3", "60.0 GB"]);
        assert_eq!(all.rows[1].last().unwrap(), "100.0");
    }

    #[test]
    fn the_split_is_by_gb() {
        let document = shown();
        let split = section(&document, "Where the time goes");
        let rows = &split.table.as_ref().unwrap().rows;
        // 20 GB: 10 ms in mmap, 900 ms copying, 90 ms waiting.
        let on = rows
            .iter()
            .find(|row| row[..2] == ["checkpoint", "on"])
            .unwrap();
        assert_eq!(on[6..], ["0.500", "0.00", "45.0", "4.50", "0.00", "50.0"]);
    }

    #[test]
    fn many_hosts_are_shown_by_mode() {
        let good = line(&[]);
        let hosts: Vec<String> = (0..SERIES + 1).map(|number| format!("n{number}")).collect();
        let files: Vec<(&str, &str)> = hosts
            .iter()
            .map(|host| (host.as_str(), good.as_str()))
            .collect();
        let of = |files| {
            let document = document(&fleet(files));
            let Some(Plot::Lines(lines)) = section(&document, "Rate over time: checkpoint")
                .plot
                .clone()
            else {
                panic!("lines");
            };
            lines
                .series
                .into_iter()
                .map(|series| series.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&files), ["on"]);
        assert_eq!(of(&files[..2]), ["n0, on", "n1, on"]);
    }

    #[test]
    fn an_empty_fleet_has_a_report_too() {
        let document = document(&fleet(&[]));
        assert!(document.sections.is_empty() && document.findings.is_empty());
        assert_eq!(document.doubts.len(), 1);
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0.00"),
            (21.34, "21.3"),
            (1.034, "1.03"),
            (0.5, "0.500"),
            (0.01234, "0.01234"),
            (812.3, "812"),
        ] {
            assert_eq!(digits(number), text);
        }
    }
}
