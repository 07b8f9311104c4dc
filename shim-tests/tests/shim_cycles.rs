//! Whole cycles under the shim: contents, the record's account, what stays behind, and every option.

use cudasnap_cli::process::target::Target;
use cudasnap_cli::record::Control as Word;
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::steps;
use cudasnap_wire::{Mode, Slot, Step};

const MIB: u64 = 1 << 20;

fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Shimmed {
    Shimmed::start(&SimDriver::build(false), arguments, environment)
}

fn cpus() -> u32 {
    std::thread::available_parallelism().unwrap().get() as u32
}

fn slot(host: &Shimmed, slot: Slot) -> String {
    let slots = host.record().slots;
    let found = slots.into_iter().find(|named| named.name == slot.word());
    found.unwrap().value.to_string()
}

#[test]
fn every_byte_goes_through_the_shim_and_the_record_says_so() {
    let mut host = start(&["200"], &[]);
    assert_eq!(host.record().counters.requests, 0);
    for cycle in 1..=3 {
        host.cycle();
        let record = host.record();
        assert_eq!(
            (record.counters.requests, record.counters.answered),
            (cycle, cycle)
        );
        assert_eq!(record.counters.phases, 2 * cycle);
        for direction in ["checkpoint", "restore"] {
            let phase = host.last(direction);
            assert!(phase.end.is("covered"), "{phase:?}");
            assert!(phase.mode.is("on") && phase.pages.is("thp"), "{phase:?}");
            assert_eq!(phase.copied, phase.expected);
            assert!(phase.expected > 200 * MIB);
            assert_eq!(u64::from(phase.buffer), cycle);
            assert_eq!(phase.threads, cpus().min(16));
            assert!(phase.total_ns >= phase.loop_ns && phase.loop_ns >= phase.copying_ns);
            assert!(phase.copies > 90 && phase.longest_wait_ns <= phase.waiting_ns);
        }
        let (checkpoint, restore) = (host.last("checkpoint"), host.last("restore"));
        assert!(
            checkpoint.prefaulted > 0
                && checkpoint.mmap_ns > 0
                && checkpoint.first_copy_ns >= checkpoint.mmap_ns
        );
        assert!(restore.munmap_ns > 0 && restore.prefaulted == 0);
    }
    assert_eq!(host.steps_but(&[]), []);
}

#[test]
fn two_devices_and_pinned_memory_go_through_it_too() {
    let devices = [("CUDASIM_DEVICES", "2")];
    let mut host = start(&["80", "--devices", "2", "--pinned", "48"], &devices);
    for _ in 0..2 {
        host.cycle();
    }
    let phase = host.last("checkpoint");
    assert!(phase.expected > 160 * MIB && phase.copied == phase.expected);
    assert_eq!(host.record().counters.answered, 2);
    assert_eq!(host.steps_but(&[]), []);
}

#[test]
fn between_the_phases_there_is_the_buffer_and_nothing_else() {
    let mut host = start(&["150"], &[]);
    host.must("lock");
    host.must("checkpoint");
    assert_eq!(host.helpers(), [""; 0]);
    let record = host.record();
    assert!(record.buffer.state.is("live"));
    let (address, length) = (record.buffer.address, record.buffer.length);
    assert_eq!(address % (2 * MIB), 0);
    assert_eq!(length, host.last("checkpoint").expected);
    assert!(record.buffer.mapped >= length && record.buffer.mapped <= length + 4 * MIB);
    let mappings = host.target().mappings().unwrap();
    let buffer: Vec<_> = mappings
        .iter()
        .filter(|mapping| mapping.start == address)
        .collect();
    let [buffer] = buffer[..] else {
        panic!("{buffer:?}")
    };
    assert!(buffer.is_private_memory());
    assert_eq!(buffer.length(), record.buffer.mapped);
    assert_eq!(slot(&host, Slot::Memcpy), "held");
    assert_eq!(slot(&host, Slot::Munmap), "held");
    host.must("restore");
    host.must("unlock");
    assert!(host.record().buffer.state.is("none"));
    for name in [Slot::Memcpy, Slot::Memmove, Slot::Munmap, Slot::Mremap] {
        assert_eq!(slot(&host, name), "free");
    }
    assert_eq!(host.app.wrong_words(), 0);
}

