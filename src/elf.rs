//! Pure: walks a mapped ELF image for what the shim needs of it: its name, a relocated slot, its build id. Every read goes
//! through a [`Memory`] that refuses what is not the image's, so that a strange image can only give `None`.

/// Bytes of a mapped image.
pub trait Memory {
    /// Copies `out.len()` bytes at `address`; false when any of them is not readable.
    fn read(&self, address: usize, out: &mut [u8]) -> bool;

    /// A little- or native-endian word of 2, 4 or 8 bytes, as this machine stores it.
    fn word<const N: usize>(&self, address: usize) -> Option<[u8; N]> {
        let mut bytes = [0u8; N];
        self.read(address, &mut bytes).then_some(bytes)
    }
}

const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const NT_GNU_BUILD_ID: u32 = 3;
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_STRSZ: u64 = 10;
const DT_SONAME: u64 = 14;
const DT_JMPREL: u64 = 23;

#[cfg(target_arch = "x86_64")]
const SLOT_TYPES: [u32; 2] = [7, 6]; // R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT
#[cfg(target_arch = "aarch64")]
const SLOT_TYPES: [u32; 2] = [1026, 1025]; // R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SLOT_TYPES: [u32; 2] = [u32::MAX, u32::MAX];

/// Longest symbol name that is compared; the names looked for are far shorter.
const NAME_MAX: usize = 32;
/// Most entries of a table that are looked at; libcuda has some hundred program headers, tags and slots.
const ENTRIES_MAX: usize = 1 << 20;

/// A slot that libcuda calls a function through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPlace {
    /// Address of the 8-byte word.
    pub address: usize,
    /// Whether it lies in PT_GNU_RELRO.
    pub relro: bool,
}

#[derive(Clone, Copy, Default)]
struct Range {
    start: usize,
    len: usize,
}

impl Range {
    const fn contains(self, address: usize) -> bool {
        address >= self.start && address - self.start < self.len
    }
}

/// A mapped image whose headers made sense.
pub struct Image<'m, M> {
    memory: &'m M,
    base: usize,
    relro: Range,
    strings: Range,
    symbols: usize,
    soname: Option<usize>,
    jump_slots: Range,
    relocations: Range,
}

struct ProgramHeader {
    kind: u32,
    vaddr: usize,
    memsz: usize,
    align: usize,
}

fn program_headers<M: Memory>(
    memory: &M,
    base: usize,
) -> Option<impl Iterator<Item = ProgramHeader> + '_> {
    let ident: [u8; 6] = memory.word(base)?;
    if ident != [0x7f, b'E', b'L', b'F', 2, 1] {
        return None;
    }
    let offset = u64::from_ne_bytes(memory.word(base.checked_add(32)?)?) as usize;
    let size = u16::from_ne_bytes(memory.word(base.checked_add(54)?)?) as usize;
    let count = u16::from_ne_bytes(memory.word(base.checked_add(56)?)?) as usize;
    if size < 56 {
        return None;
    }
    let table = base.checked_add(offset)?;
    Some((0..count).map_while(move |index| {
        let at = table.checked_add(index.checked_mul(size)?)?;
        let header: [u8; 56] = memory.word(at)?;
        let field = |from: usize| -> Option<usize> {
            let bytes = header.get(from..from + 8)?.try_into().ok()?;
            Some(u64::from_ne_bytes(bytes) as usize)
        };
        Some(ProgramHeader {
            kind: u32::from_ne_bytes(header.get(..4)?.try_into().ok()?),
            vaddr: field(16)?,
            memsz: field(40)?,
            align: field(48)?,
        })
    }))
}

/// Copies the GNU build id of the image at `base` to `out` and returns its length; longer ids are cut.
pub fn build_id<M: Memory>(memory: &M, base: usize, out: &mut [u8]) -> Option<usize> {
    program_headers(memory, base)?
        .filter(|header| header.kind == PT_NOTE)
        .find_map(|header| {
            find_build_id(
                memory,
                base.checked_add(header.vaddr)?,
                header.memsz,
                header.align,
                out,
            )
        })
}

fn find_build_id<M: Memory>(
    memory: &M,
    start: usize,
    len: usize,
    align: usize,
    out: &mut [u8],
) -> Option<usize> {
    let align = if align == 8 { 8 } else { 4 };
    let mut at = 0usize;
    while at.checked_add(12)? <= len {
        let note = start.checked_add(at)?;
        let name = u32::from_ne_bytes(memory.word(note)?) as usize;
        let desc = u32::from_ne_bytes(memory.word(note.checked_add(4)?)?) as usize;
        let kind = u32::from_ne_bytes(memory.word(note.checked_add(8)?)?);
        let desc_at = at.checked_add((12 + name).checked_next_multiple_of(align)?)?;
        if kind == NT_GNU_BUILD_ID
            && name == 4
            && memory.word::<4>(note.checked_add(12)?)? == *b"GNU\0"
        {
            let wanted = desc.min(out.len());
            return memory
                .read(start.checked_add(desc_at)?, out.get_mut(..wanted)?)
                .then_some(wanted);
        }
        at = desc_at.checked_add(desc.checked_next_multiple_of(align)?)?;
    }
    None
}

