use std::collections::BTreeMap;

use super::super::data::{Gpu, Host, Limit, Surroundings, SCHEMA};
use super::*;

fn run() -> Measured {
    let variant = |name: &str, mode: &str, threads: Option<&str>| Variant {
        name: name.into(),
        mode: mode.into(),
        settings: threads
            .map(|threads| ("threads".into(), threads.into()))
            .into_iter()
            .collect(),
    };
    let phase = |seconds: f64, effective: bool| Phase {
        seconds,
        bytes: 25_769_803_776,
        seen: Some(Seen {
            effective,
            mode: "on".into(),
            pages: "thp".into(),
            copied: 25_769_803_776,
            munmap: 0.25,
            steps_down: BTreeMap::from([("no-huge".into(), 2), ("small".into(), 1)]),
            ..Seen::default()
        }),
    };
    Measured {
        schema: SCHEMA,
        tool: "0.1.0".into(),
        started_unix: 1_796_051_417,
        seed: 4711,
        host: Host::default(),
        gpu: Some(Gpu {
            name: "NVIDIA H200".into(),
            driver: "580.159.04".into(),
            link: None,
            number: Some(3),
        }),
        confidence: None,
        workloads: vec![Workload {
            no_limit: None,
            name: "24 GiB".into(),
            command: vec!["x".into()],
            variants: vec![
                variant("observe", "observe", None),
                variant("on:4", "on", Some("4")),
            ],
            limit: Some(Limit {
                to_host: 55.3,
                to_device: 54.6,
                bytes: 1 << 30,
                repeats: 5,
            }),
            cycles: vec![
                Cycle {
                    number: 5,
                    round: 2,
                    variant: "on:4".into(),
                    pid: 77,
                    at: 0.5,
                    lock: Some(0.001),
                    checkpoint: Some(phase(1.0, true)),
                    restore: Some(phase(0.5, true)),
                    unlock: Some(0.002),
                    verified: Some(true),
                    surroundings: Surroundings {
                        mhz: Some((1500, 3700)),
                        ..Surroundings::default()
                    },
                    ..Cycle::default()
                },
                Cycle {
                    number: 6,
                    variant: "observe".into(),
                    warm_up: true,
                    error: Some("the driver said \"no\",\nand more".into()),
                    ..Cycle::default()
                },
            ],
        }],
        stopped: None,
    }
}

/// Rows by the names of columns, read by a reader that knows nothing of the writer.
fn read(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names: Vec<String> = reader.headers().unwrap().iter().map(String::from).collect();
    let rows = reader.records().map(|row| {
        let row = row.unwrap();
        assert_eq!(row.len(), names.len());
        names
            .iter()
            .cloned()
            .zip(row.iter().map(String::from))
            .collect()
    });
    rows.collect()
}

#[test]
fn each_cycle_has_a_row_with_what_was_measured() {
    let rows = read(&csv(&run()));
    assert_eq!(rows.len(), 2);
    for (name, value) in [
        ("workload", "24 GiB"),
        ("gpu_number", "3"),
        ("variant", "on:4"),
        ("mode", "on"),
        ("settings", "threads=4"),
        ("warm_up", "false"),
        ("cycle", "5"),
        ("round", "2"),
        ("pid", "77"),
        ("lock_s", "0.001"),
        ("checkpoint_s", "1"),
        ("checkpoint_gb_per_s", "25.769803776"),
        ("restore_gb_per_s", "51.539607552"),
        ("checkpoint_effective", "true"),
        ("restore_munmap_s", "0.25"),
        ("restore_steps_down", "no-huge=2 small=1"),
        ("verified", "true"),
        ("mhz_high", "3700"),
        ("others_busy", ""),
        ("error", ""),
        ("limit_to_host_gb_per_s", "55.3"),
        ("seed", "4711"),
        ("gpu", "NVIDIA H200"),
    ] {
        assert_eq!(rows[0][name], value, "{name}");
    }
    for (name, value) in [
        ("cycle", "6"),
        ("warm_up", "true"),
        ("checkpoint_s", ""),
        ("checkpoint_bytes", ""),
        ("verified", ""),
        ("error", "the driver said \"no\",\\nand more"),
    ] {
        assert_eq!(rows[1][name], value, "{name}");
    }
}

