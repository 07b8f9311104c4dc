//! What the constructor leaves behind for the hooks: options, and the function behind our `mmap`.

use core::sync::atomic::Ordering::Relaxed;

use once_cell::sync::OnceCell;

use crate::config::{self, Config};
use crate::hooks::NextMmap;
use crate::{guard, record, report};

/// Filled once, by the constructor; never by a hook.
pub struct Started {
    /// Options in force.
    pub config: Config,
    /// The `mmap` behind ours in the search order: another preload's, or libc's.
    pub next_mmap: Option<NextMmap>,
    /// The same for `mmap64`.
    pub next_mmap64: Option<NextMmap>,
    /// What a library that looks for `mmap` finds: ours, unless another preload stands in front.
    pub first_mmap: usize,
    /// The same for `mmap64`.
    pub first_mmap64: usize,
    /// `memcpy@GLIBC_2.2.5`, which libcuda imports; 0 where there is none. In glibc 2.36 it is a function of its own, neither
    /// the `memcpy` nor the `memmove` that our own imports are resolved to.
    pub old_memcpy: usize,
}

static STARTED: OnceCell<Started> = OnceCell::new();

/// What the constructor found; `None` before it ran. One load.
pub fn get() -> Option<&'static Started> {
    STARTED.get()
}

/// The constructor's work: read the options, find the function behind ours, write identity to the record.
pub fn start() {
    guard::silence_panics();
    let started = || Started {
        config: config::read_environment(record::get()),
        next_mmap: find_next(c"mmap"),
        next_mmap64: find_next(c"mmap64"),
        first_mmap: find_first(c"mmap"),
        first_mmap64: find_first(c"mmap64"),
        old_memcpy: find_old_memcpy(),
    };
    let started = STARTED.get_or_init(started);
    record::identify();
    report::start_messages(started.config.log);
    log::debug!(
        "cudasnap {} is loaded, mode {}",
        env!("CARGO_PKG_VERSION"),
        started.config.mode.word()
    );
    for (option, complaint) in record::complaints() {
        let value = complaint.value.each_ref().map(|byte| byte.load(Relaxed));
        let length = complaint.length.load(Relaxed) as usize;
        log::warn!(
            "{}=\"{}\" is not understood: it takes {}; the default {:?} is in force",
            option.name,
            value.get(..length).unwrap_or_default().escape_ascii(),
            option.values,
            option.default
        );
    }
}

fn find_next(name: &core::ffi::CStr) -> Option<NextMmap> {
    // SAFETY: dlsym with a terminated name, from a constructor: the loader is done with this library.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    // SAFETY: both symbols are functions of that type.
    (!address.is_null())
        .then(|| unsafe { core::mem::transmute::<*mut libc::c_void, NextMmap>(address) })
}

fn find_first(name: &core::ffi::CStr) -> usize {
    // SAFETY: dlsym with a terminated name, from a constructor: the loader is done with this library.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize }
}

fn find_old_memcpy() -> usize {
    let (name, version) = (c"memcpy", c"GLIBC_2.2.5");
    // SAFETY: dlvsym with terminated names, from a constructor: the loader is done with this library.
    unsafe { libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), version.as_ptr()) as usize }
}

/// Runs [`start`] when the library is loaded, behind the unwind barrier.
#[cfg(all(feature = "preload", not(test)))]
#[used]
#[link_section = ".init_array"]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        let _ = guard::barrier(start);
    }
    construct
};
