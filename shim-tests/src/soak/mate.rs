//! The page through which other threads of a host are told to work: see `shim-tests/hostile/soakmate.c`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const LENGTH: usize = 4096;

/// The words, as the C program has them.
#[repr(C)]
#[derive(Debug)]
struct Words {
    allocate: AtomicU32,
    fork: AtomicU32,
    no_huge_pages: AtomicU32,
    busy: AtomicU32,
    obeyed: AtomicU32,
    rounds: AtomicU32,
    forks: AtomicU32,
    bad: AtomicU32,
}

/// The page, and the file in which it lies.
#[derive(Debug)]
pub struct Mate {
    words: ptr::NonNull<Words>,
    path: PathBuf,
}

impl Mate {
    /// Makes the file, for a host that is about to start.
    ///
    /// # Errors
    /// The file system's or the kernel's.
    pub fn new(path: &Path) -> io::Result<Self> {
        // Of a lane that was killed before it could take its own away.
        let _ = std::fs::remove_file(path);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        file.set_len(LENGTH as u64)?;
        // SAFETY: a new mapping anywhere, of a file that is long enough.
        let page = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                ptr::null_mut(),
                LENGTH,
                rights,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        let words = ptr::NonNull::new(page.cast()).filter(|_| page != libc::MAP_FAILED);
        Ok(Mate {
            words: words.ok_or_else(io::Error::last_os_error)?,
            path: path.to_path_buf(),
        })
    }

    fn words(&self) -> &Words {
        // SAFETY: mapped until the drop, and atomics may be shared with another process.
        unsafe { self.words.as_ref() }
    }

    /// Lets the threads work.
    pub fn begin(&self, allocations: bool, forks: bool) {
        let words = self.words();
        words.allocate.store(allocations.into(), Ordering::SeqCst);
        words.fork.store(forks.into(), Ordering::SeqCst);
    }

    /// Lets them rest, and waits until they do.
    ///
    /// # Errors
    /// When one is not through with what it does in `patience`.
    pub fn rest(&self, patience: Duration) -> Result<(), String> {
        self.begin(false, false);
        self.wait("another thread does not come to rest", patience, |words| {
            words.busy.load(Ordering::SeqCst) == 0
        })
    }

    /// Switches the process's huge pages off or on.
    ///
    /// # Errors
    /// When it is not done in `patience`.
    pub fn set_huge_pages_off(&self, off: bool, patience: Duration) -> Result<(), String> {
        self.words()
            .no_huge_pages
            .store(off.into(), Ordering::SeqCst);
        self.wait("huge pages cannot be switched", patience, |words| {
            words.obeyed.load(Ordering::SeqCst) == u32::from(off)
        })
    }

    /// Rounds of allocations, forks, and how many of either went wrong.
    #[must_use]
    pub fn counts(&self) -> (u32, u32, u32) {
        let words = self.words();
        let [rounds, forks, bad] = [&words.rounds, &words.forks, &words.bad];
        (
            rounds.load(Ordering::SeqCst),
            forks.load(Ordering::SeqCst),
            bad.load(Ordering::SeqCst),
        )
    }

    fn wait(
        &self,
        what: &str,
        patience: Duration,
        is: impl Fn(&Words) -> bool,
    ) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        while !is(self.words()) {
            if Instant::now() > deadline {
                return Err(format!("{what} in {patience:?}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Mate {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, used by nobody else.
        unsafe { libc::munmap(self.words.as_ptr().cast(), LENGTH) };
        // The folder goes too.
        let _ = std::fs::remove_file(&self.path);
    }
}