#[test]
fn it_is_rfc_4180() {
    let text = csv(&run());
    assert!(text.ends_with("\r\n"));
    assert_eq!(text.matches("\r\n").count(), 3);
    assert_eq!(text.matches('\n').count(), 3);
    assert!(text.contains("\"the driver said \"\"no\"\",\\nand more\""));
}

#[test]
fn unknown_numbers_are_empty() {
    let mut run = run();
    let phase = run.workloads[0].cycles[0].checkpoint.as_mut().unwrap();
    phase.bytes = 0;
    phase.seconds = f64::NAN;
    phase.seen = None;
    let rows = read(&csv(&run));
    for name in ["s", "bytes", "gb_per_s", "pages", "mmap_s"] {
        assert_eq!(rows[0][&format!("checkpoint_{name}")], "", "{name}");
    }
}

#[test]
fn foreign_text_is_no_formula() {
    for (text, shown) in [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1", "'+1"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("＝1", "'＝1"),
        ("\t=1", "\\t=1"),
        ("24 GiB", "24 GiB"),
        ("a=1", "a=1"),
    ] {
        assert_eq!(harmless(text), shown);
    }
    let evil = || "=1+1".to_owned();
    let mut run = run();
    run.tool = evil();
    run.gpu = Some(Gpu {
        name: evil(),
        driver: evil(),
        link: None,
        number: None,
    });
    let workload = &mut run.workloads[0];
    workload.name = evil();
    for variant in &mut workload.variants {
        variant.name = evil();
        variant.mode = evil();
        variant.settings = BTreeMap::from([(evil(), evil())]);
    }
    for cycle in &mut workload.cycles {
        cycle.variant = evil();
        cycle.error = Some(evil());
        for seen in [&mut cycle.checkpoint, &mut cycle.restore]
            .into_iter()
            .flatten()
            .flat_map(|phase| &mut phase.seen)
        {
            (seen.mode, seen.pages, seen.strategy) = (evil(), evil(), evil());
            seen.steps_down = BTreeMap::from([(evil(), 1)]);
        }
    }
    let mut escaped = 0;
    for (name, cell) in read(&csv(&run)).iter().flatten() {
        assert!(!cell.starts_with(['=', '+', '-', '@']), "{name}: {cell}");
        escaped += usize::from(cell.starts_with('\''));
    }
    assert_eq!(escaped, 2 * 8 + 2 * 4, "of each cycle, of each phase");
}

#[test]
fn columns_are_the_documented_ones() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ab-report.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, columns_of_it) = text.split_once("\n## CSV columns\n").unwrap();
    let documented: Vec<(String, String)> = columns_of_it
        .lines()
        .filter_map(|line| {
            let (name, what) = line
                .strip_prefix("| `")?
                .strip_suffix(" |")?
                .split_once("` | ")?;
            Some((name.to_owned(), what.to_owned()))
        })
        .collect();
    let mut wanted = Vec::new();
    for (name, what) in columns() {
        match name.split_once('_') {
            // Both directions have the same columns; the document has them once.
            Some(("restore", _)) => {}
            Some(("checkpoint", rest)) => {
                wanted.push((format!("DIRECTION_{rest}"), what.to_owned()))
            }
            _ => wanted.push((name, what.to_owned())),
        }
    }
    assert_eq!(documented, wanted);
}

#[test]
fn names_are_stable() {
    let names: Vec<String> = columns().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 66);
    let mut once = names.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), names.len());
    let plain = |name: &String| {
        name.chars()
            .all(|character| character.is_ascii_lowercase() || character == '_')
    };
    assert!(names.iter().all(plain));
}