/// What grows without the shim is the driver's and the program's.
#[test]
fn after_the_cycle_everything_is_as_before() {
    let driver = SimDriver::build(false);
    let mut host = Shimmed::start(&driver, &["150"], &[]);
    assert_eq!(host.app.wrong_words(), 0);
    for _ in 0..3 {
        host.cycle();
    }
    let growth = host.growth();
    assert_eq!(growth.leaks(None, None), [""; 0], "{growth:?}");
    assert_eq!((growth.threads, growth.descriptors), (0, 0));
    assert!(growth.anonymous.abs() < 8 << 20, "{growth:?}");
}

#[test]
fn huge_pages_are_granted_or_base_pages_asked_for() {
    for (pages, word) in [("thp", "thp"), ("4k", "4k")] {
        let mut host = start(&["120"], &[("CUDASNAP_PAGES", pages)]);
        host.must("lock");
        host.must("checkpoint");
        let buffer = host.record().buffer;
        let huge = host.smaps(buffer.address, "AnonHugePages");
        let asks = host.asks_for_huge_pages(buffer.address);
        assert_eq!((asks, huge != "0 kB"), (word == "thp", word == "thp"));
        assert!(host.last("checkpoint").pages.is(word));
        host.must("restore");
        host.must("unlock");
        assert_eq!(host.app.wrong_words(), 0);
        assert_eq!(host.steps_but(&[]), []);
    }
}

#[test]
fn without_a_hugetlb_pool_the_buffer_steps_down() {
    let mut host = start(&["64"], &[("CUDASNAP_PAGES", "hugetlb")]);
    host.cycle();
    assert_eq!(host.steps(Step::NoHugetlb), 1);
    assert!(host.last("checkpoint").pages.is("thp"));
}

#[test]
fn the_caller_alone_is_enough() {
    let mut host = start(&["100"], &[("CUDASNAP_THREADS", "1")]);
    host.cycle();
    assert_eq!(host.record().counters.helpers_started, 0);
    let phase = host.last("checkpoint");
    assert_eq!((phase.threads, phase.copied), (1, phase.expected));
    assert_eq!(host.steps_but(&[]), []);
}

#[test]
fn there_are_never_more_threads_than_processors() {
    let mut host = start(&["100"], &[("CUDASNAP_THREADS", "31")]);
    host.cycle();
    assert_eq!(host.last("checkpoint").threads, cpus().min(31));
    assert_eq!(host.last("restore").threads, cpus().min(31));
    assert_eq!(host.helpers(), [""; 0]);
}

#[test]
fn the_record_caps_threads_from_phase_to_phase() {
    let mut host = start(&["64"], &[("CUDASNAP_THREADS", "2")]);
    host.located().write(Word::ThreadCap(1)).unwrap();
    host.cycle();
    assert_eq!(host.last("checkpoint").threads, 1);
    host.located().write(Word::ThreadCap(0)).unwrap();
    host.cycle();
    assert_eq!(host.last("checkpoint").threads, cpus().min(2));
}

#[test]
fn the_mode_can_be_changed_between_buffers_and_is_latched_with_one() {
    let mut host = start(&["64"], &[]);
    host.located().write(Word::Mode(Mode::Observe)).unwrap();
    host.cycle();
    assert!(host.last("restore").mode.is("observe"));
    host.located().write(Word::Mode(Mode::On)).unwrap();
    host.must("lock");
    host.must("checkpoint");
    host.located().write(Word::Mode(Mode::Off)).unwrap();
    host.must("restore");
    host.must("unlock");
    assert_eq!(host.app.wrong_words(), 0);
    assert!(host.last("checkpoint").mode.is("on") && host.last("restore").mode.is("on"));
    host.cycle();
    assert_eq!(host.record().counters.requests, 3);
    assert_eq!(host.record().counters.answered, 1);
    assert_eq!(host.record().counters.phases, 4);
}

