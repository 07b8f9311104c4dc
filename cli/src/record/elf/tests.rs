use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::*;
use crate::process::target::Target;

/// Bytes that pretend to be memory at an address.
struct Fake {
    base: u64,
    bytes: Vec<u8>,
}

impl Memory for Fake {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let start = address
            .checked_sub(self.base)
            .and_then(|start| usize::try_from(start).ok());
        let source = start.and_then(|start| self.bytes.get(start..start.checked_add(into.len())?));
        into.copy_from_slice(source.ok_or(MemoryError::Unmapped(address))?);
        Ok(())
    }
}

fn own() -> Target {
    Target::new(std::process::id() as i32)
}

/// Address of the first byte of the mapped image whose path contains `part`.
fn image_base(part: &str) -> u64 {
    let mappings = own().mappings().unwrap();
    let found = mappings
        .iter()
        .find(|mapping| mapping.path.contains(part) && mapping.offset == 0);
    found.unwrap_or_else(|| panic!("no {part}")).start
}

/// A library with one exported object, linked with this hash style, and the file as memory at `base`.
fn built_library(style: &str, base: u64) -> Fake {
    // Tests of one process run side by side.
    static BUILT: AtomicU32 = AtomicU32::new(0);
    let number = BUILT.fetch_add(1, Ordering::Relaxed);
    let stem = std::env::temp_dir().join(format!("cudasnap-elf-{}-{number}", std::process::id()));
    let (library, source) = (stem.with_extension("so"), stem.with_extension("c"));
    std::fs::write(
        &source,
        "unsigned cudasnap_probe[3] = {1, 2, 3}; int other(void) { return 0; }",
    )
    .unwrap();
    let status = Command::new("gcc")
        .args(["-shared", "-nostdlib", "-fPIC", "-Wl,-z,noseparate-code"])
        .arg(format!("-Wl,--hash-style={style}"))
        .arg("-o")
        .args([&library, &source])
        .status()
        .expect("gcc");
    assert!(status.success());
    let bytes = std::fs::read(&library).unwrap();
    std::fs::remove_file(&library).unwrap();
    std::fs::remove_file(&source).unwrap();
    load(bytes, base)
}

/// Lays the segments of an ELF file out as a loader does, without relocation.
fn load(file: Vec<u8>, base: u64) -> Fake {
    let count = usize::from(word16(&file, 56));
    let at = word64(&file, 32) as usize;
    let mut bytes = Vec::new();
    for entry in file[at..at + 56 * count].chunks_exact(56) {
        if word32(entry, 0) != PT_LOAD {
            continue;
        }
        let (offset, address) = (word64(entry, 8) as usize, word64(entry, 16) as usize);
        let (in_file, in_memory) = (word64(entry, 32) as usize, word64(entry, 40) as usize);
        bytes.resize(bytes.len().max(address + in_memory), 0);
        bytes[address..address + in_file].copy_from_slice(&file[offset..offset + in_file]);
    }
    Fake { base, bytes }
}

#[test]
fn the_loaders_own_symbols_are_found_in_this_process() {
    let libc = image_base("libc.so.6");
    let symbol = find_symbol(&own(), libc, "environ").unwrap();
    // A function is no data object, and an unknown name is no symbol.
    assert_eq!(find_symbol(&own(), libc, "malloc").unwrap(), None);
    assert_eq!(find_symbol(&own(), libc, "cudasnap_record").unwrap(), None);
    assert_eq!(symbol.map(|symbol| symbol.size), Some(8));
}

#[test]
fn both_hash_styles_are_walked_at_any_base() {
    for style in ["gnu", "sysv"] {
        for base in [0x10000, 0x7f12_3456_7000, 1 << 63] {
            let image = built_library(style, base);
            let symbol = find_symbol(&image, base, "cudasnap_probe")
                .unwrap()
                .unwrap();
            assert_eq!(symbol.size, 12);
            let mut first = [0; 4];
            image.read(symbol.address, &mut first).unwrap();
            assert_eq!(u32::from_le_bytes(first), 1);
            for absent in ["cudasnap_probf", "cudasnap_prob", "other", ""] {
                assert_eq!(find_symbol(&image, base, absent).unwrap(), None, "{absent}");
            }
        }
    }
}

#[test]
fn hashes_match_their_published_examples() {
    assert_eq!((gnu_hash("printf"), gnu_hash("")), (0x156b2bb8, 0x1505));
    assert_eq!(
        (sysv_hash("printf"), sysv_hash("exit")),
        (0x077905a6, 0x0006cf04)
    );
}

proptest! {
    #[test]
    fn garbage_is_no_image(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let image = Fake { base: 4096, bytes };
        prop_assert_eq!(find_symbol(&image, 4096, "cudasnap_record"), Ok(None));
    }
}

#[test]
fn a_damaged_image_never_panics() {
    for style in ["gnu", "sysv"] {
        let base = 0x40_0000;
        let sound = built_library(style, base);
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(400));
        let damage = proptest::collection::vec((0..sound.bytes.len(), any::<u8>()), 1..24);
        runner
            .run(&damage, |changes| {
                let mut bytes = sound.bytes.clone();
                for (at, value) in changes {
                    // Half of the changes hit the headers and tables, where they matter.
                    let at = if value & 1 == 0 { at % 1024 } else { at };
                    bytes[at] = value;
                }
                let image = Fake { base, bytes };
                // A damaged header may claim a larger image: then reading the symbol fails, as reading `image` does.
                prop_assert!(find_symbol(&image, base, "cudasnap_probe").is_ok());
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn a_process_that_ended_is_told_as_such() {
    let mut child = Command::new("true").spawn().unwrap();
    let target = Target::new(child.id() as i32);
    child.wait().unwrap();
    assert_eq!(find_symbol(&target, 4096, "x"), Err(MemoryError::Gone));
}
