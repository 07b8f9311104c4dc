//! Libraries that play the shim's part.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use cudasnap_wire::{Record, SYMBOL};

/// A built library, deleted on drop.
pub struct Fake {
    pub path: PathBuf,
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A library that exports a record of `size` bytes which begins with `bytes`, and whatever `more` says in C.
pub fn library_with_record(bytes: &[u8], more: &str) -> Fake {
    let list: Vec<String> = bytes.iter().map(u8::to_string).collect();
    let source = format!(
        "__attribute__((aligned(64))) unsigned char {SYMBOL}[{}] = {{{}}};\n{more}",
        bytes.len(),
        list.join(",")
    );
    build(&source)
}

/// The record as it lies in the shim's file.
pub fn fresh_record() -> Vec<u8> {
    let record = Record::new(0x0000_0100);
    let start = (&raw const record).cast::<u8>();
    (0..size_of::<Record>())
        // SAFETY: the range is inside `record`, which consists of atomics without padding between them that is read.
        .map(|at| unsafe { start.add(at).read() })
        .collect()
}

/// Source of a file in `tests/fakes`.
#[allow(dead_code, reason = "each test crate uses its part of this module")]
pub fn fake_source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fakes")
        .join(name);
    std::fs::read_to_string(path).unwrap()
}

fn build(source: &str) -> Fake {
    static BUILT: AtomicU32 = AtomicU32::new(0);
    let number = BUILT.fetch_add(1, Ordering::Relaxed);
    let stem = std::env::temp_dir().join(format!("cudasnap-fake-{}-{number}", std::process::id()));
    let (code, library) = (stem.with_extension("c"), stem.with_extension("so"));
    std::fs::write(&code, source).unwrap();
    let status = Command::new("gcc")
        .args([
            "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread", "-o",
        ])
        .args([&library, &code])
        .status()
        .expect("gcc");
    assert!(status.success());
    std::fs::remove_file(&code).unwrap();
    Fake { path: library }
}
