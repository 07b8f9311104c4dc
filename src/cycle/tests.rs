//! Whole cycles inside one process: a library of the driver's shape asks, copies through its own slots and lets go. Everything but
//! that library is this crate, so that ThreadSanitizer and AddressSanitizer see all of it (scripts/proofs).

use std::ffi::{c_int, c_void, CString};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, OnceLock};

use super::*;
use crate::config::Config;
use crate::cycle::{release, request};
use crate::got::Libcuda;
use crate::request::MapArgs;
use crate::{hooks, maps, resident, startup};
use cudasnap_wire::{Choice, Direction, Rest, Strategy};

type CopyCall = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
type UnmapCall = unsafe extern "C" fn(*mut c_void, usize) -> c_int;

/// The driver's library, loaded.
struct Driver {
    base: usize,
    memcpy: CopyCall,
    memmove: CopyCall,
    munmap: UnmapCall,
}

const CHUNK: usize = 2 << 20;
const LEN: usize = (40 << 20) + 12_345;

fn build() -> std::path::PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim-tests/hostile/fakecuda.c");
    let folder = std::env::temp_dir().join(format!("cudasnap-cycle-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // It is known by its own name, not by that of its file: other tests look for a file of that name in vain.
    let library = folder.join("driver.so");
    let status = Command::new("cc")
        .args(["-O2", "-fno-builtin", "-fPIC", "-shared"])
        .args([
            "-Wl,-soname,libcuda.so.1,-Bsymbolic",
            "-Wl,-z,lazy,-z,norelro",
        ])
        .arg("-o")
        .args([&library, &source])
        .status()
        .expect("cc");
    assert!(status.success());
    library
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        // The options of the hooks are those of the environment: none.
        let hook = std::panic::take_hook();
        startup::start();
        std::panic::set_hook(hook);
        let library = build();
        let name = CString::new(library.to_str().unwrap()).unwrap();
        // SAFETY: a terminated path; the library has no constructor.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        assert!(!handle.is_null());
        std::fs::remove_dir_all(library.parent().unwrap()).unwrap();
        let find = |name: &std::ffi::CStr| {
            // SAFETY: a handle that stays open, a terminated name.
            let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert!(!address.is_null(), "{name:?}");
            address
        };
        let copy = |name| {
            // SAFETY: fakecuda.c says so.
            unsafe { std::mem::transmute::<*mut c_void, CopyCall>(find(name)) }
        };
        let munmap = find(c"fake_munmap");
        Driver {
            base: maps::object_of(munmap as usize).unwrap().base,
            memcpy: copy(c"fake_memcpy"),
            memmove: copy(c"fake_memmove"),
            // SAFETY: as above.
            munmap: unsafe { std::mem::transmute::<*mut c_void, UnmapCall>(munmap) },
        }
    })
}

/// One process has one crew, one state and one table of slots.
struct Turn(
    #[allow(dead_code)] MutexGuard<'static, ()>,
    #[allow(dead_code)] MutexGuard<'static, ()>,
);

fn turn() -> Turn {
    Turn(crate::crew::take_turn(), crate::fuzz::take_turn())
}

fn request(config: &Config) -> *mut u8 {
    let args = MapArgs {
        addr: 0,
        len: LEN,
        prot: 3,
        flags: 0x8022,
        fd: -1,
        offset: 0,
    };
    let libcuda = Libcuda::at(driver().base).expect("a libcuda");
    // SAFETY: a new mapping anywhere.
    let pass = || unsafe { sys::mmap(0, LEN, 3, args.flags, -1, 0) };
    request::answer(&args, config, &libcuda, pass).expect("a buffer") as *mut u8
}

/// Blocks that differ in their first word: built fast enough for a build without optimisation.
fn pattern(seed: usize) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let block: Vec<u8> = (0..BLOCK)
        .map(|at| (at.wrapping_mul(seed) >> 3) as u8)
        .collect();
    let mut bytes = Vec::with_capacity(LEN + BLOCK);
    for number in 0..LEN.div_ceil(BLOCK) {
        bytes.extend_from_slice(&(number * seed).to_ne_bytes());
        bytes.extend_from_slice(&block[8..]);
    }
    bytes.truncate(LEN);
    bytes
}

/// A staging buffer: memory that the device shares.
struct Shared(usize, usize);

