//! Finds a defined data symbol in a mapped 64-bit ELF image, from memory alone.
//!
//! The library's file is never opened: it may have been replaced, deleted, or lie in another mount namespace, and after a
//! process was moved to another host only its memory is the truth. Everything read is foreign: sizes and counts are capped, and
//! addresses must lie inside the image. An image that makes no sense simply has no such symbol.

use crate::process::target::{Memory, MemoryError};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
/// No library of the field comes near; a corrupt header could ask for 3.5 MB.
const MAX_PROGRAM_HEADERS: u64 = 128;
const MAX_DYNAMIC_BYTES: u64 = 64 * 1024;
/// Longest hash chain followed: each entry is a system call or more. Real ones have a handful of entries.
const MAX_CHAIN: u32 = 1 << 10;

/// A symbol in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// Address in the process.
    pub address: u64,
    /// Bytes, as the symbol table says.
    pub size: u64,
}

/// The defined data symbol `name` of the image whose first byte lies at `base`. `None` when the image is no ELF image, is
/// damaged, or defines no such symbol.
///
/// # Errors
/// Only what ends the search everywhere: the process is gone, or reading is refused. Unmapped addresses are damage.
pub fn find_symbol(
    memory: &impl Memory,
    base: u64,
    name: &str,
) -> Result<Option<Symbol>, MemoryError> {
    find_of_kind(memory, base, name, STT_OBJECT)
}

/// Whether the image whose first byte lies at `base` defines a function of this name.
///
/// # Errors
/// As [`find_symbol`].
pub fn defines_function(memory: &impl Memory, base: u64, name: &str) -> Result<bool, MemoryError> {
    Ok(find_of_kind(memory, base, name, STT_FUNC)?.is_some())
}

