//! `cudasnap report` on lines that the library wrote in real cycles on the simulated driver.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cudasnap_cli::fleet::phase::Phase;
use cudasnap_cli::record::Control;
use cudasnap_shim_tests::folder::Folder;
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::tool::Said;
use cudasnap_wire::Mode;

/// Cycles of one process, `on` and then `observe`: its lines.
fn written(
    driver: &SimDriver,
    path: &Path,
    on: u32,
    observed: u32,
    more: &[(&str, &str)],
) -> String {
    let report = [("CUDASNAP_REPORT", path.to_str().unwrap())];
    let mut process = Shimmed::start(driver, &["40"], &[&report, more].concat());
    for _ in 0..on {
        process.cycle();
    }
    process
        .located()
        .write(Control::Mode(Mode::Observe))
        .unwrap();
    for _ in 0..observed {
        process.cycle();
    }
    std::fs::read_to_string(path).unwrap()
}

fn json(driver: &SimDriver, files: &[&str]) -> (Said, serde_json::Value) {
    let said = driver.said(&format!("report {} --json -", files.join(" ")));
    let value = said.json();
    (said, value)
}

fn group<'a>(
    json: &'a serde_json::Value,
    host: &str,
    direction: &str,
    mode: &str,
) -> &'a serde_json::Value {
    let mut groups = json["groups"].as_array().unwrap().iter();
    let found = groups.find(|group| {
        group["host"] == host && group["direction"] == direction && group["mode"] == mode
    });
    found.unwrap_or_else(|| panic!("{host} {direction} {mode}: {json}"))
}

#[test]
fn lines_of_real_cycles_become_groups() {
    let driver = SimDriver::build(false);
    let folder = Folder::new();
    let (one, two) = (folder.file("one.jsonl"), folder.file("two.jsonl"));
    let text = written(&driver, &one, 3, 2, &[]);
    written(
        &driver,
        &two,
        1,
        0,
        &[("CUDASNAP_PAGES", "4k"), ("CUDASNAP_LOG", "loud")],
    );
    let files = [
        format!("node1={}", one.display()),
        two.display().to_string(),
    ];
    let (said, json) = json(&driver, &[&files[0], &files[1]]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert_eq!(
        (&json["phases"], &json["lines"], &json["hosts"]),
        (&12.into(), &12.into(), &2.into())
    );
    let on = group(&json, "node1", "checkpoint", "on");
    // What the lines say, counted by hand.
    let lines: Vec<Phase> = text
        .lines()
        .map(|line| Phase::read(line.as_bytes()).unwrap())
        .collect();
    let of = |mode: &str| {
        lines
            .iter()
            .filter(|line| line.mode == mode && line.phase == "checkpoint")
            .collect::<Vec<_>>()
    };
    let bytes: u64 = of("on").iter().map(|line| line.bytes).sum();
    assert_eq!((&on["phases"], &on["bytes"]), (&3.into(), &bytes.into()));
    assert_eq!(on["ineffective"], 0);
    let mut seconds: Vec<f64> = of("on")
        .iter()
        .map(|line| line.total_ns as f64 / 1e9)
        .collect();
    seconds.sort_by(f64::total_cmp);
    let median = on["seconds"]["median"].as_f64().unwrap();
    assert!(
        (median / seconds[1] - 1.0).abs() < 0.0021,
        "{median} {seconds:?}"
    );
    assert_eq!(group(&json, "node1", "restore", "observe")["phases"], 2);
    let small = group(&json, "two.jsonl", "checkpoint", "on");
    assert_eq!(small["pages"], "4k");
    assert_eq!(json["options_not_understood"][0]["option"], "CUDASNAP_LOG");
    assert_eq!(
        json["options_not_understood"][0]["hosts"],
        serde_json::json!(["two.jsonl"])
    );
    assert_eq!(json["left_out"], serde_json::json!([]));
    assert!(json["from_unix"].as_u64().unwrap() > 1_700_000_000);
}

#[test]
fn the_terminal_and_csv_show_the_same_groups() {
    let driver = SimDriver::build(false);
    let folder = Folder::new();
    let (path, csv) = (folder.file("a.jsonl"), folder.file("a.csv"));
    written(&driver, &path, 2, 1, &[]);
    let shown = driver.must_say(&format!(
        "report host={} --csv {}",
        path.display(),
        csv.display()
    ));
    for words in [
        "checkpoint, on: median ",
        "restore, observe: median ",
        "Where the time goes",
        "Rate over time: restore",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let csv = std::fs::read_to_string(csv).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows.len(), 5, "two directions, two modes, a heading: {csv}");
    assert!(rows[1].starts_with("host,checkpoint,observe,"), "{csv}");
    assert_eq!(csv.matches("\r\n").count(), 5);
    // The same file by another path, and files of one name.
    let same = format!(
        "report {0} {1}/./a.jsonl --json -",
        path.display(),
        folder.path().display()
    );
    let json = driver.said(&same).json();
    assert_eq!((&json["files"], &json["phases"]), (&1.into(), &6.into()));
    assert!(
        json["doubts"].to_string().contains("is the same file as"),
        "{json}"
    );
    for host in ["n1", "n2"] {
        let folder = folder.file(host);
        std::fs::create_dir(&folder).unwrap();
        std::fs::copy(&path, folder.join("rep.jsonl")).unwrap();
    }
    let mut tool = driver.tool("report n1/rep.jsonl n2/rep.jsonl --json -");
    let json = Said::by(tool.current_dir(folder.path())).json();
    assert_eq!((&json["hosts"], &json["phases"]), (&2.into(), &12.into()));
    assert_eq!(group(&json, "n2/rep.jsonl", "restore", "on")["phases"], 2);
}

/// Whatever else is in a file is told with its place, and the rest counts.
#[test]
fn broken_foreign_newer_and_half_lines_are_left_out() {
    let driver = SimDriver::build(false);
    let folder = Folder::new();
    let path = folder.file("a.jsonl");
    let text = written(&driver, &path, 1, 0, &[]);
    let first = text.lines().next().unwrap();
    let newer = first.replacen("\"schema\":1", "\"schema\":2", 1);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    write!(
        file,
        "\u{1b}[2J broken\n{{\"level\":\"info\"}}\n{newer}\n{}",
        &first[..first.len() / 2]
    )
    .unwrap();
    let (said, json) = json(&driver, &[path.to_str().unwrap()]);
    assert_eq!(said.code, 0);
    assert_eq!(json["phases"], 2);
    let left: Vec<(&str, &str)> = json["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|left| {
            (
                left["kind"].as_str().unwrap(),
                left["places"][0].as_str().unwrap(),
            )
        })
        .collect();
    let at = |line: u32| format!("{}:{line}", path.display());
    let places: Vec<String> = (3..=6).map(at).collect();
    let kinds = ["broken", "foreign", "newer", "half"];
    let expected: Vec<(&str, &str)> = kinds
        .into_iter()
        .zip(places.iter().map(String::as_str))
        .collect();
    assert_eq!(left, expected);
    let shown = driver.must_say(&format!("report {}", path.display()));
    assert!(
        shown.contains("is half written") && !shown.contains('\u{1b}'),
        "{shown}"
    );
    // Its end comes: then it counts.
    writeln!(file, "{}", &first[first.len() / 2..]).unwrap();
    let (_, json) = self::json(&driver, &[path.to_str().unwrap()]);
    assert_eq!(
        (&json["phases"], json["left_out"].as_array().unwrap().len()),
        (&3.into(), 3)
    );
}