impl Shared {
    fn new(len: usize) -> Self {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping anywhere.
        Shared(unsafe { sys::mmap(0, len, 3, flags, -1, 0) }.unwrap(), len)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is this one's alone and lives as long.
        unsafe { std::slice::from_raw_parts_mut(self.0 as *mut u8, self.1) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the phase is over, and nobody uses it any more.
        unsafe { sys::munmap(self.0, self.1) }.unwrap();
    }
}

/// Copies the whole buffer chunk by chunk through the driver's slots; a chunk may end anywhere.
fn copies(direction: Direction, buffer: *mut u8, bytes: &mut [u8], chunk: usize) {
    let mut memory = Shared::new(chunk);
    let staging = memory.bytes();
    for (number, piece) in bytes.chunks_mut(chunk).enumerate() {
        let call = if number % 2 == 0 {
            driver().memcpy
        } else {
            driver().memmove
        };
        // SAFETY: inside the buffer and the staging memory.
        unsafe {
            let inside = buffer.add(number * chunk);
            if direction == Direction::Checkpoint {
                staging[..piece.len()].copy_from_slice(piece);
                call(inside.cast(), staging.as_ptr().cast(), piece.len());
                // The device writes the next chunk over the one that was copied.
                staging.fill(0xaa);
            } else {
                call(staging.as_mut_ptr().cast(), inside.cast(), piece.len());
                piece.copy_from_slice(&staging[..piece.len()]);
            }
        }
    }
    let phase = &record::get().current;
    assert_eq!(phase.copied.load(Relaxed), LEN as u64);
    assert_eq!(phase.direction.load(Relaxed), direction.number());
    assert_eq!(phase.end.load(Relaxed), End::Covered.number());
    wait_until_alone();
}

/// At once on a quiet machine; on a busy one a helper may be late.
fn wait_until_alone() {
    let deadline = sys::now_ns() + 60_000_000_000;
    while CREW.alive() > 0 {
        assert!(sys::now_ns() < deadline);
        std::thread::yield_now();
    }
}

/// A checkpoint and a restore; the buffer is still there when it returns.
fn cycle(config: &Config, seed: usize, chunk: usize) -> *mut u8 {
    let buffer = request(config);
    let mut bytes = pattern(seed);
    copies(Direction::Checkpoint, buffer, &mut bytes, chunk);
    bytes.fill(0);
    copies(Direction::Restore, buffer, &mut bytes, chunk);
    assert!(bytes == pattern(seed));
    buffer
}

fn helpers_started() -> u64 {
    record::get().counters.helpers_started.load(Relaxed)
}

#[test]
fn cycles_through_the_slots_are_right_with_any_number_of_threads() {
    let _turn = turn();
    let before = helpers_started();
    for (threads, chunk) in [(0, CHUNK), (1, CHUNK), (2, CHUNK / 2 + 77), (5, 3 * CHUNK)] {
        let config = Config {
            threads,
            ..Config::new()
        };
        let buffer = cycle(&config, threads as usize + 3, chunk);
        // SAFETY: the driver lets its buffer go.
        assert_eq!(unsafe { (driver().munmap)(buffer.cast(), LEN) }, 0);
        assert_eq!(maps::writable(&[buffer as usize]), [false]);
        assert!(!region::any());
    }
    if cpus_here() > 1 {
        assert!(helpers_started() > before);
    }
}

fn cpus_here() -> u32 {
    crate::cpus::threads(0, 0, crate::cpus::Use::Fresh)
}

#[test]
fn a_kept_buffer_is_given_again_and_dropped() {
    let _turn = turn();
    let config = Config {
        buffer: Rest::Keep,
        ..Config::new()
    };
    let mut last: *mut u8 = std::ptr::null_mut();
    for seed in 1..3 {
        let buffer = cycle(&config, seed, CHUNK);
        assert!(last.is_null() || last == buffer);
        let fate = release::unmap(buffer as usize, LEN, &config, 0);
        assert!(matches!(fate, release::Fate::Done(Ok(0))));
        last = buffer;
    }
    assert_eq!(maps::writable(&[last as usize]), [true]);
    release::drop_kept();
    assert_eq!(maps::writable(&[last as usize]), [false]);
}

#[test]
fn a_reserved_buffer_is_empty_until_somebody_populates_it() {
    let _turn = turn();
    let config = Config {
        buffer: Rest::Reserve,
        pages: cudasnap_wire::PageKind::Small,
        ..Config::new()
    };
    let let_go = |buffer: *mut u8| {
        let fate = release::unmap(buffer as usize, LEN, &config, 0);
        assert!(matches!(fate, release::Fate::Done(Ok(0))));
        assert_eq!(record::get().buffer.state.load(Relaxed), 4);
        assert_eq!(resident::of(buffer as usize, LEN).total, 0);
    };
    let buffer = cycle(&config, 1, CHUNK);
    let_go(buffer);
    for part in [8 << 20, LEN, 0] {
        // SAFETY: inside what the buffer's mapping still is.
        (0..part)
            .step_by(4096)
            .for_each(|at| unsafe { buffer.add(at).write_volatile(0) });
        assert_eq!(request(&config), buffer);
        let phase = &record::get().current;
        assert_eq!(phase.kept.load(Relaxed), u32::from(part == LEN));
        // The copies populate what prefault has not come to.
        while CREW.pages.step(false) {}
        wait_until_alone();
        assert!(CREW.pages.bytes() <= (LEN - part) as u64, "{part}");
        assert!(CREW.pages.bytes() > 0 || part == LEN);
        let mut bytes = pattern(part + 3);
        copies(Direction::Checkpoint, buffer, &mut bytes, CHUNK);
        bytes.fill(0);
        copies(Direction::Restore, buffer, &mut bytes, CHUNK);
        assert!(bytes == pattern(part + 3));
        let_go(buffer);
    }
    release::drop_kept();
    assert_eq!(maps::writable(&[buffer as usize]), [false]);
}

/// How the current phase's copies were made, and how many ways were tried.
fn strategy() -> (Option<Strategy>, u32) {
    let phase = &record::get().current;
    let number = phase.strategy.load(Relaxed);
    (Strategy::from_number(number), phase.tried.load(Relaxed))
}

/// Whether what a library finds as `mmap` is in this very program: without the exports it is libc's, but a sanitizer brings one along.
fn is_mmap_ours() -> bool {
    startup::get().is_some_and(|started| crate::own::memory().spans(started.first_mmap))
}

#[test]
fn every_strategy_copies_right_and_is_told() {
    let _turn = turn();
    let cpu = crate::copy::kernel::Cpu::detect();
    let flushes = cpu.clflushopt;
    let demotes = |otherwise| match cpu.cldemote {
        true => Strategy::Demote,
        false => otherwise,
    };
    for (seed, choice) in Choice::all().enumerate() {
        let config = Config {
            strategy: choice,
            buffer: Rest::Keep,
            ..Config::new()
        };
        let buffer = request(&config);
        let mut bytes = pattern(seed + 1);
        copies(Direction::Checkpoint, buffer, &mut bytes, CHUNK);
        let checkpoint = strategy();
        bytes.fill(0);
        copies(Direction::Restore, buffer, &mut bytes, CHUNK);
        assert!(bytes == pattern(seed + 1), "{}", choice.word());
        // Too few copies to try anything.
        let flush = match (flushes, is_mmap_ours()) {
            (true, true) => Strategy::FlushLate,
            (true, false) => Strategy::FlushWithin,
            (false, _) => Strategy::NoFlush,
        };
        let late = flush == Strategy::FlushLate;
        use Strategy::{Demote, FlushLate, FlushLateAhead, FlushWithin, NoFlush, Plain};
        let told = match choice {
            Choice::Only(only @ (NoFlush | Plain | Demote)) => only,
            Choice::Only(only @ FlushWithin) if flushes => only,
            Choice::Only(only @ (FlushLate | FlushLateAhead)) if late => only,
            _ => demotes(flush),
        };
        assert_eq!(checkpoint, (Some(told), 0), "{}", choice.word());
        // The driver's copies have the options of the environment: none.
        assert_eq!(strategy(), (Some(demotes(Strategy::NonTemporal)), 0));
        let fate = release::unmap(buffer as usize, LEN, &config, 0);
        assert!(matches!(fate, release::Fate::Done(Ok(0))));
    }
    release::drop_kept();
}

/// The bytes are right while ways take turns; in the end one of them is told, with its threads.
#[test]
fn ways_take_turns_where_there_are_copies_enough() {
    let _turn = turn();
    let config = Config {
        strategy: Choice::Tune,
        buffer: Rest::Keep,
        ..Config::new()
    };
    for seed in 1..3 {
        // Fresh first, then kept.
        let buffer = request(&config);
        let mut bytes = pattern(seed);
        copies(Direction::Checkpoint, buffer, &mut bytes, 8192);
        let phase = &record::get().current;
        let (checkpoint, tried) = strategy();
        let cpu = crate::copy::kernel::Cpu::detect();
        let strategies = 1 + u32::from(cpu.clflushopt || cpu.cldemote);
        let threads_too = u32::from(cpus_here() > 1 && seed == 2);
        match strategies + threads_too {
            1 => assert_eq!(tried, 0),
            expected => assert!(tried >= expected, "{tried}"),
        }
        assert!(
            checkpoint.is_some_and(|way| way != Strategy::NonTemporal && way != Strategy::Driver)
        );
        assert!((1..=cpus_here()).contains(&phase.threads.load(Relaxed)));
        bytes.fill(0);
        copies(Direction::Restore, buffer, &mut bytes, 8192);
        assert!(bytes == pattern(seed));
        let fate = release::unmap(buffer as usize, LEN, &config, 0);
        assert!(matches!(fate, release::Fate::Done(Ok(0))));
    }
    release::drop_kept();
}

#[test]
fn a_driver_that_stops_in_mid_loop_leaves_nobody() {
    let _turn = turn();
    let config = Config::new();
    let buffer = request(&config);
    let staging = vec![7u8; CHUNK];
    // SAFETY: inside both ranges.
    unsafe { (driver().memcpy)(buffer.cast(), staging.as_ptr().cast(), CHUNK) };
    wait_until_alone();
    // SAFETY: the driver lets its buffer go.
    unsafe {
        assert_eq!(*buffer.add(CHUNK - 1), 7);
        assert_eq!((driver().munmap)(buffer.cast(), LEN), 0);
    }
    let again = cycle(&config, 9, CHUNK);
    // SAFETY: as above.
    assert_eq!(unsafe { (driver().munmap)(again.cast(), LEN) }, 0);
}

/// Lets the other thread end, also when a check fails.
struct Stopper<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn other_threads_may_look_up_and_copy_meanwhile() {
    let _turn = turn();
    let config = Config::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (from, mut to) = (vec![1u8; 300_000], vec![0u8; 300_000]);
            let mut rounds = 0u64;
            while !stop.load(Relaxed) {
                // SAFETY: two vectors of that length.
                unsafe {
                    (driver().memcpy)(to.as_mut_ptr().cast(), from.as_ptr().cast(), from.len())
                };
                assert!(to == from);
                to.fill(0);
                let _ = region::overlapping(0x1000, 0x1000);
                rounds += 1;
                // The cycle should not have to wait for this thread's time slice.
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
            rounds
        });
        let stopper = Stopper(&stop);
        let buffer = cycle(&config, 5, CHUNK);
        // SAFETY: the driver lets its buffer go.
        assert_eq!(unsafe { (driver().munmap)(buffer.cast(), LEN) }, 0);
        drop(stopper);
        assert!(other.join().unwrap() > 0);
    });
}

/// A buffer over which somebody maps is one no longer, whatever the state is worth: its munmap is somebody else's then.
#[test]
fn after_a_panic_a_fixed_map_over_the_buffer_ends_it() {
    let name = "cycle::tests::after_a_panic_a_fixed_map_over_the_buffer_ends_it";
    crate::guard::tests::alone(name, || {
        let buffer = request(&Config::new());
        crate::guard::tests::panic_behind_the_barrier();
        assert!(region::any());
        let args = MapArgs {
            addr: buffer as usize,
            len: LEN,
            prot: libc::PROT_READ,
            flags: libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            fd: -1,
            offset: 0,
        };
        // SAFETY: nobody uses what is there.
        let at = unsafe { hooks::on_mmap(args, hooks::Name::Mmap) };
        assert!(at.cast() == buffer && !region::any());
        wait_until_alone();
        // SAFETY: the mapping that was just made.
        assert_eq!(unsafe { (driver().munmap)(at, LEN) }, 0);
    });
}
