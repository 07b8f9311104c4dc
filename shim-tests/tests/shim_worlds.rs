//! The shim in worlds where other threads are stopped, and programs do what the driver does.

use std::process::Command;

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
