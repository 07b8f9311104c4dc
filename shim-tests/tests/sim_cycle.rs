//! The simulated driver across processes: contents, states, error codes, faults, and mutations that must turn verification red.

use std::time::{Duration, Instant};

use cudasnap_shim_tests::simdriver::{App, SimDriver};

const ILLEGAL_STATE: i32 = 401;
/// `simctl` ends with 255 for the results that an exit code cannot hold.
const BEYOND: i32 = 255;
const OUT_OF_MEMORY: i32 = 2;

fn assert_result(
    driver: &SimDriver,
    action: &str,
    app: &App,
    environment: &[(&str, &str)],
    result: i32,
) {
    let done = driver.control(action, app.pid(), environment);
    if result == 0 {
        assert_eq!(done.code, 0, "{action}: {}", done.stderr);
        return;
    }
    assert_eq!(done.code, result.min(BEYOND), "{action}: {}", done.stderr);
    assert!(
        done.stderr.contains(&format!(": {result} (")),
        "{action}: {}",
        done.stderr
    );
}

fn assert_state(driver: &SimDriver, app: &App, state: &str) {
    assert_eq!(driver.control("state", app.pid(), &[]).stdout, state);
}

fn cycles_are_right(relro: bool, arguments: &[&str], devices: &str) {
    let driver = SimDriver::build(relro);
    let mut app = driver.app(arguments, &[("CUDASIM_DEVICES", devices)]);
    assert_eq!(app.wrong_words(), 0);
    for _ in 0..3 {
        assert_result(&driver, "cycle", &app, &[], 0);
        assert_eq!(app.wrong_words(), 0);
    }
    app.tell("rewrite");
    assert_eq!(app.hear(), "ok");
    assert_result(&driver, "cycle", &app, &[], 0);
    assert_eq!(app.wrong_words(), 0);
}

#[test]
fn one_device() {
    cycles_are_right(false, &["100"], "1");
}

#[test]
fn two_devices_and_pinned_memory() {
    cycles_are_right(false, &["60", "--devices", "2", "--pinned", "16"], "2");
}

#[test]
fn two_devices_with_zeros() {
    cycles_are_right(false, &["20", "--zeros", "40", "--devices", "2"], "2");
}

#[test]
fn one_device_of_several() {
    cycles_are_right(false, &["20"], "4");
}

#[test]
fn relro_build() {
    cycles_are_right(true, &["20"], "1");
}

#[test]
fn one_extra_thread_with_a_name_of_its_own() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["4"], &[]);
    app.tell("threads");
    assert_eq!(app.hear(), "threads 2");
    let tid = driver.control("tid", app.pid(), &[]).stdout;
    let name =
        std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", app.pid())).expect("name");
    let digits = name.trim().strip_prefix("cuda").expect("cuda");
    assert!(
        digits.len() == 11 && digits.chars().all(|c| c.is_ascii_hexdigit()),
        "{name}"
    );
}

#[test]
fn states_and_wrong_orders() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["4"], &[]);
    assert_state(&driver, &app, "running");
    for action in ["checkpoint", "restore", "unlock"] {
        assert_result(&driver, action, &app, &[], ILLEGAL_STATE);
    }
    assert_result(&driver, "lock", &app, &[], 0);
    assert_state(&driver, &app, "locked");
    for action in ["lock", "restore"] {
        assert_result(&driver, action, &app, &[], ILLEGAL_STATE);
    }
    assert_result(&driver, "checkpoint", &app, &[], 0);
    assert_state(&driver, &app, "checkpointed");
    for action in ["lock", "checkpoint", "unlock"] {
        assert_result(&driver, action, &app, &[], ILLEGAL_STATE);
    }
    assert_result(&driver, "restore", &app, &[], 0);
    assert_state(&driver, &app, "locked");
    assert_result(&driver, "unlock", &app, &[], 0);
    assert_state(&driver, &app, "running");
}

/// The real driver's answers, as measured (580.159.04, two H200s, 2026-11-29).
#[test]
fn processes_without_cuda() {
    let driver = SimDriver::build(false);
    for action in ["state", "lock", "tid"] {
        for pid in [std::process::id(), 1] {
            assert_eq!(driver.control(action, pid, &[]).code, 3, "{action} {pid}");
        }
        let missing = driver.control(action, 0x7fff_fffe, &[]);
        assert_eq!(missing.code, BEYOND, "{action}");
        assert!(missing.stderr.contains(": 304 ("), "{missing:?}");
    }
}

