//! libcuda's slots: finds them in its memory, swaps them, puts them back. One 8-byte compare-exchange each, only over the
//! value that was read; a slot whose page may not be written, or that lies in RELRO, stays as it is.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cudasnap_wire::{Slot, SlotState};

use crate::elf::Image;
use crate::maps::{self, ObjectMemory};

const SLOTS: usize = Slot::ALL.len();

/// The library whose slots are held, by its own name.
pub const LIBCUDA: &str = "libcuda.so.1";

struct Holding {
    /// Address of the slot; 0 = not held.
    address: AtomicUsize,
    /// What the slot held before.
    before: AtomicUsize,
    /// Where calls that are not ours go on to; 0 = to libc, since the slot was not resolved yet.
    next: AtomicUsize,
    /// What we wrote.
    ours: AtomicUsize,
}

static HOLDINGS: [Holding; SLOTS] = [const {
    Holding {
        address: AtomicUsize::new(0),
        before: AtomicUsize::new(0),
        next: AtomicUsize::new(0),
        ours: AtomicUsize::new(0),
    }
}; SLOTS];

/// The function that a slot's calls go on to; `None` when the slot had not been resolved, or is not held.
pub fn next(slot: Slot) -> Option<usize> {
    let next = HOLDINGS.get(slot as usize)?.next.load(Ordering::Acquire);
    (next != 0).then_some(next)
}

/// The libcuda at a load address.
pub struct Libcuda {
    memory: ObjectMemory,
    base: usize,
}

impl Libcuda {
    /// The object at `base`, if it is a libcuda.
    pub fn at(base: usize) -> Option<Self> {
        let memory = ObjectMemory::of(base);
        let named = Image::parse(&memory, base)?.is_named(LIBCUDA);
        named.then_some(Libcuda { memory, base })
    }

    /// Searches the loaded objects; for callers whose stack says nothing.
    pub fn search() -> Option<Self> {
        let candidates: [Option<usize>; 4] = maps::objects_named(b"libcuda.so");
        candidates.into_iter().flatten().find_map(Self::at)
    }

    /// Load address.
    pub const fn base(&self) -> usize {
        self.base
    }

    /// Puts `ours` into the slot of `slot`. Slots that are held already stay held.
    pub fn hold(&self, slot: Slot, ours: usize) -> SlotState {
        let Some(holding) = HOLDINGS.get(slot as usize) else {
            return SlotState::Unknown;
        };
        let held = holding.address.load(Ordering::Acquire);
        if held != 0 && (self.memory.spans(held) || maps::writable(&[held]) == [true]) {
            return recheck_one(holding, self);
        }
        // Not held, or in a libcuda that was unloaded with its buffer.
        holding.address.store(0, Ordering::Release);
        let Some(image) = Image::parse(&self.memory, self.base) else {
            return SlotState::Missing;
        };
        let Some(place) = image.slot(slot.word()) else {
            return SlotState::Missing;
        };
        if place.relro {
            return SlotState::Relro;
        }
        if maps::writable(&[place.address]) != [true] {
            return SlotState::ReadOnly;
        }
        self.swap_in(holding, place.address, ours)
    }

    fn swap_in(&self, holding: &Holding, address: usize, ours: usize) -> SlotState {
        let word = slot_word(address);
        let before = word.load(Ordering::Acquire);
        holding.before.store(before as usize, Ordering::Relaxed);
        holding
            .next
            .store(self.resolved(before as usize, ours), Ordering::Relaxed);
        holding.ours.store(ours, Ordering::Relaxed);
        // Published before the swap: from the swap on, another thread may call ours.
        holding.address.store(address, Ordering::Release);
        if word
            .compare_exchange(before, ours as u64, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            return SlotState::Held;
        }
        holding.address.store(0, Ordering::Release);
        SlotState::Changed
    }

    /// 0 for a value inside libcuda itself: a lazy-binding stub, which must never be called by anyone else. The same for our
    /// own function, which a slot that was given up may still hold.
    fn resolved(&self, value: usize, ours: usize) -> usize {
        if self.memory.spans(value) || value == ours {
            0
        } else {
            value
        }
    }

    /// Takes slots again that a lazy resolution in another thread overwrote; returns how many.
    pub fn retake(&self) -> u32 {
        let mut retaken = 0;
        for holding in &HOLDINGS {
            let address = holding.address.load(Ordering::Acquire);
            if address == 0 || !self.memory.spans(address) {
                continue;
            }
            let current = slot_word(address).load(Ordering::Acquire);
            if current as usize == holding.ours.load(Ordering::Relaxed) {
                continue;
            }
            // The loader resolves a slot once, and only one that held a stub. Whatever else wrote there hooks it too, and may
            // go on to us: taking the slot again would send calls round in a circle.
            let was_stub = holding.next.load(Ordering::Relaxed) == 0;
            if !was_stub {
                continue;
            }
            let ours = holding.ours.load(Ordering::Relaxed);
            holding.address.store(0, Ordering::Release);
            if self.swap_in(holding, address, ours) == SlotState::Held {
                retaken += 1;
            }
        }
        retaken
    }
}

fn recheck_one(holding: &Holding, libcuda: &Libcuda) -> SlotState {
    let address = holding.address.load(Ordering::Acquire);
    let ours = holding.ours.load(Ordering::Relaxed);
    if !libcuda.memory.spans(address) {
        // Another libcuda than the one whose slot is held: calls of this one do not come here.
        return SlotState::Changed;
    }
    if slot_word(address).load(Ordering::Acquire) == ours as u64 {
        return SlotState::Held;
    }
    if holding.next.load(Ordering::Relaxed) != 0 {
        return SlotState::Changed;
    }
    holding.address.store(0, Ordering::Release);
    libcuda.swap_in(holding, address, ours)
}

/// Whether the held slots still hold ours.
pub fn intact() -> bool {
    HOLDINGS.iter().all(|holding| {
        let address = holding.address.load(Ordering::Acquire);
        address == 0
            || slot_word(address).load(Ordering::Acquire) as usize
                == holding.ours.load(Ordering::Relaxed)
    })
}

/// Puts every held slot back. A slot that holds something else by now is left alone. Must run while libcuda is loaded:
/// from a call that came from it.
pub fn release_all(mut each: impl FnMut(Slot, SlotState)) {
    for (holding, &slot) in HOLDINGS.iter().zip(Slot::ALL) {
        let address = holding.address.swap(0, Ordering::AcqRel);
        if address == 0 {
            continue;
        }
        let before = holding.before.load(Ordering::Relaxed) as u64;
        let ours = holding.ours.load(Ordering::Relaxed) as u64;
        let freed =
            slot_word(address).compare_exchange(ours, before, Ordering::AcqRel, Ordering::Relaxed);
        each(
            slot,
            if freed.is_ok() {
                SlotState::Free
            } else {
                SlotState::Changed
            },
        );
    }
}

fn slot_word(address: usize) -> &'static AtomicU64 {
    // SAFETY: an aligned word (the image walk refuses others) in a writable page of libcuda, which is loaded: its call is
    // on this thread's stack, or it still holds a live buffer. The loader writes the same word with plain aligned stores.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_no_libcuda_and_has_no_slot() {
        let here = this_program_is_no_libcuda_and_has_no_slot as fn() as usize;
        assert!(Libcuda::at(maps::object_of(here).unwrap().base).is_none());
        assert!(Libcuda::search().is_none());
        assert!(intact());
        assert_eq!(next(Slot::Memcpy), None);
    }
}
