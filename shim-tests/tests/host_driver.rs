//! A driver that does something new: to its buffer's mapping, with its copies, with its threads, or all of it in random order.
//! Every program runs on a libcuda that does what the program says, once under the shim and once without, and must say the
//! same checksums; the shim's record must say what happened.
//!
//! Known and accepted: a fault under a helper's hands is the same signal as in libcuda's own copy, but no handler of the program
//! sees it. That is a buffer that the program itself, behind libcuda's back, unmaps or protects in mid-prefault, and memory
//! that is protected after a first copy of the phase to or from it. Where there is a handler, the first copy is the caller's.

use std::os::unix::process::ExitStatusExt;

use cudasnap_shim_tests::attack::{Attack, Outcome};
use cudasnap_wire::Step;

/// Runs it both ways.
fn compared(words: &str) -> Outcome {
    let plain = Attack::new(words).without_shim().run_stock();
    let outcome = Attack::new(words).run();
    assert_eq!(outcome.detail, plain, "{words}");
    outcome
}

/// The changes of a kind, each at four moments of a cycle, and a cycle: the buffer is forgotten `disturbed` times.
fn changed(kind: &str, changes: u64, disturbed: u32) {
    let words = format!("mappings all {kind}");
    let outcome = compared(&words);
    let asked = changes * 4 + 1;
    assert_eq!(outcome.requests(), (asked, asked), "{words}");
    assert_eq!(outcome.steps(Step::Disturbed), disturbed, "{words}");
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn munmap_of_a_part() {
    changed("munmap", 7, 28);
}

#[test]
fn munmap_of_the_same_pages_by_another_length() {
    changed("whole", 3, 0);
}

#[test]
fn mremap_of_the_buffer_of_a_part_and_over_it() {
    changed("mremap", 7, 28);
}

#[test]
fn mprotect_of_the_buffer() {
    changed("mprotect", 3, 12);
}

#[test]
fn a_fixed_mapping_over_the_buffer() {
    changed("fixed", 4, 16);
}

#[test]
fn a_call_that_the_kernel_refuses_leaves_the_buffer_ours() {
    changed("refused", 3, 0);
}

#[test]
fn guard_pages_in_mid_prefault() {
    changed("guard", 1, 4);
}

#[test]
fn advice_that_leaves_the_pages_accessible() {
    changed("advice", 3, 0);
}

// What it copies.

#[test]
fn the_whole_buffer_in_one_copy() {
    let outcome = compared("transfers whole");
    assert_eq!(outcome.requests(), (2, 2));
    assert_eq!(outcome.record.counters.phases, 4);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    assert_eq!(outcome.record.last("restore").unwrap().copies, 1);
    assert_eq!(outcome.steps_but(&[]), []);
}

#[test]
fn copies_of_nothing_of_one_byte_and_of_odd_sizes() {
    let outcome = compared("transfers small");
    assert_eq!(outcome.record.counters.other_copies, 3);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn copies_across_the_buffers_edges_and_inside_it() {
    let outcome = compared("transfers edges");
    // Two of the seven lie in the buffer alone.
    assert_eq!(outcome.record.counters.other_copies, 6);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn what_is_copied_twice_counts_once() {
    let outcome = compared("transfers half-twice");
    let phase = outcome.record.last("checkpoint").unwrap().clone();
    assert_eq!((phase.copied, phase.copies), (24 << 20, 3), "{phase:?}");
    assert!(
        phase.end.is("unmapped") || phase.end.is("idle"),
        "{phase:?}"
    );
    assert_eq!(outcome.steps_but(&[]), [("not-effective", 1)]);
}

#[test]
fn every_chunk_copied_twice_is_covered_when_the_last_has_come() {
    let outcome = compared("transfers chunk-again");
    // The first chunk's second copy begins the phase anew; the last one's, of 777 bytes, comes after its end.
    let copied = outcome.record.history.iter().map(|phase| phase.copied);
    let length = (48 << 20) + 777;
    assert_eq!(copied.collect::<Vec<_>>(), [2 << 20, length, 777]);
    assert!(outcome.record.history[1].end.is("covered"));
}

#[test]
fn a_restore_without_a_checkpoint() {
    let outcome = compared("transfers restore-first");
    assert_eq!(outcome.requests(), (3, 3));
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    let restores = outcome.record.history.iter();
    let restores =
        restores.filter(|phase| phase.direction.is("restore") && phase.end.is("covered"));
    assert_eq!(restores.count(), 3);
}

#[test]
fn ten_checkpoints_into_one_buffer() {
    let outcome = compared("transfers many-checkpoints");
    assert_eq!(outcome.requests(), (1, 1));
    assert_eq!(outcome.record.counters.phases, 20);
    assert_eq!(outcome.steps_but(&[]), []);
}

#[test]
fn more_buffers_than_the_shim_remembers() {
    let outcome = compared("transfers seven");
    // Four are the shim's, three the driver's own, and one more cycle when all are gone.
    assert_eq!(outcome.requests(), (8, 5));
    assert_eq!(outcome.steps(Step::SecondBuffer), 7);
    // All copies but the first into each of the four: they are about older buffers, two buffers, or none.
    assert_eq!(outcome.record.counters.other_copies, 16);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn a_buffers_addresses_are_somebody_elses_afterwards() {
    let outcome = compared("transfers reuse");
    // Twice 25 chunks in and out.
    assert_eq!(outcome.record.counters.other_copies, 100);
    assert_eq!(outcome.steps(Step::Disturbed), 1);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn the_buffer_is_listed_as_the_mapping_that_was_asked_for() {
    let outcome = compared("transfers listed");
    assert_eq!(outcome.requests(), (1, 1));
    assert_eq!(outcome.steps_but(&[]), []);
}

#[test]
fn requests_of_other_forms_are_the_kernels() {
    let outcome = compared("transfers forms");
    // 32 MiB, a byte more, without reserve, for a stack.
    assert_eq!(outcome.requests(), (4, 4));
    assert!(outcome.is_covered("checkpoint"));
}

#[test]
fn what_is_mapped_over_a_kept_buffer_stays() {
    compared("transfers over-kept");
    let outcome = Attack::new("transfers over-kept")
        .env("CUDASNAP_BUFFER", "keep")
        .run();
    assert_eq!(outcome.requests(), (12, 12));
    // Seen when it is asked for again: what was mapped without the C library.
    assert_eq!(outcome.steps(Step::KeptUnfit), 1);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn sources_and_targets_that_are_files_or_read_only() {
    let outcome = compared("transfers other-memory");
    assert!(outcome.record.counters.phases >= 2);
}

// Which of its threads do it, and where.

#[test]
fn every_step_on_another_thread() {
    for words in ["driverthreads relay", "driverthreads relay-small"] {
        let outcome = compared(words);
        assert_eq!(outcome.requests(), (3, 3));
        assert_eq!(outcome.record.counters.phases, 6);
        assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    }
}

#[test]
fn a_thread_that_ends_between_two_copies() {
    let outcome = compared("driverthreads ends");
    assert_eq!(outcome.requests(), (3, 3));
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn two_threads_copy_at_once() {
    let outcome = compared("driverthreads at-once");
    assert_eq!(outcome.requests().0, 14);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn a_cycle_in_a_signal_handler_in_mid_copy() {
    let outcome = compared("driverthreads request-in-handler");
    // Those that come into the middle of the shim's own work are the driver's own.
    assert!(outcome.requests().0 > 9, "{:?}", outcome.requests());
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn copies_in_a_signal_handler_in_mid_copy() {
    let outcome = compared("driverthreads copy-in-handler");
    assert!(outcome.steps(Step::CrewBusy) > 0);
    assert_eq!(outcome.requests().0, outcome.requests().1);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn a_jump_out_of_a_copy_costs_that_buffer_and_no_other() {
    let outcome = compared("driverthreads jumps");
    assert_eq!(outcome.requests(), (32, 32));
    assert_eq!(outcome.steps(Step::Disturbed), 16);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn memory_that_faults_is_the_same_signal() {
    let deaths = [
        "source-without-access",
        "target-read-only",
        "buffer-gone",
        "buffer-read-only",
        "file-too-short",
    ];
    for death in deaths {
        let [shimmed, plain] = Attack::deaths(&format!("driverthreads {death}"));
        assert!(plain.signal().is_some(), "{death}: {plain}");
        assert_eq!(shimmed.signal(), plain.signal(), "{death}");
    }
}

#[test]
fn faults_that_the_program_repairs_are_left_to_its_handler() {
    for words in ["faults repaired", "faults staged"] {
        let outcome = compared(words);
        assert_eq!(outcome.steps_but(&[]), []);
        assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
        assert!(outcome.record.counters.helpers_started > 0, "{words}");
    }
}

// What it does while somebody keeps helpers stopped in mid-prefault. Small pages and one helper: it is met inside a unit.

fn with_stopped_helpers(words: &str) -> Outcome {
    let outcome = Attack::new(words)
        .env("CUDASNAP_THREADS", "2")
        .env("CUDASNAP_PAGES", "4k")
        .run();
    assert!(outcome.steps(Step::HelperLate) >= 8);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    assert_eq!(outcome.requests().0, outcome.requests().1);
    outcome
}

#[test]
fn a_buffer_is_given_up_piece_by_piece_under_a_stopped_helper() {
    let outcome = with_stopped_helpers("stoppedparts pieces");
    assert!(outcome.number() >= 1.0, "no helper was met inside a unit");
}

#[test]
fn what_is_mapped_where_a_stopped_helper_was_stays() {
    with_stopped_helpers("stoppedparts over");
}

#[test]
fn the_rest_is_protected_under_a_stopped_helper() {
    with_stopped_helpers("stoppedparts protected-rest");
}

// All of it in random order. `CUDASNAP_SEQUENCE_SEED=N` repeats a run, `CUDASNAP_SEQUENCES=N` makes it longer; the environment
// variable `SEQUENCE_TRACE` makes the program say each step.

fn number_from(variable: &str, default: u32) -> u32 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// The seed where none is given: a test that fails now and then is no test.
const SEED: u32 = 1;

/// Sequences in one process: a very busy machine takes ten seconds for each.
const AT_ONCE: u32 = 6;

/// Sequences of a driver's calls, with and without the shim, under these options.
fn sequences(more_words: &str, options: &[(&str, &str)]) -> Vec<Outcome> {
    let first = number_from("CUDASNAP_SEQUENCE_SEED", SEED);
    let count = number_from("CUDASNAP_SEQUENCES", 48);
    println!("CUDASNAP_SEQUENCE_SEED={first} CUDASNAP_SEQUENCES={count}");
    let seeds = (first..first + count).step_by(AT_ONCE as usize);
    let run = |seed: u32| {
        let some = AT_ONCE.min(first + count - seed);
        same_sequences(seed, some, more_words, options)
    };
    seeds.map(run).collect()
}

fn same_sequences(seed: u32, count: u32, more_words: &str, options: &[(&str, &str)]) -> Outcome {
    let words = format!("sequence run {seed} {count}{more_words}");
    let plain = Attack::new(&words).without_shim().run_stock();
    let shimmed = options
        .iter()
        .fold(Attack::new(&words), |attack, (name, value)| {
            attack.env(name, value)
        });
    let outcome = shimmed.run();
    let pairs = outcome.detail.split(' ').zip(plain.split(' '));
    for ((ours, theirs), seed) in pairs.zip(seed..) {
        assert_eq!(ours, theirs, "CUDASNAP_SEQUENCE_SEED={seed}");
    }
    assert_eq!(outcome.detail.len(), 17 * count as usize - 1);
    assert!(outcome.record.counters.phases > 0);
    assert_eq!(outcome.steps(Step::Panic), 0);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    outcome
}

/// How many of something there were in all.
fn all(outcomes: &[Outcome], of: impl Fn(&Outcome) -> u64) -> u64 {
    outcomes.iter().map(of).sum()
}

#[test]
fn random_sequences_of_a_drivers_calls() {
    let outcomes = sequences("", &[]);
    let (asked, answered) = (
        all(&outcomes, |outcome| outcome.requests().0),
        all(&outcomes, |outcome| outcome.requests().1),
    );
    assert!(answered > asked / 2, "{answered} of {asked}");
    for step in [Step::Disturbed, Step::SecondBuffer] {
        assert!(all(&outcomes, |outcome| outcome.steps(step).into()) > 0);
    }
}

#[test]
fn random_sequences_with_a_kept_buffer() {
    sequences(" fill", &[("CUDASNAP_BUFFER", "keep")]);
}

#[test]
fn random_sequences_with_small_pages_and_more_threads_than_processors() {
    sequences("", &[("CUDASNAP_PAGES", "4k"), ("CUDASNAP_THREADS", "5")]);
}

#[test]
fn random_sequences_that_are_only_watched() {
    let outcomes = sequences("", &[("CUDASNAP", "observe")]);
    assert_eq!(all(&outcomes, |outcome| outcome.requests().1), 0);
}
