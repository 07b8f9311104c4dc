//! A cache flush may outlive its copy only where whoever takes the source's pages away waits for it: the driver takes a staging buffer
//! away in mid-phase, right after a copy out of it has returned, while a tracer holds a helper in that very flush
//! (`shim-tests/hostile/flushes.c`, `warden.h`). No scheduler decides what comes first.
//!
//! A CPU without `clflushopt` has no such flush: there these tests are skipped, by name (`shim-tests/build.rs`, `skips.txt`). The protocol itself
//! is tested everywhere, with a flush of its own, in `src/crew/tests.rs`, and proved by models.
#![cfg(target_arch = "x86_64")]

use std::path::PathBuf;
use std::sync::OnceLock;

use cudasnap_shim_tests::attack::{Attack, Outcome};
use cudasnap_shim_tests::shimmed::{compile_hostile, library};
use cudasnap_wire::Step;
use object::{Object, ObjectSymbol};

mod run_world;
use run_world::Folder;

/// Where in the shim the function begins that flushes what copies have left in the caches.
fn flush() -> &'static str {
    static FLUSH: OnceLock<String> = OnceLock::new();
    FLUSH.get_or_init(|| {
        let bytes = std::fs::read(library()).expect("the shim");
        let file = object::File::parse(&*bytes).expect("a library");
        let is_it = |name: &str| name.contains("kernel") && name.contains("flush_range");
        let found: Vec<u64> = file
            .symbols()
            .filter(|symbol| symbol.name().is_ok_and(is_it))
            .map(|symbol| symbol.address())
            .collect();
        assert_eq!(found.len(), 1, "the shim was built without its symbols");
        format!("{:x}", found[0])
    })
}

/// An attack with one helper: the one that is held.
fn attack(name: &str, more: &str) -> Attack {
    let words = format!("flushes {name} {} {more}", flush());
    // By name: a CPU that can send lines to the shared cache needs no flush.
    Attack::new(words.trim_end())
        .env("CUDASNAP_THREADS", "2")
        .env("CUDASNAP_STRATEGY", "flush-late")
}

fn run(name: &str, more: &str) -> Outcome {
    let outcome = attack(name, more).run();
    assert_eq!(outcome.requests().0, outcome.requests().1);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    assert!(outcome.record.counters.helpers_started > 0);
    outcome
}

/// The call waits for a helper that is held, until it goes on or dies; for a dead one and for another buffer's it does not wait.
fn waits(way: &str) {
    let outcome = run("waits", way);
    assert_eq!(outcome.requests(), (1, 1));
    assert_eq!(outcome.steps(Step::Disturbed), 0);
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn munmap_of_a_source_waits_for_its_flush() {
    waits("munmap");
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn a_map_over_a_source_waits_for_its_flush() {
    waits("mmap");
    waits("mmap-of-program");
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn mremap_of_a_source_and_over_it_waits_for_its_flush() {
    waits("mremap");
    waits("mremap-over");
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn mprotect_of_a_source_waits_for_its_flush() {
    waits("mprotect");
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn advice_that_takes_a_sources_pages_waits_for_its_flush() {
    waits("madvise");
    waits("guard");
}

/// With the last buffer libcuda's slots are put back, but not those that such a helper needs.
#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn a_source_is_waited_for_when_its_buffer_is_gone() {
    for way in ["munmap", "mmap", "mremap", "mprotect", "madvise", "guard"] {
        let outcome = run("after-buffer", way);
        assert_eq!(outcome.requests(), (3, 3));
        assert!(outcome.steps(Step::HelperLate) >= 1, "{way}");
    }
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn a_source_is_waited_for_over_the_next_buffer() {
    for way in ["munmap", "mmap-of-program"] {
        let outcome = run("next-buffer", way);
        assert_eq!(outcome.requests(), (3, 3));
        assert!(outcome.steps(Step::HelperLate) >= 2, "{way}");
    }
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn the_last_copy_returns_and_its_source_is_waited_for() {
    let outcome = run("last-copy", "");
    assert!(outcome.steps(Step::HelperLate) >= 1);
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn nobody_waits_for_the_flush_of_something_else() {
    run("neighbours", "");
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn a_page_goes_with_its_first_byte() {
    run("one-byte", "");
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn a_child_waits_for_no_helper_of_its_parent() {
    run("child", "");
}

// Where not every call that takes pages away is told to the shim, no flush outlives its copy. `waits` shows that the same copies have
// such flushes otherwise.

/// Another preload in front of the shim, which answers maps at fixed addresses by itself. libcuda is still seen to be the caller of the rest.
fn hidden_maps(flags: &[&str], call: &str) {
    let folder = Folder::new();
    let other: PathBuf = folder.at("mapper.so");
    let flags = [
        &["-shared", "-fPIC", "-ldl", "-DJUMP", "-DFIXED"][..],
        flags,
    ]
    .concat();
    compile_hostile("mapper.c", &flags, &other);
    let attack = attack("unseen-maps", call).between(&[&other], &[]);
    let outcome = attack.run();
    assert_eq!(outcome.requests(), (1, 1));
    assert!(outcome.record.counters.helpers_started > 0);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn no_flush_is_late_where_another_preload_hides_maps() {
    hidden_maps(&[], "fake_map");
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn no_flush_is_late_where_another_preload_hides_maps_of_one_name() {
    hidden_maps(&["-DONLY64"], "fake_map64");
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn no_flush_is_late_where_another_hook_stands_in_a_slot() {
    for slot in ["mprotect", "madvise"] {
        run("hooked-before", slot);
    }
    for slot in ["mprotect", "madvise", "munmap"] {
        let outcome = attack("hooked-meanwhile", slot).run();
        assert_eq!(outcome.requests(), (1, 1));
        assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    }
}

/// Without a look at the slots nobody knows that they are still ours.
#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn no_flush_is_late_where_slots_cannot_be_looked_at() {
    for slot in ["mprotect", "madvise", "munmap"] {
        let outcome = attack("hooked-meanwhile", slot)
            .preload("refuse")
            .env("REFUSE", "process_vm_readv=EPERM")
            .env("REFUSE_AT_ONCE", "1")
            .run();
        assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    }
}

#[test]
#[cfg_attr(no_late_flush, ignore = "needs a CPU with clflushopt")]
fn no_flush_of_an_allocators_memory_is_late() {
    run("allocated", "");
    run("recycled", "");
}
