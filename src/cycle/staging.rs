//! Which sources of a checkpoint's copies are the driver's staging buffers: those that come round, in memory that the device shares.
//! Host memory is copied once, and whoever owns it may take it away as soon as that copy has returned; a staging buffer only the
//! driver takes away, through its slots. Memory of an allocator comes round too, when it is freed and given out again, and its
//! `free` is no call of libcuda's: but it is never a shared mapping.

use core::sync::atomic::{AtomicU32, Ordering};

/// Counts the calls after which other memory may lie where a staging buffer was.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Something is about to lie elsewhere, or nowhere.
pub(super) fn changes() {
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

/// Buffers that are remembered; a device has two.
const PLACES: usize = 32;

/// Sources of one phase.
pub(super) struct Staging {
    places: [Place; PLACES],
    next: usize,
    /// Changes when the places were last asked about.
    seen: u32,
}

#[derive(Clone, Copy)]
struct Place {
    range: (usize, usize),
    /// Whether it is shared; asked when it comes round, and again after changes.
    shared: Option<bool>,
}

impl Staging {
    /// No source yet.
    pub const fn new() -> Self {
        let nowhere = Place {
            range: (0, 0),
            shared: None,
        };
        Staging {
            places: [nowhere; PLACES],
            next: 0,
            seen: 0,
        }
    }

    /// Notes a source; whether it was one before in this phase, and `is_shared`.
    pub fn comes_round(&mut self, start: usize, len: usize, is_shared: impl Fn() -> bool) -> bool {
        let now = CHANGES.load(Ordering::Relaxed);
        if now != self.seen {
            self.seen = now;
            self.places.iter_mut().for_each(|place| place.shared = None);
        }
        let range = (start, len);
        let known = self.places.iter_mut().find(|place| place.range == range);
        if let Some(place) = known {
            return *place.shared.get_or_insert_with(is_shared);
        }
        if let Some(place) = self.places.get_mut(self.next % PLACES) {
            *place = Place {
                range,
                shared: None,
            };
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
        let mut round = |start, len| staging.comes_round(start, len, || true);
        assert!(!round(0x60_0000, 2 << 20) && !round(0x80_0000, 2 << 20));
        assert!(round(0x60_0000, 2 << 20) && round(0x80_0000, 2 << 20));
        assert!(!round(0x60_0000, 1 << 20) && !round(0x60_1000, 4096));
        for place in 1..PLACES + 8 {
            assert!(!round(place << 32, 4096));
        }
        assert!(!round(0x60_0000, 2 << 20));
    }

    #[test]
    fn only_what_is_shared_is_staging_and_that_is_asked_once() {
        let mut staging = Staging::new();
        let asked = std::cell::Cell::new(0);
        for round in 0..5 {
            for (start, shared) in [(1 << 20, true), (3 << 20, false)] {
                let ask = || {
                    asked.set(asked.get() + 1);
                    shared
                };
                assert_eq!(staging.comes_round(start, 4096, ask), shared && round > 0);
            }
        }
        assert_eq!(asked.get(), 2);
    }
}
