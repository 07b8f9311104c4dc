use super::data::{Call, Measured};
use super::reach::{pick, rows};
use super::*;
use serde_json::{json, Value};

fn split(call: f64, kept: bool) -> Value {
    json!({"call": call, "mmap": 0.1, "first_copy": 0.0, "copying": call - 0.3, "waiting": 0.1, "ending": 0.0, "munmap": 0.0,
        "rest": 0.1, "prefault": 0.2, "copy_loop": call - 0.2, "bytes": 20_000_000_000u64, "kept": kept, "threads": 4})
}

fn row(checkpoint: f64, restore: f64, kept: bool) -> Value {
    json!({"outcome": {"times": {"lock": 0.0, "checkpoint": checkpoint, "restore": restore, "unlock": 0.0}},
        "split": {"checkpoint": split(checkpoint, kept), "restore": split(restore, kept)}})
}

fn run(arms: &[(&str, Vec<Value>)]) -> Value {
    let arms: Vec<Value> = arms
        .iter()
        .map(|(arm, rows)| json!({"arm": arm, "rows": rows}))
        .collect();
    json!({"bytes": 20_000_000_000u64, "verified": true, "problems": [], "arms": arms})
}

fn step(result: Value) -> Value {
    json!({"status": 0, "seconds": 1, "skipped": "", "result": result})
}

fn pinned(rate: f64) -> Value {
    step(
        json!({"host_to_device_gbs": {"best": 99.0, "median": rate}, "device_to_host_gbs": {"best": 99.0, "median": rate}}),
    )
}

/// P is 50 GB/s: 20 GB take 0.4 s.
fn measured() -> Measured {
    let part = json!({"part": "table", "device": "D", "machine": "M", "steps": {
        "pinned-before": pinned(49.0), "pinned-after": pinned(51.0),
        "size-24576": step(run(&[("stock", vec![row(10.0, 4.0, false)]), ("shim", vec![row(1.0, 0.5, false), row(0.8, 0.6, false), row(0.5, 0.8, false)])])),
        "keep-24576": step(run(&[("keep", vec![row(2.0, 1.0, false), row(0.5, 0.5, true)])])),
        "alone-0": step(run(&[("shim", vec![row(1.0, 1.0, false)])])),
        "both-0": step(run(&[("shim", vec![row(1.25, 2.0, false)])])),
        "bare-1": step(run(&[("stock", vec![row(0.5, 0.25, false)]), ("shim", vec![row(0.25, 0.2, false)])])),
        "4k-24576": {"status": null, "seconds": 0, "skipped": "no room"},
    }});
    Measured {
        parts: vec![serde_json::from_value(part).unwrap()],
    }
}

#[test]
fn ratios_are_against_the_pinned_rate_of_the_same_part() {
    let rows = rows(&measured()).unwrap();
    let of = |what: &str| {
        let mut found = rows.iter().filter(|row| row.what.starts_with(what));
        found
            .find_map(|row| row.measured)
            .map(|spread| (spread.median * 1000.0).round() / 1000.0)
    };
    assert_eq!(of("checkpoint end to end, fresh"), Some(0.5));
    assert_eq!(of("restore end to end"), Some(0.667));
    // Only the cycle whose buffer was kept counts: 0.4 s of 0.5; its loop took 0.3 s.
    assert_eq!(of("checkpoint end to end, kept"), Some(0.8));
    assert_eq!(of("copy loop, checkpoint"), Some(1.333));
    let two: Vec<_> = rows
        .iter()
        .filter(|row| row.what.starts_with("two"))
        .collect();
    assert!((two[0].measured.unwrap().median - 0.8).abs() < 1e-9);
    assert!((two[1].measured.unwrap().median - 0.5).abs() < 1e-9);
    assert_eq!(of("hosts without THP"), None);
    assert_eq!(of("the driver's loop"), None);
}

#[test]
fn tuning_is_compared_with_the_best_fixed_way_of_the_same_round() {
    let mut all = measured();
    let row = |seconds: f64, strategy: &str| {
        let mut row = row(seconds, 1.0, true);
        row["outcome"]["checkpoint"] = json!({"strategy": strategy, "threads": 14});
        row
    };
    // The machine gets slower from round to round: in pairs that does not count.
    let arm = |factor: f64, way: &str| -> Vec<Value> {
        let rounds = (0..10).map(|round| row((1.0 + f64::from(round)) * factor, way));
        let mut first = row(90.0, way);
        first["split"]["checkpoint"]["kept"] = json!(false);
        std::iter::once(first).chain(rounds).collect()
    };
    let result = run(&[
        ("keep:fixed", arm(1.1, "flush-late")),
        ("keep:plain", arm(1.0, "plain")),
        ("keep:tune", arm(1.02, "plain")),
    ]);
    all.parts[0].steps.insert(
        "tunekept-12288".into(),
        serde_json::from_value(step(result)).unwrap(),
    );
    let found = super::tuning::tunings(&all).unwrap();
    assert_eq!(found.len(), 2);
    let checkpoint = &found[0];
    assert_eq!(checkpoint.what, "checkpoint, kept buffer");
    assert_eq!(checkpoint.pairs, 10);
    for value in [checkpoint.loss.0, checkpoint.loss.1, checkpoint.loss.2] {
        assert!((value - 0.02).abs() < 1e-9, "{checkpoint:?}");
    }
    assert_eq!(checkpoint.chosen, [("plain 14".to_string(), 10)]);
    let text = markdown(&all).unwrap();
    assert!(
        text.contains("| 12 GiB | checkpoint, kept buffer | fixed 6.050, plain 5.500 | 5.610 | +2.0 (+2.0 to +2.0) | 10 | plain 14 (10) |"),
        "{text}"
    );
}

