//! The only raw system calls. Results follow the kernel: a negative value is `-errno`. Nothing here touches `errno`, takes
//! a lock or allocates, so that all of it can be called while every other thread is stopped at any instruction.

use core::ffi::c_void;

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

/// Bytes of a page of this kernel; asked each time, since a process may have been moved.
pub fn page_size() -> usize {
    // SAFETY: reads the auxiliary vector; takes no lock.
    match unsafe { libc::getauxval(libc::AT_PAGESZ) } {
        0 => 4096,
        size => size as usize,
    }
}

/// Process id, asked of the kernel each time: after fork or vfork a remembered one lies.
pub fn getpid() -> u32 {
    // SAFETY: no arguments, no effects.
    unsafe { call6(libc::SYS_getpid, 0, 0, 0, 0, 0, 0) }.unwrap_or(0) as u32
}

/// Thread id of the caller.
pub fn gettid() -> u32 {
    // SAFETY: no arguments, no effects.
    unsafe { call6(libc::SYS_gettid, 0, 0, 0, 0, 0, 0) }.unwrap_or(0) as u32
}

/// Whether thread `tid` of process `pid` exists. A process checkpointer may bring a process back without a thread that it
/// did not know; nobody has cleared that thread's id.
pub fn thread_exists(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let result = unsafe { call6(libc::SYS_tgkill, pid as usize, tid as usize, 0, 0, 0, 0) };
    result != Err(libc::ESRCH)
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec to a local.
    let result = unsafe {
        call6(
            libc::SYS_clock_gettime,
            id as usize,
            &raw mut time as usize,
            0,
            0,
            0,
            0,
        )
    };
    match result {
        Ok(_) => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        Err(_) => 0,
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds; 0 when the kernel refuses.
pub fn now_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread in nanoseconds; 0 when the kernel refuses.
pub fn thread_cpu_ns() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Wall-clock time in nanoseconds since 1970; 0 when the kernel refuses.
pub fn unix_ns() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

/// Lets another runnable thread have the CPU.
pub fn sched_yield() {
    // SAFETY: no arguments, no memory effects.
    let _ = unsafe { call6(libc::SYS_sched_yield, 0, 0, 0, 0, 0, 0) };
}

/// Opens a file; `path` ends with a zero byte.
pub fn open(path: &[u8], flags: i32, mode: u32) -> SysResult {
    if path.last() != Some(&0) {
        return Err(libc::EINVAL);
    }
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path is terminated, checked above.
    unsafe {
        call6(
            libc::SYS_openat,
            libc::AT_FDCWD as isize as usize,
            path.as_ptr() as usize,
            flags as usize,
            mode as usize,
            0,
            0,
        )
    }
}

/// Reads into `out`; 0 at the end of the file.
pub fn read(fd: usize, out: &mut [u8]) -> SysResult {
    // SAFETY: the kernel writes at most `out.len()` bytes.
    unsafe {
        call6(
            libc::SYS_read,
            fd,
            out.as_mut_ptr() as usize,
            out.len(),
            0,
            0,
            0,
        )
    }
}

/// Writes from `data`; may write less.
pub fn write(fd: usize, data: &[u8]) -> SysResult {
    // SAFETY: the kernel only reads `data`.
    unsafe {
        call6(
            libc::SYS_write,
            fd,
            data.as_ptr() as usize,
            data.len(),
            0,
            0,
            0,
        )
    }
}

/// Copies bytes of this process that may not be there: then it is EFAULT. Other errors are those of a kernel that forbids the
/// question.
pub fn read_own(address: usize, out: &mut [u8]) -> Result<(), i32> {
    let to = libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: out.len(),
    };
    let from = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: out.len(),
    };
    // SAFETY: the kernel reads two iovecs and writes to `out`; an address that is not mapped is an error to it.
    let got = unsafe {
        call6(
            libc::SYS_process_vm_readv,
            getpid() as usize,
            &raw const to as usize,
            1,
            &raw const from as usize,
            1,
            0,
        )
    };
    match got {
        Ok(count) if count == out.len() => Ok(()),
        Ok(_) => Err(libc::EFAULT),
        Err(errno) => Err(errno),
    }
}

/// Writes a message if it can be taken at once: a program must not hang, or die of SIGPIPE, because nobody reads what it did
/// not write itself.
pub fn write_if_wanted(fd: usize, data: &[u8]) {
    let mut poll = libc::pollfd {
        fd: fd as i32,
        events: libc::POLLOUT,
        revents: 0,
    };
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel reads and writes one pollfd and reads one timespec.
    let ready = unsafe {
        call6(
            libc::SYS_ppoll,
            &raw mut poll as usize,
            1,
            &raw const at_once as usize,
            0,
            8,
            0,
        )
    };
    if ready != Ok(1) || poll.revents & libc::POLLOUT == 0 || poll.revents & libc::POLLERR != 0 {
        return;
    }
    let Ok(mask) = block_signals() else {
        return;
    };
    if write(fd, data) == Err(libc::EPIPE) {
        let pipe = 1u64 << (libc::SIGPIPE - 1);
        // SAFETY: the kernel reads one 8-byte mask and one timespec. Takes the signal that the write has raised.
        let _ = unsafe {
            call6(
                libc::SYS_rt_sigtimedwait,
                &raw const pipe as usize,
                0,
                &raw const at_once as usize,
                8,
                0,
                0,
            )
        };
    }
    restore_signals(mask);
}

/// Closes a descriptor that this module opened.
pub fn close(fd: usize) {
    // SAFETY: callers pass descriptors they opened here.
    let _ = unsafe { call6(libc::SYS_close, fd, 0, 0, 0, 0, 0) };
}

