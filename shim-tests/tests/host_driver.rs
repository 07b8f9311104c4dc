//! A driver that does something new: to its buffer's mapping, with its copies, with its threads, or all of it in random order.
//! Every program runs on a libcuda that does what the program says, once under the shim and once without, and must say the
//! same checksums; the shim's record must say what happened.
//!
//! Known and accepted: memory that faults under a helper's hands (a source without access; a buffer that the program itself,
//! behind libcuda's back, unmaps or protects in mid-prefault) is the same signal as in libcuda's own copy, but no handler of the
//! program sees it.

use std::os::unix::process::ExitStatusExt;

use cudasnap_shim_tests::attack::{Attack, Outcome};
use cudasnap_wire::Step;

/// Runs it both ways.
fn compared(words: &str) -> Outcome {
    let plain = Attack::new(words).run_plain();
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
