//! Programs under the shim, dumped by real CRIU and brought back: in every state, with helpers missing, with another build of the
//! library, with other processors. Each scenario is also run without the shim, which must do as well.

use std::time::{Duration, Instant};

use cudasnap_cli::record::view::RecordView;
use cudasnap_cli::record::Control as Word;
use cudasnap_shim_tests::folder::Folder;
use cudasnap_shim_tests::images::edit::{remove_threads, replace_by_other_build};
use cudasnap_shim_tests::images::subject::{allowed_processors, Subject};
use cudasnap_shim_tests::shimmed::{library, Shimmed};
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_wire::Step;

const MIB: u64 = 1 << 20;
const SIZE: &str = "32";
/// Helpers live for a few milliseconds at most when nobody stops them; the machine may be busy.
const SOON: Duration = Duration::from_secs(5);

/// Runs a scenario without the shim, then under it. What the shim's process has more at the end than stock's is a leak, but for a
/// buffer that is kept.
fn on_both(environment: &[(&str, &str)], scenario: impl Fn(&mut Subject, &Folder)) {
    let driver = SimDriver::build(false);
    let folder = Folder::in_target();
    let mut stock = Subject::stock(&driver, &[SIZE], &[]);
    scenario(&mut stock, &folder);
    let by_stock = stock.growth();
    drop(stock);
    let mut shimmed = Subject::shimmed(&driver, &library(), &[SIZE], environment);
    scenario(&mut shimmed, &folder);
    let kept = shimmed.shim().and_then(|shim| {
        let buffer = shim.record().buffer;
        buffer.state.is("kept").then_some(buffer.mapped)
    });
    let growth = shimmed.growth();
    assert_eq!(growth.leaks(Some(&by_stock), kept), [""; 0], "{growth:?}");
}

/// Whole cycles, the last in a frozen world: contents right, every byte through the shim, nobody left.
fn cycles_are_right(subject: &mut Subject, count: u64) {
    for left in (0..count).rev() {
        let answered = subject.shim().map(|shim| shim.record().counters.answered);
        if left == 0 {
            subject.must("frozen-cycle");
        } else {
            for action in ["lock", "checkpoint", "restore", "unlock"] {
                subject.must(action);
            }
        }
        assert_eq!(subject.wrong_words(), 0);
        if let (Some(shim), Some(answered)) = (subject.shim(), answered) {
            shim.expect_no_helper_after(SOON);
            assert_eq!(shim.record().counters.answered, answered + 1);
            is_covered(shim, "checkpoint");
            is_covered(shim, "restore");
        }
    }
}

fn is_covered(shim: &Shimmed, direction: &str) {
    let phase = shim.last(direction);
    let whole = phase.end.is("covered") && phase.copied == phase.expected;
    assert!(whole && phase.expected > 64 * MIB, "{phase:?}");
}

/// The buffer that the record tells of is one mapping, private memory of exactly that length.
fn buffer_is_one_mapping(shim: &Shimmed) {
    let buffer = shim.record().buffer;
    let mappings = shim.target().mappings().expect("its mappings");
    let found = mappings
        .iter()
        .find(|mapping| mapping.start == buffer.address);
    let mapping = found.expect("the buffer");
    assert!(mapping.is_private_memory(), "{mapping:?}");
    assert_eq!(mapping.length(), buffer.mapped);
}

