//! What a program's file says about how it will be loaded.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use object::read::{ReadRef, StringTable};
use object::Endianness;

use crate::foreign_file::{self, Elf};

use super::script::{self, Shebang};

/// Loaders of glibc have 200 to 300 kB; with debug information some MB.
const LARGEST_LOADER: u64 = 16 << 20;

/// What a file is, to the kernel that is to execute it.
#[derive(Debug, PartialEq, Eq)]
pub enum Format {
    /// An ELF image.
    Elf(Image),
    /// A script that names its interpreter.
    Script(Shebang),
    /// Text that names none: the shell runs it.
    Text,
    /// Something else, or an ELF image that makes no sense.
    Other,
}

/// An ELF image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What it is made for.
    pub machine: Machine,
    /// The loader that it asks for; `None` for a static program, a library, or the loader itself.
    pub loader: Option<PathBuf>,
    /// Names of the libraries that it needs.
    pub needed: Vec<String>,
    /// Its own name as a library.
    pub soname: Option<String>,
}

/// Processor and word size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// `e_machine`
    pub number: u16,
    /// 32 or 64.
    pub bits: u8,
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            elf::EM_X86_64 => write!(out, "{}-bit x86-64", self.bits),
            elf::EM_386 => write!(out, "{}-bit x86", self.bits),
            elf::EM_AARCH64 => write!(out, "{}-bit aarch64", self.bits),
            elf::EM_ARM => write!(out, "{}-bit arm", self.bits),
            elf::EM_PPC64 => write!(out, "{}-bit ppc64", self.bits),
            elf::EM_RISCV => write!(out, "{}-bit riscv", self.bits),
            other => write!(out, "{}-bit machine {other}", self.bits),
        }
    }
}

impl Format {
    /// Looks at a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut file = opened(path)?;
        let mut head = Vec::new();
        file.by_ref()
            .take(script::HEAD as u64)
            .read_to_end(&mut head)?;
        if let Some(found) = script::shebang(&head) {
            return Ok(Format::Script(found));
        }
        file.rewind()?;
        let elf = Elf::new(file);
        let image = match (head.starts_with(&elf::ELFMAG), head.get(4)) {
            (true, Some(&elf::ELFCLASS32)) => image::<FileHeader32<Endianness>, _>(&elf, 32),
            (true, Some(&elf::ELFCLASS64)) => image::<FileHeader64<Endianness>, _>(&elf, 64),
            (true, _) => return Ok(Format::Other),
            (false, _) if script::is_text(&head) => return Ok(Format::Text),
            (false, _) => return Ok(Format::Other),
        };
        Ok(image.map_or(Format::Other, Format::Elf))
    }
}

impl Image {
    /// Whether it is glibc's loader itself, called as a program.
    pub fn is_loader(&self) -> bool {
        let name = self.soname.as_deref().unwrap_or_default();
        self.loader.is_none() && (name.starts_with("ld-linux") || name.starts_with("ld64.so"))
    }
}

fn image<'a, H, R>(file: R, bits: u8) -> object::Result<Image>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'a>,
{
    let header = H::parse(file)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, file)?;
    let mut found = Image {
        machine: Machine {
            number: header.e_machine(endian),
            bits,
        },
        loader: None,
        needed: Vec::new(),
        soname: None,
    };
    for segment in segments {
        if let Some(path) = segment.interpreter(endian, file)? {
            found.loader = Some(OsString::from_vec(path.to_vec()).into());
        }
        if let Some(entries) = segment.dynamic(endian, file)? {
            read_dynamic::<H, R>(&mut found, endian, entries, segments, file);
        }
    }
    Ok(found)
}

/// Names in the dynamic section.
fn read_dynamic<'a, H, R>(
    image: &mut Image,
    endian: Endianness,
    entries: &[H::Dyn],
    segments: &[H::ProgramHeader],
    file: R,
) where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'a>,
{
    let Some(strings) = strings::<H, R>(endian, entries, segments, file) else {
        return;
    };
    let name = |entry: &H::Dyn| {
        let name = entry.string(endian, strings).ok()?;
        Some(String::from_utf8_lossy(name).into_owned())
    };
    for entry in entries {
        match entry.tag32(endian) {
            Some(elf::DT_NEEDED) => image.needed.extend(name(entry)),
            Some(elf::DT_SONAME) => image.soname = name(entry),
            _ => {}
        }
    }
}

/// The names themselves. Found through the segments: a stripped program may have no sections.
fn strings<'a, H, R>(
    endian: Endianness,
    entries: &[H::Dyn],
    segments: &[H::ProgramHeader],
    file: R,
) -> Option<StringTable<'a>>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'a>,
{
    let value = |tag: u32| -> Option<u64> {
        let mut entries = entries.iter();
        let found = entries.find(|entry| entry.tag32(endian) == Some(tag));
        found.map(|entry| entry.d_val(endian).into())
    };
    let (address, size) = (value(elf::DT_STRTAB)?, value(elf::DT_STRSZ)?);
    let offset = segments.iter().find_map(|segment| {
        let start: u64 = segment.p_vaddr(endian).into();
        let length: u64 = segment.p_filesz(endian).into();
        let inside = address
            .checked_sub(start)
            .filter(|inside| *inside < length)?;
        let offset: u64 = segment.p_offset(endian).into();
        (segment.p_type(endian) == elf::PT_LOAD).then(|| offset.checked_add(inside))?
    });
    let bytes = file.read_bytes_at(offset?, size).ok()?;
    Some(StringTable::new(bytes, 0, size))
}

/// A script, or a program, names this file: it may be a pipe, on which opening would wait for ever.
fn opened(path: &Path) -> io::Result<File> {
    match foreign_file::open(path)? {
        Some((file, _)) => Ok(file),
        None => Err(io::Error::other("it is no regular file")),
    }
}

/// The machine of a shared library that exports this symbol.
///
/// # Errors
/// What it is instead.
pub fn library_with(path: &Path, symbol: &str) -> Result<Machine, String> {
    let file = opened(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let elf = Elf::new(file);
    let looked = exports::<FileHeader64<Endianness>, _>(&elf, symbol);
    match looked {
        Ok((machine, true)) => Ok(machine),
        Ok((_, false)) => Err(format!(
            "{} is a library, but not cudasnap's",
            path.display()
        )),
        Err(_) => Err(format!("{} is no 64-bit shared library", path.display())),
    }
}

fn exports<'a, H, R>(file: R, symbol: &str) -> object::Result<(Machine, bool)>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'a>,
{
    let header = H::parse(file)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, file)?;
    let symbols = sections.symbols(endian, file, elf::SHT_DYNSYM)?;
    let has = symbols.iter().any(|entry| {
        !entry.is_undefined(endian)
            && entry.name(endian, symbols.strings()) == Ok(symbol.as_bytes())
    });
    let machine = Machine {
        number: header.e_machine(endian),
        bits: 64,
    };
    Ok((machine, has))
}

/// Whether this file is a loader of glibc, one that lists what it would load when it is asked to, instead of running it.
pub fn is_glibc_loader(path: &Path) -> bool {
    let Ok(bytes) = opened(path).and_then(|file| foreign_file::read(file, LARGEST_LOADER)) else {
        return false;
    };
    let has = |text: &[u8]| memchr::memmem::find(&bytes, text).is_some();
    has(b"GLIBC_PRIVATE") && has(b"TRACE_LOADED_OBJECTS")
}

/// Whether a path names musl's loader.
pub fn is_musl_loader(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    name.starts_with(b"ld-musl-")
}
