//! The shim in worlds where other threads are stopped, processes fork without pause, and programs do what the driver does.

use std::process::Command;
use std::time::{Duration, Instant};

use cudasnap_shim_tests::shimmed::{hostile, library, Shimmed};
use cudasnap_shim_tests::simdriver::SimDriver;

#[test]
fn three_cycles_in_a_row_in_a_frozen_world() {
    let driver = SimDriver::build(false);
    for threads in ["0", "1"] {
        let mut host = Shimmed::start(&driver, &["150"], &[("CUDASNAP_THREADS", threads)]);
        for cycle in 1..=3 {
            host.must("frozen-cycle");
            assert_eq!(host.helpers(), [""; 0]);
            assert_eq!(host.app.wrong_words(), 0);
            let record = host.record();
            assert_eq!(record.counters.answered, cycle);
            for direction in ["checkpoint", "restore"] {
                let phase = host.last(direction);
                assert!(
                    phase.end.is("covered") && phase.copied == phase.expected,
                    "{phase:?}"
                );
            }
        }
        let helped = host.record().counters.helpers_started;
        assert_eq!(
            helped >= 3,
            threads == "0" && host.last("checkpoint").threads > 1,
            "{helped}"
        );
        assert_eq!(host.steps_but(&[]), []);
    }
}

#[test]
fn forks_without_pause_while_the_copies_run() {
    let driver = SimDriver::build(false);
    let storm = hostile(&driver, "forkstorm.c", &["-shared", "-fPIC"]);
    let out = std::env::temp_dir().join(format!("cudasnap-forks-{}", std::process::id()));
    let environment = [
        ("LD_PRELOAD", storm.to_str().unwrap()),
        ("FORKSTORM_OUT", out.to_str().unwrap()),
    ];
    let mut host = Shimmed::start(&driver, &["96"], &environment);
    let forks = || -> (u64, String) {
        let text = std::fs::read_to_string(&out).unwrap_or_default();
        let count = text.split(' ').nth(1).and_then(|count| count.parse().ok());
        (count.unwrap_or(0), text)
    };
    let before = forks().0;
    for _ in 0..3 {
        // A slow DMA gives the storm time.
        let slow = [("CUDASIM_DMA_GBPS", "0.3")];
        for action in ["lock", "checkpoint", "restore", "unlock"] {
            let done = host.driver.control(action, host.app.pid(), &slow);
            assert_eq!(done.code, 0, "{action}: {}", done.stderr);
        }
        assert_eq!(host.app.wrong_words(), 0);
        assert_eq!(host.last("restore").copied, host.last("restore").expected);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while forks().0 < before + 100 {
        assert!(Instant::now() < deadline, "{}", forks().1);
        std::thread::sleep(Duration::from_millis(10));
    }
    let (_, text) = forks();
    let steps = host.steps_but(&[]);
    drop(host);
    std::fs::remove_file(&out).unwrap();
    std::fs::remove_file(&storm).unwrap();
    assert!(text.contains(" bad 0 ") || text.is_empty(), "{text}");
    assert_eq!(steps, []);
}

#[test]
fn requests_of_others_that_look_like_the_drivers_are_not_touched() {
    let driver = SimDriver::build(false);
    let populate = hostile(&driver, "populate.c", &[]);
    let output = Command::new(&populate)
        .env("LD_PRELOAD", library())
        .output()
        .unwrap();
    std::fs::remove_file(&populate).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "untouched\n");
    assert!(output.stderr.is_empty());
}

/// What is mapped is not always readable: looking for libcuda must not touch a file that merely is there.
#[test]
fn files_that_were_cut_off_are_not_read() {
    let driver = SimDriver::build(false);
    let program = hostile(&driver, "sigbus.c", &[]);
    let output = Command::new(&program)
        .arg(std::env::temp_dir())
        .env("LD_PRELOAD", library())
        .output()
        .unwrap();
    std::fs::remove_file(&program).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "alive\n",
        "{:?}",
        output.status
    );
}

#[test]
fn not_a_byte_is_written_unless_asked_for() {
    let driver = SimDriver::build(false);
    for (level, silent) in [("off", true), ("debug", false)] {
        let mut command = driver.command("simapp");
        let mut child = command
            .arg("64")
            .env("LD_PRELOAD", library())
            .env("CUDASNAP_LOG", level)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Its first line says that CUDA is ready in it.
        let mut first = [0u8; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
        assert_eq!(driver.control("cycle", child.id(), &[]).code, 0);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.is_empty(), silent, "{level}: {text}");
        if !silent {
            assert!(
                text.contains("checkpoint covered: ") && text.contains("restore covered: "),
                "{text}"
            );
            assert!(
                text.lines()
                    .all(|line| line.starts_with(&format!("cudasnap[{}]: ", output_pid(&text)))),
                "{text}"
            );
        }
    }
}

/// The process id in the first line's head.
fn output_pid(text: &str) -> u32 {
    let digits = text.split(['[', ']']).nth(1).unwrap_or_default();
    digits.parse().unwrap_or(0)
}
