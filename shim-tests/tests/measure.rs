//! What measures: the split of a cycle's time, cycles of two callers at the same time, zeros and reserved memory as arms, and the ceiling
//! with copies left out.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use cudasnap_shim_tests::shimmed::{library, Shimmed};
use cudasnap_shim_tests::simdriver::{repository, SimDriver};
use cudasnap_shim_tests::tool::binary;
use serde_json::Value;

/// A folder of this test's own, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cudasnap-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A measuring program with `simapp MIB` on the simulated driver; its JSON goes to `json`.
fn program(sim: &SimDriver, path: &str, options: &[&str], mib: &str, json: &Path) -> Command {
    let mut command = Command::new(path);
    command
        .args(options)
        .arg("--json")
        .arg(json)
        .arg("--")
        .arg(sim.programs.join("simapp"))
        .arg(mib)
        .env("LD_LIBRARY_PATH", &sim.library)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[track_caller]
fn right(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
}

fn read(json: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

fn freecopy(folder: &Folder) -> PathBuf {
    let to = folder.file("libfreecopy.so");
    let output = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC"])
        .args(["-fvisibility=hidden", "-fno-builtin"])
        .arg("-fno-tree-loop-distribute-patterns")
        .arg("-o")
        .arg(&to)
        .arg(repository().join("shim-tests/gpu/freecopy.c"))
        .output()
        .unwrap();
    right(&output);
    to
}

fn rows(result: &Value, arm: usize) -> &Vec<Value> {
    result["arms"][arm]["rows"].as_array().unwrap()
}

#[test]
fn every_cycle_has_its_split_and_the_pieces_add_up() {
    let (sim, folder) = (SimDriver::build(false), Folder::new("split"));
    let (json, shim) = (folder.file("cycle.json"), library());
    let options = ["--shim", shim.to_str().unwrap(), "--verify-last"];
    let arms = [
        "--arms",
        "stock,keep,observe",
        "--cycles",
        "3",
        "--slow-cycles",
        "2",
    ];
    let options = [&options[..], &arms[..]].concat();
    let output = program(&sim, env!("CARGO_BIN_EXE_cycle"), &options, "64", &json).output();
    right(&output.unwrap());
    let result = read(&json);
    assert_eq!([0, 1, 2].map(|arm| rows(&result, arm).len()), [2, 3, 2]);
    for (arm, kept) in [(1, vec![false, true, true]), (2, vec![false, false])] {
        for (row, kept) in rows(&result, arm).iter().zip(kept) {
            assert_eq!(row["split"]["checkpoint"]["kept"], kept);
            for call in ["checkpoint", "restore"] {
                let split = &row["split"][call];
                let names = [
                    "mmap",
                    "first_copy",
                    "copying",
                    "waiting",
                    "ending",
                    "munmap",
                    "rest",
                ];
                let pieces = names.map(|name| split[name].as_f64().unwrap());
                let seconds = row["outcome"]["times"][call].as_f64().unwrap();
                assert!(
                    (pieces.iter().sum::<f64>() - seconds).abs() < 1e-6,
                    "{split}"
                );
                assert!(pieces.iter().all(|piece| *piece >= 0.0), "{split}");
                // The rest is what the others leave: they must be right by themselves.
                let [_, _, copying, waiting, ..] = pieces;
                let whole = split["copy_loop"].as_f64().unwrap();
                assert!(copying > 0.0, "{split}");
                assert!((copying + waiting - whole).abs() < 1e-6, "{split}");
                assert_eq!(split["bytes"], result["bytes"]);
            }
        }
    }
    assert!(rows(&result, 0)[0]["split"]["checkpoint"].is_null());
    let looked: Vec<bool> = rows(&result, 1)
        .iter()
        .map(|row| !row["wrong_words"].is_null())
        .collect();
    assert_eq!(
        (looked, &result["verified"]),
        (vec![false, false, true], &Value::Bool(true))
    );
}

/// A look at the last cycle alone is enough: what an earlier one spoilt stays spoilt.
#[test]
fn what_an_earlier_cycle_spoilt_is_seen_at_the_last() {
    let (sim, folder) = (SimDriver::build(false), Folder::new("spoilt"));
    let json = folder.file("cycle.json");
    let options = [
        "--arms",
        "stock",
        "--cycles",
        "3",
        "--verify-last",
        "--env",
        "CUDASIM_MUTATE=skip-copy",
    ];
    let output = program(&sim, env!("CARGO_BIN_EXE_cycle"), &options, "64", &json)
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn two_callers_meet_and_one_alone_gives_up() {
    let (sim, folder) = (SimDriver::build(false), Folder::new("meet"));
    let meet = format!("{}:2", folder.file("place").display());
    let options = ["--arms", "stock", "--cycles", "2", "--meet", &meet];
    let start = |name: &str, options: &[&str]| {
        let json = folder.file(name);
        program(&sim, env!("CARGO_BIN_EXE_cycle"), options, "64", &json)
            .spawn()
            .unwrap()
    };
    let both = [start("0.json", &options), start("1.json", &options)];
    for caller in both {
        right(&caller.wait_with_output().unwrap());
    }
    for step in [
        "stock-0-checkpoint",
        "stock-0-restore",
        "stock-1-checkpoint",
        "stock-1-restore",
    ] {
        let there = std::fs::read_dir(folder.file("place").join(step))
            .unwrap()
            .count();
        assert_eq!(there, 2, "{step}");
    }
    let alone = format!("{}:2", folder.file("alone").display());
    let options = [
        "--arms",
        "stock",
        "--cycles",
        "1",
        "--patience",
        "3",
        "--meet",
        &alone,
    ];
    let output = start("2.json", &options).wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("1 of 2 came to stock-0-checkpoint"),
        "{errors}"
    );
}

const MIB: u64 = 1 << 20;

#[test]
fn arms_with_zeros_left_out_and_with_reserved_memory_take_turns() {
    let (sim, folder) = (SimDriver::build(false), Folder::new("words"));
    let (json, shim, tool) = (folder.file("cycle.json"), library(), binary());
    let options = [
        "--shim",
        shim.to_str().unwrap(),
        "--tool",
        tool.to_str().unwrap(),
        "--arms",
        "shim:sparse+4k,reserve",
        "--cycles",
        "3",
        "--before-each",
        "rewrite",
    ];
    let mut command = program(&sim, env!("CARGO_BIN_EXE_cycle"), &options, "16", &json);
    let output = command.args(["--zeros", "48"]).output().unwrap();
    right(&output);
    let result = read(&json);
    for row in rows(&result, 0) {
        let checkpoint = &row["outcome"]["checkpoint"];
        assert!(checkpoint["zeros"].as_u64() >= Some(46 * MIB), "{row}");
        assert_eq!(checkpoint["pages"], "4k");
        assert!(row["reserved"].is_null());
    }
    for (number, row) in rows(&result, 1).iter().enumerate() {
        let full = number > 0;
        assert_eq!(row["reserved"].is_object(), full, "{row}");
        assert_eq!(row["split"]["checkpoint"]["kept"], full, "{row}");
        if full {
            assert!(row["reserved"]["seconds"].as_f64() > Some(0.0), "{row}");
        }
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("reserve took ").count(), 2, "{text}");
}

#[test]
fn an_arm_that_needs_the_tool_says_where_it_is_missing() {
    let (sim, folder) = (SimDriver::build(false), Folder::new("no-tool"));
    let (json, shim) = (folder.file("cycle.json"), library());
    let with = |arms: &str| {
        let shim = shim.to_str().unwrap();
        let options = [
            "--shim",
            shim,
            "--tool",
            "/nowhere/cudasnap",
            "--arms",
            arms,
        ];
        let options = [&options[..], &["--cycles", "1"]].concat();
        let mut command = program(&sim, env!("CARGO_BIN_EXE_cycle"), &options, "4", &json);
        command.output().unwrap()
    };
    let output = with("shim,reserve");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("no tool at /nowhere/cudasnap"), "{errors}");
    right(&with("shim"));
}

/// Where the longest run of zeros begins, and how long it is.
fn longest_zeros(bytes: &[u8]) -> (usize, usize) {
    let (mut longest, mut at) = ((0, 0), 0);
    for run in bytes.chunk_by(|one, other| (*one == 0) == (*other == 0)) {
        if run[0] == 0 && run.len() > longest.1 {
            longest = (at, run.len());
        }
        at += run.len();
    }
    longest
}

#[test]
fn zeros_beside_the_pattern_are_looked_at_and_not_rewritten() {
    let sim = SimDriver::build(false);
    let mut process = Shimmed::start(&sim, &["4", "--zeros", "96"], &[]);
    assert_eq!(process.app.wrong_words(), 0);
    process.must("lock");
    process.must("checkpoint");
    let buffer = process.record().buffer;
    let memory = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{}/mem", process.app.pid()))
        .unwrap();
    let mut bytes = vec![0; buffer.length as usize];
    memory.read_exact_at(&mut bytes, buffer.address).unwrap();
    let (start, length) = longest_zeros(&bytes);
    assert!(length as u64 >= 96 * MIB, "{length}");
    // Two words, apart.
    let middle = buffer.address + (start as u64 + 48 * MIB) / 8 * 8;
    for word in [middle, middle + 4096] {
        memory.write_all_at(&[1], word).unwrap();
    }
    process.must("restore");
    process.must("unlock");
    assert_eq!(process.app.wrong_words(), 2);
    process.app.tell("rewrite");
    assert_eq!(process.app.hear(), "ok");
    assert_eq!(process.app.wrong_words(), 2);
}

#[test]
fn the_ceiling_leaves_out_the_drivers_copies() {
    let (sim, folder) = (SimDriver::build(false), Folder::new("ceiling"));
    let (json, library) = (folder.file("ceiling.json"), freecopy(&folder));
    let options = ["--library", library.to_str().unwrap(), "--cycles", "2"];
    let output = program(&sim, env!("CARGO_BIN_EXE_ceiling"), &options, "256", &json).output();
    right(&output.unwrap());
    let result = read(&json);
    for run in result["runs"].as_array().unwrap() {
        let number = |name: &str| run[name].as_u64().unwrap();
        // All but the tails and the host memory of the driver.
        let left_out = number("skipped") << 21;
        assert!(
            left_out < number("buffer_bytes") && number("made") > 0,
            "{run}"
        );
        assert!(left_out > number("buffer_bytes") * 8 / 10, "{run}");
        let (call, copies) = (
            run["seconds"].as_f64().unwrap(),
            run["copy_loop"].as_f64().unwrap(),
        );
        assert!(
            copies > 0.0 && run["mmap"].as_f64().unwrap() + copies < call,
            "{run}"
        );
    }
}

/// A library that leaves out nothing, or no library at all, is no measurement.
#[test]
fn a_ceiling_without_a_free_copy_is_an_error() {
    let (sim, folder) = (SimDriver::build(false), Folder::new("no-ceiling"));
    let json = folder.file("ceiling.json");
    let options = ["--library", "/nowhere/libfreecopy.so", "--cycles", "1"];
    let output = program(&sim, env!("CARGO_BIN_EXE_ceiling"), &options, "64", &json)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(!json.exists());
}

/// Copies of anybody else are made: of every length near 2 MiB, apart and overlapping both ways.
#[test]
fn the_ceilings_library_leaves_other_programs_alone() {
    const PROGRAM: &str = "
import hashlib
total = hashlib.sha256()
chunk = 2 << 20
for length in (0, 1, 4095, chunk - 1, chunk, chunk + 1, 40 << 20):
    data = bytearray((at * 2654435761 >> 11) & 255 for at in range(min(length, 4099))) * (length // 4099 + 1)
    data = data[:length]
    total.update(bytes(data))
    data.insert(0, 7)
    total.update(data[1:])
    data[3:5] = b''
    total.update(data)
print(total.hexdigest())
";
    let folder = Folder::new("others");
    let library = freecopy(&folder);
    let run = |preload: &Path| {
        let mut command = Command::new("python3");
        let output = command
            .args(["-c", PROGRAM])
            .env("LD_PRELOAD", preload)
            .output()
            .unwrap();
        right(&output);
        String::from_utf8(output.stdout).unwrap()
    };
    let digest = run(Path::new(""));
    assert_eq!(digest.trim().len(), 64);
    assert_eq!(run(&library), digest);
}
