//! A busy server on the simulated driver: `simapp` whose other threads (`hostile/busy.c`) hold libc's locks most of the time.

use std::cell::OnceCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudasnap_cli::process::observe::Holdings;

use crate::freeze::Freeze;
use crate::leaks::Growth;
use crate::shimmed::{compile_hostile, Shimmed};
use crate::simdriver::SimDriver;

/// What its threads do, in the order of their places on the board.
pub const WORKERS: [&str; 6] = [
    "malloc",
    "malloc",
    "dlopen",
    "pthread_create",
    "fork",
    "mmap",
];
/// Calls of libc that the probers make, in the order of their places on the board.
pub const CALLS: [&str; 3] = ["malloc", "dlsym", "pthread_create"];

const FORKS: usize = 4;
/// A bit for each worker.
const ALL: u32 = (1 << WORKERS.len()) - 1;
const INSIDE: u32 = 1;
const RESTING: u32 = 2;
/// A free lock is taken in some microseconds.
const PATIENCE: Duration = Duration::from_millis(4);

#[repr(C)]
struct Worker {
    id: AtomicU32,
    place: AtomicU32,
    rounds: AtomicU32,
}

#[repr(C)]
struct Prober {
    id: AtomicU32,
    asked: AtomicU32,
    answered: AtomicU32,
}

/// The same in `hostile/busy.c`.
#[repr(C)]
struct Board {
    works: AtomicU32,
    workers: [Worker; WORKERS.len()],
    probers: [Prober; CALLS.len()],
}

/// The server; its process is killed when it is dropped.
#[derive(Debug)]
pub struct Busy {
    /// The process under the shim.
    pub host: Shimmed,
    /// Mapped for as long as this lives.
    board: NonNull<Board>,
    folder: PathBuf,
    rested: OnceCell<Holdings>,
}

impl Busy {
    /// Starts it with the smallest buffer that the simulated driver has; it rests.
    ///
    /// # Panics
    /// When something cannot be made.
    #[must_use]
    pub fn start(driver: &SimDriver, environment: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = driver
            .programs
            .join(format!("busy-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (library, file) = (folder.join("libbusy.so"), folder.join("board"));
        compile_hostile("busy.c", &["-shared", "-fPIC", "-ldl"], &library);
        let board = map_board(&file);
        let mut all = vec![
            ("LD_PRELOAD", library.to_str().expect("text")),
            ("BUSY_BOARD", file.to_str().expect("text")),
            ("MALLOC_ARENA_MAX", "1"),
            ("CUDASIM_CONTEXT_MIB", "46"),
        ];
        all.extend_from_slice(environment);
        let host = Shimmed::start(driver, &["1"], &all);
        Busy {
            host,
            board,
            folder,
            rested: OnceCell::new(),
        }
    }

    fn board(&self) -> &Board {
        // SAFETY: mapped until the drop; the other process changes nothing but these atomic words.
        unsafe { self.board.as_ref() }
    }

    /// Sends all threads to work, once they have all worked and rested: what libc keeps from the first rounds is no leak.
    ///
    /// # Panics
    /// When one does not work.
    pub fn work(&self) {
        self.rested.get_or_init(|| {
            self.work_for(10);
            self.rest();
            Holdings::of(self.host.target()).expect("its holdings")
        });
        self.work_for(1);
    }

    fn work_for(&self, rounds: u32) {
        let before = self.rounds();
        self.board().works.store(ALL, Ordering::SeqCst);
        self.wait_until("work", |busy| {
            let mut pairs = before.iter().zip(busy.rounds());
            pairs.all(|(before, now)| now >= before + rounds)
        });
    }

    /// Waits until all threads rest.
    ///
    /// # Panics
    /// When one does not.
    pub fn rest(&self) {
        self.board().works.store(0, Ordering::SeqCst);
        self.wait_until("rest", |busy| {
            let mut workers = busy.board().workers.iter();
            workers.all(|worker| worker.place.load(Ordering::SeqCst) == RESTING)
        });
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so(self) {
            assert!(Instant::now() < deadline, "the busy threads do not {what}");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// How often each thread has done its work.
    #[must_use]
    pub fn rounds(&self) -> Vec<u32> {
        let workers = self.board().workers.iter();
        workers
            .map(|worker| worker.rounds.load(Ordering::SeqCst))
            .collect()
    }

    /// Which of the frozen threads are inside a call of libc's.
    #[must_use]
    pub fn inside(&self) -> Vec<bool> {
        let workers = self.board().workers.iter();
        workers
            .map(|worker| worker.place.load(Ordering::SeqCst) == INSIDE)
            .collect()
    }

    /// Whether the thread that forks was stopped in the middle of it: in the kernel, with libc's locks taken.
    #[must_use]
    pub fn forks(&self) -> bool {
        let id = self.board().workers[FORKS].id.load(Ordering::SeqCst);
        let path = format!("/proc/{}/task/{id}/syscall", self.host.app.pid());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let number = text.split(' ').next().and_then(|word| word.parse().ok());
        number == Some(libc::SYS_clone)
    }

    /// Which of [`CALLS`] would hang in this frozen world: another thread of the process that is let run alone for a moment
    /// does not come back from it, since a stopped thread holds its lock.
    ///
    /// # Panics
    /// When a prober cannot be let run.
    #[must_use]
    pub fn hangs(&self, freeze: &mut Freeze) -> Vec<bool> {
        let ask = |prober: &Prober| {
            let id = prober.id.load(Ordering::SeqCst) as i32;
            let waits = prober.asked.load(Ordering::SeqCst);
            // Still at the question of a moment before.
            if prober.answered.load(Ordering::SeqCst) == waits {
                prober.asked.store(waits + 1, Ordering::SeqCst);
                wake(&prober.asked);
            }
            let asked = prober.asked.load(Ordering::SeqCst);
            let deadline = Instant::now() + PATIENCE;
            let answered = || prober.answered.load(Ordering::SeqCst) == asked;
            let wait = || {
                while !answered() && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_micros(50));
                }
                !answered()
            };
            freeze.with_thread(id, wait).expect("the prober runs")
        };
        self.board().probers.iter().map(ask).collect()
    }

    /// How its holdings changed since it rested first.
    ///
    /// # Panics
    /// When it never did.
    #[must_use]
    pub fn growth(&self) -> Growth {
        let before = self.rested.get().expect("it has worked");
        let after = Holdings::of(self.host.target()).expect("its holdings");
        Growth::between(before, &after)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // SAFETY: `map_board` mapped it, and nobody uses it any more.
        unsafe { libc::munmap(self.board.as_ptr().cast(), size_of::<Board>()) };
        // The process has opened both already.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn map_board(path: &PathBuf) -> NonNull<Board> {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true);
    let file = file.open(path).expect("a file");
    file.set_len(size_of::<Board>() as u64).expect("room");
    // SAFETY: a new mapping of a file that is as long; zeroes are a valid board.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Board>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(address, libc::MAP_FAILED, "the board cannot be mapped");
    NonNull::new(address.cast()).expect("not at 0")
}

fn wake(word: &AtomicU32) {
    // SAFETY: the kernel only looks the word up.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}
