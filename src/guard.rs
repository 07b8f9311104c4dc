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
