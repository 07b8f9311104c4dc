//! What keeps a fault of ours from becoming the program's: an unwind barrier, a silent panic hook, and the off switch.

use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{catch_unwind, AssertUnwindSafe};

use cudasnap_wire::Step;

static OFF: AtomicBool = AtomicBool::new(false);

/// Whether everything is passed on, because a panic was caught once.
pub fn is_off() -> bool {
    OFF.load(Ordering::Relaxed)
}

/// Runs `body`; `None` when it panicked, after which the shim stays off in this process.
pub fn barrier<T>(body: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(body)).ok();
    if result.is_none() {
        OFF.store(true, Ordering::Relaxed);
        crate::record::step(Step::Panic);
    }
    result
}

/// Makes panics of this library silent. The library carries its own copy of std, so the program's hook is not touched.
pub fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::process::Command;

    /// Set in a process that is there for one test.
    const ALONE: &str = "CUDASNAP_TEST_ALONE";

    /// Runs the test of this name in a process of its own: there the hook and the switch are nobody else's.
    pub(crate) fn alone(name: &str, test: impl FnOnce()) {
        if std::env::var_os(ALONE).is_some() {
            return test();
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(ALONE, "1")
            .env("RUST_BACKTRACE", "full")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}{complained}"
        );
        assert_eq!(complained, "");
    }

    /// What a fault of ours comes to.
    pub(crate) fn panic_behind_the_barrier() {
        let hook = std::panic::take_hook();
        silence_panics();
        assert_eq!(barrier(|| -> u32 { panic!("said to nobody") }), None);
        std::panic::set_hook(hook);
        assert!(is_off());
    }

    #[test]
    fn a_panic_is_caught_counted_and_silent_even_with_a_backtrace_asked_for() {
        let name =
            "guard::tests::a_panic_is_caught_counted_and_silent_even_with_a_backtrace_asked_for";
        alone(name, || {
            let steps = &crate::record::get().counters.steps[Step::Panic as usize];
            assert_eq!(barrier(|| 7), Some(7));
            assert!(!is_off() && steps.load(Ordering::Relaxed) == 0);
            panic_behind_the_barrier();
            assert!(steps.load(Ordering::Relaxed) == 1);
        });
    }
}