#[test]
fn lock_holds_calls_back_until_unlock() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["4"], &[]);
    assert_result(&driver, "lock", &app, &[], 0);
    app.tell("sum");
    std::thread::sleep(Duration::from_millis(200));
    let state = std::fs::read_to_string(format!("/proc/{}/wchan", app.pid())).expect("wchan");
    assert!(state.contains("futex") || state == "0", "{state}");
    assert_result(&driver, "unlock", &app, &[], 0);
    assert_eq!(app.hear(), "bad 0");
}

/// Again where the machine is so busy that the call was over before the lock came.
#[test]
fn lock_gives_up_while_a_call_is_inside() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["4"], &[]);
    let mut gives_up = || {
        app.tell("busy");
        assert_eq!(app.hear(), "busy");
        let done = driver.control_within("lock", app.pid(), 1, &[]);
        if done.code == 0 {
            assert_result(&driver, "unlock", &app, &[], 0);
        } else {
            assert!(done.stderr.contains(": 600 ("), "{done:?}");
        }
        assert_state(&driver, &app, "running");
        assert_eq!(app.hear(), "idle");
        assert_eq!(app.wrong_words(), 0);
        done.code != 0
    };
    assert!((0..50).any(|_| gives_up()));
}

/// While checkpointed nothing of the device is left: no descriptor, no mapping.
#[test]
fn checkpointed_process_holds_nothing_of_the_device() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["20", "--pinned", "4"], &[]);
    let traces = |app: &App| {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", app.pid())).expect("maps");
        let files = std::fs::read_dir(format!("/proc/{}/fd", app.pid())).expect("fd");
        let open = files
            .filter_map(|f| std::fs::read_link(f.ok()?.path()).ok())
            .filter(|f| f.to_string_lossy().contains("cudasim"))
            .count();
        (maps.matches("cudasim").count(), open)
    };
    let before = traces(&app);
    assert!(before.0 > 20 && before.1 == 1, "{before:?}");
    assert_result(&driver, "lock", &app, &[], 0);
    assert_result(&driver, "checkpoint", &app, &[], 0);
    assert_eq!(traces(&app), (0, 0));
    assert_result(&driver, "restore", &app, &[], 0);
    assert_eq!(traces(&app), before);
    assert_result(&driver, "unlock", &app, &[], 0);
    assert_eq!(app.wrong_words(), 0);
}

#[test]
fn frozen_process() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["40", "--devices", "2"], &[("CUDASIM_DEVICES", "2")]);
    for _ in 0..3 {
        assert_result(&driver, "frozen-cycle", &app, &[], 0);
        assert_eq!(app.wrong_words(), 0);
    }
}

#[test]
fn failed_checkpoint_leaves_contents_and_lock() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["20", "--devices", "2"], &[("CUDASIM_DEVICES", "2")]);
    for copy in ["0", "1", "7", "middle", "last-1"] {
        for buffer in ["unmap", "keep"] {
            let fault = format!("copy:{copy},{buffer}");
            assert_result(&driver, "lock", &app, &[], 0);
            assert_result(
                &driver,
                "checkpoint",
                &app,
                &[("CUDASIM_FAULT", &fault)],
                304,
            );
            assert_state(&driver, &app, "locked");
            assert_result(&driver, "unlock", &app, &[], 0);
            assert_eq!(app.wrong_words(), 0, "{fault}");
        }
    }
    assert_result(&driver, "cycle", &app, &[], 0);
    assert_eq!(app.wrong_words(), 0);
}

#[test]
fn failed_restore_can_be_tried_again() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["20", "--devices", "2"], &[("CUDASIM_DEVICES", "2")]);
    for copy in ["0", "1", "middle", "last-1"] {
        let fault = format!("copy:{copy}");
        assert_result(&driver, "lock", &app, &[], 0);
        assert_result(&driver, "checkpoint", &app, &[], 0);
        for _ in 0..2 {
            assert_result(&driver, "restore", &app, &[("CUDASIM_FAULT", &fault)], 304);
            assert_state(&driver, &app, "checkpointed");
        }
        assert_result(&driver, "restore", &app, &[], 0);
        assert_result(&driver, "unlock", &app, &[], 0);
        assert_eq!(app.wrong_words(), 0, "{fault}");
    }
}

#[test]
fn restore_that_loses_the_buffer_is_final() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["4"], &[]);
    assert_result(&driver, "lock", &app, &[], 0);
    assert_result(&driver, "checkpoint", &app, &[], 0);
    let fault = [("CUDASIM_FAULT", "copy:middle,unmap")];
    assert_result(&driver, "restore", &app, &fault, 304);
    assert_state(&driver, &app, "failed");
    assert_result(&driver, "restore", &app, &[], ILLEGAL_STATE);
}

