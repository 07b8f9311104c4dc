//! A signal that comes in the middle: the step is finished or undone, the final state is told, the status is 128 and the
//! signal's number.

use std::time::Duration;

use cudasnap_cli::process::cuda::CudaUse;
use cudasnap_cli::process::target::Target;
use cudasnap_shim_tests::freeze::Freeze;
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::tool::{until, RunningTool};

fn state(driver: &SimDriver, pid: u32) -> String {
    driver.control("state", pid, &[]).stdout
}

/// Starts the tool with a slow DMA and waits until its phase copies.
fn in_the_middle(driver: &SimDriver, verb: &str, shimmed: &Shimmed) -> RunningTool {
    let mut command = driver.tool(&format!("{verb} {}", shimmed.app.pid()));
    let tool = RunningTool::start(command.env("CUDASIM_DMA_GBPS", "0.05"));
    until("the first copy", || {
        let phase = shimmed.record().current;
        phase.direction.is(verb) && phase.copied > 0
    });
    tool
}

#[test]
fn in_a_checkpoint_it_is_finished_and_stays() {
    let driver = SimDriver::build(false);
    let mut shimmed = Shimmed::start(&driver, &["64"], &[]);
    let pid = shimmed.app.pid();
    let tool = in_the_middle(&driver, "checkpoint", &shimmed);
    tool.signal(libc::SIGINT);
    tool.signal(libc::SIGTERM);
    let said = tool.wait();
    // Whichever of the two the kernel brought first.
    assert!([130, 143].contains(&said.code), "{said:?}");
    for part in [
        "the checkpoint is finished first, and stays",
        &format!("still waiting for checkpoint of {pid}"),
        &format!("is checkpointed: \"cudasnap restore {pid}\" brings it back"),
    ] {
        assert!(said.stderr.contains(part), "{part}: {said:?}");
    }
    assert!(said.stdout.contains("checkpointed  "), "{said:?}");
    assert_eq!(state(&driver, pid), "checkpointed");
    driver.does(&format!("restore {pid}"));
    assert_eq!(shimmed.app.wrong_words(), 0);
}

#[test]
fn in_a_restore_it_is_finished_and_unlocked() {
    let driver = SimDriver::build(false);
    let mut shimmed = Shimmed::start(&driver, &["64"], &[]);
    let pid = shimmed.app.pid();
    driver.does(&format!("checkpoint {pid}"));
    let tool = in_the_middle(&driver, "restore", &shimmed);
    tool.signal(libc::SIGHUP);
    let said = tool.wait();
    assert_eq!(said.code, 129, "{said:?}");
    assert!(
        said.stderr.contains("finished first, and unlocked"),
        "{said:?}"
    );
    assert!(said.stdout.contains("running  "), "{said:?}");
    assert_eq!(state(&driver, pid), "running");
    assert_eq!(shimmed.app.wrong_words(), 0);
}

#[test]
fn in_a_lock_everybody_is_unlocked_again() {
    let driver = SimDriver::build(false);
    for verb in ["lock", "checkpoint"] {
        let (free, mut busy) = (driver.app(&["16"], &[]), driver.app(&["16"], &[]));
        let (other, pid) = (free.pid(), busy.pid());
        busy.tell("busy");
        assert_eq!(busy.hear(), "busy");
        // Well inside the call, which fills 512 MiB.
        std::thread::sleep(Duration::from_millis(20));
        let Ok(CudaUse::Initialised { restore_thread }) = CudaUse::of(Target::new(pid as i32))
        else {
            panic!("no restore thread");
        };
        let mut freeze = Freeze::new(pid as i32, restore_thread).unwrap();
        let tool = freeze
            .with_restore_thread(|| {
                let line = format!("{verb} --timeout 50 {other} {pid}");
                let tool = RunningTool::start(&mut driver.tool(&line));
                until("the other's lock", || state(&driver, other) == "locked");
                tool.signal(libc::SIGTERM);
                // Time for the tool to hear it before the lock is got.
                std::thread::sleep(Duration::from_millis(300));
                tool
            })
            .unwrap();
        drop(freeze);
        let said = tool.wait();
        assert_eq!(said.code, 143, "{said:?}");
        assert!(
            said.stderr
                .contains("is finished, then undone; waiting for lock of"),
            "{said:?}"
        );
        assert_eq!(said.stdout.matches("running  brought back").count(), 2);
        for pid in [other, pid] {
            assert_eq!(state(&driver, pid), "running");
        }
        assert_eq!(busy.hear(), "idle");
        assert_eq!(busy.wrong_words(), 0);
    }
}

#[test]
fn one_that_is_ignored_stays_ignored() {
    let driver = SimDriver::build(false);
    let shimmed = Shimmed::start(&driver, &["64"], &[]);
    let pid = shimmed.app.pid();
    let tool = driver.tool("");
    let line = format!(
        "trap '' HUP; exec {} checkpoint {pid}",
        tool.get_program().to_string_lossy()
    );
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &line])
        .env("LD_LIBRARY_PATH", &driver.library)
        .env("CUDASIM_DMA_GBPS", "0.05");
    let tool = RunningTool::start(&mut command);
    until("the first copy", || shimmed.record().current.copied > 0);
    tool.signal(libc::SIGHUP);
    let said = tool.wait();
    assert_eq!((said.code, said.remarks()), (0, vec![]), "{said:?}");
    assert_eq!(state(&driver, pid), "checkpointed");
}
