//! Reads `/proc/self/maps` with raw calls, line by line, in a buffer on the stack.

use crate::lines::{for_each_line, parse_number};

/// One line of `/proc/self/maps`, without its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: usize,
    /// Address after the last.
    pub end: usize,
    /// `r`
    pub readable: bool,
    /// `w`
    pub writable: bool,
    /// `x`
    pub executable: bool,
    /// `s`: what is written there others see.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device and inode; an inode of 0 means anonymous memory. In a container, files of two file systems may share an inode.
    pub file: (u64, u64),
}

impl Mapping {
    /// Whether it is a file's.
    pub const fn is_file(&self) -> bool {
        self.file.1 != 0
    }

    /// Whether the address lies inside.
    pub const fn contains(&self, address: usize) -> bool {
        self.start <= address && address < self.end
    }
}

/// Parses one line; `None` when it has another form.
pub fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut fields = line
        .split(|&byte| byte == b' ')
        .filter(|field| !field.is_empty());
    let range = fields.next()?;
    let perms = fields.next()?;
    let offset = parse_number(fields.next()?, 16)?;
    let device = parse_device(fields.next()?)?;
    let inode = parse_number(fields.next()?, 10)?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (range.get(..dash)?, range.get(dash + 1..)?);
    Some(Mapping {
        start: parse_number(start, 16)? as usize,
        end: parse_number(end, 16)? as usize,
        readable: perms.first() == Some(&b'r'),
        writable: perms.get(1) == Some(&b'w'),
        executable: perms.get(2) == Some(&b'x'),
        shared: perms.get(3) == Some(&b's'),
        offset,
        file: (device, inode),
    })
}

/// `major:minor`, in hex.
fn parse_device(text: &[u8]) -> Option<u64> {
    let colon = text.iter().position(|&byte| byte == b':')?;
    let major = parse_number(text.get(..colon)?, 16)?;
    let minor = parse_number(text.get(colon + 1..)?, 16)?;
    Some(major << 32 | minor)
}

/// The path of a line of `/proc/self/maps`: what follows the inode; empty for anonymous memory.
pub fn path_of(line: &[u8]) -> &[u8] {
    let mut rest = line;
    for _ in 0..5 {
        rest = rest.trim_ascii_start();
        let end = rest
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(rest.len());
        rest = rest.get(end..).unwrap_or_default();
    }
    rest.trim_ascii()
}

/// Calls `each` for every mapping of this process, with its line, until it returns false. False when the list cannot be read.
fn for_each(mut each: impl FnMut(Mapping, &[u8]) -> bool) -> bool {
    let mut take = |line: &[u8]| match parse_line(line) {
        Some(mapping) => each(mapping, line),
        None => true,
    };
    // The process's own list is empty once its first thread has ended.
    for_each_line(b"/proc/thread-self/maps\0", &mut take)
        || for_each_line(b"/proc/self/maps\0", take)
}

/// Follows the list of mappings and knows which loaded object each belongs to.
#[derive(Default)]
pub struct Walk {
    head: Option<Mapping>,
    /// The head's object has had an executable mapping: a further beginning of the same file is a second copy of it.
    has_text: bool,
}

impl Walk {
    /// Takes the next mapping; the load address of the object that it is part of.
    pub fn take(&mut self, mapping: &Mapping) -> Option<usize> {
        let same = self.head.is_some_and(|head| head.file == mapping.file);
        let begins = mapping.is_file()
            && mapping.offset == 0
            && (!same || (self.has_text && !mapping.writable));
        if begins {
            self.head = Some(*mapping);
            self.has_text = false;
        }
        let head = self.head.filter(|head| head.file == mapping.file)?;
        self.has_text |= mapping.executable;
        Some(head.start)
    }
}

/// The mapping that contains an address, and the load address of the file that it is part of.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Where the file's first byte is mapped.
    pub base: usize,
    /// The mapping that contains the address.
    pub hit: Mapping,
}

/// The loaded object that an address lies in; `None` when it is in no file mapping.
pub fn object_of(address: usize) -> Option<Object> {
    let mut walk = Walk::default();
    let mut found = None;
    for_each(|mapping, _| {
        let base = walk.take(&mapping);
        if mapping.contains(address) {
            found = base.map(|base| Object { base, hit: mapping });
            return false;
        }
        true
    });
    found
}

/// Load addresses of the objects that have text and whose path contains `name`: nothing else is to be read for its own name,
/// since the first bytes of a file that is mapped but is no program may be a SIGBUS, or a device's.
pub fn objects_named<const N: usize>(name: &[u8]) -> [Option<usize>; N] {
    let mut walk = Walk::default();
    let mut found = [None; N];
    for_each(|mapping, line| {
        let base = walk.take(&mapping);
        let named =
            mapping.executable && path_of(line).windows(name.len()).any(|part| part == name);
        if named && base.is_some() && !found.contains(&base) {
            if let Some(place) = found.iter_mut().find(|place| place.is_none()) {
                *place = base;
            }
        }
        true
    });
    found
}