/// The kernel's view of the driver's buffer: no advice, and the length that the driver asked for.
fn is_the_drivers_own(host: &Shimmed, address: u64, length: u64) -> bool {
    let flags = host.smaps(address, "VmFlags");
    let mappings = Target::mappings(&host.target()).unwrap();
    let found = mappings
        .iter()
        .find(|mapping| mapping.start == address)
        .unwrap();
    !flags.contains("hg")
        && !flags.contains("nh")
        && found.length() == length.next_multiple_of(4096)
}

#[test]
fn observe_leaves_the_request_untouched_and_times_the_copies() {
    let mut host = start(&["150"], &[("CUDASNAP", "observe")]);
    host.must("lock");
    host.must("checkpoint");
    let record = host.record();
    assert!(record.buffer.state.is("observed"));
    assert!(is_the_drivers_own(
        &host,
        record.buffer.address,
        record.buffer.length
    ));
    host.must("restore");
    host.must("unlock");
    assert_eq!(host.app.wrong_words(), 0);
    let record = host.record();
    assert_eq!((record.counters.requests, record.counters.answered), (1, 0));
    assert_eq!(record.counters.helpers_started, 0);
    for direction in ["checkpoint", "restore"] {
        let phase = host.last(direction);
        assert!(
            phase.mode.is("observe") && phase.pages.is("driver") && phase.end.is("covered"),
            "{phase:?}"
        );
        assert!(phase.copied == phase.expected && phase.copying_ns > 0);
    }
    assert!(host.last("restore").munmap_ns > 0);
    assert_eq!(host.steps_but(&[]), []);
    let growth = host.growth();
    assert_eq!(growth.leaks(None, None), [""; 0], "{growth:?}");
}

#[test]
fn off_does_nothing_at_all() {
    let mut host = start(&["150"], &[("CUDASNAP", "off")]);
    host.must("lock");
    host.must("checkpoint");
    assert_eq!(slot(&host, Slot::Memcpy), "unknown");
    let large = |start: u64, end: u64| end - start > 150 * MIB;
    let mappings = host.target().mappings().unwrap();
    let buffer = mappings
        .iter()
        .find(|mapping| mapping.is_private_memory() && large(mapping.start, mapping.end));
    let buffer = buffer.unwrap();
    assert!(is_the_drivers_own(&host, buffer.start, buffer.length()));
    host.must("restore");
    host.must("unlock");
    assert_eq!(host.app.wrong_words(), 0);
    let record = host.record();
    assert_eq!((record.counters.answered, record.counters.phases), (0, 0));
    assert_eq!(record.counters.other_copies, 0);
}

#[test]
fn values_that_are_not_understood_mean_the_default_and_are_told() {
    let options = [
        ("CUDASNAP", "maybe"),
        ("CUDASNAP_THREADS", "-3"),
        ("CUDASNAP_REPORT", "here"),
    ];
    let mut host = start(&["64"], &options);
    let record = host.record();
    let told: Vec<_> = record
        .complaints
        .iter()
        .map(|it| (it.option.unwrap(), it.value.as_str()))
        .collect();
    assert_eq!(told, options);
    assert!(record.options.mode.is("on") && record.options.threads == 0 && !record.options.report);
    host.cycle();
    assert_eq!(host.record().counters.answered, 1);
}

#[test]
fn a_kept_buffer_is_used_again_and_can_be_dropped() {
    let mut host = start(&["150"], &[("CUDASNAP_BUFFER", "keep")]);
    host.cycle();
    let kept = host.record().buffer;
    assert!(kept.state.is("kept"));
    assert!(!host.last("checkpoint").kept);
    assert!(host.growth().anonymous as u64 > 150 * MIB);
    assert_eq!(host.helpers(), [""; 0]);
    host.app.tell("rewrite");
    assert_eq!(host.app.hear(), "ok");
    host.cycle();
    assert!(host.last("checkpoint").kept);
    assert_eq!(host.record().buffer.address, kept.address);
    host.located().write(Word::Drop).unwrap();
    // The next mmap that anybody makes frees it, before the request that follows asks for new memory.
    host.cycle();
    assert_eq!(host.record().drop, 0);
    assert!(!host.last("checkpoint").kept);
    assert_eq!(host.steps_but(&[]), []);
}

