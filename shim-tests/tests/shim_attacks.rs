//! Attacks that broke the shim once, or were meant to: hostile programs (`shim-tests/hostile`) drive a fake libcuda under the
//! shim, and must end well and in time. `CUDASNAP_ATTACK_SEED=N` repeats a run of those with random parts. Two CPUs are needed:
//! on one there are no helpers to be stopped.
//!
//! Known and accepted, so not attacked here:
//!
//! - mremap, a fixed mmap, mprotect or guard pages by the driver over its buffer, while somebody keeps a helper stopped inside a unit of
//!   prefault, waits until that helper is released: it could not wake later without harm.
//! - The program itself (not libcuda) that unmaps or protects the driver's buffer while helpers prefault it: nobody tells the
//!   shim.
//! - A lazy resolution of munmap that overwrites the shim's slot, when no further call of libcuda comes to the shim before its
//!   munmap: the driver's own call it is, and the tail stays.
//! - A source that faults inside a helper is a signal in that helper: no handler of the program can jump out of it. So it is with
//!   memory that protection keys open to the calling thread alone, and with a filter that answers a helper's system calls with
//!   SIGSYS.
//! - A handler that switches to another stack near the interrupted one, in mid-copy, and copies there.

use std::io::{PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::time::{SystemTime, UNIX_EPOCH};

use cudasnap_shim_tests::attack::{Attack, Outcome};
use cudasnap_wire::Step;

fn attack(words: &str) -> Outcome {
    Attack::new(words).run()
}

/// With one helper: also on a large machine a copy lasts long enough to be met in the middle.
fn attack_with_one_helper(words: &str) -> Outcome {
    Attack::new(words).env("CUDASNAP_THREADS", "2").run()
}

/// Small units and slow pages too: the same for prefault.
fn attack_with_small_pages(words: &str) -> Outcome {
    Attack::new(words)
        .env("CUDASNAP_THREADS", "2")
        .env("CUDASNAP_PAGES", "4k")
        .run()
}

/// Of a run with random parts: told when it fails.
fn seed() -> String {
    let of_the_clock = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since.subsec_nanos().to_string()
    };
    let seed = std::env::var("CUDASNAP_ATTACK_SEED").unwrap_or_else(|_| of_the_clock());
    println!("CUDASNAP_ATTACK_SEED={seed}");
    seed
}

// The program itself, which is not libcuda.

#[test]
fn a_request_like_the_drivers_fits_on_the_smallest_thread_stack() {
    let outcome = attack("strangers thread-stack");
    assert_eq!(outcome.requests(), (1, 1));
}

#[test]
fn a_request_like_the_drivers_fits_on_a_small_signal_stack() {
    let outcome = attack("strangers signal-stack");
    assert_eq!(outcome.requests(), (1, 1));
}

#[test]
fn a_thread_with_the_drivers_name_is_not_the_driver() {
    let outcome = attack("strangers name");
    assert_eq!(outcome.requests(), (0, 0));
    // Counted, as a driver behind another preload would be.
    assert_eq!(outcome.steps_but(&[]), [("not-understood", 10)]);
}

#[test]
fn a_child_of_fork_uses_and_frees_the_parents_buffer() {
    let outcome = attack("strangers fork");
    assert_eq!(outcome.requests(), (2, 2));
    assert_eq!(outcome.steps_but(&[]), []);
}

#[test]
fn a_vfork_child_maps_and_copies_in_the_parents_memory() {
    // A request of the child is nobody's: it may be answered, or cost the parent its crew, but no byte.
    let outcome = attack("strangers vfork");
    assert!(outcome.requests().1 >= 2, "{:?}", outcome.requests());
}

#[test]
fn the_drop_word_is_cleared_in_a_program_that_never_checkpoints() {
    let outcome = attack("strangers drop-word");
    assert_eq!((outcome.requests(), outcome.record.drop), ((0, 0), 0));
}

