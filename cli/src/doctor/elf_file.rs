//! A library's file, looked into without loading it.

use std::fs::File;

use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable};
use object::{RelocationFlags, RelocationTarget};

use crate::foreign_file;

#[cfg(target_arch = "x86_64")]
const SLOT_TYPES: [u32; 2] = [elf::R_X86_64_JUMP_SLOT, elf::R_X86_64_GLOB_DAT];
#[cfg(target_arch = "aarch64")]
const SLOT_TYPES: [u32; 2] = [elf::R_AARCH64_JUMP_SLOT, elf::R_AARCH64_GLOB_DAT];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SLOT_TYPES: [u32; 0] = [];

/// A library, parsed.
#[derive(Debug)]
pub struct Library<'a> {
    file: ElfFile64<'a, Endianness>,
    bytes: &'a [u8],
}

/// A slot: where a call to another library goes through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The function's name.
    pub name: String,
    /// It becomes read-only when the library is loaded.
    pub read_only: bool,
}

impl<'a> Library<'a> {
    /// Parses the bytes of a library of this machine's architecture.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(|error| error.to_string())?;
        let machine = file.elf_header().e_machine.get(file.endian());
        let own = match std::env::consts::ARCH {
            "x86_64" => elf::EM_X86_64,
            "aarch64" => elf::EM_AARCH64,
            _ => machine,
        };
        if machine != own {
            return Err(format!(
                "it is for another architecture (ELF machine {machine})"
            ));
        }
        Ok(Library { file, bytes })
    }

    /// Its build id; `None` when it has none.
    pub fn build_id(&self) -> Option<&'a [u8]> {
        self.file.build_id().ok().flatten()
    }

    /// Whether it defines this symbol for others.
    pub fn exports(&self, name: &str) -> bool {
        let mut symbols = self.file.dynamic_symbols();
        symbols.any(|symbol| symbol.is_definition() && symbol.name() == Ok(name))
    }

    /// The bytes that the file holds for a data symbol.
    pub fn data_of(&self, name: &str) -> Option<&'a [u8]> {
        let mut symbols = self.file.dynamic_symbols();
        let symbol = symbols.find(|symbol| symbol.is_definition() && symbol.name() == Ok(name))?;
        let section = self.file.section_by_index(symbol.section_index()?).ok()?;
        section.data_range(symbol.address(), symbol.size()).ok()?
    }

    /// The slots of these functions, in the order of the file.
    pub fn slots(&self, names: &[&str]) -> Vec<Slot> {
        let endian = self.file.endian();
        let headers = self.file.elf_program_headers();
        let relro = headers
            .iter()
            .filter(|header| header.p_type(endian) == elf::PT_GNU_RELRO);
        let relro: Vec<_> = relro
            .map(|header| {
                let start = header.p_vaddr(endian);
                start..start.saturating_add(header.p_memsz(endian))
            })
            .collect();
        let relocations = self.file.dynamic_relocations().into_iter().flatten();
        let named = relocations.filter_map(|(address, relocation)| {
            let name = self.slot_name(relocation.flags(), relocation.target())?;
            names.contains(&name.as_str()).then_some((address, name))
        });
        named
            .map(|(address, name)| Slot {
                name,
                read_only: relro.iter().any(|range| range.contains(&address)),
            })
            .collect()
    }

    fn slot_name(&self, flags: RelocationFlags, target: RelocationTarget) -> Option<String> {
        let RelocationFlags::Elf { r_type } = flags else {
            return None;
        };
        let RelocationTarget::Symbol(index) = target else {
            return None;
        };
        if !SLOT_TYPES.contains(&r_type) {
            return None;
        }
        let table = self.file.dynamic_symbol_table()?;
        let symbol = table.symbol_by_index(index).ok()?;
        Some(symbol.name().ok()?.to_owned())
    }

    /// Whether the text lies anywhere in the file.
    pub fn holds(&self, text: &str) -> bool {
        memchr::memmem::find(self.bytes, text.as_bytes()).is_some()
    }
}

/// The build id of a file; `None` when it is no library, cannot be read, or has none.
pub fn build_id_of(file: File) -> Option<Vec<u8>> {
    let elf = foreign_file::Elf::new(file);
    let file = ElfFile64::<Endianness, _>::parse(&elf).ok()?;
    file.build_id().ok().flatten().map(<[u8]>::to_vec)
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_looked_into() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let own = Library::parse(&bytes).unwrap();
        // The linker of this repository's builds writes a note with the build id only where it is asked to.
        assert_eq!(
            own.build_id().map(<[u8]>::to_vec),
            build_id_of(File::open("/proc/self/exe").unwrap())
        );
        assert!(!own.exports("cuInit") && own.data_of("cudasnap_record").is_none());
        assert!(!own.slots(&["memcpy"]).is_empty());
        assert!(own.holds("cudasnap_record"));
    }

    #[test]
    fn what_is_no_library_is_refused() {
        assert!(Library::parse(b"").is_err() && Library::parse(&[0x7f; 4096]).is_err());
        assert_eq!(build_id_of(File::open("/dev/null").unwrap()), None);
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
    }
}
