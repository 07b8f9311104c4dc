//! The simulated driver has the shape of the real library: soname, SYMBOLIC, old symbol versions, slots outside RELRO; and the
//! RELRO build has them inside.
#![cfg(target_arch = "x86_64")]

use cudasnap_shim_tests::simdriver::SimDriver;
use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader, Rela, SectionHeader};
use object::Endianness;

const THROUGH_SLOTS: [&str; 7] = [
    "memcpy", "memmove", "mmap", "mmap64", "munmap", "mremap", "madvise",
];

struct Shape {
    soname: String,
    symbolic: bool,
    binds_now: bool,
    relro: std::ops::Range<u64>,
    /// name, version, relocation type, address of the slot
    slots: Vec<(String, String, u32, u64)>,
}

fn shape(driver: &SimDriver) -> Shape {
    let data = std::fs::read(driver.library.join("libcuda.so.1")).expect("built");
    let file = ElfFile64::<Endianness>::parse(&*data).expect("ELF");
    let endian = file.endian();
    let header = file.elf_header();
    let sections = file.elf_section_table();
    let versions = sections
        .versions(endian, &*data)
        .expect("versions")
        .expect("versions");
    let symbols = file.elf_dynamic_symbol_table();
    let mut shape = Shape {
        soname: String::new(),
        symbolic: false,
        binds_now: false,
        relro: 0..0,
        slots: Vec::new(),
    };
    for segment in header.program_headers(endian, &*data).expect("segments") {
        if segment.p_type(endian) == elf::PT_GNU_RELRO {
            let start = segment.p_vaddr(endian);
            shape.relro = start..start + segment.p_memsz(endian);
        }
        for entry in segment
            .dynamic(endian, &*data)
            .expect("dynamic")
            .unwrap_or(&[])
        {
            let value = entry.d_val(endian);
            match entry.tag32(endian) {
                Some(elf::DT_SONAME) => {
                    let name = symbols
                        .strings()
                        .get(u32::try_from(value).expect("small"))
                        .expect("string");
                    shape.soname = String::from_utf8_lossy(name).into_owned();
                }
                Some(elf::DT_FLAGS) => {
                    shape.symbolic = value & u64::from(elf::DF_SYMBOLIC) != 0;
                    shape.binds_now = value & u64::from(elf::DF_BIND_NOW) != 0;
                }
                _ => {}
            }
        }
    }
    for section in sections.iter() {
        let Some((relocations, _)) = section.rela(endian, &*data).expect("relocations") else {
            continue;
        };
        for relocation in relocations {
            let Some(index) = relocation.symbol(endian, false) else {
                continue;
            };
            let symbol = symbols.symbol(index).expect("symbol");
            let name = symbols.symbol_name(endian, symbol).expect("name");
            let version = versions
                .version(versions.version_index(endian, index))
                .expect("version")
                .map_or(String::new(), |v| {
                    String::from_utf8_lossy(v.name()).into_owned()
                });
            shape.slots.push((
                String::from_utf8_lossy(name).into_owned(),
                version,
                relocation.r_type(endian, false),
                relocation.r_offset(endian),
            ));
        }
    }
    shape
}

/// One relocation each, of the right type and version; their addresses.
fn slot_addresses(shape: &Shape) -> Vec<u64> {
    THROUGH_SLOTS
        .iter()
        .map(|name| {
            let found: Vec<_> = shape.slots.iter().filter(|s| s.0 == *name).collect();
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert_eq!(found[0].1, "GLIBC_2.2.5", "{name}");
            assert_eq!(found[0].2, elf::R_X86_64_JUMP_SLOT, "{name}");
            found[0].3
        })
        .collect()
}

#[test]
fn lazily_bound_with_slots_outside_relro() {
    let shape = shape(&SimDriver::build(false));
    assert_eq!(shape.soname, "libcuda.so.1");
    assert!(shape.symbolic && !shape.binds_now);
    for address in slot_addresses(&shape) {
        assert!(
            !shape.relro.contains(&address),
            "{address:#x} in {:x?}",
            shape.relro
        );
    }
}

#[test]
fn relro_build_has_its_slots_inside() {
    let shape = shape(&SimDriver::build(true));
    assert_eq!(shape.soname, "libcuda.so.1");
    assert!(shape.symbolic && shape.binds_now);
    for address in slot_addresses(&shape) {
        assert!(
            shape.relro.contains(&address),
            "{address:#x} not in {:x?}",
            shape.relro
        );
    }
}