/// Most mappings of one object that are remembered; glibc maps libcuda as four or five.
const OBJECT_MAPPINGS: usize = 32;

/// The readable mappings of one loaded object, as bytes that may be read.
pub struct ObjectMemory {
    ranges: [(usize, usize); OBJECT_MAPPINGS],
    used: usize,
}

impl ObjectMemory {
    /// Collects the mappings of the object whose file starts at `base`: those of the same file above it, and the anonymous
    /// ones (relocated or zeroed data) that follow them without a gap.
    pub fn of(base: usize) -> Self {
        let mut memory = ObjectMemory {
            ranges: [(0, 0); OBJECT_MAPPINGS],
            used: 0,
        };
        let mut walk = Walk::default();
        let mut end = base;
        for_each(|mapping, _| {
            let of = walk.take(&mapping);
            if mapping.start < base {
                return true;
            }
            let part = of == Some(base) || (!mapping.is_file() && mapping.start == end);
            if part {
                end = mapping.end;
                if mapping.readable {
                    memory.push(mapping);
                }
            }
            // The next object, or this file once more, ends it.
            part || of.is_none_or(|of| of == base)
        });
        memory
    }

    fn push(&mut self, mapping: Mapping) {
        if let Some(slot) = self.ranges.get_mut(self.used) {
            *slot = (mapping.start, mapping.end);
            self.used += 1;
        }
    }

    /// One range of memory, as if an object had been loaded there.
    #[cfg(any(test, fuzzing))]
    pub fn pretend(start: usize, len: usize) -> Self {
        let mut ranges = [(0, 0); OBJECT_MAPPINGS];
        ranges[0] = (start, start + len);
        ObjectMemory { ranges, used: 1 }
    }

    /// Whether a whole word at the address is the object's.
    pub fn holds_word(&self, address: usize) -> bool {
        self.spans(address) && self.spans(address.saturating_add(size_of::<usize>() - 1))
    }

    /// Whether the address lies between the object's first and last byte.
    pub fn spans(&self, address: usize) -> bool {
        let ranges = self.ranges.get(..self.used).unwrap_or_default();
        match (ranges.first(), ranges.last()) {
            (Some(first), Some(last)) => first.0 <= address && address < last.1,
            _ => false,
        }
    }
}

impl crate::elf::Memory for ObjectMemory {
    fn read(&self, address: usize, out: &mut [u8]) -> bool {
        let Some(end) = address.checked_add(out.len()) else {
            return false;
        };
        let ranges = self.ranges.get(..self.used).unwrap_or_default();
        if !ranges
            .iter()
            .any(|&(from, to)| from <= address && end <= to)
        {
            return false;
        }
        // SAFETY: the range lay in one readable mapping of a loaded program a moment ago: of the caller of the function that
        // runs now, of this library, or of a libcuda whose restore thread this is. None of these can be unloaded meanwhile.
        unsafe {
            core::ptr::copy_nonoverlapping(address as *const u8, out.as_mut_ptr(), out.len())
        };
        true
    }
}

/// Whether each address lies in a mapping that may be written.
pub fn writable<const N: usize>(addresses: &[usize; N]) -> [bool; N] {
    let mut found = [false; N];
    for_each(|mapping, _| {
        for (slot, &address) in found.iter_mut().zip(addresses) {
            *slot |= mapping.writable && mapping.contains(address);
        }
        true
    });
    found
}

/// Whether the range is one readable and writable mapping: of no file, or, with `hugetlb`, of the kernel's own.
pub fn is_whole(start: usize, len: usize, hugetlb: bool) -> bool {
    let mut whole = false;
    for_each(|mapping, _| {
        if mapping.contains(start) {
            whole = mapping.end - start >= len
                && (mapping.readable && mapping.writable)
                && mapping.is_file() == hugetlb;
        }
        mapping.end <= start
    });
    whole
}

