//! The kernel refuses something to the shim: a container's seccomp profile, an old kernel, no descriptor, no thread. The answer
//! is the driver's own result or better; the refusal is counted; nothing stays behind; the third cycle is as good as the first.
//!
//! What the program itself checks in each cycle: every byte in both directions, no helper left, no descriptor, no mapping.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use cudasnap_shim_tests::attack::{Attack, Outcome};
use cudasnap_shim_tests::folder::Folder;
use cudasnap_shim_tests::limits::Group;
use cudasnap_shim_tests::shimmed::{library, Shimmed};
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_wire::Step;

const MIB: usize = 1 << 20;
/// What `refused` asks for.
const LENGTH: usize = 34 * MIB + 4321;
/// Cycles of `refused three`.
const CYCLES: u32 = 3;
/// Errors that say "not here", in whatever words the profile's author chose.
const FORBIDDEN: [&str; 3] = ["EPERM", "ENOSYS", "EACCES"];

fn refused(words: &str, list: &str) -> Attack {
    Attack::new(words).preload("refuse").env("REFUSE", list)
}

/// Three cycles in which this is refused.
fn three(list: &str) -> Outcome {
    let outcome = refused("refused three", list).run();
    assert_eq!(outcome.detail, "", "{list}: worse than without the shim");
    outcome
}

/// The same without the shim: what the driver gets from the kernel alone.
fn stock(list: &str) -> String {
    refused("refused three", list).without_shim().run_stock()
}

/// The shim gave its own buffer each time, with these pages, and every byte went through it.
fn expect_answered(outcome: &Outcome, pages: &str, list: &str) {
    assert_eq!(outcome.requests(), (3, 3), "{list}");
    for direction in ["checkpoint", "restore"] {
        let phase = outcome.record.last(direction).expect("a phase");
        assert!(outcome.is_covered(direction), "{list}: {phase:?}");
        assert!(phase.pages.is(pages), "{list}: {phase:?}");
    }
}

/// The driver's own request went through each time, for this reason, and the copies were watched.
fn expect_passed(outcome: &Outcome, why: Step, list: &str) {
    assert_eq!(outcome.requests(), (3, 0), "{list}");
    assert_eq!(outcome.steps(why), CYCLES, "{list}");
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    let phase = outcome.record.last("restore").expect("a phase");
    assert!(phase.pages.is("driver"), "{list}: {phase:?}");
    assert_eq!(outcome.record.counters.helpers_started, 0, "{list}");
}

// Advice

#[test]
fn huge_pages_that_the_kernel_does_not_know_mean_base_pages() {
    for errno in ["EINVAL", "EPERM", "ENOSYS", "EACCES", "EFAULT"] {
        let list = format!("madvise@14={errno}");
        let outcome = three(&list);
        expect_answered(&outcome, "4k", &list);
        assert_eq!(
            outcome.steps_but(&[]),
            [("no-huge-pages", CYCLES)],
            "{list}"
        );
    }
}

#[test]
fn advice_that_is_never_taken_is_not_asked_for_for_ever() {
    for errno in ["EAGAIN", "EINTR"] {
        let list = format!("madvise@14={errno}");
        let outcome = three(&list);
        expect_answered(&outcome, "4k", &list);
        assert_eq!(outcome.steps(Step::NoHugePages), CYCLES, "{list}");
    }
}

#[test]
fn advice_for_which_there_is_no_memory_gives_the_request_back() {
    for (pages, advice) in [("thp", 14), ("4k", 15)] {
        let list = format!("madvise@{advice}=ENOMEM");
        let outcome = refused("refused three", &list)
            .env("CUDASNAP_PAGES", pages)
            .run();
        expect_passed(&outcome, Step::LowMemory, &list);
    }
}

#[test]
fn base_pages_need_no_advice() {
    for errno in ["EINVAL", "ENOSYS", "EINTR"] {
        let list = format!("madvise@15={errno}");
        let outcome = refused("refused three", &list)
            .env("CUDASNAP_PAGES", "4k")
            .run();
        expect_answered(&outcome, "4k", &list);
        assert_eq!(outcome.steps_but(&[]), [], "{list}");
    }
}