fn checkpointed_and_moved(subject: &mut Subject, folder: &Folder, cycles_before: u64) {
    if cycles_before > 0 {
        cycles_are_right(subject, cycles_before);
    }
    subject.must("lock");
    let checkpoint_took = subject.must("checkpoint");
    let before = subject.shim().map(Shimmed::record);
    if let Some(shim) = subject.shim() {
        buffer_is_one_mapping(shim);
    }
    let image = subject.dump(folder);
    // Between the two there is nothing but files: neither device memory nor anything of ours that is no plain memory.
    for kind in ["memfd.img", "pages-2.img"] {
        assert!(!image.folder().join(kind).exists(), "{kind}");
    }
    // A time that spans the dump is longer than any phase.
    std::thread::sleep(Duration::from_secs(2));
    image.bring_back(&[]);
    subject.found_again();
    if let (Some(shim), Some(before)) = (subject.shim(), &before) {
        let now = shim.record();
        assert_eq!(now.build_id, before.build_id);
        assert_eq!(now.buffer, before.buffer);
        assert_eq!(now.history, before.history);
        buffer_is_one_mapping(shim);
        shim.expect_no_helper_after(SOON);
    }
    let restore_took = subject.must("restore");
    subject.must("unlock");
    assert_eq!(subject.wrong_words(), 0);
    if let Some(shim) = subject.shim() {
        is_covered(shim, "checkpoint");
        is_covered(shim, "restore");
        times_are_within(shim, "checkpoint", checkpoint_took);
        times_are_within(shim, "restore", restore_took);
        assert!(shim.record().buffer.state.is("none"));
        shim.expect_no_helper_after(SOON);
        assert_eq!(shim.steps_but(&[]), []);
    }
    cycles_are_right(subject, 3);
    if let Some(shim) = subject.shim() {
        assert_eq!(shim.steps_but(&[]), []);
    }
}

fn times_are_within(shim: &Shimmed, direction: &str, step: Duration) {
    let phase = shim.last(direction);
    let longest = [
        phase.total_ns,
        phase.waiting_ns,
        phase.first_copy_ns,
        phase.loop_ns,
        phase.prefault_ns,
        phase.munmap_ns,
    ];
    let longest = longest.into_iter().max().unwrap_or(0);
    assert!(u128::from(longest) <= step.as_nanos(), "{phase:?} {step:?}");
}

mod criu {
    use super::*;

    #[test]
    #[ignore = "needs CRIU"]
    fn dumped_in_state_checkpointed() {
        on_both(&[], |subject, folder| {
            checkpointed_and_moved(subject, folder, 0);
        });
    }

    #[test]
    #[ignore = "needs CRIU"]
    fn dumped_in_state_checkpointed_in_its_second_cycle_and_again_in_its_last() {
        on_both(&[], |subject, folder| {
            checkpointed_and_moved(subject, folder, 1);
            checkpointed_and_moved(subject, folder, 0);
        });
    }

    #[test]
    #[ignore = "needs CRIU"]
    fn the_report_has_both_phases_and_was_not_open_in_between() {
        let driver = SimDriver::build(false);
        let folder = Folder::in_target();
        let report = folder.file("report.jsonl");
        let path = report.to_str().unwrap();
        let environment = [("CUDASNAP_REPORT", path)];
        let mut subject = Subject::shimmed(&driver, &library(), &[SIZE], &environment);
        subject.must("lock");
        subject.must("checkpoint");
        let image = subject.dump(&folder);
        // Not even made yet: an image with an open report would need it on the other host.
        assert!(!report.exists());
        image.bring_back(&[]);
        subject.found_again();
        subject.must("restore");
        subject.must("unlock");
        assert_eq!(subject.wrong_words(), 0);
        let text = std::fs::read_to_string(&report).unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let phases: Vec<&str> = lines
            .iter()
            .filter_map(|line| line["phase"].as_str())
            .collect();
        assert_eq!(phases, ["checkpoint", "restore"]);
        for line in &lines {
            assert_eq!(line["pid"], subject.pid());
            assert_eq!(line["copied"], line["bytes"]);
            assert_eq!(line["end"], "covered");
        }
        assert_eq!(subject.shim().unwrap().steps_but(&[]), []);
    }

