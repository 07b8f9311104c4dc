//! Which sources of a checkpoint's copies are the driver's staging buffers: those that come round. Host memory is copied once, and
//! whoever owns it may take it away as soon as that copy has returned; a staging buffer only the driver takes away, through its
//! slots.

/// Buffers that are remembered; a device has two.
const PLACES: usize = 32;

/// Sources of one phase.
pub(super) struct Staging {
    places: [(usize, usize); PLACES],
    next: usize,
}

impl Staging {
    /// No source yet.
    pub const fn new() -> Self {
        Staging {
            places: [(0, 0); PLACES],
            next: 0,
        }
    }

    /// Notes a source; whether it was one before in this phase.
    pub fn comes_round(&mut self, start: usize, len: usize) -> bool {
        if self.places.contains(&(start, len)) {
            return true;
        }
        if let Some(place) = self.places.get_mut(self.next % PLACES) {
            *place = (start, len);
        }
        self.next = self.next.wrapping_add(1);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_round_whole_is_staging() {
        let mut staging = Staging::new();
        assert!(!staging.comes_round(0x60_0000, 2 << 20));
        assert!(!staging.comes_round(0x80_0000, 2 << 20));
        assert!(staging.comes_round(0x60_0000, 2 << 20) && staging.comes_round(0x80_0000, 2 << 20));
        assert!(!staging.comes_round(0x60_0000, 1 << 20) && !staging.comes_round(0x60_1000, 4096));
        for place in 1..PLACES + 8 {
            assert!(!staging.comes_round(place << 32, 4096));
        }
        assert!(!staging.comes_round(0x60_0000, 2 << 20));
    }
}
