use super::death::{is_proved_another, NAMED};
use super::helper::IDLE_NS;
use super::*;
use crate::copy::kernel::{Cpu, Kernel};
use crate::copy::plan;
use crate::hooks::{on_mmap, Name};
use crate::pages::How;
use crate::request::MapArgs;
use crate::sync::spin_loop;
use std::sync::MutexGuard;

/// Whoever takes longer hangs; no promise about time is tested here.
const PATIENCE_NS: u64 = 60_000_000_000;

static LEFT: AtomicU32 = AtomicU32::new(0);

struct Phase {
    stacks: usize,
    _turn: MutexGuard<'static, ()>,
}

impl Phase {
    fn begin() -> Self {
        let turn = take_turn();
        // SAFETY: a new mapping anywhere.
        let stacks =
            unsafe { sys::mmap(0, STACKS, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }
                .unwrap();
        CREW.pages.disarm();
        CREW.begin(sys::now_ns(), First::Request, &LEFT);
        Phase {
            stacks,
            _turn: turn,
        }
    }

    fn recruit(&self, wanted: u32) -> Recruited {
        // SAFETY: a mapping of that size, unmapped only after the crew is gone.
        unsafe { CREW.recruit(wanted, self.stacks) }
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        assert_eq!(CREW.dismiss(), 0);
        // SAFETY: the crew is gone.
        unsafe { sys::munmap(self.stacks, STACKS) }.unwrap();
    }
}

fn kernel() -> Kernel {
    Kernel::of(Cpu::detect())
}

fn manner(threads: usize, copy: crate::copy::kernel::Copy) -> Manner {
    Manner {
        threads,
        part: plan::PART,
        copy,
        flush: None,
    }
}

fn helpers_of_this_process() -> Vec<String> {
    let mut names = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.starts_with("csnap-") {
            names.push(name.trim().to_string());
        }
    }
    names.sort();
    names
}

#[test]
fn copies_of_every_length_are_right_and_nobody_stays() {
    let phase = Phase::begin();
    // Something to populate keeps the crew from leaving before the first copy.
    CREW.pages.arm(1 << 12, 1 << 40, 1 << 40, How::Populate, 0);
    assert_eq!(
        phase.recruit(3),
        Recruited {
            started: 3,
            refused: false
        }
    );
    let source: Vec<u8> = (0..12 << 20)
        .map(|at: usize| (at ^ (at >> 9)) as u8)
        .collect();
    for len in [
        0,
        1,
        4096,
        65_535,
        65_536,
        131_072,
        2 << 20,
        6_202_384,
        12 << 20,
    ] {
        for copy in [kernel().keep, kernel().flush] {
            let mut target = vec![0u8; len];
            // SAFETY: both ranges are `len` bytes long.
            let redone =
                unsafe { CREW.copy(target.as_mut_ptr(), source.as_ptr(), len, &manner(4, copy)) };
            assert_eq!(redone, 0);
            assert!(target == source[..len], "{len}");
        }
    }
    CREW.pages.disarm();
    assert_eq!(CREW.dismiss(), 0);
    // The kernel, and more so libc, clears a thread's word a moment before it stops listing the thread.
    let deadline = sys::now_ns() + PATIENCE_NS;
    while !helpers_of_this_process().is_empty() {
        assert!(sys::now_ns() < deadline);
        std::thread::yield_now();
    }
}

static STOPPED: AtomicU32 = AtomicU32::new(0);
static FLUSHED: AtomicU32 = AtomicU32::new(0);

/// A flush that takes as long as somebody keeps it stopped. The caller's own does not.
unsafe fn slow_flush(_: *const u8, _: usize) {
    if sys::gettid() != sys::getpid() && helpers_of_this_thread() {
        while STOPPED.load(Ordering::Acquire) != 0 {
            spin_loop();
        }
    }
    FLUSHED.fetch_add(1, Ordering::AcqRel);
}

