//! What an ELF file says about itself: its needs, its symbols, its build id.

use std::path::Path;

use object::read::elf::{Dyn, FileHeader};
use object::{elf, Endianness, Object, ObjectSymbol};

/// A file's dynamic section, as far as packages promise something about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Names of the libraries that it needs, sorted.
    pub needed: Vec<String>,
    /// Versions of symbols that it needs, sorted: `GLIBC_2.14`.
    pub versions: Vec<String>,
    /// Symbols that it defines for others, sorted.
    pub exports: Vec<String>,
    /// `DT_FLAGS_1`.
    pub flags: u64,
    /// The GNU build id, as hexadecimal text.
    pub build_id: String,
}

impl Facts {
    /// Of a 64-bit program or library.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let id = file.build_id().expect("notes").unwrap_or_default();
        let (needed, flags) = needs(&bytes);
        Facts {
            needed,
            versions: versions(&bytes),
            exports: exports(&file),
            flags,
            build_id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// The newest version of glibc that it needs; any other kind of version is a failure.
    ///
    /// # Panics
    /// When a version is not one of glibc's public ones, or when there is none at all.
    #[must_use]
    pub fn glibc(&self) -> (u32, u32) {
        let numbers = self.versions.iter().map(|name| {
            let number = name.strip_prefix("GLIBC_");
            let mut parts = number
                .unwrap_or_else(|| panic!("{name}: not glibc's, or private"))
                .split('.')
                .map(|part| part.parse().unwrap_or_else(|_| panic!("{name}")));
            (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
        });
        numbers.max().expect("a version of glibc")
    }
}

fn exports(file: &object::File) -> Vec<String> {
    let defined = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition());
    let mut names: Vec<String> = defined
        .map(|symbol| symbol.name().expect("a name").to_string())
        .collect();
    names.sort();
    names
}

fn needs(bytes: &[u8]) -> (Vec<String>, u64) {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).expect("a header");
    let endian = header.endian().expect("an order of bytes");
    let sections = header.sections(endian, bytes).expect("sections");
    let Some((entries, link)) = sections.dynamic(endian, bytes).expect("readable") else {
        return (Vec::new(), 0);
    };
    let strings = sections.strings(endian, bytes, link).expect("strings");
    let tagged = |tag| {
        entries
            .iter()
            .filter(move |entry| entry.tag32(endian) == Some(tag))
    };
    let mut needed: Vec<String> = tagged(elf::DT_NEEDED)
        .map(|entry| String::from_utf8_lossy(entry.string(endian, strings).expect("a name")).into())
        .collect();
    needed.sort();
    let flags = tagged(elf::DT_FLAGS_1).next();
    (needed, flags.map_or(0, |entry| entry.d_val(endian)))
}

fn versions(bytes: &[u8]) -> Vec<String> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).expect("a header");
    let endian = header.endian().expect("an order of bytes");
    let sections = header.sections(endian, bytes).expect("sections");
    let Some((mut needs, link)) = sections.gnu_verneed(endian, bytes).expect("readable") else {
        return Vec::new();
    };
    let strings = sections.strings(endian, bytes, link).expect("strings");
    let mut names = Vec::new();
    while let Some((_, mut versions)) = needs.next().expect("a library") {
        while let Some(version) = versions.next().expect("a version") {
            let name = version.name(endian, strings).expect("a name");
            names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    names.sort();
    names.dedup();
    names
}