fn with_step(name: &str, result: Value) -> Measured {
    let mut all = measured();
    let step = serde_json::from_value(step(result)).unwrap();
    all.parts[0].steps.insert(name.into(), step);
    all
}

#[test]
fn zeros_are_told_beside_the_same_arm_without() {
    let arm = |seconds: f64, zeros: u64, resident: u64| {
        let mut row = row(seconds, 2.0 * seconds, true);
        row["outcome"]["checkpoint"] = json!({"zeros": zeros});
        row["outcome"]["checkpointed"] = json!({"resident": resident});
        row
    };
    let mut result = run(&[
        ("shim", vec![arm(2.0, 0, 26_000_000_000)]),
        ("shim:sparse", vec![arm(0.5, 21_000_000_000, 5_000_000_000)]),
        ("keep", vec![arm(1.0, 0, 26_000_000_000)]),
        ("keep:sparse", vec![arm(1.5, 0, 26_000_000_000)]),
    ]);
    let without = markdown(&with_step("zeros-24576", result.clone())).unwrap();
    assert!(
        without.contains("| 24 GiB, no zeros | shim | 2.000 |"),
        "{without}"
    );
    result["args"] = json!(["4096", "--zeros", "20480"]);
    let text = markdown(&with_step("zeros-24576", result)).unwrap();
    for line in [
        "| 24 GiB, 20 GiB of it zeros | shim | 2.000 | - | 4.000 | - | 0.00 GB | 26.00 GB |",
        "| 24 GiB, 20 GiB of it zeros | shim:sparse | 0.500 | 0.25 | 1.000 | 0.25 | 21.00 GB | 5.00 GB |",
        "| 24 GiB, 20 GiB of it zeros | keep:sparse | 1.500 | 1.50 | 3.000 | 1.50 | 0.00 GB | 26.00 GB |",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // A file from before the record had these fields.
    let old = run(&[("shim", vec![row(1.0, 1.0, false)])]);
    let text = markdown(&with_step("nozeros-12288", old)).unwrap();
    assert!(
        text.contains("| 12 GiB, no zeros | shim | 1.000 | - | 1.000 | - | - | - |"),
        "{text}"
    );
}

#[test]
fn reserved_memory_is_told_without_its_first_cycle_and_with_the_time_to_fill_it() {
    let filled = |seconds: f64, fill: f64| {
        let mut row = row(seconds, 0.8, true);
        row["reserved"] = json!({"seconds": fill, "status": 0, "said": ""});
        row
    };
    let result = run(&[
        ("shim", vec![row(0.8, 0.8, false)]),
        ("keep", vec![row(0.8, 0.8, false), row(0.5, 0.5, true)]),
        (
            "reserve",
            vec![row(9.0, 9.0, false), filled(0.5, 4.0), filled(0.5, 6.0)],
        ),
    ]);
    let all = with_step("reserve-24576", result);
    let text = markdown(&all).unwrap();
    // P takes 0.4 s; the loop is 0.2 s shorter than the call.
    for line in [
        "| 24 GiB | shim | 0.800 (0.50, loop 0.67) | 0.800 (0.50, loop 0.67) | - |",
        "| 24 GiB | keep | 0.500 (0.80, loop 1.33) | 0.500 (0.80, loop 1.33) | - |",
        "| 24 GiB | reserve | 0.500 (0.80, loop 1.33) | 0.800 (0.50, loop 0.67) | 5.000 |",
        "| checkpoint end to end, reserved memory | 24 GiB | **0.80** (0.80-0.80) | - | 0.78 | 0.82 |",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn each_kind_of_pages_has_a_row_with_what_the_record_says() {
    let with = |seconds: f64, pages: &str| {
        let mut row = row(seconds, seconds, false);
        row["outcome"]["checkpoint"] = json!({"pages": pages});
        row
    };
    let result = run(&[
        ("shim", vec![with(0.8, "thp")]),
        ("shim:hugetlb", vec![with(0.5, "hugetlb")]),
    ]);
    let mut all = with_step("hugetlb-24576", result);
    let small = step(run(&[("shim", vec![with(1.6, "4k")])]));
    let small = serde_json::from_value(small).unwrap();
    all.parts[0]
        .steps
        .insert("mthp64always-24576".into(), small);
    let text = markdown(&all).unwrap();
    for line in [
        "| 24 GiB | 2 MiB, transparent | thp | 0.800 (0.50) | 0.800 (0.50) |",
        "| 24 GiB | 2 MiB, hugetlb pool | hugetlb | 0.500 (0.80) | 0.500 (0.80) |",
        "| 24 GiB | 2048 kB `never`, 64 kB `always` | 4k | 1.600 (0.25) | 1.600 (0.25) |",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("1024 kB"), "{text}");
}

#[test]
fn a_part_that_was_not_measured_has_no_table_and_no_number() {
    let text = markdown(&measured()).unwrap();
    for title in ["Zeros left out", "Reserved memory", "Kinds of pages"] {
        assert!(!text.contains(title), "{text}");
    }
    let line = "| checkpoint end to end, reserved memory | - | not measured | - | 0.78 | 0.82 |";
    assert!(text.contains(line), "{text}");
    // What went wrong in such a part is told.
    let mut wrong = run(&[("reserve", vec![row(1.0, 1.0, false)])]);
    wrong["verified"] = json!(false);
    let text = markdown(&with_step("reserve-24576", wrong)).unwrap();
    assert!(text.contains("- reserve-24576: CONTENTS WRONG"), "{text}");
}

#[test]
fn the_wanted_size_is_taken_or_else_the_largest() {
    let runs = || measured().runs("size").unwrap();
    assert_eq!(pick(runs(), 24576).unwrap().0, 24576);
    assert_eq!(pick(runs(), 48).unwrap().0, 24576);
    assert!(pick(measured().runs("4k").unwrap(), 48).is_none());
    assert!((runs()[&24576].least(Call::Restore) - 0.4).abs() < 1e-9);
}

#[test]
fn tables_say_what_was_not_measured_and_what_failed() {
    let text = markdown(&measured()).unwrap();
    assert!(
        text.contains("| hosts without THP (4 KiB pages), fresh checkpoint | - | not measured |"),
        "{text}"
    );
    assert!(text.contains("- 4k-24576: skipped: no room"), "{text}");
    assert!(
        text.contains("| shim | 0.250 (0.250-0.250) | 0.50 | 0.200 (0.200-0.200) | 0.80 |"),
        "{text}"
    );
    let document = format!("frame\n{BEGIN}\nold\n{END}\nend\n");
    let filled = fill(&document, "new").unwrap();
    assert_eq!(filled, format!("frame\n{BEGIN}\n\nnew\n{END}\nend\n"));
    assert!(fill("no marks", "new").is_err());
}

#[test]
fn merged_files_are_read_like_their_parts() {
    let folder = std::env::temp_dir().join(format!("cudasnap-performance-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (part, merged) = (folder.join("part.json"), folder.join("merged.json"));
    std::fs::write(&part, serde_json::to_string(&measured().parts[0]).unwrap()).unwrap();
    std::fs::write(&merged, serde_json::to_string(&measured()).unwrap()).unwrap();
    let text = |files: &[&std::path::Path]| markdown(&Measured::load(files).unwrap()).unwrap();
    assert_eq!(text(&[&part]), text(&[&merged]));
    plot_sizes(&measured(), &folder.join("size.svg")).unwrap();
    plot_splits(&measured(), &folder.join("split.svg")).unwrap();
    for plot in ["size.svg", "split.svg"] {
        let svg = std::fs::read_to_string(folder.join(plot)).unwrap();
        assert!(
            svg.contains("prefers-color-scheme") && svg.contains("seconds"),
            "{plot}"
        );
    }
    std::fs::write(&part, "{}").unwrap();
    assert!(Measured::load(&[&part]).unwrap_err().contains("part.json"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_step_that_was_skipped_in_one_file_and_made_in_another_is_not_told() {
    let skipped = || json!({"status": null, "seconds": 0, "skipped": "no time"});
    let part = |steps: Value| {
        serde_json::from_value(json!({"part": "p", "device": "D", "machine": "M", "steps": steps}))
            .unwrap()
    };
    let made = step(run(&[]));
    let failed = json!({"status": 1, "seconds": 1, "skipped": ""});
    let measured = Measured {
        parts: vec![
            part(
                json!({"before-1": skipped(), "after-1": made, "never-1": skipped(), "mended-1": failed}),
            ),
            part(
                json!({"before-1": made, "after-1": skipped(), "never-1": skipped(), "mended-1": made}),
            ),
        ],
    };
    assert_eq!(measured.missing(), ["never-1: skipped: no time"]);
}
