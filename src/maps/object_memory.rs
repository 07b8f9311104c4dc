//! The memory of one loaded object: what of it may be read.

use super::for_each;
use super::line::Mapping;
use super::object::Walk;

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
