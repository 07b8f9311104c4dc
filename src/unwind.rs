//! Lets libc unwind a thread's stack through frames of ours. A thread that is cancelled, or calls `pthread_exit` in a signal
//! handler, may be anywhere in this library. Rust's unwinder aborts the program then: its barriers catch what is not a panic,
//! and between two calls nothing may be unwound. libc's own frames have nothing to clean up; neither have ours: who comes
//! next finds a thread that is gone in the middle of its work, as if the kernel had ended it.

// The linker passes every use of the function that decides about a frame to this one (build.rs). It asks the real one but
// for the forced unwinding of libc: action 8, whose answer is 8, "go on with the next frame".
#[cfg(all(target_arch = "x86_64", feature = "preload", not(test)))]
core::arch::global_asm!(
    ".pushsection .text.unwind_through_us, \"ax\", @progbits",
    ".globl __wrap_rust_eh_personality",
    ".hidden __wrap_rust_eh_personality",
    ".type __wrap_rust_eh_personality, @function",
    "__wrap_rust_eh_personality:",
    "test esi, 8",
    "jz __real_rust_eh_personality",
    "mov eax, 8",
    "ret",
    ".size __wrap_rust_eh_personality, . - __wrap_rust_eh_personality",
    ".popsection",
);