fn find_of_kind(
    memory: &impl Memory,
    base: u64,
    name: &str,
    kind: u8,
) -> Result<Option<Symbol>, MemoryError> {
    match Image::open(memory, base, kind).and_then(|image| image.look_up(name)) {
        Ok(symbol) => Ok(Some(symbol)),
        Err(Stop::Memory(error)) if !matches!(error, MemoryError::Unmapped(_)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Why a walk stopped.
enum Stop {
    Memory(MemoryError),
    Absent,
}

impl From<MemoryError> for Stop {
    fn from(error: MemoryError) -> Self {
        Stop::Memory(error)
    }
}

struct Image<'a, M> {
    memory: &'a M,
    /// Kind of symbol that is looked for.
    kind: u8,
    /// Added to an address of the file to get the one in memory.
    bias: u64,
    start: u64,
    end: u64,
    symbols: u64,
    strings: u64,
    strings_size: u64,
    hash: Option<u64>,
    gnu_hash: Option<u64>,
}

struct Segments {
    bias: u64,
    start: u64,
    end: u64,
    dynamic: u64,
    dynamic_size: u64,
}

impl<'a, M: Memory> Image<'a, M> {
    fn open(memory: &'a M, base: u64, kind: u8) -> Result<Self, Stop> {
        let segments = read_segments(memory, base)?;
        let mut image = Image {
            memory,
            kind,
            bias: segments.bias,
            start: segments.start,
            end: segments.end,
            symbols: 0,
            strings: 0,
            strings_size: 0,
            hash: None,
            gnu_hash: None,
        };
        image.read_dynamic(segments.dynamic, segments.dynamic_size)?;
        if image.symbols == 0 || image.strings == 0 {
            return Err(Stop::Absent);
        }
        Ok(image)
    }

    fn read_dynamic(&mut self, address: u64, size: u64) -> Result<(), Stop> {
        let mut bytes = vec![0; size.min(MAX_DYNAMIC_BYTES) as usize / 16 * 16];
        self.memory.read(self.inside(address)?, &mut bytes)?;
        for entry in bytes.chunks_exact(16) {
            let value = word64(entry, 8);
            match word64(entry, 0) {
                0 => break,
                DT_STRTAB => self.strings = self.pointer(value)?,
                DT_SYMTAB => self.symbols = self.pointer(value)?,
                DT_STRSZ => self.strings_size = value,
                DT_HASH => self.hash = Some(self.pointer(value)?),
                DT_GNU_HASH => self.gnu_hash = Some(self.pointer(value)?),
                _ => {}
            }
        }
        Ok(())
    }

    /// A pointer from the dynamic section: glibc has relocated it in place, other loaders and the vDSO have not.
    fn pointer(&self, value: u64) -> Result<u64, Stop> {
        self.inside(value)
            .or_else(|_| self.inside(value.wrapping_add(self.bias)))
    }

    fn inside(&self, address: u64) -> Result<u64, Stop> {
        if (self.start..self.end).contains(&address) {
            Ok(address)
        } else {
            Err(Stop::Absent)
        }
    }

    /// The 32-bit word number `index` of a table.
    fn word(&self, table: u64, index: u64) -> Result<u32, Stop> {
        let address = index
            .checked_mul(4)
            .and_then(|offset| table.checked_add(offset))
            .ok_or(Stop::Absent)?;
        let mut bytes = [0; 4];
        self.memory.read(self.inside(address)?, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn look_up(&self, name: &str) -> Result<Symbol, Stop> {
        match (self.gnu_hash, self.hash) {
            (Some(table), _) => self.look_up_gnu(table, name),
            (None, Some(table)) => self.look_up_sysv(table, name),
            (None, None) => Err(Stop::Absent),
        }
    }

    /// Walks a DT_GNU_HASH table: header (buckets, first symbol, bloom words, shift), bloom filter, buckets, chains. The
    /// bloom filter is skipped: it only saves time.
    fn look_up_gnu(&self, table: u64, name: &str) -> Result<Symbol, Stop> {
        let hash = gnu_hash(name);
        let buckets = self.word(table, 0)?;
        let first = self.word(table, 1)?;
        let bloom_words = self.word(table, 2)?;
        if buckets == 0 {
            return Err(Stop::Absent);
        }
        let bucket_words = 4 + 2 * u64::from(bloom_words);
        let chains = bucket_words + u64::from(buckets);
        let start = self.word(table, bucket_words + u64::from(hash % buckets))?;
        for index in start..start.saturating_add(MAX_CHAIN) {
            let position = index.checked_sub(first).ok_or(Stop::Absent)?;
            let entry = self.word(table, chains + u64::from(position))?;
            if entry | 1 == hash | 1 {
                if let Some(symbol) = self.symbol(index, name)? {
                    return Ok(symbol);
                }
            }
            if entry & 1 == 1 {
                break;
            }
        }
        Err(Stop::Absent)
    }

    /// Walks a DT_HASH table: two counts, buckets, chains.
    fn look_up_sysv(&self, table: u64, name: &str) -> Result<Symbol, Stop> {
        let buckets = self.word(table, 0)?;
        if buckets == 0 {
            return Err(Stop::Absent);
        }
        let bucket = u64::from(sysv_hash(name) % buckets);
        let mut index = self.word(table, 2 + bucket)?;
        for _ in 0..MAX_CHAIN {
            if index == 0 {
                break;
            }
            if let Some(symbol) = self.symbol(index, name)? {
                return Ok(symbol);
            }
            index = self.word(table, 2 + u64::from(buckets) + u64::from(index))?;
        }
        Err(Stop::Absent)
    }

    /// Symbol number `index`, if it is a defined symbol of the wanted kind and name that lies inside the image.
    fn symbol(&self, index: u32, name: &str) -> Result<Option<Symbol>, Stop> {
        let mut entry = [0; 24];
        let address = self.symbols.wrapping_add(u64::from(index) * 24);
        self.memory.read(self.inside(address)?, &mut entry)?;
        let defined = word16(&entry, 6) != 0;
        if entry[4] & 15 != self.kind || !defined || !self.is_named(word32(&entry, 0), name)? {
            return Ok(None);
        }
        let address = self.inside(word64(&entry, 8).wrapping_add(self.bias))?;
        let size = word64(&entry, 16);
        Ok((size <= self.end - address).then_some(Symbol { address, size }))
    }

    fn is_named(&self, offset: u32, name: &str) -> Result<bool, Stop> {
        let needed = name.len() as u64 + 1;
        if u64::from(offset) + needed > self.strings_size {
            return Ok(false);
        }
        let mut found = vec![0; needed as usize];
        let address = self.inside(self.strings.wrapping_add(u64::from(offset)))?;
        self.memory.read(address, &mut found)?;
        Ok(found.split_last() == Some((&0, name.as_bytes())))
    }
}

fn read_segments(memory: &impl Memory, base: u64) -> Result<Segments, Stop> {
    let mut header = [0; 64];
    memory.read(base, &mut header)?;
    // Magic, 64-bit, little-endian, then an executable (2) or shared object (3).
    let kind = word16(&header, 16);
    let size = word16(&header, 54);
    if header[..6] != *b"\x7fELF\x02\x01" || !matches!(kind, 2 | 3) || size != 56 {
        return Err(Stop::Absent);
    }
    let count = u64::from(word16(&header, 56)).min(MAX_PROGRAM_HEADERS);
    let mut table = vec![0; count as usize * 56];
    memory.read(base.wrapping_add(word64(&header, 32)), &mut table)?;
    segments_of(base, &table).ok_or(Stop::Absent)
}

fn segments_of(base: u64, table: &[u8]) -> Option<Segments> {
    let entries = || table.chunks_exact(56);
    let loads = || entries().filter(|entry| word32(entry, 0) == PT_LOAD);
    let first = loads().find(|entry| word64(entry, 8) == 0)?;
    let bias = base.wrapping_sub(word64(first, 16));
    let start = loads()
        .map(|entry| word64(entry, 16).wrapping_add(bias))
        .min()?;
    let end = loads()
        .map(|entry| {
            word64(entry, 16)
                .wrapping_add(bias)
                .saturating_add(word64(entry, 40))
        })
        .max()?;
    let dynamic = entries().find(|entry| word32(entry, 0) == PT_DYNAMIC)?;
    (start < end && base >= start).then_some(Segments {
        bias,
        start,
        end,
        dynamic: word64(dynamic, 16).wrapping_add(bias),
        dynamic_size: word64(dynamic, 40),
    })
}

fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    })
}

fn sysv_hash(name: &str) -> u32 {
    name.bytes().fold(0, |hash: u32, byte| {
        let sum = (hash << 4).wrapping_add(u32::from(byte));
        let high = sum & 0xf000_0000;
        (sum ^ (high >> 24)) & !high
    })
}

fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests;