/// Otherwise the driver's own buffer would come on top of the kept one: twice the memory that the driver alone takes.
#[test]
fn a_kept_buffer_goes_before_the_drivers_own_request() {
    for mode in [Mode::Observe, Mode::Off] {
        let mut host = start(&["150"], &[("CUDASNAP_BUFFER", "keep")]);
        host.cycle();
        assert!(host.growth().anonymous as u64 > 150 * MIB);
        host.located().write(Word::Mode(mode)).unwrap();
        host.must("lock");
        host.must("checkpoint");
        let grown = host.growth().anonymous as u64;
        assert!(grown < 260 * MIB, "{grown}");
        assert!(!host.record().buffer.state.is("kept"));
        host.must("restore");
        host.must("unlock");
        assert_eq!(host.app.wrong_words(), 0);
        assert!(host.growth().anonymous < 8 << 20);
    }
}

#[test]
fn a_drop_that_finds_nothing_is_over() {
    let mut host = start(&["64"], &[]);
    host.located().write(Word::Drop).unwrap();
    host.cycle();
    assert_eq!(host.record().drop, 0);
}

#[test]
fn a_kept_buffer_holds_no_more_than_its_limit() {
    let limits = [("CUDASNAP_BUFFER", "keep"), ("CUDASNAP_KEEP_MAX", "32M")];
    let mut host = start(&["150"], &limits);
    for _ in 0..2 {
        host.cycle();
        let grown = host.growth().anonymous as u64;
        assert!((30 * MIB..44 * MIB).contains(&grown), "{grown}");
    }
    assert!(host.last("checkpoint").kept);
}

#[test]
fn reports_are_written_when_the_buffer_is_unmapped() {
    let path = std::env::temp_dir().join(format!("cudasnap-report-{}", std::process::id()));
    let text = path.to_str().unwrap();
    let mut host = start(&["64"], &[("CUDASNAP_REPORT", text)]);
    host.must("lock");
    host.must("checkpoint");
    assert!(!path.exists());
    host.must("restore");
    host.must("unlock");
    host.cycle();
    let written = std::fs::read_to_string(&path).unwrap();
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(mode & 0o777, 0o600);
    let lines: Vec<serde_json::Value> = written
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let phases: Vec<_> = lines
        .iter()
        .map(|line| (line["phase"].as_str().unwrap(), line["buffer"].as_u64()))
        .collect();
    assert_eq!(
        phases,
        [
            ("checkpoint", Some(1)),
            ("restore", Some(1)),
            ("checkpoint", Some(2)),
            ("restore", Some(2))
        ]
    );
    for line in &lines {
        assert_eq!(line["copied"], line["bytes"]);
        assert_eq!(line["pid"], host.app.pid());
        assert_eq!(
            (&line["effective"], &line["end"]),
            (&true.into(), &"covered".into())
        );
    }
    assert!(lines[1]["munmap_ns"].as_u64() > Some(0));
    assert_eq!(host.steps(Step::ReportFailed), 0);
}

#[test]
fn reports_tell_doubts() {
    let path = std::env::temp_dir().join(format!("cudasnap-doubts-{}", std::process::id()));
    let options = [
        ("CUDASNAP_REPORT", path.to_str().unwrap()),
        ("CUDASNAP_THREADS", "many"),
        ("CUDASNAP_PAGES", "hugetlb"),
    ];
    let mut host = start(&["64"], &options);
    host.cycle();
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let line: serde_json::Value = serde_json::from_str(written.lines().next().unwrap()).unwrap();
    assert_eq!(
        line["not_understood"],
        serde_json::json!(["CUDASNAP_THREADS"])
    );
    assert_eq!(steps::listed(&line["steps_down"]), [("no-hugetlb", 1)]);
}

#[test]
fn a_report_that_cannot_be_written_is_counted_and_no_more() {
    let mut host = start(&["64"], &[("CUDASNAP_REPORT", "/nowhere/report")]);
    host.cycle();
    assert_eq!(host.steps(Step::ReportFailed), 1);
}