#[test]
fn fault_of_the_targets_environment_strikes_once() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["4"], &[("CUDASIM_FAULT", "copy:middle,phase=restore")]);
    assert_result(&driver, "lock", &app, &[], 0);
    assert_result(&driver, "checkpoint", &app, &[], 0);
    assert_result(&driver, "restore", &app, &[], 304);
    assert_result(&driver, "restore", &app, &[], 0);
    assert_result(&driver, "unlock", &app, &[], 0);
    assert_eq!(app.wrong_words(), 0);
}

#[test]
fn refused_mmap_is_out_of_memory() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["4"], &[]);
    assert_result(&driver, "lock", &app, &[], 0);
    let fault = [("CUDASIM_FAULT", "mmap-refused")];
    assert_result(&driver, "checkpoint", &app, &fault, OUT_OF_MEMORY);
    assert_state(&driver, &app, "locked");
    assert_result(&driver, "unlock", &app, &[], 0);
    assert_result(&driver, "cycle", &app, &[], 0);
    assert_eq!(app.wrong_words(), 0);
}

#[test]
fn withheld_bytes_and_pauses_change_no_contents() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["20", "--devices", "2"], &[("CUDASIM_DEVICES", "2")]);
    let begin = Instant::now();
    let fault = [("CUDASIM_FAULT", "withhold,device-pause=50,pause=30@5")];
    assert_result(&driver, "cycle", &app, &fault, 0);
    assert!(begin.elapsed() >= Duration::from_millis(2 * (50 + 30)));
    assert_eq!(app.wrong_words(), 0);
}

#[test]
fn buffer_that_is_never_unmapped_stays() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["20"], &[]);
    let mapped = |app: &App| {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", app.pid())).expect("status");
        let line = status
            .lines()
            .find(|l| l.starts_with("VmSize"))
            .expect("VmSize");
        let number: u64 = line
            .split_whitespace()
            .nth(1)
            .expect("number")
            .parse()
            .expect("number");
        number * 1024
    };
    let before = mapped(&app);
    assert_result(
        &driver,
        "cycle",
        &app,
        &[("CUDASIM_FAULT", "never-unmap")],
        0,
    );
    assert!(mapped(&app) >= before + (80 << 20));
    assert_result(&driver, "cycle", &app, &[], 0);
    assert_eq!(app.wrong_words(), 0);
}

#[test]
fn mutations_turn_verification_red() {
    let driver = SimDriver::build(false);
    for mutation in ["skip-copy", "skip-16-bytes", "late-copy"] {
        for phase in ["checkpoint", "restore"] {
            let mutate = format!("{mutation},phase={phase}");
            let mut app = driver.app(&["200"], &[]);
            assert_result(&driver, "cycle", &app, &[("CUDASIM_MUTATE", &mutate)], 0);
            assert!(app.wrong_words() >= 2, "{mutate}");
        }
    }
}

/// A caller killed in the middle of a checkpoint: the target notices, takes everything back, and serves the next.
#[test]
fn caller_that_dies_costs_one_checkpoint() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["100"], &[]);
    assert_result(&driver, "lock", &app, &[], 0);
    let mut caller = driver
        .command("simctl")
        .args(["checkpoint", &app.pid().to_string()])
        .env("CUDASIM_DMA_GBPS", "0.05")
        .spawn()
        .expect("simctl starts");
    std::thread::sleep(Duration::from_millis(500));
    caller.kill().expect("killable");
    caller.wait().expect("waitable");
    assert_state(&driver, &app, "locked");
    assert_result(&driver, "unlock", &app, &[], 0);
    assert_eq!(app.wrong_words(), 0);
    assert_result(&driver, "cycle", &app, &[], 0);
    assert_eq!(app.wrong_words(), 0);
}

/// A target killed in the middle of a checkpoint does not hold its caller.
#[test]
fn target_that_dies_ends_the_call() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["100"], &[]);
    assert_result(&driver, "lock", &app, &[], 0);
    let mut caller = driver
        .command("simctl")
        .args(["checkpoint", &app.pid().to_string()])
        .env("CUDASIM_DMA_GBPS", "0.05")
        .spawn()
        .expect("simctl starts");
    std::thread::sleep(Duration::from_millis(500));
    drop(app);
    let begin = Instant::now();
    assert!(!caller.wait().expect("waitable").success());
    assert!(begin.elapsed() < Duration::from_secs(5));
}
