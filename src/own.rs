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

/// What the library's own headers point to: read where it lies, without asking the kernel what is mapped.
struct Headers;

/// Own headers and notes lie within this many bytes of the load address: before all text.
const REACH: usize = 1 << 20;

impl elf::Memory for Headers {
    fn read(&self, address: usize, out: &mut [u8]) -> bool {
        let from = address.wrapping_sub(base());
        if from >= REACH || out.len() > REACH - from {
            return false;
        }
        // SAFETY: this library's own program headers and note, to which its ELF header leads.
        unsafe {
            core::ptr::copy_nonoverlapping(address as *const u8, out.as_mut_ptr(), out.len())
        };
        true
    }
}

/// Build id of the text that runs now; zeros where the linker wrote none.
pub fn build_id() -> [u8; cudasnap_wire::BUILD_ID_BYTES] {
    let mut id = [0; cudasnap_wire::BUILD_ID_BYTES];
    let _ = elf::build_id(&Headers, base(), &mut id);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_say_what_the_kernel_lists() {
        let mut listed = [0; cudasnap_wire::BUILD_ID_BYTES];
        let _ = elf::build_id(&memory(), base(), &mut listed);
        assert_eq!(build_id(), listed);
        assert!(memory().spans(base()));
    }
}
