//! What is done to a program from outside: by the loader's switches, by who starts it and in which world, by who looks on; and
//! how it ends in the middle. Each is compared with the same program without the shim.
//!
//! Needs root, the packages strace and valgrind (Debian), and two CPUs.

use std::path::PathBuf;

use cudasnap_shim_tests::attack::{Attack, Outcome};
use cudasnap_shim_tests::shimmed::compile_hostile;
use cudasnap_wire::Step;

mod run_world;
use run_world::{text, Folder};

/// Two cycles.
const CYCLES: &str = "copies cycles";

fn covered(outcome: &Outcome) {
    assert_eq!(outcome.requests(), (2, 2));
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

/// All is as in a quiet world.
fn undisturbed(attack: Attack) {
    let outcome = attack.run();
    covered(&outcome);
    assert_eq!(outcome.steps_but(&[]), []);
    assert!(outcome.record.counters.helpers_started >= 2);
}

fn auditor(folder: &Folder, name: &str, flags: &[&str]) -> PathBuf {
    let to = folder.at(name);
    compile_hostile("audit.c", &[&["-shared", "-fPIC"], flags].concat(), &to);
    to
}

// The loader.

#[test]
fn an_auditor_of_bindings_changes_nothing() {
    let folder = Folder::new();
    let library = auditor(&folder, "bindings.so", &[]);
    undisturbed(Attack::new(CYCLES).env("LD_AUDIT", text(&library)));
}

/// The loader stands between libcuda and the shim: who calls cannot be seen.
#[test]
fn under_an_auditor_of_calls_the_driver_is_left_alone() {
    let folder = Folder::new();
    let library = auditor(&folder, "calls.so", &["-DCALLS"]);
    let outcome = Attack::new(CYCLES).env("LD_AUDIT", text(&library)).run();
    assert_eq!(outcome.requests(), (0, 0));
}

#[test]
fn slots_that_are_never_bound_or_bound_at_once_are_held() {
    for switch in ["LD_BIND_NOT", "LD_BIND_NOW"] {
        undisturbed(Attack::new(CYCLES).env(switch, "1"));
    }
}

#[test]
fn a_profile_of_libcudas_calls_changes_nothing() {
    let folder = Folder::new();
    let attack = Attack::new(CYCLES).env("LD_PROFILE", "libcuda.so.1");
    undisturbed(attack.env("LD_PROFILE_OUTPUT", text(&folder.path)));
}

// Who starts it, and in which world.

#[test]
fn starters_that_change_layout_rights_and_users_change_nothing() {
    let starters: [&[&str]; 7] = [
        &["setarch", "-R"],
        &["setarch", "-X"],
        &["setarch", "-L"],
        &["setpriv", "--no-new-privs"],
        &["unshare", "--user"],
        &["unshare", "--user", "--map-root-user", "--mount"],
        &["prlimit", "--stack=unlimited"],
    ];
    for starter in starters {
        undisturbed(Attack::new(CYCLES).through(starter));
    }
}

#[test]
fn real_time_priority_is_inherited_and_does_no_harm() {
    undisturbed(Attack::new(CYCLES).through(&["chrt", "--fifo", "1"]));
}

/// A thread with deadlines may make none that has them too.
#[test]
fn with_deadlines_the_caller_works_alone() {
    let times = ["5000000", "10000000", "10000000"];
    let starter = [
        "chrt",
        "--deadline",
        "--sched-runtime",
        times[0],
        "--sched-deadline",
        times[1],
        "--sched-period",
        times[2],
        "0",
    ];
    let outcome = Attack::new(CYCLES).through(&starter).run();
    covered(&outcome);
    assert_eq!(outcome.record.counters.helpers_started, 0);
    assert!(outcome.steps(Step::NoThread) >= 2);
}

/// In a mount namespace in which this was done first.
fn where_was_done(script: &str) -> Attack {
    let script = format!("{script} && exec \"$@\"");
    let starter = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        &script,
        "sh",
    ];
    Attack::new(CYCLES).through(&starter)
}

/// Whether there are huge pages is read there.
#[test]
fn without_sys_there_are_base_pages() {
    let outcome = where_was_done("mount -t tmpfs none /sys").run();
    covered(&outcome);
    assert_eq!(outcome.steps_but(&[]), [(Step::NoHugePages.word(), 2)]);
}

#[test]
fn without_proc_the_driver_is_left_alone() {
    let outcome = where_was_done("mount -t tmpfs none /proc").run();
    assert_eq!(outcome.requests(), (0, 0));
}

// Who looks on.

#[test]
fn a_tracer_that_sees_every_call_changes_nothing() {
    // As a grandchild: the program is the test's own child.
    undisturbed(Attack::new(CYCLES).through(&["strace", "-D", "-f", "-o", "/dev/null"]));
}

#[test]
fn an_emulated_processor_changes_nothing() {
    undisturbed(Attack::new(CYCLES).through(&["valgrind", "-q", "--log-file=/dev/null"]));
}

// Its end in the middle of a cycle.

#[test]
fn it_ends_in_the_middle_as_it_would_have() {
    for how in [
        "exit",
        "quick_exit",
        "_exit",
        "abort",
        "exec",
        "crash",
        "term",
    ] {
        for after in [0, 45, 190] {
            let [shimmed, plain] = Attack::deaths(&format!("departs now {how} {after}"));
            assert!(!plain.success());
            assert_eq!(shimmed, plain, "{how} after {after} ms");
        }
    }
}