fn helpers_of_this_thread() -> bool {
    let id = sys::gettid();
    CREW.tids
        .iter()
        .any(|tid| tid.load(Ordering::Relaxed) & !NAMED == id)
}

/// A copy whose caller takes its time, until a helper has put a flush off or all have left: on a machine of 2 CPUs it may copy all
/// parts before a helper is awake.
unsafe fn copy_behind_a_helper(dst: *mut u8, src: *const u8, len: usize) {
    let deadline = sys::now_ns() + PATIENCE_NS;
    while !helpers_of_this_thread()
        && CREW.flushes.by.load(Ordering::Acquire) == 0
        && CREW.alive() > 0
        && sys::now_ns() < deadline
    {
        sys::sched_yield();
    }
    // SAFETY: promised by the caller.
    unsafe { (kernel().keep)(dst, src, len) };
}

/// Copies until a helper has put a flush off that goes on for as long as `STOPPED` is 1. Both are as long as said, and live until
/// the flushes are over.
fn begin_a_flush(phase: &Phase, source: &[u8], target: &mut [u8]) {
    let manner = Manner {
        flush: Some(slow_flush),
        ..manner(3, copy_behind_a_helper)
    };
    STOPPED.store(1, Ordering::Release);
    let deadline = sys::now_ns() + PATIENCE_NS;
    // Again where the crew had just left for want of copies.
    while !CREW.is_flushing(source.as_ptr() as usize, source.len()) {
        assert!(sys::now_ns() < deadline);
        FLUSHED.store(0, Ordering::Release);
        target.fill(0);
        phase.recruit(2);
        // SAFETY: see above.
        unsafe { CREW.copy(target.as_mut_ptr(), source.as_ptr(), source.len(), &manner) };
        // Nobody has waited for a flush that cannot end.
        assert!(target == source);
    }
}

/// The driver goes on after a fault of ours, and so may a helper: what it still reads may not go.
#[test]
fn a_fixed_map_waits_for_flushes_of_its_range_after_a_panic_too() {
    let name = "crew::tests::a_fixed_map_waits_for_flushes_of_its_range_after_a_panic_too";
    crate::guard::tests::alone(name, || {
        let phase = Phase::begin();
        let hook = std::panic::take_hook();
        crate::startup::start();
        std::panic::set_hook(hook);
        crate::cycle::be_about_this_process();
        CREW.pages.arm(1 << 12, 1 << 40, 1 << 40, How::Populate, 0);
        let len = flush::PUT_OFF * plan::PART;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping anywhere.
        let start = unsafe { sys::mmap(0, len, 3, flags, -1, 0) }.unwrap();
        // SAFETY: that mapping.
        let source = unsafe { core::slice::from_raw_parts(start as *const u8, len) };
        begin_a_flush(&phase, source, &mut vec![1u8; len]);
        crate::guard::tests::panic_behind_the_barrier();
        let over = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let args = MapArgs {
                    addr: start,
                    len,
                    prot: 3,
                    flags: libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    fd: -1,
                    offset: 0,
                };
                // SAFETY: nothing but the flush uses the old mapping.
                let at = unsafe { on_mmap(args, Name::Mmap) };
                assert!(at as usize == start);
                over.store(1, Ordering::Release);
            });
            // Who does not wait is through soon.
            let soon = sys::now_ns() + 300_000_000;
            while over.load(Ordering::Acquire) == 0 && sys::now_ns() < soon {
                sys::sched_yield();
            }
            let too_early = over.load(Ordering::Acquire) != 0;
            STOPPED.store(0, Ordering::Release);
            assert!(!too_early, "the map came before the flush was over");
        });
        assert!(!CREW.is_flushing(start, len));
        CREW.pages.disarm();
    });
}

