//! Zeros that are left out of the buffer: less memory, and never a wrong byte.

use cudasnap_shim_tests::attack::{Attack, Outcome};

const MIB: u64 = 1 << 20;
/// What is not zero in `sparse.c`: 3 MiB of each 40, of four of them.
const FULL_MIB: u64 = 12;

fn run(words: &str, options: &[(&str, &str)]) -> Outcome {
    let attack = Attack::new(words).env("CUDASNAP_SPARSE", "on");
    let attack = options
        .iter()
        .fold(attack, |attack, (name, value)| attack.env(name, value));
    let outcome = attack.run();
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    outcome
}

#[test]
fn what_is_zero_takes_no_memory() {
    for pages in ["thp", "4k"] {
        for threads in ["1", "2"] {
            let options = [("CUDASNAP_PAGES", pages), ("CUDASNAP_THREADS", threads)];
            let outcome = run("sparse mostly-zero", &options);
            assert_eq!(outcome.steps_but(&[]), []);
            let phase = outcome.record.last("checkpoint").unwrap();
            assert!(phase.zeros > 130 * MIB, "{phase:?}");
            assert!(phase.zeros + FULL_MIB * MIB <= phase.copied, "{phase:?}");
            // What is not zero, and prefault that had gone ahead of it each time.
            let took = outcome.number() as u64 / 1024;
            assert!(
                (FULL_MIB..130).contains(&took),
                "{took} MiB with {options:?}"
            );
        }
    }
}

#[test]
fn without_the_option_all_of_it_is_there() {
    let outcome = Attack::new("sparse mostly-zero").run();
    let phase = outcome.record.last("checkpoint").unwrap();
    assert_eq!(phase.zeros, 0);
    assert!(outcome.number() as u64 / 1024 >= phase.expected / MIB);
}

#[test]
fn zeros_are_stored_where_something_else_lies() {
    let keep = [("CUDASNAP_BUFFER", "keep")];
    let outcome = run("sparse kept-full", &keep);
    let of = |cycle: usize| outcome.record.history[2 * cycle].zeros;
    // Nothing of a random source is zero; then zeros go over other bytes; in the third cycle zeros lie there.
    assert_eq!((of(0), of(1)), (0, 0));
    assert!(of(2) > 130 * MIB);
    let short = [("CUDASNAP_BUFFER", "keep"), ("CUDASNAP_KEEP_MAX", "48M")];
    run("sparse kept-full", &short);
    for strategy in ["plain", "no-flush", "flush-within", "demote"] {
        run("sparse written-before", &[("CUDASNAP_STRATEGY", strategy)]);
    }
}

#[test]
fn what_a_copy_left_out_that_was_left_by_a_jump_is_in_no_other_phase() {
    let outcome = run("sparse jumped", &[("CUDASNAP_THREADS", "2")]);
    let phase = outcome.record.last("checkpoint").unwrap();
    assert!(
        phase.zeros == 0 && !phase.strategy.is("driver"),
        "{phase:?}"
    );
}
