//! Tells the tests whether a flush can outlive its copy on this machine: the CPU must have `clflushopt`. Where it has not, the tests of that
//! are skipped, each with its line in skips.txt.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(no_late_flush)");
    if !has_clflushopt() {
        println!("cargo::rustc-cfg=no_late_flush");
    }
}

#[cfg(target_arch = "x86_64")]
fn has_clflushopt() -> bool {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 23) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_clflushopt() -> bool {
    false
}
