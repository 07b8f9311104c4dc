//! Helpers as threads of libc: for ThreadSanitizer and AddressSanitizer alone, which must see every thread being born. Never in a
//! library that is shipped: it takes locks of libc, which somebody who was stopped may hold.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use super::thread::ThreadEntry;
use super::{call6, gettid, sched_yield, SysResult};

/// What a new thread is told; lies on its maker's stack until it has been read.
struct Birth {
    tid: *const AtomicU32,
    entry: ThreadEntry,
    argument: usize,
    read: AtomicU32,
}

/// As the real one; libc finds the stack.
///
/// # Safety
/// `tid` must live until it is 0 again.
pub unsafe fn start_thread(
    _stack_top: usize,
    tid: &AtomicU32,
    entry: ThreadEntry,
    argument: usize,
) -> SysResult {
    let birth = Birth {
        tid,
        entry,
        argument,
        read: AtomicU32::new(0),
    };
    let mut thread = core::mem::MaybeUninit::uninit();
    // SAFETY: the thread reads `birth` before it says so, and this function waits for that.
    let status = unsafe {
        let told = (&raw const birth).cast_mut().cast();
        libc::pthread_create(thread.as_mut_ptr(), core::ptr::null(), begin, told)
    };
    if status != 0 {
        return Err(status);
    }
    while birth.read.load(Ordering::Acquire) == 0 {
        sched_yield();
    }
    // SAFETY: made above, and nobody joins it.
    unsafe { libc::pthread_detach(thread.assume_init()) };
    Ok(1)
}

extern "C" fn begin(told: *mut c_void) -> *mut c_void {
    // SAFETY: the maker waits until `read` is set.
    let (tid, entry, argument) = unsafe {
        let birth = &*told.cast::<Birth>();
        let read = (birth.tid, birth.entry, birth.argument);
        (*birth.tid).store(gettid(), Ordering::Release);
        birth.read.store(1, Ordering::Release);
        read
    };
    // SAFETY: promised by the maker's caller: the word lives until it is 0.
    unsafe {
        entry(argument);
        let word = (*tid).as_ptr() as usize;
        (*tid).store(0, Ordering::Release);
        // As the kernel does for a thread that `clone` made: the word is static, so it is there.
        let _ = call6(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE as usize,
            i32::MAX as usize,
            0,
            0,
            0,
        );
    }
    core::ptr::null_mut()
}
