//! This library as it is mapped: its text says of which build it is.

use crate::elf;
use crate::maps::ObjectMemory;

extern "C" {
    /// First byte of this library; the linker defines it.
    static __ehdr_start: u8;
}

/// Load address of this library.
pub fn base() -> usize {
    &raw const __ehdr_start as usize
}

/// The mappings of this library.
pub fn memory() -> ObjectMemory {
    ObjectMemory::of(base())
}

/// Build id of the text that runs now; zeros where the linker wrote none.
pub fn build_id() -> [u8; cudasnap_wire::BUILD_ID_BYTES] {
    let mut id = [0; cudasnap_wire::BUILD_ID_BYTES];
    let _ = elf::build_id(&memory(), base(), &mut id);
    id
}
