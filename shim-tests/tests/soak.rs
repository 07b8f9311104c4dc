//! A short soak: every kind of host and fault once and more, and one host that lives for long enough to see whether it grows. The
//! long one is `scripts/soak`.

use std::process::Command;

/// With this seed two long lives follow the short ones.
const SEED: &str = "2";
const CYCLES: &str = "300";

#[test]
fn a_short_soak_sees_every_kind_and_finds_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_soak"))
        // A cycle that hangs hangs for ever; one on a busy machine takes its time.
        .args([CYCLES, SEED, "--patience", "300"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    let verdict = format!("{CYCLES} passed, 0 failed, 0 skipped");
    assert_eq!(said.lines().last(), Some(verdict.as_str()), "{said}");
    // Without a slope this proves less than it says.
    assert!(said.contains("hosts that lived for long enough"), "{said}");
}
