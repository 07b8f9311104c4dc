//! Link arguments of the cdylib: a build id, no unloading, and the unwinder inside the library.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CC");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    // The constructor copies the build id to data; a phase compares it with the one in text (design: a process may have
    // been moved to a host with another build at the same path).
    println!("cargo:rustc-cdylib-link-arg=-Wl,--build-id=sha1");
    // Helpers run its text, and libcuda's slots point to it, for as long as a buffer lives: dlclose must leave it there.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    absorb_unwinder();
    // libc unwinds the stack of a thread that is cancelled, ours too: src/unwind.rs.
    let preload = std::env::var_os("CARGO_FEATURE_PRELOAD").is_some();
    if preload && std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap=rust_eh_personality");
    }
}

/// Makes `-lgcc_s` resolve to the static unwinder. A preload must not need libgcc_s.so.1: an image without it could start
/// no program at all. A linker script of that name, found first, is how both GNU ld and lld let a library be exchanged.
fn absorb_unwinder() {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let Some(archive) = find_archive(&compiler, "libgcc_eh.a") else {
        println!("cargo:warning=no libgcc_eh.a: the library will need libgcc_s.so.1 at run time");
        return;
    };
    let folder =
        PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("absorb");
    std::fs::create_dir_all(&folder).expect("OUT_DIR is writable");
    let script = format!("INPUT({})\n", archive.display());
    std::fs::write(folder.join("libgcc_s.so"), script).expect("OUT_DIR is writable");
    println!("cargo:rustc-link-search=native={}", folder.display());
}

fn find_archive(compiler: &str, name: &str) -> Option<PathBuf> {
    let output = Command::new(compiler)
        .arg(format!("-print-file-name={name}"))
        .output()
        .ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    let path = Path::new(path.trim());
    // The compiler prints the bare name back when it has no such file.
    path.is_absolute().then(|| path.to_path_buf())
}