#[test]
fn a_flush_may_outlive_its_copy_and_is_waited_for_where_the_source_goes() {
    let phase = Phase::begin();
    // Something to populate keeps the crew from leaving before the first copy.
    CREW.pages.arm(1 << 12, 1 << 40, 1 << 40, How::Populate, 0);
    // No more parts than one helper can put off: with more it would flush one before it is reported, and never end here.
    let source = vec![7u8; flush::PUT_OFF * plan::PART];
    let mut target = vec![0u8; source.len()];
    let (start, len) = (source.as_ptr() as usize, source.len());
    for _ in 0..20 {
        begin_a_flush(&phase, &source, &mut target);
        let (before, behind) = (start / 4096 * 4096, (start + len).next_multiple_of(4096));
        assert!(!CREW.is_flushing(behind, 1 << 20) && !CREW.is_flushing(before - 1, 1));
        STOPPED.store(0, Ordering::Release);
        CREW.wait_for_flushes(start, len);
        assert!(!CREW.is_flushing(start, len));
        assert_eq!(FLUSHED.load(Ordering::Acquire), flush::PUT_OFF as u32);
    }
    CREW.pages.disarm();
    assert_eq!(CREW.dismiss(), 0);
}

#[test]
fn nobody_waits_for_the_flush_of_a_helper_that_is_dead() {
    let _phase = Phase::begin();
    CREW.flushes.announce(5, (1 << 30, (1 << 30) + 4096));
    assert!(CREW.is_flushing(1 << 30, 1));
    CREW.flushes.clear(5);
    // Whole pages, those of this helper alone.
    CREW.flushes
        .announce(5, ((1 << 30) + 700, (1 << 30) + 5000));
    CREW.flushes.announce(6, (2 << 30, (2 << 30) + 1));
    for (addr, is_it) in [(0, true), (8191, true), (8192, false), (512 << 20, false)] {
        assert_eq!(CREW.is_flushing((1 << 30) + addr, 1), is_it, "{addr}");
    }
    assert!(!CREW.is_flushing((1 << 30) - 4096, 4096) && CREW.is_flushing(1, usize::MAX));
    CREW.flushes.clear(6);
    CREW.wait_for_flushes(1 << 30, 1);
    assert!(!CREW.is_flushing(1 << 30, 1));
}

#[test]
fn a_crew_without_a_copy_leaves_when_prefault_is_done() {
    let phase = Phase::begin();
    phase.recruit(2);
    let deadline = sys::now_ns() + PATIENCE_NS;
    while CREW.alive() > 0 {
        assert!(sys::now_ns() < deadline);
        std::thread::yield_now();
    }
    assert_eq!(LEFT.load(Ordering::Relaxed), End::NoCopy.number());
}

#[test]
fn an_idle_crew_leaves_and_a_later_copy_recruits_anew() {
    let phase = Phase::begin();
    let source = vec![7u8; 1 << 20];
    let mut target = vec![0u8; 1 << 20];
    for round in 0..2 {
        // On a busy machine the crew may have left before the copy comes.
        let began = sys::now_ns();
        CREW.begin(began, First::Copy, &LEFT);
        phase.recruit(2);
        // SAFETY: both vectors are as long as said.
        unsafe {
            CREW.copy(
                target.as_mut_ptr(),
                source.as_ptr(),
                source.len(),
                &manner(3, kernel().keep),
            )
        };
        assert!(target == source);
        target.fill(0);
        while CREW.alive() > 0 {
            assert!(sys::now_ns() < began + PATIENCE_NS, "round {round}");
            std::thread::yield_now();
        }
        assert!(
            sys::now_ns() - began >= IDLE_NS,
            "round {round}: left too early"
        );
    }
    assert_eq!(LEFT.load(Ordering::Relaxed), End::Idle.number());
}

/// Copies that note whether a helper made them.
static BY_HELPERS: AtomicU32 = AtomicU32::new(0);

unsafe fn counted_copy(dst: *mut u8, src: *const u8, len: usize) {
    BY_HELPERS.fetch_add(u32::from(helpers_of_this_thread()), Ordering::Relaxed);
    // SAFETY: promised by the caller.
    unsafe { (kernel().keep)(dst, src, len) };
}