    #[test]
    #[ignore = "needs CRIU"]
    fn dumped_in_state_running_before_any_cycle_and_after_one() {
        on_both(&[], |subject, folder| {
            for _ in 0..2 {
                let image = subject.dump(folder);
                image.bring_back(&[]);
                subject.found_again();
                assert_eq!(subject.wrong_words(), 0);
                cycles_are_right(subject, 3);
            }
            if let Some(shim) = subject.shim() {
                assert_eq!(shim.steps_but(&[]), []);
            }
        });
    }

    #[test]
    #[ignore = "needs CRIU"]
    fn dumped_in_state_locked() {
        on_both(&[], |subject, folder| {
            for before in [false, true] {
                if before {
                    cycles_are_right(subject, 1);
                }
                subject.must("lock");
                let image = subject.dump(folder);
                image.bring_back(&[]);
                subject.found_again();
                for action in ["checkpoint", "restore", "unlock"] {
                    subject.must(action);
                }
                assert_eq!(subject.wrong_words(), 0);
                cycles_are_right(subject, 3);
            }
            if let Some(shim) = subject.shim() {
                assert_eq!(shim.steps_but(&[]), []);
            }
        });
    }

    #[test]
    #[ignore = "needs CRIU"]
    fn dumped_with_a_kept_buffer() {
        on_both(&[("CUDASNAP_BUFFER", "keep")], |subject, folder| {
            cycles_are_right(subject, 1);
            let before = subject.shim().map(|shim| shim.record().buffer);
            if let (Some(shim), Some(before)) = (subject.shim(), &before) {
                assert!(before.state.is("kept"));
                buffer_is_one_mapping(shim);
            }
            let image = subject.dump(folder);
            image.bring_back(&[]);
            subject.found_again();
            if let (Some(shim), Some(before)) = (subject.shim(), &before) {
                assert_eq!(&shim.record().buffer, before);
                buffer_is_one_mapping(shim);
            }
            cycles_are_right(subject, 3);
            if let (Some(shim), Some(before)) = (subject.shim(), &before) {
                let phase = shim.last("checkpoint");
                assert!(phase.kept, "{phase:?}");
                assert_eq!(shim.record().buffer.address, before.address);
                assert_eq!(shim.steps_but(&[]), []);
            }
        });
    }

    /// Empty, a reserved range costs the image nothing; full, its zeros are dumped as data. Either way it comes back as it was.
    #[test]
    #[ignore = "needs CRIU"]
    fn a_reserved_range_is_dropped_before_a_dump_or_dumped_as_zeros() {
        let driver = SimDriver::build(false);
        let folder = Folder::new();
        let environment = [("CUDASNAP_BUFFER", "reserve")];
        let mut subject = Subject::shimmed(&driver, &library(), &[SIZE], &environment);
        let record = |subject: &mut Subject| subject.shim().unwrap().record();
        let mut sizes = Vec::new();
        for fill in [false, true] {
            cycles_are_right(&mut subject, 1);
            let before = record(&mut subject).buffer;
            assert!(before.state.is("reserved"));
            if fill {
                let pid = subject.shim().unwrap().app.pid();
                driver.does(&format!(
                    "reserve {pid} --rate 0 --margin 32M --pressure 100"
                ));
            }
            let image = subject.dump(&folder);
            sizes.push(image.bytes());
            image.bring_back(&[]);
            subject.found_again();
            assert_eq!(record(&mut subject).buffer, before);
            cycles_are_right(&mut subject, 1);
            let after = record(&mut subject);
            assert_eq!(after.last("checkpoint").unwrap().kept, fill);
            assert_eq!(after.buffer, before);
        }
        let buffer = record(&mut subject).buffer.length;
        assert_eq!(subject.shim().unwrap().steps_but(&[]), []);
        drop(subject);
        let mut fresh = Subject::shimmed(&driver, &library(), &[SIZE], &[]);
        cycles_are_right(&mut fresh, 1);
        let without = fresh.dump(&folder).bytes();
        assert!(sizes[0] < without + buffer / 10, "{sizes:?} {without}");
        assert!(sizes[1] > without + buffer * 9 / 10, "{sizes:?} {without}");
    }

