//! Bad days under the shim: the driver fails, withholds, pauses; libcuda has another shape; the tests' own teeth.

use std::time::Duration;

use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_wire::Step;

/// A crew leaves 20 ms after the last copy, or 2 s after a request that no copy follows. How punctual it is depends on the
/// machine; that it leaves does not.
const SOON: Duration = Duration::from_secs(5);

fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Shimmed {
    Shimmed::start(&SimDriver::build(false), arguments, environment)
}

/// The codes of both steps, without the shim.
fn stock_codes(fault: &str, step: &str) -> (i32, String) {
    let driver = SimDriver::build(false);
    let app = driver.app(&["64"], &[("CUDASIM_FAULT", fault)]);
    let before = if step == "restore" {
        &["lock", "checkpoint"][..]
    } else {
        &["lock"]
    };
    for action in before {
        assert_eq!(driver.control(action, app.pid(), &[]).code, 0);
    }
    let code = driver.control(step, app.pid(), &[]).code;
    (code, driver.control("state", app.pid(), &[]).stdout)
}

#[test]
fn a_driver_that_fails_in_mid_loop_leaves_no_thread_and_the_next_cycle_is_right() {
    for place in ["0", "1", "middle", "last-1"] {
        for after in ["unmap", "keep"] {
            for step in ["checkpoint", "restore"] {
                let fault = format!("copy:{place},{after},phase={step}");
                let (code, state) = stock_codes(&fault, step);
                assert_ne!(code, 0, "{fault}");
                let mut host = start(&["64"], &[("CUDASIM_FAULT", &fault)]);
                host.must("lock");
                if step == "restore" {
                    host.must("checkpoint");
                }
                assert_eq!(host.control(step).code, code, "{fault}");
                host.expect_no_helper_after(SOON);
                assert_eq!(host.control("state").stdout, state, "{fault}");
                assert_eq!(host.record().counters.requests, 1);
                if step == "restore" && host.control("restore").code != 0 {
                    // The driver gave the buffer up in mid-restore: stock cannot go on either.
                    assert_eq!(after, "unmap", "{fault}");
                    continue;
                }
                host.must("unlock");
                assert_eq!(host.app.wrong_words(), 0, "{fault}");
                host.cycle();
                let phase = host.last("restore");
                assert!(
                    phase.end.is("covered") && phase.copied == phase.expected,
                    "{fault}: {phase:?}"
                );
                host.expect_no_helper_after(SOON);
            }
        }
    }
}

#[test]
fn a_buffer_that_is_never_unmapped_leaves_no_thread_and_the_next_is_right() {
    let mut host = start(&["64"], &[("CUDASIM_FAULT", "never-unmap")]);
    for _ in 0..3 {
        host.cycle();
        host.expect_no_helper_after(SOON);
        assert_eq!(host.last("restore").copied, host.last("restore").expected);
    }
    assert_eq!(host.record().counters.answered, 3);
    assert_eq!(host.steps(Step::SecondBuffer), 2);
}

#[test]
fn what_the_driver_copies_by_itself_is_right_too() {
    let mut host = start(&["64"], &[("CUDASIM_FAULT", "withhold")]);
    host.cycle();
    for direction in ["checkpoint", "restore"] {
        let phase = host.last(direction);
        assert_eq!(phase.expected - phase.copied, 300 << 10, "{phase:?}");
        assert!(!phase.end.is("covered"));
    }
    host.expect_no_helper_after(SOON);
}

#[test]
fn a_pause_sends_the_crew_away_and_the_next_copy_brings_a_new_one() {
    let environment = [
        ("CUDASIM_DEVICES", "2"),
        ("CUDASIM_FAULT", "device-pause=400"),
        ("CUDASNAP_THREADS", "2"),
    ];
    let mut host = start(&["64", "--devices", "2"], &environment);
    host.cycle();
    for direction in ["checkpoint", "restore"] {
        let phase = host.last(direction);
        assert!(phase.end.is("covered"), "{phase:?}");
        assert!(phase.longest_wait_ns >= 400_000_000 && phase.copied == phase.expected);
    }
    // One helper for each device in each phase.
    assert!(host.record().counters.helpers_started >= 4);
    assert_eq!(host.steps_but(&[]), []);
}

#[test]
fn a_refused_mmap_is_the_drivers_own_error() {
    let fault = "mmap-refused,times=1";
    let (code, state) = stock_codes(fault, "checkpoint");
    let host = start(&["64"], &[("CUDASIM_FAULT", fault)]);
    host.must("lock");
    assert_eq!(host.control("checkpoint").code, code);
    assert_eq!(host.control("state").stdout, state);
    assert_eq!(host.helpers(), [""; 0]);
}

#[test]
fn with_full_relro_the_buffer_part_alone_works() {
    let driver = SimDriver::build(true);
    let mut host = Shimmed::start(&driver, &["150"], &[]);
    for cycle in 1..=2 {
        host.must("lock");
        host.must("checkpoint");
        assert_eq!(host.helpers(), [""; 0]);
        let phase = host.last("checkpoint");
        // Everything was there before the driver got the address; its own memcpy then filled it.
        assert!(
            phase.pages.is("thp") && phase.end.is("no-copy"),
            "{phase:?}"
        );
        assert_eq!((phase.prefaulted, phase.copied), (phase.expected, 0));
        assert!(phase.strategy.is("driver") && phase.tried == 0, "{phase:?}");
        host.must("restore");
        host.must("unlock");
        assert_eq!(host.app.wrong_words(), 0);
        assert_eq!(host.steps(Step::NoMunmapSlot), cycle);
        assert_eq!(host.steps(Step::NoCopySlot), cycle);
    }
    let slots = host.record().slots;
    assert!(
        slots
            .iter()
            .any(|slot| slot.name == "munmap" && slot.value.is("relro")),
        "{slots:?}"
    );
    let growth = host.growth();
    assert_eq!(growth.leaks(None, None), [""; 0], "{growth:?}");
}

/// These runs must come out wrong: a check that passes them would pass a broken shim too.
#[test]
fn mutations_of_the_driver_are_seen_under_the_shim() {
    for mutation in ["skip-copy", "skip-16-bytes", "late-copy"] {
        for phase in ["checkpoint", "restore"] {
            let mutate = format!("{mutation},phase={phase}");
            let mut host = start(&["64"], &[("CUDASIM_MUTATE", &mutate)]);
            host.must("cycle");
            assert!(host.record().counters.answered == 1, "{mutate}");
            assert_ne!(host.app.wrong_words(), 0, "{mutate}");
        }
    }
}