/// Where libcuda's slots are read-only nobody tells the end of the buffer: it is populated before the driver gets it. A kernel
/// before 5.14, or a profile, knows no such call: then the copies fault it. One that has no memory for it: the driver's own.
#[test]
fn population_that_is_refused_where_the_driver_unmaps_by_itself() {
    for errno in ["EINVAL", "EPERM", "ENOSYS", "EAGAIN"] {
        let list = format!("madvise@23={errno}");
        let outcome = refused("refused three", &list).relro().run();
        assert_eq!(outcome.detail, "", "{list}");
        assert_eq!(outcome.requests(), (3, 3), "{list}");
        assert_eq!(outcome.steps(Step::NoPopulate), CYCLES, "{list}");
    }
    for errno in ["ENOMEM", "EFAULT"] {
        let list = format!("madvise@23={errno}");
        let outcome = refused("refused three", &list).relro().run();
        assert_eq!(outcome.detail, "", "{list}");
        assert_eq!(outcome.requests(), (3, 0), "{list}");
        assert_eq!(outcome.steps(Step::LowMemory), CYCLES, "{list}");
    }
}

/// What may stay resident between two cycles has a limit. Where the kernel does not free the rest, nothing is kept.
#[test]
fn a_kept_buffer_that_cannot_be_trimmed_is_not_kept() {
    let kept = |words: &str, list: &str| {
        refused(words, list)
            .env("CUDASNAP_BUFFER", "keep")
            .env("CUDASNAP_KEEP_MAX", "16M")
            .run()
    };
    let outcome = kept("refused kept", "tgkill=EPERM");
    assert_eq!(outcome.detail, "16");
    assert_eq!(outcome.requests(), (2, 2));
    for errno in ["EINVAL", "EPERM", "EAGAIN", "ENOMEM"] {
        // 24: the advice for memory that is locked.
        let list = format!("madvise@4={errno},madvise@24={errno}");
        let outcome = kept("refused kept", &list);
        assert_eq!(outcome.detail, "0", "{errno}");
        assert_eq!(outcome.requests(), (2, 2), "{errno}");
        assert_eq!(outcome.steps_but(&[]), [("not-kept", 2)], "{errno}");
        assert!(outcome.is_covered("restore"));
    }
    // Locked memory is not freed by the usual advice.
    let outcome = kept("refused kept locked", "tgkill=EPERM");
    assert_eq!(outcome.detail, "16");
    assert_eq!(outcome.requests(), (2, 2));
}

// Mappings

#[test]
fn a_mapping_that_is_refused_to_the_shim_alone_is_the_drivers_own() {
    for errno in ["ENOMEM", "EPERM"] {
        let lists = [
            format!("mmap@>={}={errno}", LENGTH + 1),
            format!("mprotect@>={}={errno}", LENGTH),
        ];
        for list in lists {
            assert_eq!(stock(&list), "", "{list} meets the driver too");
            expect_passed(&three(&list), Step::MmapRefused, &list);
        }
    }
}

#[test]
fn a_mapping_that_is_refused_to_both_is_the_drivers_own_error() {
    for errno in ["ENOMEM", "EPERM"] {
        let list = format!("mmap@>={LENGTH}={errno}");
        let stock = stock(&list);
        assert!(stock.starts_with("refused "), "{stock}");
        let outcome = refused("refused three", &list).run();
        assert_eq!(outcome.detail, stock);
        assert_eq!(outcome.requests(), (1, 0));
        assert_eq!(outcome.steps_but(&[]), [("mmap-refused", 1)]);
    }
}

/// The ends of the reservation that is larger than the buffer cannot be given back: addresses, no memory; the driver's own
/// request then, since each cycle would leave some.
#[test]
fn a_reservation_that_cannot_be_trimmed_is_given_back_whole() {
    // The buffer is longer: its munmap is not meant.
    let list = format!("munmap@<={}=ENOMEM", 2 * MIB);
    expect_passed(&three(&list), Step::MmapRefused, &list);
}

#[test]
fn an_munmap_that_is_refused_is_refused_to_the_driver() {
    for errno in ["ENOMEM", "EPERM"] {
        let list = format!("munmap@>={LENGTH}={errno}");
        let stock = stock(&list);
        assert!(stock.starts_with("munmap refused "), "{stock}");
        let outcome = refused("refused three", &list).run();
        assert_eq!(outcome.detail, stock);
        assert_eq!(outcome.requests(), (1, 1));
    }
}