    #[test]
    #[ignore = "needs CRIU"]
    fn a_kept_buffer_is_dropped_from_outside_after_the_dump() {
        let driver = SimDriver::build(false);
        let folder = Folder::in_target();
        let environment = [("CUDASNAP_BUFFER", "keep")];
        let mut subject = Subject::shimmed(&driver, &library(), &[SIZE], &environment);
        cycles_are_right(&mut subject, 1);
        let image = subject.dump(&folder);
        image.bring_back(&[]);
        subject.found_again();
        let shim = subject.shim().unwrap();
        let address = shim.record().buffer.address;
        shim.located().write(Word::Drop).unwrap();
        cycles_are_right(&mut subject, 2);
        let shim = subject.shim().unwrap();
        // The first of the two found nothing kept, the second what the first kept.
        let kept: Vec<bool> = shim
            .record()
            .history
            .iter()
            .map(|phase| phase.kept)
            .collect();
        assert_eq!(
            kept,
            [false, false, false, false, true, true],
            "{address:x}"
        );
        assert_eq!(shim.steps_but(&[]), []);
    }

    /// A checkpoint fails, with and without the buffer left to lie; the dump comes at once.
    #[test]
    #[ignore = "needs CRIU"]
    fn dumped_right_after_a_failed_checkpoint() {
        for fault in ["copy:middle", "copy:last-1,keep"] {
            on_both(&[], |subject, folder| {
                subject.must("lock");
                let strike = [("CUDASIM_FAULT", fault)];
                assert_eq!(subject.control("checkpoint", &strike).code, 255, "{fault}");
                let image = subject.dump(folder);
                image.bring_back(&[]);
                subject.found_again();
                subject.must("unlock");
                assert_eq!(subject.wrong_words(), 0);
                cycles_are_right(subject, 2);
            });
        }
    }

    /// All threads are stopped at some instruction of the loop; in the image there is no helper.
    #[test]
    #[ignore = "needs CRIU"]
    fn dumped_in_mid_loop_with_its_helpers_unknown_to_the_image() {
        for direction in ["checkpoint", "restore"] {
            on_both(&[], |subject, folder| {
                let moments: &[u64] = if subject.shim().is_some() {
                    &[3, 40, 80]
                } else {
                    &[40]
                };
                for &moment in moments {
                    stopped_and_moved(subject, folder, direction, moment);
                }
            });
        }
    }

    /// The other host has another build at the same path. CRIU refuses, by the build id, unless it is told to look at sizes only.
    #[test]
    #[ignore = "needs CRIU"]
    fn another_build_of_the_library_is_refused_by_criu() {
        let driver = SimDriver::build(false);
        let folder = Folder::in_target();
        let mut subject = with_own_library(&driver, &folder, &[]);
        subject.must("lock");
        subject.must("checkpoint");
        let image = subject.dump(&folder);
        let library = folder.file(OWN_LIBRARY);
        let original = std::fs::read(&library).unwrap();
        replace_by_other_build(&library);
        let refused = image.try_bring_back(&[], &[]).expect("a refusal");
        let why = |line: &str| line.contains(OWN_LIBRARY) && line.contains("build-ID");
        assert!(refused.lines().any(why), "{refused}");
        // Nothing is lost by that: with the build that it was dumped with it comes back.
        std::fs::write(&library, original).unwrap();
        image.bring_back(&[]);
        subject.found_again();
        subject.must("restore");
        subject.must("unlock");
        assert_eq!(subject.wrong_words(), 0);
        assert_eq!(subject.shim().unwrap().steps_but(&[]), []);
    }