/// Name of the calling thread, zero-terminated.
pub fn thread_name() -> [u8; 16] {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes.
    let _ = unsafe {
        call6(
            libc::SYS_prctl,
            libc::PR_GET_NAME as usize,
            name.as_mut_ptr() as usize,
            0,
            0,
            0,
            0,
        )
    };
    name
}

/// Names the calling thread; `name` ends with a zero byte.
pub fn set_thread_name(name: &[u8; 16]) {
    // SAFETY: PR_SET_NAME reads at most 16 bytes.
    let _ = unsafe {
        call6(
            libc::SYS_prctl,
            libc::PR_SET_NAME as usize,
            name.as_ptr() as usize,
            0,
            0,
            0,
            0,
        )
    };
}

/// CPUs that the calling thread may run on; 0 when the kernel refuses. Asked for with room for 8192 ids, since the kernel
/// refuses a mask that is shorter than its own (libc's fixed mask ends at 1024).
pub fn allowed_cpus() -> u32 {
    let mut mask = [0u64; 128];
    // SAFETY: the kernel writes at most the given number of bytes.
    let written = unsafe {
        call6(
            libc::SYS_sched_getaffinity,
            0,
            core::mem::size_of_val(&mask),
            mask.as_mut_ptr() as usize,
            0,
            0,
            0,
        )
    };
    match written {
        Ok(_) => mask.iter().map(|word| word.count_ones()).sum(),
        Err(_) => 0,
    }
}

/// Sleeps until `word` differs from `value`, is woken, or `timeout_ns` has passed. Not a private futex: the kernel's wake
/// for a cleared thread id is not private either.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32, timeout_ns: u64) {
    let time = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the kernel reads the word and the timespec, both alive for the call.
    let _ = unsafe {
        call6(
            libc::SYS_futex,
            word.as_ptr() as usize,
            libc::FUTEX_WAIT as usize,
            value as usize,
            &raw const time as usize,
            0,
            0,
        )
    };
}

/// Blocks every signal of the calling thread and returns the mask from before.
pub fn block_signals() -> Result<u64, i32> {
    let all = u64::MAX;
    let mut old = 0u64;
    // SAFETY: the kernel reads and writes one 8-byte mask each.
    unsafe {
        call6(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK as usize,
            &raw const all as usize,
            &raw mut old as usize,
            8,
            0,
            0,
        )
    }?;
    Ok(old)
}

/// Puts a mask back that [`block_signals`] returned.
pub fn restore_signals(mask: u64) {
    // SAFETY: the kernel reads one 8-byte mask.
    let _ = unsafe {
        call6(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK as usize,
            &raw const mask as usize,
            0,
            8,
            0,
            0,
        )
    };
}

/// What a helper thread runs; it must not return.
pub type ThreadEntry = unsafe extern "C" fn(usize) -> !;

/// Starts a thread of this process with plain `clone` (container seccomp profiles refuse clone3) on the given stack. The
/// kernel writes its id to `tid` before it runs, and clears and wakes `tid` when it is gone.
///
/// # Safety
/// `stack_top` must be 16-byte aligned and the stack below it unused until `tid` is 0 again; `tid` must live as long. The
/// thread shares the caller's thread-local storage: `entry` must not touch any, nor call libc.
#[cfg(all(target_arch = "x86_64", not(cudasnap_portable)))]
pub unsafe fn start_thread(
    stack_top: usize,
    tid: &core::sync::atomic::AtomicU32,
    entry: ThreadEntry,
    argument: usize,
) -> SysResult {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    let value: isize;
    // SAFETY: the child starts on its own stack with the entry and the argument in registers and never comes back here.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => value,
            in("rdi") flags as usize,
            in("rsi") stack_top,
            in("rdx") tid.as_ptr(),
            in("r10") tid.as_ptr(),
            in("r8") 0usize,
            in("r12") argument,
            in("r13") entry,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    check(value)
}

/// Threads without libc need a piece of assembly per architecture; elsewhere the caller works alone.
///
/// # Safety
/// None needed: it only refuses.
#[cfg(not(all(target_arch = "x86_64", not(cudasnap_portable))))]
pub unsafe fn start_thread(
    _stack_top: usize,
    _tid: &core::sync::atomic::AtomicU32,
    _entry: ThreadEntry,
    _argument: usize,
) -> SysResult {
    Err(libc::ENOSYS)
}

/// Ends the calling thread, and it alone.
pub fn exit_thread() -> ! {
    loop {
        // SAFETY: SYS_exit does not come back; only helper threads call this.
        let _ = unsafe { call6(libc::SYS_exit, 0, 0, 0, 0, 0, 0) };
    }
}

/// Turns a raw result into what a libc function returns, with `errno` set.
///
/// # Safety
/// The calling thread must have libc's thread-local storage: not a helper.
pub unsafe fn to_libc_pointer(result: SysResult) -> *mut c_void {
    match result {
        Ok(address) => address as *mut c_void,
        Err(errno) => {
            // SAFETY: the caller's thread is a libc thread.
            unsafe { *libc::__errno_location() = errno };
            libc::MAP_FAILED
        }
    }
}

/// As [`to_libc_pointer`], for functions that return 0 or -1.
///
/// # Safety
/// As [`to_libc_pointer`].
pub unsafe fn to_libc_status(result: SysResult) -> libc::c_int {
    match result {
        Ok(_) => 0,
        Err(errno) => {
            // SAFETY: the caller's thread is a libc thread.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}