#[test]
fn a_program_without_descriptors_is_not_taken_for_another_build() {
    let outcome = attack("strangers no-descriptors");
    assert_eq!(outcome.steps(Step::ForeignBuild), 0);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

// What is copied, in which order, between which buffers.

#[test]
fn a_last_copy_to_the_buffers_start_covers_it() {
    let outcome = attack("copies header-last");
    assert!(outcome.is_covered("checkpoint"));
    assert_eq!(outcome.record.counters.phases, 1);
    assert_eq!(outcome.steps_but(&[]), []);
}

#[test]
fn copies_in_descending_order_cover_the_buffer() {
    let outcome = attack("copies descending");
    assert!(outcome.is_covered("checkpoint"));
    assert_eq!(outcome.record.counters.phases, 1);
    assert_eq!(outcome.steps_but(&[]), []);
}

#[test]
fn every_copy_may_turn_the_phase() {
    let outcome = attack("copies turns");
    assert_eq!(outcome.requests(), (1, 1));
    let last = outcome.record.last("restore").unwrap();
    assert!(last.copied > 0 && last.copied < last.expected, "{last:?}");
}

/// Of no byte, of one, across the buffer's ends, overlapping, within the buffer, past it.
#[test]
fn odd_copies_do_what_memmove_does() {
    let outcome = attack(&format!("copies odd {}", seed()));
    let counters = &outcome.record.counters;
    assert!(counters.phases > 10 && counters.other_copies > 10);
}

#[test]
fn a_second_buffer_leaves_the_first_usable() {
    let outcome = attack("copies second");
    assert_eq!(outcome.requests(), (2, 2));
    assert_eq!(outcome.steps(Step::SecondBuffer), 1);
}

#[test]
fn a_buffer_that_is_never_used_leaves_no_thread() {
    let outcome = attack("copies unused");
    assert_eq!(outcome.requests(), (1, 1));
    assert!(outcome.record.last("checkpoint").unwrap().end.is("no-copy"));
}

#[test]
fn one_munmap_takes_two_buffers() {
    let outcome = attack("copies over-two");
    assert_eq!(outcome.requests(), (3, 3));
    assert_eq!(outcome.steps(Step::Disturbed), 2);
    assert!(outcome.is_covered("restore"));
}

// Several threads in the driver, and threads that leave it.

#[test]
fn a_buffer_is_unmapped_while_another_thread_drops_a_kept_one() {
    let outcome = Attack::new("threads dropper")
        .env("CUDASNAP_BUFFER", "keep")
        .run();
    assert!(outcome.requests().1 > 10, "{:?}", outcome.requests());
}

#[test]
fn two_threads_of_the_driver_share_a_buffer_and_have_their_own() {
    let outcome = attack("threads two-drivers");
    assert!(outcome.requests().0 >= 26, "{:?}", outcome.requests());
    assert!(outcome.is_covered("restore"));
}

#[test]
fn a_thread_that_dies_in_mid_copy_leaves_no_helper() {
    let outcome = attack_with_one_helper("threads death");
    assert_eq!(outcome.requests(), (2, 2));
    assert!(outcome.is_covered("restore"));
}

#[test]
fn a_jump_out_of_a_copy_leaves_no_helper() {
    let outcome = attack("threads jump");
    assert_eq!(outcome.requests(), (3, 3));
    assert_eq!(outcome.steps(Step::Disturbed), 1);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

/// libc unwinds its stack, frames of the shim among them.
#[test]
fn a_thread_that_is_cancelled_in_mid_copy_ends_alone() {
    let outcome = attack_with_one_helper("leavers cancel");
    assert_eq!(outcome.requests(), (4, 4));
    assert_eq!(
        outcome.steps_but(&[]),
        [("disturbed", 2), ("not-effective", 2)]
    );
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn a_thread_that_ends_itself_in_a_handler_in_mid_copy_ends_alone() {
    let outcome = attack_with_one_helper("leavers exit");
    assert_eq!(outcome.requests(), (4, 4));
    assert_eq!(outcome.steps(Step::Disturbed), 2);
    assert_eq!(outcome.steps(Step::Panic), 0);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn a_handler_on_a_disarmed_signal_stack_is_not_taken_for_a_jump() {
    let outcome = attack("leavers disarmed");
    let (requests, answered) = outcome.requests();
    assert!(
        requests == answered && answered >= 9,
        "{requests} {answered}"
    );
    assert_eq!(outcome.steps(Step::Disturbed), 0);
    // What the handler copies goes past the crew.
    assert!(outcome.steps(Step::CrewBusy) > 0);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

/// A process without its first thread shows nobody what is mapped in it: from then on the driver's own requests go through.
#[test]
fn the_first_thread_may_end_in_mid_copy() {
    let attack = Attack::new("twins first-thread").env("CUDASNAP_THREADS", "2");
    assert_eq!(attack.run_stock(), "1 helpers, 1 answered");
}

/// The child goes on in the middle of the call, without the helpers.
#[test]
fn a_handler_forks_in_mid_copy_and_both_go_on() {
    for pages in ["thp", "4k"] {
        let outcome = Attack::new("twins forks-in-handler")
            .env("CUDASNAP_PAGES", pages)
            .run();
        assert!(outcome.number() >= 20.0);
        assert_eq!(outcome.steps_but(&[]), []);
        assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    }
}

/// `CUDASNAP_ATTACK_SEED=N` repeats a run.
#[test]
fn everything_at_once_does_no_harm() {
    let seed = seed();
    for (keep, pages) in [("fresh", "4k"), ("keep", "thp")] {
        let outcome = Attack::new(&format!("hammer all {seed} 4"))
            .env("CUDASNAP_BUFFER", keep)
            .env("CUDASNAP_PAGES", pages)
            .run();
        println!("{keep} {pages}: {}", outcome.detail);
        let (requests, answered) = outcome.requests();
        assert!(answered > 1 && requests > answered, "{requests} {answered}");
        assert_eq!(outcome.steps(Step::Panic), 0);
        assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    }
}

// libcuda's slots.

#[test]
fn another_hook_over_ours_may_stay_for_two_cycles() {
    let outcome = attack("slots chain");
    assert_eq!(outcome.requests(), (3, 3));
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    assert_eq!(outcome.steps(Step::SlotRetaken), 0);
}

#[test]
fn another_hook_over_ours_may_put_ours_back_when_we_have_gone() {
    let outcome = attack("slots chain-back");
    assert_eq!(outcome.requests(), (3, 3));
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn slots_that_a_late_resolution_overwrote_are_taken_again() {
    let outcome = attack("slots late");
    assert_eq!(outcome.steps(Step::SlotRetaken), 2);
    assert!(outcome.is_covered("checkpoint"));
}

#[test]
fn libcuda_is_unloaded_with_a_buffer_that_lives_and_loaded_elsewhere() {
    let outcome = attack("slots unload");
    assert_eq!(outcome.requests(), (3, 3));
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn libcuda_is_unloaded_with_a_buffer_that_lives_and_loaded_again() {
    let outcome = attack("slots unload-load");
    assert_eq!(outcome.requests(), (3, 3));
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn a_buffer_whose_libcuda_was_unloaded_is_mapped_over() {
    let outcome = attack("slots unload-over");
    assert_eq!(outcome.requests(), (3, 3));
    assert_eq!(outcome.steps(Step::Disturbed), 1);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

// Helpers that somebody stops or kills.

#[test]
fn the_first_half_goes_while_a_helper_is_stopped_in_prefault() {
    let outcome = attack_with_small_pages("stopped first-half");
    assert!(outcome.steps(Step::Disturbed) >= 1);
    assert!(outcome.steps(Step::HelperLate) >= 1);
}

#[test]
fn the_second_half_goes_while_a_helper_is_stopped_in_prefault() {
    let outcome = attack_with_small_pages("stopped second-half");
    assert!(outcome.steps(Step::Disturbed) >= 1);
    assert!(outcome.steps(Step::HelperLate) >= 1);
}

#[test]
fn the_whole_buffer_goes_while_a_helper_is_stopped() {
    let outcome = attack_with_small_pages("stopped whole");
    assert!(outcome.steps(Step::HelperLate) >= 1);
}

#[test]
fn a_helper_stopped_over_many_buffers_costs_no_address_space() {
    let outcome = attack_with_small_pages("stopped many");
    assert!(outcome.steps(Step::HelperLate) >= 10);
    assert!(outcome.requests().1 >= 12);
}

#[test]
fn a_copy_goes_on_when_a_helper_stopped_in_a_part_is_released() {
    let outcome = attack_with_one_helper("stopped held");
    assert!(outcome.number() >= 1.0, "nobody was stopped");
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_part_whose_helper_is_killed_is_done_again() {
    let outcome = attack_with_one_helper("stopped killed");
    assert!(outcome.number() >= 1.0, "nobody was killed");
    assert!(outcome.steps(Step::HelperDead) >= 1);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
fn a_request_without_slots_does_not_wait_for_a_stopped_helper() {
    let outcome = Attack::new("stopped relro")
        .relro()
        .env("CUDASNAP_THREADS", "2")
        .env("CUDASNAP_PAGES", "4k")
        .run();
    assert!(outcome.number() < 10.0, "{} s", outcome.detail);
    assert!(outcome.steps(Step::NoMunmapSlot) >= 1);
    assert!(outcome.steps(Step::HelperLate) >= 1);
}

// Readers that do not read.

#[test]
fn a_report_into_a_pipe_that_nobody_reads_is_counted_and_costs_nothing() {
    let path = std::env::temp_dir().join(format!("cudasnap-fifo-{}", std::process::id()));
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a path that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let outcome = Attack::new("copies cycles")
        .env("CUDASNAP_REPORT", path.to_str().unwrap())
        .run();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(outcome.steps(Step::ReportFailed), 2);
    assert!(outcome.is_covered("restore"));
}

#[test]
fn messages_to_a_full_pipe_are_left_out() {
    let (_reading, mut writing) = std::io::pipe().unwrap();
    set_blocking(&writing, false);
    while writing.write(&[b'x'; 4096]).is_ok() {}
    set_blocking(&writing, true);
    let outcome = Attack::new("copies cycles")
        .env("CUDASNAP_LOG", "debug")
        .stderr(writing)
        .run();
    assert!(outcome.is_covered("restore"));
}

#[test]
fn messages_to_a_closed_pipe_kill_nobody() {
    let (reading, writing) = std::io::pipe().unwrap();
    drop(reading);
    let outcome = Attack::new("copies cycles")
        .env("CUDASNAP_LOG", "debug")
        .stderr(writing)
        .run();
    assert!(outcome.is_covered("restore"));
}

fn set_blocking(pipe: &PipeWriter, blocking: bool) {
    let flags = if blocking { 0 } else { libc::O_NONBLOCK };
    // SAFETY: the descriptor is the pipe's.
    let status = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags) };
    assert_eq!(status, 0);
}