    #[test]
    #[ignore = "needs CRIU"]
    fn under_another_build_of_the_library_the_copies_are_plain() {
        for options in [&[][..], &[("CUDASNAP_BUFFER", "keep")]] {
            for state in ["running", "checkpointed"] {
                let driver = SimDriver::build(false);
                let folder = Folder::in_target();
                let mut subject = with_own_library(&driver, &folder, options);
                cycles_are_right(&mut subject, 1);
                if state == "checkpointed" {
                    subject.must("lock");
                    subject.must("checkpoint");
                }
                let image = subject.dump(&folder);
                replace_by_other_build(&folder.file(OWN_LIBRARY));
                image.bring_back(&["--file-validation", "filesize"]);
                subject.found_again();
                let before = subject.shim().unwrap().record();
                if state == "checkpointed" {
                    subject.must("restore");
                    subject.must("unlock");
                    assert_eq!(subject.wrong_words(), 0);
                    restored_by_plain_copies(subject.shim().unwrap(), &before);
                }
                cycles_are_stock(&mut subject, 2);
                let after = subject.shim().unwrap().record();
                assert_eq!(
                    after.counters.helpers_started,
                    before.counters.helpers_started
                );
            }
        }
    }

    /// The process comes back on one processor, and goes on on all of them; or the other way round.
    #[test]
    #[ignore = "needs CRIU"]
    fn the_next_phase_follows_the_number_of_processors() {
        let all = std::thread::available_parallelism().unwrap().get() as u32;
        assert!(all > 1, "a machine with more than one processor");
        let first = *allowed_processors().first().expect("a processor");
        let one: [&str; 2] = ["taskset", &format!("0x{:x}", 1u64 << first)];
        for (before, after) in [(all, 1), (1, all)] {
            let driver = SimDriver::build(false);
            let folder = Folder::in_target();
            let mut subject = Subject::shimmed(&driver, &library(), &[SIZE], &[]);
            if before == 1 {
                subject.allow_processors(&[first]);
            }
            subject.must("lock");
            subject.must("checkpoint");
            assert_eq!(
                subject.shim().unwrap().last("checkpoint").threads,
                before.min(16)
            );
            let image = subject.dump(&folder);
            let starter = if after == 1 { &one[..] } else { &[] };
            assert_eq!(image.try_bring_back(starter, &[]), None);
            subject.found_again();
            subject.must("restore");
            subject.must("unlock");
            assert_eq!(subject.wrong_words(), 0);
            let shim = subject.shim().unwrap();
            is_covered(shim, "restore");
            assert_eq!(shim.last("restore").threads, after.min(16));
            cycles_are_right(&mut subject, 2);
            let shim = subject.shim().unwrap();
            assert_eq!(shim.last("checkpoint").threads, after.min(16));
            assert_eq!(shim.steps_but(&[]), []);
        }
    }
}

mod other_host {
    use cudasnap_shim_tests::simdriver::repository;

    #[test]
    #[ignore = "computes two virtual machines, for minutes"]
    fn cpu_features_number_of_cpus_and_clock_differ() {
        let output = std::process::Command::new(repository().join("scripts/other-host"))
            .output()
            .expect("the script");
        let text = String::from_utf8_lossy(&output.stdout);
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{why}");
    }
}

const OWN_LIBRARY: &str = "libcudasnap.so";

/// Under a library of its own, in the test's folder.
fn with_own_library(driver: &SimDriver, folder: &Folder, environment: &[(&str, &str)]) -> Subject {
    let own = folder.file(OWN_LIBRARY);
    std::fs::copy(library(), &own).unwrap();
    Subject::shimmed(driver, &own, &[SIZE], environment)
}

/// A restore of a buffer of ours by text that is not: all bytes in one thread, and told.
fn restored_by_plain_copies(shim: &Shimmed, before: &RecordView) {
    is_covered(shim, "restore");
    let phase = shim.last("restore");
    assert_eq!(phase.threads, 1);
    assert_eq!(phase.buffer, before.last("checkpoint").unwrap().buffer);
    let foreign = shim.steps(Step::ForeignBuild);
    assert_eq!(foreign, before.steps(Step::ForeignBuild) + 1);
}

