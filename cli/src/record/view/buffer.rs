//! The buffer of the record as plain values.

use std::sync::atomic::Ordering::Relaxed;

use cudasnap_wire as wire;
use serde::Serialize;

use super::Word;

/// The buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BufferView {
    /// `none`, `live`, `kept`, `observed` or `reserved`.
    pub state: Word,
    /// Address of the first byte.
    pub address: u64,
    /// Bytes that the driver asked for.
    pub length: u64,
    /// Bytes mapped.
    pub mapped: u64,
}

impl BufferView {
    pub(super) fn new(buffer: &wire::Buffer) -> Self {
        const STATES: [&str; 5] = ["none", "live", "kept", "observed", "reserved"];
        BufferView {
            state: Word::new(&buffer.state, |number| STATES.get(number as usize).copied()),
            address: buffer.address.load(Relaxed),
            length: buffer.length.load(Relaxed),
            mapped: buffer.mapped.load(Relaxed),
        }
    }

    /// Whether it waits for the next checkpoint, and can be dropped.
    pub fn is_waiting(&self) -> bool {
        self.state.is("kept") || self.state.is("reserved")
    }

    /// Whether the driver has no buffer that the library knows of.
    pub fn is_idle(&self) -> bool {
        self.state.is("none") || self.is_waiting()
    }

    /// First address, and first address after it; `None` when no buffer can lie there: it begins and ends at a page, and is at
    /// least as long as what the driver asked for.
    pub fn range(&self) -> Option<(u64, u64)> {
        const PAGE: u64 = 4096;
        let end = self.address.checked_add(self.mapped)?;
        let sound = self.mapped > 0
            && self.mapped >= self.length
            && self.address.is_multiple_of(PAGE)
            && end.is_multiple_of(PAGE);
        sound.then_some((self.address, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::view::RecordView;

    #[test]
    fn a_buffer_that_cannot_be_has_no_range() {
        let range = |address, length, mapped| {
            let record = wire::Record::new(0);
            record.buffer.address.store(address, Relaxed);
            record.buffer.length.store(length, Relaxed);
            record.buffer.mapped.store(mapped, Relaxed);
            RecordView::new(&record).buffer.range()
        };
        assert_eq!(range(0x20_0000, 100, 0x2000), Some((0x20_0000, 0x20_2000)));
        for (address, length, mapped) in [
            (0x20_0000, 0, 0),
            (0x20_0000, 0x3000, 0x2000),
            (0x20_0001, 100, 0x2000),
            (0x20_0000, 100, 0x2001),
            (0x7f00_0000_0000, 100, 0u64.wrapping_sub(0x1000)),
            (u64::MAX - 0xfff, 100, 0x1000),
            (u64::MAX - 0xfff, 100, 0x2000),
        ] {
            assert_eq!(
                range(address, length, mapped),
                None,
                "{address:#x} {mapped:#x}"
            );
        }
    }
}