#[test]
fn who_is_not_in_the_team_takes_no_part_and_who_is_not_to_stay_leaves() {
    let phase = Phase::begin();
    let source = vec![7u8; 4 << 20];
    let mut target = vec![0u8; source.len()];
    let mut copy = || {
        BY_HELPERS.store(0, Ordering::Relaxed);
        target.fill(0);
        let manner = manner(4, counted_copy);
        // SAFETY: both vectors are as long as said.
        unsafe { CREW.copy(target.as_mut_ptr(), source.as_ptr(), source.len(), &manner) };
        assert!(target == source);
        BY_HELPERS.load(Ordering::Relaxed)
    };
    // Something to populate keeps the crew.
    CREW.pages.arm(1 << 12, 1 << 40, 1 << 40, How::Populate, 0);
    CREW.copy_with(0);
    phase.recruit(3);
    for _ in 0..50 {
        assert_eq!(copy(), 0);
    }
    CREW.copy_with(2);
    let deadline = sys::now_ns() + PATIENCE_NS;
    while copy() == 0 {
        assert!(sys::now_ns() < deadline, "nobody helps");
        phase.recruit(3);
    }
    CREW.reduce(1);
    while CREW.tids[1..]
        .iter()
        .any(|tid| tid.load(Ordering::Acquire) != 0)
    {
        assert!(sys::now_ns() < deadline, "two helpers too many stay");
        std::thread::yield_now();
    }
    // A phase that begins has all again.
    CREW.begin(sys::now_ns(), First::Copy, &LEFT);
    assert_eq!(CREW.team.load(Ordering::Relaxed), u32::MAX);
    phase.recruit(3);
    while CREW.alive() < 3 {
        assert!(sys::now_ns() < deadline, "a helper does not stay");
        phase.recruit(3);
    }
    CREW.pages.disarm();
}

#[test]
fn finished_units_leave_nothing_to_do() {
    let phase = Phase::begin();
    let len = 16 << 20;
    // SAFETY: a new mapping anywhere.
    let start =
        unsafe { sys::mmap(0, len, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }.unwrap();
    CREW.pages.arm(start, len, len, How::TouchSmall, 1);
    phase.recruit(2);
    CREW.finish_units();
    assert!(CREW.pages.is_done());
    assert_eq!(CREW.pages.bytes(), len as u64);
    assert_eq!(CREW.dismiss(), 0);
    // SAFETY: the crew is gone.
    unsafe { sys::munmap(start, len) }.unwrap();
}

// libc keeps two signals of its own open in each thread that it makes.
#[cfg(not(cudasnap_pthread))]
#[test]
fn helpers_are_named_and_block_every_signal() {
    let phase = Phase::begin();
    CREW.pages.arm(1 << 12, 1 << 40, 1 << 40, How::Populate, 0);
    phase.recruit(2);
    // The copy makes it sure that both have begun: it is only over when the helpers could have been named.
    let deadline = sys::now_ns() + PATIENCE_NS;
    while helpers_of_this_process() != ["csnap-00", "csnap-01"] {
        assert!(sys::now_ns() < deadline);
        // On a busy machine they may have left since.
        phase.recruit(2);
        std::thread::yield_now();
    }
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        if status.starts_with("Name:\tcsnap-") {
            let blocked = status
                .lines()
                .find_map(|line| line.strip_prefix("SigBlk:\t"))
                .unwrap();
            // All but SIGKILL (9) and SIGSTOP (19), which cannot be blocked.
            assert_eq!(
                u64::from_str_radix(blocked, 16).unwrap(),
                !(1 << 8 | 1 << 18)
            );
        }
    }
    CREW.pages.disarm();
}