/// Cycles with the driver's own buffer and one thread, watched, each phase counted as foreign.
fn cycles_are_stock(subject: &mut Subject, count: u32) {
    for _ in 0..count {
        let before = subject.shim().unwrap().record();
        subject.must("frozen-cycle");
        assert_eq!(subject.wrong_words(), 0);
        let shim = subject.shim().unwrap();
        let now = shim.record();
        assert_eq!(now.counters.answered, before.counters.answered);
        assert_eq!(now.counters.requests, before.counters.requests + 1);
        for direction in ["checkpoint", "restore"] {
            is_covered(shim, direction);
            let phase = shim.last(direction);
            assert!(phase.pages.is("driver") && phase.threads == 1, "{phase:?}");
        }
        let foreign = now.steps(Step::ForeignBuild);
        assert_eq!(foreign, before.steps(Step::ForeignBuild) + 2);
        assert!(now.buffer.state.is("none"));
        assert_eq!(shim.steps_but(&[Step::ForeignBuild]), []);
        shim.expect_no_helper_after(SOON);
    }
}

/// Stops the process when this many per cent have been copied, dumps it, and brings it back without its helpers.
fn stopped_and_moved(subject: &mut Subject, folder: &Folder, direction: &str, percent: u64) {
    let late = subject
        .shim()
        .map_or(0, |shim| shim.steps(Step::HelperLate));
    subject.must("lock");
    if direction == "restore" {
        subject.must("checkpoint");
    }
    // Slow enough that it is not over before it is stopped, fast enough that helpers stay: 4 ms for each copy.
    let mut step = subject.begin(direction, &[("CUDASIM_DMA_GBPS", "0.5")]);
    wait_until_copied(subject, direction, percent);
    let helpers = stop_with_helpers(subject);
    let image = subject.dump(folder);
    let ended = step.wait().expect("its caller");
    assert!(!ended.success());
    remove_threads(&image, &helpers);
    image.bring_back(&[]);
    subject.found_again();
    subject.release();
    // Its caller is gone: the driver fails the phase by itself, once it sees that.
    if direction == "restore" {
        wait_for_state(subject, "checkpointed");
        subject.must("restore");
    } else {
        wait_for_state(subject, "locked");
    }
    subject.must("unlock");
    assert_eq!(subject.wrong_words(), 0);
    cycles_are_right(subject, 2);
    if let Some(shim) = subject.shim() {
        shim.expect_no_helper_after(SOON);
        // On a busy machine a helper may be late at times; one that is taken to live for ever is late in each of five phases.
        assert!(shim.steps(Step::HelperLate) < late + 4);
    }
}

fn wait_for_state(subject: &Subject, state: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = subject.control("state", &[]);
        if now.code == 0 && now.stdout.contains(state) {
            return;
        }
        assert!(Instant::now() < deadline, "not {state}: {}", now.stdout);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Stops it while a helper lives, and says which. On a busy machine they may have left for want of copies: the next one brings them
/// back.
fn stop_with_helpers(subject: &Subject) -> Vec<i32> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        subject.stop();
        let helpers = subject.threads_named("csnap-");
        let alone = subject
            .shim()
            .is_none_or(|shim| shim.record().current.threads < 2);
        if alone || !helpers.is_empty() {
            return helpers;
        }
        assert!(Instant::now() < deadline, "no helper");
        subject.release();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Without the shim nobody counts; a moment will do.
fn wait_until_copied(subject: &Subject, direction: &str, percent: u64) {
    let Some(shim) = subject.shim() else {
        std::thread::sleep(Duration::from_millis(percent));
        return;
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let phase = shim.record().current;
        if phase.direction.is(direction) && phase.copied * 100 > phase.expected * percent {
            return;
        }
        assert!(Instant::now() < deadline, "{phase:?}");
    }
}
