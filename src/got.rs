//! libcuda's slots: finds them in its memory, swaps them, puts them back. One 8-byte compare-exchange each, only over the
//! value that was read; a slot whose page may not be written, or that lies in RELRO, stays as it is.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use cudasnap_wire::{Slot, SlotState};

use crate::elf::{Image, SlotPlace};
use crate::maps::{self, ObjectMemory};
use crate::{startup, sys};

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
    /// Somebody else wrote over ours, and may go on to ours: taking the slot again would send calls round in a circle.
    given_up: AtomicBool,
}

static HOLDINGS: [Holding; SLOTS] = [const {
    Holding {
        address: AtomicUsize::new(0),
        before: AtomicUsize::new(0),
        next: AtomicUsize::new(0),
        ours: AtomicUsize::new(0),
        given_up: AtomicBool::new(false),
    }
}; SLOTS];

/// What lies at a slot's address now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    /// Ours.
    Ours,
    /// Something else.
    Other,
    /// Nothing: libcuda was unloaded with its buffer.
    Gone,
    /// The slot is not held, or the kernel forbids the question.
    Unknown,
}

impl Holding {
    fn ours(&self) -> usize {
        self.ours.load(Ordering::Relaxed)
    }

    /// Asked of the kernel: the slot may be gone.
    fn word_now(&self) -> Word {
        let address = self.address.load(Ordering::Acquire);
        let mut word = [0u8; 8];
        if address == 0 {
            return Word::Unknown;
        }
        match sys::read_own(address, &mut word) {
            Ok(()) if usize::from_ne_bytes(word) == self.ours() => Word::Ours,
            Ok(()) => Word::Other,
            Err(libc::EFAULT) => Word::Gone,
            Err(_) => Word::Unknown,
        }
    }

    /// Whether a held slot is still there and ours.
    fn is_alive(&self, address: usize) -> bool {
        match self.word_now() {
            Word::Ours => true,
            Word::Other | Word::Gone => false,
            Word::Unknown => maps::writable(&[address]) == [true],
        }
    }
}

/// Whether this word is held as some slot already.
fn is_held(address: usize) -> bool {
    let held = |holding: &Holding| holding.address.load(Ordering::Relaxed) == address;
    HOLDINGS.iter().any(held)
}

/// Forgets what slots held, and that they were given up: the next image is another one.
#[cfg(any(test, fuzzing))]
pub fn forget() {
    for holding in &HOLDINGS {
        holding.given_up.store(false, Ordering::Relaxed);
        holding.next.store(0, Ordering::Relaxed);
    }
}

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
        Self::of(memory, base)
    }

    fn of(memory: ObjectMemory, base: usize) -> Option<Self> {
        let named = Image::parse(&memory, base)?.is_named(LIBCUDA);
        named.then_some(Libcuda { memory, base })
    }

    /// An image that lies in memory without having been loaded.
    #[cfg(any(test, fuzzing))]
    pub fn pretend(start: usize, len: usize) -> Option<Self> {
        Self::of(ObjectMemory::pretend(start, len), start)
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
        if holding.given_up.load(Ordering::Relaxed) {
            return SlotState::Changed;
        }
        let held = holding.address.load(Ordering::Acquire);
        if held != 0 && (self.memory.spans(held) || holding.is_alive(held)) {
            return recheck_one(slot, holding, self);
        }
        // Not held, or in a libcuda that was unloaded with its buffer: what lies there now is somebody else's.
        holding.address.store(0, Ordering::Release);
        let Some(place) = self.place(slot) else {
            return SlotState::Missing;
        };
        if place.relro {
            return SlotState::Relro;
        }
        if is_held(place.address) {
            // Two symbols with one slot: put back one after the other, ours would stay in it.
            return SlotState::Changed;
        }
        if maps::writable(&[place.address]) != [true] {
            return SlotState::ReadOnly;
        }
        self.swap_in(holding, place.address, ours)
    }

    /// Whether calls through a slot that stays libcuda's own come into the object `ours`: it points there, or will when it is
    /// resolved, since a search finds `first`; or libcuda does not import the name.
    pub fn leads_to(&self, slot: Slot, ours: &ObjectMemory, first: usize) -> bool {
        let Some(place) = self.place(slot) else {
            return true;
        };
        let value = slot_word(place.address).load(Ordering::Acquire) as usize;
        ours.spans(value) || (self.memory.spans(value) && ours.spans(first))
    }

    fn place(&self, slot: Slot) -> Option<SlotPlace> {
        let place = Image::parse(&self.memory, self.base)?.slot(slot.word())?;
        // A damaged table may point anywhere: no word of anybody else is ever written.
        self.memory.holds_word(place.address).then_some(place)
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
        for (holding, &slot) in HOLDINGS.iter().zip(Slot::ALL) {
            let address = holding.address.load(Ordering::Acquire);
            if address == 0 || !self.memory.spans(address) {
                continue;
            }
            let current = slot_word(address).load(Ordering::Acquire);
            if current as usize == holding.ours() {
                continue;
            }
            if !self.is_loaders(slot, holding, current as usize) {
                holding.given_up.store(true, Ordering::Relaxed);
                continue;
            }
            let ours = holding.ours();
            holding.address.store(0, Ordering::Release);
            if self.swap_in(holding, address, ours) == SlotState::Held {
                retaken += 1;
            }
        }
        retaken
    }

    /// Whether all held slots are this libcuda's, and hold ours.
    pub fn holds_all(&self) -> bool {
        HOLDINGS.iter().all(|holding| {
            let address = holding.address.load(Ordering::Acquire);
            let is_ours = || {
                let word = slot_word(address).load(Ordering::Acquire);
                word as usize == holding.ours()
            };
            address == 0 || (self.memory.spans(address) && is_ours())
        })
    }

    /// Whether the loader wrote this value: the stub of a libcuda that was loaded anew where the old one was, or a
    /// resolution. It resolves a slot once, only one that held a stub, and to what our own import of the symbol was resolved
    /// to, or to the old `memcpy`.
    fn is_loaders(&self, slot: Slot, holding: &Holding, value: usize) -> bool {
        if self.memory.spans(value) {
            let address = holding.address.load(Ordering::Relaxed);
            let place = self.place(slot);
            return place.is_some_and(|place| place.address == address && !place.relro);
        }
        let imports: [usize; 3] = match slot {
            Slot::Memcpy | Slot::Memmove => [
                libc::memcpy as *const () as usize,
                libc::memmove as *const () as usize,
                startup::get().map_or(0, |started| started.old_memcpy),
            ],
            Slot::Munmap => [libc::munmap as *const () as usize; 3],
            Slot::Mremap => [libc::mremap as *const () as usize; 3],
            Slot::Mprotect => [libc::mprotect as *const () as usize; 3],
            Slot::Madvise => [libc::madvise as *const () as usize; 3],
            Slot::Mmap | Slot::Mmap64 => return false,
        };
        holding.next.load(Ordering::Relaxed) == 0 && imports.contains(&value)
    }
}