/// A process checkpointer left the helper behind in the middle of a unit, and its number was given to a thread of the program.
#[test]
fn a_thread_of_the_program_with_a_helpers_number_is_no_helper() {
    let _phase = Phase::begin();
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        tell.send(sys::gettid()).unwrap();
        let _ = ended.recv();
    });
    let number = told.recv().unwrap();
    // Without its name it may be a helper that was born a moment ago.
    CREW.tids[5].store(number, Ordering::Relaxed);
    assert_eq!(CREW.dismiss(), 1);
    CREW.tids[5].store(number | NAMED, Ordering::Relaxed);
    assert_eq!(CREW.dismiss(), 0);
    CREW.tids[6].store(number | NAMED, Ordering::Relaxed);
    CREW.pages.pretend_busy();
    CREW.wait_for_units();
    assert_eq!(CREW.alive(), 0);
    CREW.forget_units();
    assert!(!CREW.pages.is_busy());
    drop(end);
    thread.join().unwrap();
}

#[test]
fn a_helper_says_that_it_has_its_name() {
    let phase = Phase::begin();
    CREW.pages.arm(1 << 12, 1 << 40, 1 << 40, How::Populate, 0);
    phase.recruit(2);
    let deadline = sys::now_ns() + PATIENCE_NS;
    let words = || [0, 1].map(|helper: usize| CREW.tids[helper].load(Ordering::Acquire));
    while words().iter().any(|word| word & NAMED == 0) {
        assert!(sys::now_ns() < deadline);
        // On a busy machine they may have left since.
        phase.recruit(2);
        std::thread::yield_now();
    }
    for (helper, word) in words().into_iter().enumerate() {
        let (tid, number) = (&CREW.tids[helper], word & !NAMED);
        assert!(sys::thread_exists(sys::getpid(), number));
        let told = sys::told_of_thread(number);
        // libc lets nobody block the signals that it keeps for itself in threads of its own.
        if !cfg!(cudasnap_pthread) {
            assert_eq!(told.blocked, Some(sys::ALL_BLOCKED));
        }
        assert!(!is_proved_another(helper, number, &told));
        assert!(is_proved_another(helper + 2, number, &told));
        assert!(!is_another(helper, tid, word) && !is_gone(tid, word));
    }
    CREW.pages.disarm();
}

/// Many units, and their last piece; what lies beside stays.
#[test]
fn what_is_given_back_is_all_of_the_range_and_nothing_else() {
    const UNIT: usize = 64 << 20;
    let phase = Phase::begin();
    let len = 2 * UNIT + 3 * 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping anywhere.
    let around = unsafe { sys::mmap(0, len + 2 * UNIT, 3, flags, -1, 0) }.unwrap();
    let start = around + UNIT;
    // SAFETY: advice about page sizes.
    let _ = unsafe { sys::madvise(around, len + 2 * UNIT, libc::MADV_NOHUGEPAGE) };
    let pages = [0, 4096, UNIT - 4096, UNIT, 2 * UNIT, len - 4096];
    let neighbours = [
        start - UNIT,
        start - 4096,
        start + len,
        start + len + UNIT - 4096,
    ];
    for address in pages.map(|offset| start + offset).iter().chain(&neighbours) {
        // SAFETY: inside the mapping.
        unsafe { *(*address as *mut u8) = 7 };
    }
    CREW.pages.arm(start, len, len, How::Free, 3);
    phase.recruit(2);
    CREW.finish_units();
    assert!(CREW.pages.is_done());
    assert_eq!(CREW.dismiss(), 0);
    // SAFETY: the same.
    let byte = |address: usize| unsafe { *(address as *const u8) };
    assert!(neighbours.iter().all(|address| byte(*address) == 7));
    assert_eq!(crate::resident::of(start, len).total, 0);
    assert!(pages.iter().all(|offset| byte(start + offset) == 0));
    // SAFETY: nothing uses it any more.
    unsafe { sys::munmap(around, len + 2 * UNIT) }.unwrap();
}