#[test]
fn stdin_is_a_file_too_and_one_that_is_missing_is_told() {
    let driver = SimDriver::build(false);
    let folder = Folder::new();
    let path = folder.file("a.jsonl");
    written(&driver, &path, 1, 0, &[]);
    let missing: PathBuf = folder.file("none");
    let mut command = driver.tool(&format!("report n1=- {} --json -", missing.display()));
    command.stdin(Stdio::from(std::fs::File::open(&path).unwrap()));
    let said = Said::by(&mut command);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.stderr.contains("none: No such file"), "{said:?}");
    assert_eq!(group(&said.json(), "n1", "restore", "on")["phases"], 1);
    let said = driver.said(&format!("report {}", missing.display()));
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    let said = driver.said(&format!("report {}", folder.path().display()));
    assert!(
        said.code == 1 && said.stderr.contains("it is a folder"),
        "{said:?}"
    );
    assert_eq!(
        driver
            .said(&format!("report {} --json - --csv -", path.display()))
            .code,
        2
    );
}

/// A step down is counted once, though every later line of its process says it again.
#[test]
fn steps_down_are_counted_once() {
    let driver = SimDriver::build(false);
    let folder = Folder::new();
    let path = folder.file("a.jsonl");
    let report = ("CUDASNAP_REPORT", path.to_str().unwrap());
    let mut process = Shimmed::start(&driver, &["16"], &[report, ("CUDASNAP_BUFFER", "keep")]);
    process.cycle();
    // A buffer that is kept does not fit what has grown.
    for mib in [32, 64] {
        process.app.tell(&format!("extra {mib}"));
        assert_eq!(process.app.hear(), "ok");
        process.cycle();
    }
    process.cycle();
    // Lines come when a buffer is unmapped: the last one is kept.
    let text = std::fs::read_to_string(&path).unwrap();
    let last = Phase::read(text.lines().last().unwrap().as_bytes()).unwrap();
    assert!(
        last.steps_down["kept-unfit"] >= 1 && text.lines().count() > 2,
        "{text}"
    );
    let (_, json) = json(&driver, &[path.to_str().unwrap()]);
    let mut counted = std::collections::BTreeMap::new();
    for group in json["groups"].as_array().unwrap() {
        for (name, count) in group["steps_down"].as_object().unwrap() {
            *counted.entry(name.clone()).or_insert(0) += count.as_u64().unwrap();
        }
    }
    assert_eq!(counted, last.steps_down);
}