/// Whether all of a range is mapped, and shared: a device's memory, or a file's.
pub fn is_shared(start: usize, len: usize) -> bool {
    let (mut at, end) = (start, start.saturating_add(len));
    for_each(|mapping, _| {
        if mapping.contains(at) && mapping.shared {
            at = mapping.end;
        }
        mapping.end <= at && at < end
    });
    at >= end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_of_the_kernel_is_understood() {
        let line = b"7f2e58e9b000-7f2e58ebd000 r-xp 00001000 fe:00 12345                      /usr/lib/lib with space.so";
        let mapping = parse_line(line).unwrap();
        assert_eq!(mapping.start, 0x7f2e58e9b000);
        assert_eq!(mapping.end, 0x7f2e58ebd000);
        assert!(mapping.readable && !mapping.writable && mapping.executable && !mapping.shared);
        assert_eq!(
            (mapping.offset, mapping.file),
            (0x1000, (0xfe << 32, 12345))
        );
        assert!(!parse_line(b"7fff0-7fff1 rw-p 0 00:00 0").unwrap().is_file());
    }

    #[test]
    fn own_text_is_found_with_its_load_address() {
        let address = own_text_is_found_with_its_load_address as fn() as usize;
        let object = object_of(address).unwrap();
        assert!(object.hit.executable && object.base <= object.hit.start);
        // SAFETY: the first mapped bytes of this very program.
        let magic = unsafe { core::slice::from_raw_parts(object.base as *const u8, 4) };
        assert_eq!(magic, b"\x7fELF");
        assert!(object_of(1).is_none());
        assert_eq!(
            writable(&[address, &raw const object as usize]),
            [false, true]
        );
        let memory = ObjectMemory::of(object.base);
        assert!(memory.spans(address) && !memory.spans(object.base - 1));
        assert!(crate::elf::Memory::read(&memory, object.base, &mut [0; 64]));
        assert!(!crate::elf::Memory::read(
            &memory,
            &raw const object as usize,
            &mut [0; 8]
        ));
    }

    #[test]
    fn a_range_is_shared_when_every_page_of_it_is() {
        let page = crate::sys::page_size();
        let map = |at: usize, pages: usize, flags: i32| {
            let flags = flags | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping anywhere, or over a page of it.
            unsafe { crate::sys::mmap(at, pages * page, 3, flags, -1, 0) }.unwrap()
        };
        let start = map(0, 4, libc::MAP_SHARED);
        assert!(is_shared(start, 4 * page) && is_shared(start + page + 5, 7));
        // In two mappings.
        map(start + page, 1, libc::MAP_SHARED | libc::MAP_FIXED);
        assert!(is_shared(start, 4 * page));
        map(start + 2 * page, 1, libc::MAP_PRIVATE | libc::MAP_FIXED);
        assert!(is_shared(start, 2 * page) && is_shared(start + 3 * page, page));
        assert!(!is_shared(start, 2 * page + 1) && !is_shared(start + 2 * page, page));
        // SAFETY: nothing uses it any more.
        unsafe { crate::sys::munmap(start + page, page) }.unwrap();
        assert!(is_shared(start, page) && !is_shared(start, page + 1));
        // SAFETY: the same.
        unsafe { crate::sys::munmap(start, 4 * page) }.unwrap();
        assert!(!is_shared(start, 1));
    }

    #[test]
    fn objects_are_found_by_a_part_of_their_path() {
        let libc = object_of(libc::getpid as *const () as usize).unwrap();
        let found: [Option<usize>; 2] = objects_named(b"libc.so.6");
        assert_eq!(found, [Some(libc.base), None]);
        assert_eq!(objects_named::<1>(b"libcuda.so"), [None]);
    }

    #[test]
    fn a_second_copy_of_a_file_is_an_object_of_its_own() {
        let mapping = |start: usize, perms: &str, offset: u64, inode: u64| Mapping {
            start,
            end: start + 0x1000,
            readable: true,
            writable: perms.contains('w'),
            executable: perms.contains('x'),
            shared: false,
            offset,
            file: (1, inode),
        };
        let mut walk = Walk::default();
        let list = [
            (mapping(0x1000, "r", 0, 7), Some(0x1000)),
            (mapping(0x2000, "rx", 0x1000, 7), Some(0x1000)),
            (mapping(0x3000, "rw", 0, 7), Some(0x1000)),
            (mapping(0x4000, "rw", 0, 0), None),
            (mapping(0x5000, "r", 0, 7), Some(0x5000)),
            (mapping(0x6000, "rx", 0x1000, 7), Some(0x5000)),
            (mapping(0x7000, "rx", 0x1000, 8), None),
        ];
        for (mapping, expected) in list {
            assert_eq!(walk.take(&mapping), expected, "{mapping:?}");
        }
    }

    #[test]
    fn a_path_is_what_follows_the_inode() {
        assert_eq!(
            path_of(b"1-2 r--p 0 fe:00 12    /usr/lib/with space.so"),
            b"/usr/lib/with space.so"
        );
        assert_eq!(path_of(b"1-2 rw-p 0 00:00 0"), b"");
        assert_eq!(path_of(b""), b"");
    }

    proptest! {
        #[test]
        fn no_line_makes_it_fall_over(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_line(&line);
        }

        #[test]
        fn what_is_printed_is_read_back(start in any::<u32>(), len in 1u32.., offset in any::<u32>(), inode in any::<u32>()) {
            let (start, end) = (start as usize, start as usize + len as usize);
            let line = format!("{start:08x}-{end:08x} rw-p {offset:08x} 00:00 {inode} ");
            let expected = Mapping {
                start, end, readable: true, writable: true, executable: false, shared: false,
                offset: offset.into(), file: (0, inode.into()),
            };
            prop_assert_eq!(parse_line(line.as_bytes()), Some(expected));
        }
    }
}
