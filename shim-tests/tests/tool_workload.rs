//! `cudasnap workload` on the simulated driver, by itself and under the library; and the hidden command that measures pinned copies.

use std::process::Command;
use std::time::{Duration, Instant};

use cudasnap_cli::process::observe::threads;
use cudasnap_shim_tests::folder::Folder;
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::{App, SimDriver};
use cudasnap_shim_tests::tool::Said;

/// The workload with these arguments, and without the options of the driver that this process may have.
fn workload(driver: &SimDriver, arguments: &str) -> Command {
    let mut command = driver.tool(&format!("workload {arguments}"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CUDASIM_")) {
        command.env_remove(name);
    }
    command
}

fn shimmed(driver: &SimDriver, arguments: &str) -> Shimmed {
    Shimmed::start_command(driver, workload(driver, arguments))
}

fn ended(app: &App) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", app.pid())).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_none_or(|rest| rest.trim_start().starts_with('Z') || rest.is_empty())
}

fn ends(app: &App) {
    let since = Instant::now();
    while !ended(app) {
        assert!(since.elapsed() < Duration::from_secs(60), "it goes on");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn it_answers_and_ends_when_told() {
    let driver = SimDriver::build(false);
    let mut app = App::start(&mut workload(&driver, "--mib 40 --zeros 4"));
    assert_eq!(app.wrong_words(), 0);
    app.tell("rewrite");
    assert_eq!(app.hear(), "ok");
    assert_eq!(app.wrong_words(), 0);
    app.tell("what");
    assert_eq!(app.hear(), "unknown what");
    app.tell("quit");
    ends(&app);
}

#[test]
fn it_ends_with_its_input() {
    let driver = SimDriver::build(false);
    let said = Said::by(workload(&driver, "--mib 8").stdin(std::process::Stdio::null()));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.starts_with("ready "), "{said:?}");
}

#[test]
fn it_is_checkpointed_and_restored_by_the_library() {
    let driver = SimDriver::build(false);
    let mut process = shimmed(&driver, "--mib 200 --zeros 24 --seed 7");
    for _ in 0..3 {
        process.cycle();
        process.app.tell("rewrite");
        assert_eq!(process.app.hear(), "ok");
    }
    for direction in ["checkpoint", "restore"] {
        let phase = process.last(direction);
        assert!(
            phase.is_effective() && phase.copied > 224 << 20,
            "{phase:?}"
        );
    }
    assert_eq!(process.app.wrong_words(), 0);
    assert_eq!(process.steps_but(&[]), []);
    let growth = process.growth();
    assert_eq!((growth.threads, growth.descriptors), (0, 0), "{growth:?}");
}

/// Contents that came back wrong are found, wherever they lie.
#[test]
fn wrong_contents_are_counted() {
    let driver = SimDriver::build(false);
    let mut app = App::start(&mut workload(&driver, "--mib 200"));
    for action in ["lock", "checkpoint", "restore", "unlock"] {
        let spoiled = [("CUDASIM_MUTATE", "skip-16-bytes,phase=restore")];
        let environment = if action == "restore" {
            &spoiled[..]
        } else {
            &[]
        };
        assert_eq!(driver.control(action, app.pid(), environment).code, 0);
    }
    let wrong = app.wrong_words();
    assert!((1..=2).contains(&wrong), "16 bytes are two words: {wrong}");
    app.tell("rewrite");
    assert_eq!(app.hear(), "ok");
    assert_eq!(app.wrong_words(), 0);
}

/// A cycle may come while its threads are at work: their calls wait.
#[test]
fn a_cycle_in_the_middle_of_its_work_spoils_nothing() {
    let driver = SimDriver::build(false);
    let mut process = shimmed(&driver, "--mib 256 --zeros 32");
    for question in ["rewrite", "sum", "rewrite", "sum"] {
        process.app.tell(question);
        for action in ["lock", "checkpoint", "restore", "unlock"] {
            process.must(action);
        }
        let answer = process.app.hear();
        assert_eq!(answer, if question == "sum" { "bad 0" } else { "ok" });
    }
    assert!(process.last("restore").is_effective());
    assert_eq!(process.app.wrong_words(), 0);
}

/// Names that begin with `cuda` and hexadecimal digits are the driver's; and who waits for a line needs no second thread.
#[test]
fn its_threads_are_its_first_one_and_the_drivers() {
    let driver = SimDriver::build(false);
    let mut process = shimmed(&driver, "--mib 64");
    process.cycle();
    let names: Vec<String> = threads(process.target())
        .unwrap()
        .into_iter()
        .map(|t| t.name)
        .collect();
    let (drivers, own): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.starts_with("cuda"));
    assert_eq!((drivers.len(), own.len()), (1, 1), "{names:?}");
    assert_eq!(own[0], "workload");
}

#[test]
fn status_shows_it_though_it_is_this_very_program() {
    let driver = SimDriver::build(false);
    let app = App::start(&mut workload(&driver, "--mib 16"));
    let json = driver.said("status --json").json();
    let processes = json["processes"].as_array().unwrap();
    let found = processes.iter().find(|process| process["pid"] == app.pid());
    assert_eq!(found.unwrap()["name"], "workload");
}

