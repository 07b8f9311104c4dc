//! The ways in which copies are made: each by itself, and several that take turns, under a driver whose staging buffers come round.

use cudasnap_cli::record::view::PhaseView;
use cudasnap_shim_tests::attack::{Attack, Outcome};
use cudasnap_wire::{Choice, Step, Strategy};

fn run(choice: &str, threads: &str) -> Outcome {
    let outcome = Attack::new("ways cycles")
        .env("CUDASNAP_STRATEGY", choice)
        .env("CUDASNAP_THREADS", threads)
        .env("CUDASNAP_BUFFER", "keep")
        .run();
    assert_eq!(outcome.requests(), (3, 3));
    assert_eq!(outcome.steps_but(&[]), []);
    outcome
}

/// Checkpoints and restores, in the order of their cycles.
fn phases<'a>(outcome: &'a Outcome, direction: &str) -> Vec<&'a PhaseView> {
    let history = outcome.record.history.iter();
    let phases: Vec<_> = history
        .filter(|phase| phase.direction.is(direction))
        .collect();
    assert_eq!(phases.len(), 3);
    for (cycle, phase) in phases.iter().enumerate() {
        assert!(
            phase.end.is("covered") && phase.copied == phase.expected,
            "{phase:?}"
        );
        assert_eq!(phase.kept, cycle > 0);
    }
    phases
}

/// Whether the CPU has an instruction: a bit of EBX or ECX of cpuid's leaf 7.
fn has(in_ebx: u32, in_ecx: u32) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let leaf = std::arch::x86_64::__cpuid_count(7, 0);
        leaf.ebx & in_ebx != 0 || leaf.ecx & in_ecx != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (in_ebx, in_ecx);
        false
    }
}

/// `clflushopt`. A flush may come late here: the exported mmap is the shim's, and so are libcuda's slots.
fn flushes() -> bool {
    has(1 << 23, 0)
}

/// `cldemote`.
fn demotes() -> bool {
    has(0, 1 << 25)
}

#[test]
fn each_strategy_alone_copies_right_and_is_told() {
    let [fixed, fixed_restore] = match (demotes(), flushes()) {
        (true, _) => [Strategy::Demote; 2],
        (false, true) => [Strategy::FlushLate, Strategy::NonTemporal],
        (false, false) => [Strategy::NoFlush, Strategy::NonTemporal],
    };
    for choice in Choice::all().filter(|choice| *choice != Choice::Tune) {
        let outcome = run(choice.word(), "2");
        let [checkpoint, restore] = match choice {
            // Demoting is a hint, which any CPU takes.
            Choice::Only(both @ (Strategy::Plain | Strategy::Demote)) => [both; 2],
            Choice::Only(Strategy::NonTemporal) => [fixed, Strategy::NonTemporal],
            Choice::Only(Strategy::NoFlush) => [Strategy::NoFlush, fixed_restore],
            Choice::Only(only) if flushes() => [only, fixed_restore],
            _ => [fixed, fixed_restore],
        };
        for (direction, strategy) in [("checkpoint", checkpoint), ("restore", restore)] {
            for phase in phases(&outcome, direction) {
                assert!(
                    phase.strategy.is(strategy.word()),
                    "{}: {phase:?}",
                    choice.word()
                );
                assert_eq!((phase.tried, phase.threads), (0, 2), "{}", choice.word());
            }
        }
    }
}

/// With two threads asked for, one thread alone is a way too where memory is there.
#[test]
fn several_take_turns_and_one_of_them_goes_on() {
    let outcome = run("tune", "2");
    // Beside the first.
    let [fresh, kept] = if flushes() { [2, 3] } else { [0, 0] };
    for (cycle, phase) in phases(&outcome, "checkpoint").into_iter().enumerate() {
        let expected = if cycle == 0 { 1 + fresh } else { 2 + kept };
        assert_eq!(
            phase.tried,
            if expected > 1 { expected } else { 0 },
            "{phase:?}"
        );
        let known = [
            "demote",
            "flush-late",
            "flush-late-ahead",
            "flush-within",
            "no-flush",
        ];
        assert!(
            known.iter().any(|word| phase.strategy.is(word)),
            "{phase:?}"
        );
        assert!((1..=2).contains(&phase.threads));
    }
    for phase in phases(&outcome, "restore") {
        assert_eq!(phase.tried, 3, "{phase:?}");
        let known = ["demote", "non-temporal", "plain"];
        assert!(
            known.iter().any(|word| phase.strategy.is(word)),
            "{phase:?}"
        );
        assert!((1..=2).contains(&phase.threads));
    }
}

/// The caller alone has nothing to share, but has ways all the same.
#[test]
fn a_caller_alone_tries_ways_too() {
    let outcome = run("tune", "1");
    for phase in phases(&outcome, "restore") {
        assert_eq!((phase.tried, phase.threads), (2, 1), "{phase:?}");
    }
    assert_eq!(outcome.record.counters.helpers_started, 0);
}

/// Without a slot for copies, without any slot, and where copies are only timed.
#[test]
fn where_the_driver_copies_by_itself_no_way_of_ours_is_told() {
    for choice in ["plain", "tune"] {
        let attack = |words| Attack::new(words).env("CUDASNAP_STRATEGY", choice);
        let no_copies = attack("slots copies-taken").run();
        assert_eq!(no_copies.steps(Step::NoCopySlot), 1);
        assert_eq!(no_copies.steps(Step::NoMunmapSlot), 0);
        let relro = attack("copies cycles").relro().run();
        assert!(relro.steps(Step::NoMunmapSlot) > 0);
        let watched = attack("copies cycles").env("CUDASNAP", "observe").run();
        for outcome in [no_copies, relro, watched] {
            let phase = outcome.record.last("checkpoint").unwrap();
            assert!(phase.strategy.is("driver"), "{choice}: {phase:?}");
            assert_eq!(phase.tried, 0);
        }
    }
}

/// No slot of copies is held, but they come: the function of somebody else in it goes on to the shim's.
#[test]
fn copies_that_come_although_no_slot_is_held_are_made_in_our_way() {
    for threads in ["1", "2"] {
        let outcome = Attack::new("slots copies-passed-on")
            .env("CUDASNAP_STRATEGY", "plain")
            .env("CUDASNAP_THREADS", threads)
            .run();
        assert_eq!(outcome.steps(Step::NoCopySlot), 1);
        assert!(outcome.is_covered("checkpoint"));
        let phase = outcome.record.last("checkpoint").unwrap();
        assert!(phase.strategy.is("plain"), "{phase:?}");
        assert_eq!(phase.threads.to_string(), threads);
    }
}
