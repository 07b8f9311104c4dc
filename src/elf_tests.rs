use super::*;
use proptest::prelude::*;

const PT_LOAD: u32 = 1;

/// A file as if it were mapped at `base` with offsets equal to addresses.
struct Bytes {
    base: usize,
    bytes: Vec<u8>,
}

impl Memory for Bytes {
    fn read(&self, address: usize, out: &mut [u8]) -> bool {
        let Some(from) = address.checked_sub(self.base) else {
            return false;
        };
        let Some(end) = from.checked_add(out.len()) else {
            return false;
        };
        match self.bytes.get(from..end) {
            Some(source) => {
                out.copy_from_slice(source);
                true
            }
            None => false,
        }
    }
}

const BASE: usize = 0x10_0000;

/// An image with one segment, the given symbols as jump slots, and RELRO over slots from `relro_from` on.
fn image(symbols: &[&str], relro_from: usize, relocated_in_place: bool) -> Bytes {
    let mut bytes = vec![0u8; 0x4000];
    let mut put = |at: usize, data: &[u8]| bytes[at..at + data.len()].copy_from_slice(data);
    put(0, &[0x7f, b'E', b'L', b'F', 2, 1]);
    put(32, &64u64.to_ne_bytes());
    put(54, &56u16.to_ne_bytes());
    put(56, &4u16.to_ne_bytes());
    let slots = 0x3000usize;
    let headers = [
        (PT_LOAD, 0usize, 0x4000usize, 4096usize),
        (PT_DYNAMIC, 0x400, 16 * 10, 8),
        (PT_GNU_RELRO, slots + 8 * relro_from, 0x1000, 1),
        (PT_NOTE, 0x200, 12 + 4 + 20, 4),
    ];
    for (index, (kind, vaddr, memsz, align)) in headers.into_iter().enumerate() {
        let at = 64 + 56 * index;
        put(at, &kind.to_ne_bytes());
        put(at + 16, &(vaddr as u64).to_ne_bytes());
        put(at + 40, &(memsz as u64).to_ne_bytes());
        put(at + 48, &(align as u64).to_ne_bytes());
    }
    put(
        0x200,
        &[
            4u32.to_ne_bytes(),
            20u32.to_ne_bytes(),
            3u32.to_ne_bytes(),
            *b"GNU\0",
        ]
        .concat(),
    );
    put(0x210, &[0xab; 20]);
    let mut strings = b"\0libcuda.so.1\0".to_vec();
    for (index, symbol) in symbols.iter().enumerate() {
        put(
            0x1000 + 24 * (index + 1),
            &(strings.len() as u32).to_ne_bytes(),
        );
        strings.extend_from_slice(symbol.as_bytes());
        strings.push(0);
        put(
            0x2000 + 24 * index,
            &((slots + 8 * index) as u64).to_ne_bytes(),
        );
        put(
            0x2000 + 24 * index + 8,
            &(((index as u64 + 1) << 32) | u64::from(SLOT_TYPES[0])).to_ne_bytes(),
        );
    }
    put(0x800, &strings);
    let pointer = |at: u64| {
        if relocated_in_place {
            at + BASE as u64
        } else {
            at
        }
    };
    let tags = [
        (DT_STRTAB, pointer(0x800)),
        (DT_STRSZ, strings.len() as u64),
        (DT_SYMTAB, pointer(0x1000)),
        (DT_SONAME, 1),
        (DT_JMPREL, pointer(0x2000)),
        (DT_PLTRELSZ, 24 * symbols.len() as u64),
        (0, 0),
    ];
    for (index, (tag, value)) in tags.into_iter().enumerate() {
        put(0x400 + 16 * index, &tag.to_ne_bytes());
        put(0x408 + 16 * index, &value.to_ne_bytes());
    }
    Bytes { base: BASE, bytes }
}

#[test]
fn slots_are_found_by_name_whether_or_not_the_loader_relocated_the_tags() {
    for in_place in [true, false] {
        let bytes = image(&["memmove", "memcpy", "munmap"], 2, in_place);
        let image = Image::parse(&bytes, BASE).unwrap();
        assert!(image.is_named("libcuda.so.1"));
        assert!(!image.is_named("libcuda.so") && !image.is_named("libcuda.so.10"));
        let free = |address| {
            Some(SlotPlace {
                address,
                relro: false,
            })
        };
        assert_eq!(image.slot("memmove"), free(BASE + 0x3000));
        assert_eq!(image.slot("memcpy"), free(BASE + 0x3008));
        assert_eq!(
            image.slot("munmap"),
            Some(SlotPlace {
                address: BASE + 0x3010,
                relro: true
            })
        );
        assert_eq!(image.slot("mem"), None);
        assert_eq!(image.slot("memcpy2"), None);
    }
}

#[test]
fn the_build_id_is_read_from_the_note() {
    let mut out = [0u8; 32];
    let bytes = image(&[], 0, true);
    assert_eq!(build_id(&bytes, BASE, &mut out), Some(20));
    assert_eq!(out[..20], [0xab; 20]);
}

#[test]
fn what_is_no_image_gives_none() {
    let nothing = Bytes {
        base: BASE,
        bytes: vec![0; 256],
    };
    assert!(Image::parse(&nothing, BASE).is_none());
    let cut = Bytes {
        base: BASE,
        bytes: image(&["memcpy"], 0, true).bytes[..0x420].to_vec(),
    };
    assert!(Image::parse(&cut, BASE).is_none());
}

/// Memory that counts how often it is asked.
struct Counted {
    bytes: Bytes,
    asked: std::cell::Cell<u32>,
}

impl Memory for Counted {
    fn read(&self, address: usize, out: &mut [u8]) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.bytes.read(address, out)
    }
}

#[test]
fn a_table_that_claims_to_be_endless_ends_with_the_image() {
    let mut bytes = image(&["memmove", "memcpy", "munmap"], 3, true);
    // The size of the table of jump slots: the sixth tag's value.
    let at = 0x400 + 16 * 5 + 8;
    bytes.bytes[at..at + 8].copy_from_slice(&u64::MAX.to_ne_bytes());
    let memory = Counted {
        bytes,
        asked: 0.into(),
    };
    let image = Image::parse(&memory, BASE).unwrap();
    assert_eq!(image.slot("mprotect"), None);
    assert!(image.slot("munmap").is_some());
    // Some reads for each entry that lies in the image's 16 KiB.
    assert!(memory.asked.get() < 10_000, "{}", memory.asked.get());
}

proptest! {
    /// Any damage to an image may change the answer, but never makes the walk fall over or run for ever.
    #[test]
    fn damage_is_survived(at in 0usize..0x3000, byte in any::<u8>(), more in proptest::collection::vec((0usize..0x900, any::<u8>()), 0..40)) {
        let mut bytes = image(&["memmove", "memcpy", "munmap"], 3, true);
        bytes.bytes[at] = byte;
        for (at, byte) in more {
            bytes.bytes[at] = byte;
        }
        let mut out = [0u8; 32];
        let _ = build_id(&bytes, BASE, &mut out);
        if let Some(image) = Image::parse(&bytes, BASE) {
            let _ = image.slot("memcpy");
            let _ = image.is_named("libcuda.so.1");
        }
    }
}