// Questions

#[test]
fn questions_that_may_not_be_asked_cost_nothing_or_the_helpers() {
    let calls = [
        "prctl",
        "tgkill@0",
        "futex@0",
        "sched_yield",
        "process_vm_readv",
        "prlimit64",
    ];
    for (call, errno) in calls.iter().zip(FORBIDDEN.iter().cycle()) {
        let list = format!("{call}={errno}");
        let outcome = three(&list);
        expect_answered(&outcome, "thp", &list);
        assert_eq!(outcome.steps_but(&[]), [], "{list}");
    }
}

/// What the shim asks to tell a signal handler from a jump, a dead thread from a living one, its slot from somebody else's word. Refused from
/// the beginning, and to programs that need the answers.
#[test]
fn strange_programs_are_right_without_an_answer() {
    let calls = [
        "process_vm_readv",
        "gettid",
        "getpid",
        "tgkill@0",
        "prctl@15",
    ];
    let programs = [
        "leavers disarmed",
        "driverthreads copy-in-handler",
        "driverthreads request-in-handler",
        "driverthreads jumps",
        "threads two-drivers",
        "interrupts timer",
        "slots late",
        "slots unload-over",
    ];
    for (number, program) in programs.iter().enumerate() {
        for (call, errno) in calls.iter().zip(FORBIDDEN.iter().cycle().skip(number)) {
            let list = format!("{call}={errno}");
            println!("{program}, {list}");
            refused(program, &list)
                .env("REFUSE_AT_ONCE", "1")
                .limit(Duration::from_secs(120))
                .run();
        }
    }
}

#[test]
fn what_is_kept_and_cannot_be_looked_at_goes_later() {
    let outcome = Attack::new("refused undropped")
        .env("CUDASNAP_BUFFER", "keep")
        .run();
    // Who makes the second one cannot be seen either.
    assert_eq!(outcome.requests(), (1, 1));
}

/// How many CPUs there are is not known, threads cannot be born with their signals blocked, or know when to leave.
#[test]
fn what_helpers_cannot_do_without_leaves_the_caller_alone() {
    let calls = ["sched_getaffinity", "rt_sigprocmask", "clock_gettime"];
    for (call, errno) in calls.iter().zip(FORBIDDEN) {
        let list = format!("{call}={errno}");
        let outcome = three(&list);
        expect_answered(&outcome, "thp", &list);
        assert_eq!(outcome.record.counters.helpers_started, 0, "{list}");
        let phase = outcome.record.last("restore").unwrap();
        assert_eq!(phase.threads, 1, "{list}: {phase:?}");
    }
}

/// Who asks is seen in the list of mappings only. Without it the shim stays out, and says so.
#[test]
fn files_that_may_not_be_opened_leave_the_driver_alone() {
    for errno in ["EPERM", "ENOSYS"] {
        let list = format!("openat={errno}");
        let outcome = three(&list);
        assert_eq!(outcome.requests(), (0, 0), "{list}");
        assert_eq!(
            outcome.steps_but(&[]),
            [("not-understood", CYCLES)],
            "{list}"
        );
    }
}

#[test]
fn without_a_free_descriptor_the_driver_is_left_alone() {
    let run = || {
        Attack::new("refused no-descriptor")
            .preload("refuse")
            .env("REFUSE", "tgkill=EPERM")
    };
    assert_eq!(run().without_shim().run_stock(), "");
    let outcome = run().run();
    assert_eq!(outcome.detail, "");
    assert_eq!(outcome.requests(), (0, 0));
    assert_eq!(outcome.steps_but(&[]), [("not-understood", CYCLES)]);
}

/// All at once, as in the strictest profiles.
#[test]
fn a_strict_profile_costs_no_byte() {
    let calls = [
        "madvise",
        "prctl",
        "tgkill",
        "sched_getaffinity",
        "sched_yield",
        "process_vm_readv",
        "clock_gettime",
        "clone",
        "clone3",
        "prlimit64",
    ];
    for errno in FORBIDDEN {
        let list = calls.map(|call| format!("{call}={errno}")).join(",");
        assert_eq!(stock(&list), "", "{list} meets the driver too");
        let outcome = three(&list);
        expect_answered(&outcome, "4k", &list);
        assert_eq!(outcome.record.counters.helpers_started, 0, "{list}");
    }
}