fn recheck_one(slot: Slot, holding: &Holding, libcuda: &Libcuda) -> SlotState {
    let address = holding.address.load(Ordering::Acquire);
    let ours = holding.ours();
    if !libcuda.memory.spans(address) {
        // Another libcuda than the one whose slot is held: calls of this one do not come here.
        return SlotState::Changed;
    }
    let current = slot_word(address).load(Ordering::Acquire) as usize;
    if current == ours {
        return SlotState::Held;
    }
    if !libcuda.is_loaders(slot, holding, current) {
        return SlotState::Changed;
    }
    holding.address.store(0, Ordering::Release);
    libcuda.swap_in(holding, address, ours)
}

/// Whether the held slots still hold ours, or are there no longer. No where the kernel forbids the question: [`Libcuda::retake`] and
/// [`Libcuda::holds_all`] look themselves.
pub fn intact() -> bool {
    HOLDINGS
        .iter()
        .filter(|holding| holding.address.load(Ordering::Acquire) != 0)
        .all(|holding| matches!(holding.word_now(), Word::Ours | Word::Gone))
}

/// Puts every held slot back, but those that `stays` names. A slot that holds something else by now is left alone; one that is mapped no longer was
/// unloaded with its libcuda, and does not count as somebody else's.
pub fn release_all(stays: impl Fn(Slot) -> bool, mut each: impl FnMut(Slot, SlotState)) {
    for (holding, &slot) in HOLDINGS.iter().zip(Slot::ALL) {
        if stays(slot) {
            continue;
        }
        let now = holding.word_now();
        let address = holding.address.swap(0, Ordering::AcqRel);
        if address == 0 {
            continue;
        }
        let before = holding.before.load(Ordering::Relaxed) as u64;
        let ours = holding.ours();
        // Where the kernel forbids to read, its list of mappings says whether there is anything.
        let is_there = now != Word::Unknown || maps::writable(&[address]) == [true];
        let is_free = matches!(now, Word::Ours | Word::Unknown)
            && is_there
            && slot_word(address)
                .compare_exchange(ours as u64, before, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        let given_up = now != Word::Gone && is_there && !is_free;
        holding.given_up.fetch_or(given_up, Ordering::Relaxed);
        each(
            slot,
            if is_free {
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
        let _turn = crate::fuzz::take_turn();
        forget();
        let here = this_program_is_no_libcuda_and_has_no_slot as fn() as usize;
        assert!(Libcuda::at(maps::object_of(here).unwrap().base).is_none());
        assert!(Libcuda::search().is_none());
        assert!(intact());
        assert_eq!(next(Slot::Memcpy), None);
    }
}
