//! Reads `/proc/self/maps` with raw calls, line by line, in a buffer on the stack. `line` parses one, `object` tells which loaded object a
//! mapping belongs to, `object_memory` is what may be read of one.

pub mod line;
pub mod object;
mod object_memory;

use crate::lines::for_each_line;

pub use line::{parse_line, Mapping};
pub use object::{object_of, objects_named, Object};
pub use object_memory::ObjectMemory;

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

/// Whether the range is one readable and writable mapping: of no file, or, with `hugetlb`, of the kernel's own. `None` when the list cannot
/// be read, for lack of a descriptor say.
pub fn is_whole(start: usize, len: usize, hugetlb: bool) -> Option<bool> {
    let mut whole = false;
    let complete = for_each(|mapping, _| {
        if mapping.contains(start) {
            whole = mapping.end - start >= len
                && (mapping.readable && mapping.writable)
                && mapping.is_file() == hugetlb;
        }
        mapping.end <= start
    });
    complete.then_some(whole)
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
}