impl<'m, M: Memory> Image<'m, M> {
    /// Reads the headers and the dynamic section of the image whose first byte is at `base`.
    pub fn parse(memory: &'m M, base: usize) -> Option<Self> {
        let mut dynamic = Range::default();
        let mut relro = Range::default();
        for header in program_headers(memory, base)? {
            let range = Range {
                start: base.wrapping_add(header.vaddr),
                len: header.memsz,
            };
            match header.kind {
                PT_DYNAMIC => dynamic = range,
                PT_GNU_RELRO => relro = range,
                _ => {}
            }
        }
        let mut image = Image {
            memory,
            base,
            relro,
            strings: Range::default(),
            symbols: 0,
            soname: None,
            jump_slots: Range::default(),
            relocations: Range::default(),
        };
        image.read_dynamic(dynamic)?;
        (image.symbols != 0 && image.strings.start != 0).then_some(image)
    }

    fn read_dynamic(&mut self, dynamic: Range) -> Option<()> {
        for index in 0..(dynamic.len / 16).min(ENTRIES_MAX) {
            let at = dynamic.start.checked_add(index * 16)?;
            let tag = u64::from_ne_bytes(self.memory.word(at)?);
            let value = u64::from_ne_bytes(self.memory.word(at + 8)?) as usize;
            match tag {
                0 => break,
                DT_STRTAB => self.strings.start = self.absolute(value),
                DT_STRSZ => self.strings.len = value,
                DT_SYMTAB => self.symbols = self.absolute(value),
                DT_SONAME => self.soname = Some(value),
                DT_JMPREL => self.jump_slots.start = self.absolute(value),
                DT_PLTRELSZ => self.jump_slots.len = value,
                DT_RELA => self.relocations.start = self.absolute(value),
                DT_RELASZ => self.relocations.len = value,
                _ => {}
            }
        }
        Some(())
    }

    /// glibc adds the load address to the dynamic section's pointers in place, musl does not.
    const fn absolute(&self, pointer: usize) -> usize {
        if pointer < self.base {
            self.base.wrapping_add(pointer)
        } else {
            pointer
        }
    }

    /// Whether the image's own name (DT_SONAME) is `name`.
    pub fn is_named(&self, name: &str) -> bool {
        self.soname
            .is_some_and(|offset| self.string_is(offset, name))
    }

    fn string_is(&self, offset: usize, name: &str) -> bool {
        let mut bytes = [0u8; NAME_MAX];
        let len = name.len() + 1;
        let fits = len <= NAME_MAX
            && offset
                .checked_add(len)
                .is_some_and(|end| end <= self.strings.len);
        let Some(out) = bytes.get_mut(..len) else {
            return false;
        };
        let Some(at) = self.strings.start.checked_add(offset) else {
            return false;
        };
        fits && self.memory.read(at, out)
            && out.get(..name.len()) == Some(name.as_bytes())
            && out.last() == Some(&0)
    }

    /// The slot that calls of `symbol` go through: its lazy-binding slot, else its plain one.
    pub fn slot(&self, symbol: &str) -> Option<SlotPlace> {
        self.slot_in(self.jump_slots, symbol)
            .or_else(|| self.slot_in(self.relocations, symbol))
    }

    fn slot_in(&self, table: Range, symbol: &str) -> Option<SlotPlace> {
        for index in 0..(table.len / 24).min(ENTRIES_MAX) {
            let at = table.start.checked_add(index * 24)?;
            // What is not there ends the table, however long it says that it is.
            let info = u64::from_ne_bytes(self.memory.word(at.checked_add(8)?)?);
            if !SLOT_TYPES.contains(&(info as u32))
                || !self.symbol_is((info >> 32) as usize, symbol)
            {
                continue;
            }
            let offset = u64::from_ne_bytes(self.memory.word(at)?) as usize;
            let address = self.base.wrapping_add(offset);
            if address.is_multiple_of(8) {
                return Some(SlotPlace {
                    address,
                    relro: self.relro.contains(address),
                });
            }
        }
        None
    }

    fn symbol_is(&self, index: usize, name: &str) -> bool {
        let Some(at) = index
            .checked_mul(24)
            .and_then(|offset| self.symbols.checked_add(offset))
        else {
            return false;
        };
        let Some(offset) = self.memory.word(at) else {
            return false;
        };
        self.string_is(u32::from_ne_bytes(offset) as usize, name)
    }
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
