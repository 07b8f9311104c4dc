//! The harness has teeth: each kind of failure that it is there to see is made, and it must see it.

mod common;

use std::process::{Command, Output};

use common::{fake_source, fresh_record, library_with_record};
use cudasnap_shim_tests::simdriver::SimDriver;

fn cycle(options: &[&str], program: &[&str]) -> Output {
    let sim = SimDriver::build(false);
    Command::new(env!("CARGO_BIN_EXE_cycle"))
        .args(options)
        .arg("--")
        .args(program)
        .env("LD_LIBRARY_PATH", &sim.library)
        .env("SIMAPP", sim.programs.join("simapp"))
        .output()
        .unwrap()
}

fn simapp() -> String {
    let simapp = SimDriver::build(false).programs.join("simapp");
    simapp.to_str().unwrap().to_owned()
}

#[track_caller]
fn assert_status(output: &Output, status: i32) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{text}{errors}");
    text + &errors
}

#[test]
fn stock_cycles_are_right_free_and_frozen() {
    for world in [&["--arms", "stock"][..], &["--arms", "stock", "--freeze"]] {
        let mut options = world.to_vec();
        options.extend(["--cycles", "3", "--before-each", "rewrite"]);
        let text = assert_status(&cycle(&options, &[&simapp(), "64"]), 0);
        assert_eq!(text.matches(" right").count(), 3, "{text}");
    }
}

#[test]
fn wrong_contents_are_seen() {
    // The first two lines are `ready` and the answer before the first cycle.
    let program = "\"$SIMAPP\" 64 | { read -r a; echo \"$a\"; read -r a; echo \"$a\"; \
                   while read -r a; do echo bad 5; done; }";
    let options = ["--arms", "stock", "--cycles", "1", "--patience", "10"];
    let output = cycle(&options, &["sh", "-c", program]);
    assert!(assert_status(&output, 1).contains("5 WRONG WORDS"));
}

#[test]
fn a_shim_that_does_nothing_is_seen() {
    let fake = library_with_record(&fresh_record(), "");
    let shim = fake.path.to_str().unwrap();
    let options = ["--shim", shim, "--arms", "stock,shim", "--cycles", "1"];
    let text = assert_status(&cycle(&options, &[&simapp(), "64"]), 3);
    assert!(text.contains("the shim recorded no phase"), "{text}");
    // Switched off, doing nothing is what it should do.
    let options = ["--shim", shim, "--arms", "stock,off", "--cycles", "1"];
    assert_status(&cycle(&options, &[&simapp(), "64"]), 0);
}

#[test]
fn a_library_that_is_no_shim_is_refused() {
    let fake = library_with_record(&[0; 64], "");
    let options = ["--shim", fake.path.to_str().unwrap(), "--arms", "shim"];
    assert_status(&cycle(&options, &[&simapp(), "64"]), 2);
    assert_status(&cycle(&["--shim", "/nowhere.so"], &[&simapp(), "64"]), 2);
}

#[test]
fn a_standing_pool_works_in_a_free_world_and_hangs_in_a_frozen_one() {
    let fake = library_with_record(&fresh_record(), &fake_source("standing_pool.c"));
    let shim = fake.path.to_str().unwrap();
    let options = [
        "--shim",
        shim,
        "--arms",
        "off",
        "--cycles",
        "2",
        "--patience",
        "4",
    ];
    assert_status(&cycle(&options, &[&simapp(), "64"]), 0);
    let mut frozen = options.to_vec();
    frozen.push("--freeze");
    let output = cycle(&frozen, &[&simapp(), "64"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(2 | 4)), "{errors}");
    assert!(errors.contains("hangs"), "{errors}");
}

#[test]
fn a_leak_is_seen() {
    let leak = "#include <fcntl.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n#include <sys/types.h>\n\
        int munmap(void *p, unsigned long n) { if (n >= 32u << 20) open(\"/dev/null\", O_RDONLY); \
        return syscall(SYS_munmap, p, n); }\n";
    let fake = library_with_record(&fresh_record(), leak);
    let shim = fake.path.to_str().unwrap();
    let options = ["--shim", shim, "--arms", "stock,off", "--cycles", "1"];
    let text = assert_status(&cycle(&options, &[&simapp(), "64"]), 3);
    assert!(text.contains("descriptors +1"), "{text}");
}
