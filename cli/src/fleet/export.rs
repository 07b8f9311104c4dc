//! A fleet for scripts: one JSON object, or a row of CSV for each group.

use serde::Serialize;

use super::collect::{Fleet, Group};
use super::phase::PIECES;
use super::tally::{Spread, Tally, ERROR};
use super::troubles::Trouble;
use crate::document;
use crate::document::csv::harmless;

/// Version of both forms: raised when a field changes its meaning or goes.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Whole<'a> {
    schema: u32,
    files: u64,
    lines: u64,
    phases: u64,
    hosts: usize,
    /// First and last moment, seconds since 1970.
    from_unix: Option<u64>,
    to_unix: Option<u64>,
    /// Largest error of a quantile, as a share of it.
    quantile_error: f64,
    groups: Vec<One>,
    options_not_understood: Vec<Misread<'a>>,
    left_out: Vec<Trouble>,
    untimed: u64,
    ungrouped: u64,
    doubts: Vec<Doubt>,
}

#[derive(Serialize)]
struct One {
    #[serde(flatten)]
    group: Group,
    phases: u64,
    bytes: u64,
    copied: u64,
    gb_per_s: Option<Spread>,
    seconds: Option<Spread>,
    ineffective: u64,
    steps_down: std::collections::BTreeMap<String, u64>,
    ms_per_gb: std::collections::BTreeMap<&'static str, f64>,
}

#[derive(Serialize)]
struct Misread<'a> {
    option: &'a str,
    phases: u64,
    hosts: Vec<&'a str>,
}

#[derive(Serialize)]
struct Doubt {
    what: String,
    advice: String,
}

fn one((group, tally): (Group, &Tally)) -> One {
    One {
        group,
        phases: tally.phases,
        bytes: tally.bytes,
        copied: tally.copied,
        gb_per_s: tally.rates.spread(),
        seconds: tally.seconds.spread(),
        ineffective: tally.ineffective,
        steps_down: tally.steps.clone(),
        ms_per_gb: PIECES
            .into_iter()
            .zip(tally.milliseconds_per_gb())
            .collect(),
    }
}

/// As one JSON object.
pub fn json(fleet: &Fleet) -> String {
    let misread = fleet.misread().into_iter();
    let doubts = super::doubts::of(fleet);
    let whole = Whole {
        schema: SCHEMA,
        files: fleet.files,
        lines: fleet.lines,
        phases: fleet.phases,
        hosts: fleet.hosts().len(),
        from_unix: fleet.span.map(|(first, _)| first),
        to_unix: fleet.span.map(|(_, last)| last),
        quantile_error: ERROR,
        groups: fleet.groups().into_iter().map(one).collect(),
        options_not_understood: misread
            .map(|(option, phases, hosts)| Misread {
                option,
                phases,
                hosts,
            })
            .collect(),
        left_out: fleet.troubles(),
        untimed: fleet.untimed,
        ungrouped: fleet.ungrouped,
        doubts: doubts
            .iter()
            .map(|doubt| {
                let told = doubt.told();
                Doubt {
                    what: told.what,
                    advice: told.advice,
                }
            })
            .collect(),
    };
    // Plain values with text keys always serialise.
    serde_json::to_string_pretty(&whole).unwrap_or_default() + "\n"
}

const COLUMNS: [&str; 17] = [
    "host",
    "direction",
    "mode",
    "pages",
    "kept",
    "strategy",
    "threads",
    "phases",
    "bytes",
    "gb_per_s_5",
    "gb_per_s_50",
    "gb_per_s_95",
    "seconds_5",
    "seconds_50",
    "seconds_95",
    "ineffective",
    "steps_down",
];

/// As CSV, a row for each group.
pub fn csv(fleet: &Fleet) -> String {
    let groups = fleet.groups().into_iter();
    let rows = groups.map(|(group, tally)| row(&group, tally));
    document::csv(COLUMNS, rows)
}

fn row(group: &Group, tally: &Tally) -> Vec<String> {
    let three = |spread: Option<Spread>| {
        let three = spread.map(|spread| [spread.low, spread.median, spread.high]);
        three.map_or([(); 3].map(|()| String::new()), |three| {
            three.map(|number| number.to_string())
        })
    };
    let mut row = vec![
        harmless(&group.host),
        harmless(&group.direction),
        harmless(&group.mode),
        harmless(&group.pages),
        group.kept.to_string(),
        harmless(&group.strategy),
        group.threads.to_string(),
        tally.phases.to_string(),
        tally.bytes.to_string(),
    ];
    row.extend(three(tally.rates.spread()));
    row.extend(three(tally.seconds.spread()));
    row.extend([
        tally.ineffective.to_string(),
        tally.steps_down().to_string(),
    ]);
    row
}

#[cfg(test)]
mod tests {
    use super::super::collect::tests::{fleet, line};
    use super::*;

    #[test]
    fn scripts_find_what_they_look_for() {
        let fleet = fleet(&[("a,b", &format!("{}\n{{", line(&[])))]);
        let json: serde_json::Value = serde_json::from_str(&json(&fleet)).unwrap();
        assert_eq!((&json["schema"], &json["phases"]), (&1.into(), &1.into()));
        let group = &json["groups"][0];
        assert_eq!(
            (&group["host"], &group["mode"]),
            (&"a,b".into(), &"on".into())
        );
        assert_eq!(group["gb_per_s"]["median"], 20.0);
        assert_eq!(group["ms_per_gb"]["copying"], 45.0);
        assert_eq!(json["left_out"][0]["kind"], "half");
        assert!(json["doubts"][0]["advice"].is_string());
        let csv = csv(&fleet);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[0].split(',').count(), COLUMNS.len());
        assert!(
            lines[1].starts_with(
                "\"a,b\",checkpoint,on,thp,false,demote,16,1,20000000000,20,20,20,1,1,1,0,0"
            ),
            "{csv}"
        );
    }

    #[test]
    fn csv_has_the_line_ends_of_its_standard_and_no_formula() {
        let line = line(&[("strategy", "+1".into())]);
        let fleet = fleet(&[("=cmd|x", &line), ("-a", &line), ("@b", &line)]);
        let csv = csv(&fleet);
        assert_eq!(csv.matches('\n').count(), 4);
        assert_eq!(csv.matches("\r\n").count(), 4);
        let starts: Vec<&str> = csv
            .lines()
            .map(|row| row.split(',').next().unwrap())
            .collect();
        assert_eq!(starts, ["host", "'-a", "'=cmd|x", "'@b"]);
        assert!(csv.lines().nth(1).unwrap().contains(",false,'+1,"), "{csv}");
    }
}