// Threads

/// One CPU allows no helper: then there is nothing to refuse.
fn several_cpus() -> bool {
    std::thread::available_parallelism().unwrap().get() > 1
}

#[test]
fn threads_that_the_kernel_refuses_are_done_without() {
    assert!(several_cpus(), "this test needs two CPUs");
    for errno in ["EAGAIN", "EPERM", "ENOSYS"] {
        let list = format!("clone={errno}");
        let outcome = three(&list);
        expect_answered(&outcome, "thp", &list);
        assert_eq!(outcome.record.counters.helpers_started, 0);
        // Once in each phase, not once for each copy.
        assert_eq!(
            outcome.steps_but(&[]),
            [("no-thread", 2 * CYCLES)],
            "{list}"
        );
        for direction in ["checkpoint", "restore"] {
            let phase = outcome.record.last(direction).unwrap();
            assert_eq!(phase.threads, 1, "who copied: {phase:?}");
        }
    }
}

/// No task more than there are: what a container's pids limit does.
#[test]
fn in_a_full_pids_group_the_caller_works_alone() {
    assert!(several_cpus(), "this test needs two CPUs");
    let group = Group::new("pids");
    let driver = SimDriver::build(false);
    let mut host = Shimmed::start(&driver, &["64"], &[]);
    group.take(host.app.pid());
    group.set("pids.max", group.number("pids.current"));
    for _ in 0..2 {
        host.cycle();
    }
    expect_alone(&host, 2);
    // And when there is room again, the next cycle has its helpers.
    group.set("pids.max", "max");
    host.cycle();
    assert!(host.record().counters.helpers_started > 0);
    assert!(host.last("checkpoint").threads >= 2);
    assert_eq!(host.steps(Step::NoThread), 4);
    drop(host);
}

#[test]
fn a_user_at_the_limit_of_processes_gets_no_helper_and_its_cycle() {
    assert!(several_cpus(), "this test needs two CPUs");
    const USER: u32 = 54_321;
    let driver = SimDriver::build(false);
    let mut host = start_as(USER, &driver);
    for _ in 0..2 {
        host.cycle();
    }
    expect_alone(&host, 2);
}

fn expect_alone(host: &Shimmed, cycles: u32) {
    let record = host.record();
    assert_eq!(record.counters.answered, u64::from(cycles));
    assert_eq!(record.counters.helpers_started, 0);
    assert_eq!(host.steps(Step::NoThread), 2 * cycles);
    assert_eq!(host.steps_but(&[Step::NoThread]), []);
    for direction in ["checkpoint", "restore"] {
        let phase = host.last(direction);
        assert!(phase.end.is("covered") && phase.copied == phase.expected);
        assert_eq!(phase.threads, 1, "{phase:?}");
    }
    host.expect_no_helper_after(Duration::from_secs(5));
    assert_eq!(host.growth().leaks(None, None), [""; 0]);
}

/// `simapp` under the shim as another user who may have two threads, its own two, from copies that this user can read wherever the checkout lies.
fn start_as(user: u32, driver: &SimDriver) -> Shimmed {
    let folder = Folder::new();
    let copy = |from: std::path::PathBuf| {
        let to = folder.path().join(from.file_name().expect("a name"));
        std::fs::copy(&from, &to).expect("a copy");
        to
    };
    copy(driver.library.join("libcuda.so.1"));
    let shim = copy(library());
    let mut command = Command::new(copy(driver.programs.join("simapp")));
    command
        .arg("64")
        .env("LD_LIBRARY_PATH", folder.path())
        .current_dir("/");
    // SAFETY: between fork and exec it makes two system calls. Root is exempt from the limit.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit {
                rlim_cur: 2,
                rlim_max: 2,
            };
            let limited = libc::setrlimit(libc::RLIMIT_NPROC, &limit);
            match limited | libc::setresuid(user, user, user) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
    Shimmed::start_library(driver, command, &shim)
}