#[test]
fn it_works_on_the_gpu_that_was_asked_for() {
    let driver = SimDriver::build(false);
    let mut command = workload(&driver, "--mib 96 --gpu 1");
    let mut app = App::start(command.env("CUDASIM_DEVICES", "2"));
    let mut status = driver.tool("status --json");
    let json = Said::by(status.env("CUDASIM_DEVICES", "2")).json();
    let processes = json["processes"].as_array().unwrap();
    let found = processes.iter().find(|process| process["pid"] == app.pid());
    assert_eq!(found.unwrap()["nvml"]["gpus"], serde_json::json!([1]));
    assert_eq!(app.wrong_words(), 0);
}

#[test]
fn what_cannot_be_held_is_told_before_anything_is() {
    let driver = SimDriver::build(false);
    let said = |arguments: &str, environment: &[(&str, &str)]| {
        let mut command = workload(&driver, arguments);
        Said::by(
            command
                .envs(environment.iter().copied())
                .stdin(std::process::Stdio::null()),
        )
    };
    let small = [("CUDASIM_DEVICE_MIB", "256"), ("CUDASIM_CONTEXT_MIB", "64")];
    let full = said("--gib 1", &small);
    assert_eq!(full.code, 4, "{full:?}");
    assert!(
        full.stderr
            .contains("the GPU is full: 1.07 GB are to be held")
            && full.stderr.contains("are free"),
        "{full:?}"
    );
    // Zeros count too.
    assert_eq!(said("--mib 64 --zeros 200", &small).code, 4);
    for (arguments, environment, code, words) in [
        (
            "--mib 8 --gpu 3",
            vec![],
            4,
            "there is no GPU 3: this process sees one",
        ),
        (
            "--mib 8 --gpu 2",
            vec![("CUDASIM_DEVICES", "2")],
            4,
            "numbers 0 to 1",
        ),
        (
            "--mib 8",
            vec![("CUDASIM_DEVICES", "0")],
            4,
            "there is no GPU here",
        ),
        ("--gib 0", vec![], 2, "nothing to hold"),
        ("--mib 0 --zeros 8", vec![], 2, "nothing to hold"),
        (
            "--gib 17179869184",
            vec![],
            2,
            "more bytes than can be counted",
        ),
        ("--gib -1", vec![], 2, "it takes a whole number"),
        ("", vec![], 2, "--gib"),
    ] {
        let said = said(arguments, &environment);
        assert_eq!(said.code, code, "{arguments}: {said:?}");
        assert!(said.stderr.contains(words), "{arguments}: {said:?}");
        assert_eq!(said.stdout, "", "{arguments}");
    }
    let empty = Folder::new();
    let mut command = workload(&driver, "--mib 8");
    let none = Said::by(command.env("LD_LIBRARY_PATH", empty.path()));
    // A machine with a real driver has one all the same.
    if !std::path::Path::new("/proc/driver/nvidia/version").exists() {
        assert_eq!(none.code, 4, "{none:?}");
        assert!(
            none.stderr.contains("there is no NVIDIA driver here"),
            "{none:?}"
        );
    }
}

/// A size that the GPU has in all, but that somebody else has taken part of.
#[test]
fn a_gpu_that_is_full_says_what_is_free() {
    let driver = SimDriver::build(false);
    let said = Said::by(workload(&driver, "--mib 200").env("CUDASIM_DEVICE_MIB", "220"));
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.stderr.contains("of its 231 MB are free"), "{said:?}");
}

/// The set rate is the highest that can be measured; a machine that is busy measures less.
#[test]
fn pinned_copies_have_the_rate_of_the_simulated_link() {
    let driver = SimDriver::build(false);
    let mut command = driver.tool("pinned --bytes 67108864 --repeats 5");
    let said = Said::by(command.env("CUDASIM_DMA_GBPS", "0.5"));
    assert_eq!(said.code, 0, "{said:?}");
    let rates = said.json();
    for direction in ["to_host", "to_device"] {
        let rate = rates[direction].as_f64().unwrap();
        assert!(rate <= 0.5 && rate > 0.25, "{direction}: {rates}");
    }
    assert_eq!(
        (&rates["bytes"], &rates["repeats"]),
        (&67_108_864.into(), &5.into())
    );
}

#[test]
fn pinned_copies_are_shorter_where_the_gpu_has_no_room() {
    let driver = SimDriver::build(false);
    let said = |mib: &str| {
        let mut command = driver.tool("pinned --bytes 1073741824 --repeats 1");
        Said::by(
            command
                .env("CUDASIM_DEVICE_MIB", mib)
                .env("CUDASIM_CONTEXT_MIB", "64"),
        )
    };
    let some = said("300");
    assert_eq!(some.code, 0, "{some:?}");
    let bytes = some.json()["bytes"].as_u64().unwrap();
    assert!((100 << 20..300 << 20).contains(&bytes), "{bytes}");
    let none = said("130");
    assert_eq!(none.code, 1, "{none:?}");
    assert!(
        none.stderr.contains("no room for pinned copies"),
        "{none:?}"
    );
}
