//! A large buffer that the driver lets go is given back by many threads (`src/cycle/give_back.rs`): all of it and nothing else, whatever becomes
//! of a helper meanwhile (`shim-tests/hostile/returns.c`). Base pages: of these so much is large that a test can have it.

use cudasnap_shim_tests::attack::{Attack, Outcome};
use cudasnap_wire::Step;

fn run(name: &str, rest: &str, threads: &str) -> Outcome {
    let outcome = Attack::new(&format!("returns {name}"))
        .env("CUDASNAP_PAGES", "4k")
        .env("CUDASNAP_BUFFER", rest)
        .env("CUDASNAP_THREADS", threads)
        .run();
    assert_eq!(outcome.requests().0, outcome.requests().1);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    assert_eq!(outcome.steps(Step::Disturbed), 0);
    outcome
}

#[test]
fn all_of_a_large_buffer_goes_and_nothing_of_its_neighbours() {
    for threads in ["2", "6"] {
        assert_eq!(run("all", "fresh", threads).requests(), (4, 4));
    }
}

#[test]
fn a_large_buffer_that_is_reserved_is_empty() {
    let outcome = run("reserved", "reserve", "2");
    assert_eq!(outcome.requests(), (4, 4));
    assert_eq!(outcome.steps(Step::KeptUnfit), 0);
}

/// Its addresses wait for it, its memory does not.
#[test]
fn a_helper_that_is_stopped_while_it_gives_back_keeps_no_memory() {
    let outcome = run("held", "fresh", "2");
    assert!(outcome.number() >= 1.0, "nobody was stopped");
    assert!(outcome.steps(Step::HelperLate) >= 1);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_helper_that_is_killed_while_it_gives_back_is_not_waited_for() {
    assert!(run("killed", "fresh", "2").number() >= 1.0);
}
