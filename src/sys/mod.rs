//! The only raw system calls. Results follow the kernel: a negative value is `-errno`. Nothing here touches `errno`, takes
//! a lock or allocates, so that all of it can be called while every other thread is stopped at any instruction.

mod clock;
mod file;
#[cfg(cudasnap_pthread)]
mod pthread;
mod thread;
mod told;

use core::ffi::c_void;

pub use clock::{is_past, now_ns, thread_cpu_ns, unix_ns};
pub use file::{close, open, read_at, read_own, write, write_if_wanted};
#[cfg(cudasnap_pthread)]
pub use pthread::start_thread;
#[cfg(not(cudasnap_pthread))]
pub use thread::start_thread;
pub use thread::{
    allowed_cpus, block_signals, futex_wait, getpid, gettid, is_handled, limit, restore_signals,
    sched_yield, set_thread_name, signal_stack, thread_exists, thread_name, ALL_BLOCKED,
};
pub use told::{told_of_thread, Told};

/// Result of a raw call: the kernel's value, or the positive errno.
pub type SysResult = Result<usize, i32>;

const fn check(value: isize) -> SysResult {
    // The kernel's error range is the last page of the address space.
    if value < 0 && value >= -4095 {
        Err(-value as i32)
    } else {
        Ok(value as usize)
    }
}

/// Six-argument system call.
///
/// # Safety
/// As the called system call demands.
#[cfg(all(target_arch = "x86_64", not(cudasnap_portable)))]
#[inline]
pub unsafe fn call6(
    number: libc::c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> SysResult {
    let value: isize;
    // SAFETY: the x86-64 system call convention; the caller answers for what the call does.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => value,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    check(value)
}

/// Six-argument system call through libc, with `errno` put back.
///
/// # Safety
/// As the called system call demands.
#[cfg(not(all(target_arch = "x86_64", not(cudasnap_portable))))]
pub unsafe fn call6(
    number: libc::c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> SysResult {
    // SAFETY: errno is this thread's own word; the caller answers for what the call does.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let value = libc::syscall(number, a, b, c, d, e, f);
        let result = if value == -1 {
            -(*errno as isize)
        } else {
            value as isize
        };
        *errno = saved;
        check(result)
    }
}

/// Anonymous or file mapping; returns the address.
///
/// # Safety
/// With `MAP_FIXED` the range must be the caller's to replace.
pub unsafe fn mmap(
    addr: usize,
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: i64,
) -> SysResult {
    // SAFETY: passed on to the caller's promise.
    unsafe {
        call6(
            libc::SYS_mmap,
            addr,
            len,
            prot as usize,
            flags as usize,
            fd as isize as usize,
            offset as usize,
        )
    }
}

/// Tells for each page of a range whether it is in memory, in the lowest bit of a byte.
pub fn mincore(start: usize, len: usize, into: &mut [u8]) -> SysResult {
    if into.len() < len.div_ceil(page_size()) {
        return Err(libc::EINVAL);
    }
    let vector = into.as_mut_ptr() as usize;
    // SAFETY: the kernel writes one byte per page, for which there is room.
    unsafe { call6(libc::SYS_mincore, start, len, vector, 0, 0, 0) }
}

/// Changes what may be done with a range.
///
/// # Safety
/// The range must be the caller's.
pub unsafe fn mprotect(addr: usize, len: usize, prot: i32) -> SysResult {
    // SAFETY: passed on to the caller's promise.
    unsafe { call6(libc::SYS_mprotect, addr, len, prot as usize, 0, 0, 0) }
}

/// Unmaps a range.
///
/// # Safety
/// Nothing may use the range afterwards.
pub unsafe fn munmap(addr: usize, len: usize) -> SysResult {
    // SAFETY: passed on to the caller's promise.
    unsafe { call6(libc::SYS_munmap, addr, len, 0, 0, 0, 0) }
}

/// Moves or resizes a mapping.
///
/// # Safety
/// Nothing may use what the call takes away.
pub unsafe fn mremap(addr: usize, old: usize, new: usize, flags: i32, target: usize) -> SysResult {
    // SAFETY: passed on to the caller's promise.
    unsafe { call6(libc::SYS_mremap, addr, old, new, flags as usize, target, 0) }
}

/// Advice on a range.
///
/// # Safety
/// For advice that drops contents, the contents must be the caller's to drop.
pub unsafe fn madvise(addr: usize, len: usize, advice: i32) -> SysResult {
    // SAFETY: passed on to the caller's promise.
    unsafe { call6(libc::SYS_madvise, addr, len, advice as usize, 0, 0, 0) }
}

/// How often a call is made again that the kernel wants to be made again. A filter of system calls may say so for ever.
const TRIES: u32 = 64;

/// Makes a call until the kernel says something else than "again".
pub fn again(mut call: impl FnMut() -> SysResult) -> SysResult {
    let mut result = call();
    for _ in 1..TRIES {
        if !matches!(result, Err(libc::EINTR | libc::EAGAIN)) {
            break;
        }
        sched_yield();
        result = call();
    }
    result
}

/// Bytes of a page of this kernel; asked each time, since a process may have been moved.
pub fn page_size() -> usize {
    // SAFETY: reads the auxiliary vector; takes no lock.
    match unsafe { libc::getauxval(libc::AT_PAGESZ) } {
        0 => 4096,
        size => size as usize,
    }
}

/// Sets the calling thread's `errno`. Not when this library is not relocated yet: an IFUNC resolver of a library that the
/// loader relocates before this one calls, and nothing of libc can be reached.
///
/// # Safety
/// The calling thread must have libc's thread-local storage: not a helper.
unsafe fn set_errno(errno: i32) {
    // The address is what the loader wrote; the compiler takes it for one that is never 0.
    let place = core::hint::black_box(libc::__errno_location as *const () as usize);
    if place != 0 {
        // SAFETY: the caller's thread is a libc thread, and libc's function has its address.
        unsafe { *libc::__errno_location() = errno };
    }
}

/// Turns a raw result into what a libc function returns, with `errno` set.
///
/// # Safety
/// As [`set_errno`].
pub unsafe fn to_libc_pointer(result: SysResult) -> *mut c_void {
    match result {
        Ok(address) => address as *mut c_void,
        Err(errno) => {
            // SAFETY: the caller's thread is a libc thread.
            unsafe { set_errno(errno) };
            libc::MAP_FAILED
        }
    }
}

/// As [`to_libc_pointer`], for functions that return 0 or -1.
///
/// # Safety
/// As [`set_errno`].
pub unsafe fn to_libc_status(result: SysResult) -> libc::c_int {
    match result {
        Ok(_) => 0,
        Err(errno) => {
            // SAFETY: the caller's thread is a libc thread.
            unsafe { set_errno(errno) };
            -1
        }
    }
}
