//! Which loaded object a mapping belongs to.

use super::for_each;
use super::line::{path_of, Mapping};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
