//! Threads and processes: who runs, who exists, and threads that libc does not know.

use super::call6;

/// Process id, asked of the kernel each time: after fork or vfork a remembered one lies. 0 where a filter forbids the question.
pub fn getpid() -> u32 {
    // SAFETY: no arguments, no effects.
    unsafe { call6(libc::SYS_getpid, 0, 0, 0, 0, 0, 0) }.unwrap_or(0) as u32
}

/// Thread id of the caller. 0 where a filter forbids the question.
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

/// The caller's alternate signal stack.
#[derive(Clone, Copy)]
pub struct SignalStack {
    /// Its addresses; none where there is no such stack, or the kernel disarmed it for a handler that runs on it.
    pub range: (usize, usize),
    /// Whether the caller runs on it.
    pub in_use: bool,
}

/// Asks the kernel; a stack that is in use where it does not say.
pub fn signal_stack() -> SignalStack {
    let mut stack = libc::stack_t {
        ss_sp: core::ptr::null_mut(),
        ss_flags: 0,
        ss_size: 0,
    };
    // SAFETY: no new stack is given; the kernel writes the old one to a local.
    let result = unsafe {
        call6(
            libc::SYS_sigaltstack,
            0,
            &raw mut stack as usize,
            0,
            0,
            0,
            0,
        )
    };
    let start = stack.ss_sp as usize;
    SignalStack {
        range: (start, start.saturating_add(stack.ss_size)),
        in_use: result.is_err() || stack.ss_flags & libc::SS_ONSTACK != 0,
    }
}

/// Lets another runnable thread have the CPU.
pub fn sched_yield() {
    // SAFETY: no arguments, no memory effects.
    let _ = unsafe { call6(libc::SYS_sched_yield, 0, 0, 0, 0, 0, 0) };
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

/// Names the calling thread; `name` ends with a zero byte. Whether it bears the name now: a seccomp filter may refuse it, or answer "done"
/// and do nothing, and then the thread bears its creator's name.
pub fn set_thread_name(name: &[u8; 16]) -> bool {
    // SAFETY: PR_SET_NAME reads at most 16 bytes.
    let named = unsafe {
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
    named.is_ok() && thread_name() == *name
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

/// A resource limit of this process; `None` where there is none, or the kernel does not say.
pub fn limit(resource: usize) -> Option<u64> {
    let mut limit = libc::rlimit64 {
        rlim_cur: libc::RLIM64_INFINITY,
        rlim_max: libc::RLIM64_INFINITY,
    };
    // SAFETY: the kernel writes one rlimit64 to a local; no new limit is given.
    let got = unsafe {
        call6(
            libc::SYS_prlimit64,
            0,
            resource,
            0,
            &raw mut limit as usize,
            0,
            0,
        )
    };
    (got.is_ok() && limit.rlim_cur != libc::RLIM64_INFINITY).then_some(limit.rlim_cur)
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

/// What is blocked after [`block_signals`]: SIGKILL and SIGSTOP cannot be.
pub const ALL_BLOCKED: u64 = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));

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

/// Whether the program has a handler for a signal. Yes where the kernel does not say.
pub fn is_handled(signal: i32) -> bool {
    // The kernel's own structure: the handler first, four words on all architectures that are built.
    let mut action = [0usize; 8];
    // SAFETY: no new action is given; the kernel writes the old one to a local that is larger.
    let got = unsafe {
        call6(
            libc::SYS_rt_sigaction,
            signal as usize,
            0,
            action.as_mut_ptr() as usize,
            8,
            0,
            0,
        )
    };
    // A fault whose signal is ignored kills as one without a handler does.
    got.is_err() || action[0] > libc::SIG_IGN
}

/// What a helper thread runs; the thread ends when it returns.
pub type ThreadEntry = unsafe extern "C" fn(usize);

/// Starts a thread of this process with plain `clone` (container seccomp profiles refuse clone3) on the given stack. The
/// kernel writes its id to `tid` before it runs, and clears and wakes `tid` when it is gone.
///
/// # Safety
/// `stack_top` must be 16-byte aligned and the stack below it unused until `tid` is 0 again; `tid` must live as long. The
/// thread shares the caller's thread-local storage: `entry` must not touch any, nor call libc.
#[cfg(all(target_arch = "x86_64", not(any(cudasnap_portable, cudasnap_pthread))))]
pub unsafe fn start_thread(
    stack_top: usize,
    tid: &core::sync::atomic::AtomicU32,
    entry: ThreadEntry,
    argument: usize,
) -> super::SysResult {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    let value: isize;
    // SAFETY: the child starts on its own stack with the entry and the argument in registers, and ends here: it alone, since
    // this is the kernel's exit and not libc's.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "mov eax, {exit}",
            "xor edi, edi",
            "syscall",
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
            exit = const libc::SYS_exit,
        );
    }
    super::check(value)
}

/// Threads without libc need a piece of assembly per architecture; elsewhere the caller works alone.
///
/// # Safety
/// None needed: it only refuses.
#[cfg(not(any(all(target_arch = "x86_64", not(cudasnap_portable)), cudasnap_pthread)))]
pub unsafe fn start_thread(
    _stack_top: usize,
    _tid: &core::sync::atomic::AtomicU32,
    _entry: ThreadEntry,
    _argument: usize,
) -> super::SysResult {
    Err(libc::ENOSYS)
}
