//! Looks for the record in the images that a process has mapped.

use std::cell::Cell;
use std::collections::HashSet;

use cudasnap_wire::SYMBOL;

use super::check::check;
use super::elf::find_symbol;
use super::{Located, RecordError};
use crate::process::target::{Mapping, Memory, MemoryError, Target};

/// Readings of a process's memory in the search for a record; an image needs one, a library some ten.
const READINGS: u32 = 1 << 20;
/// The images of programs and libraries: files of which a part may be executed. Data that is mapped, such as the weights of a model,
/// is not looked into.
pub fn images(mappings: &[Mapping]) -> Vec<&Mapping> {
    let executed = mappings.iter().filter(|mapping| mapping.executable);
    let executed: HashSet<(u64, &str)> = executed
        .map(|mapping| (mapping.inode, mapping.path.as_str()))
        .collect();
    let images = mappings.iter().filter(|mapping| mapping.is_image());
    images
        .filter(|mapping| executed.contains(&(mapping.inode, mapping.path.as_str())))
        .collect()
}

/// Memory of which only so much is read: a process could have tens of thousands of images, each made to take long.
struct Metered {
    target: Target,
    left: Cell<u32>,
}

impl Metered {
    fn new(target: Target) -> Self {
        Metered {
            target,
            left: Cell::new(READINGS),
        }
    }
}

impl Memory for Metered {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let Some(left) = self.left.get().checked_sub(1) else {
            return Err(MemoryError::Unmapped(address));
        };
        self.left.set(left);
        self.target.read(address, into)
    }
}

/// Looks through images (address and path), in this order.
pub fn search(target: Target, images: Vec<(u64, String)>) -> Result<Located, RecordError> {
    let mut unsound = None;
    let memory = Metered::new(target);
    for (start, path) in images {
        let Some(symbol) = find_symbol(&memory, start, SYMBOL)? else {
            continue;
        };
        match check(&target, symbol.address, symbol.size) {
            Ok(()) => {
                return Ok(Located {
                    target,
                    address: symbol.address,
                    library: path,
                })
            }
            Err(RecordError::Memory(MemoryError::Gone)) => return Err(MemoryError::Gone.into()),
            Err(error) => unsound = unsound.or(Some(error)),
        }
    }
    Err(unsound.unwrap_or(RecordError::NotLoaded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_are_executed_are_images() {
        let lines = [
            "1000-2000 r--p 00000000 fe:00 42 /x/lib.so",
            "2000-3000 r-xp 00001000 fe:00 42 /x/lib.so",
            "4000-5000 r--p 00000000 fe:00 43 /x/model.safetensors",
            "6000-7000 r-xp 00000000 fe:00 44 /x/old.so (deleted)",
            "8000-9000 r-xp 00000000 00:00 0 [vdso]",
        ];
        let mappings = lines.map(|line| Mapping::parse(line).unwrap());
        let starts: Vec<u64> = images(&mappings).iter().map(|image| image.start).collect();
        assert_eq!(starts, [0x1000, 0x6000]);
    }

    #[test]
    fn the_search_ends_after_so_many_readings() {
        let word = 7u64;
        let memory = Metered::new(Target::new(std::process::id() as i32));
        memory.left.set(1);
        let mut bytes = [0; 8];
        let address = &raw const word as u64;
        memory.read(address, &mut bytes).unwrap();
        assert_eq!(
            memory.read(address, &mut bytes),
            Err(MemoryError::Unmapped(address))
        );
    }
}
