//! The buffers that the driver holds: a small table that is looked up by address without a lock, from any thread.

use crate::sync::{constructor, fence, shared, words, AtomicU32, AtomicUsize, Ordering};
use crate::sys;

/// Most buffers that are remembered at once. The driver asks for one per process; more appear only when it forgets one.
const REGIONS: usize = 4;

/// Where a buffer's memory came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Origin {
    /// The shim's mapping, with a tail behind what the driver asked for.
    WithTail = 0,
    /// The driver's own mapping, which is only watched.
    Driver = 1,
}

/// One buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: usize,
    /// Bytes that the driver asked for.
    pub len: usize,
    /// Bytes that are mapped, the tail included.
    pub mapped: usize,
    /// Where the memory came from.
    pub origin: Origin,
    /// Process that asked.
    pub pid: u32,
}

impl Region {
    /// The length as the kernel maps and unmaps it.
    pub fn page_len(&self) -> usize {
        self.len.next_multiple_of(sys::page_size())
    }

    /// Whether an munmap of this range takes away everything the driver asked for.
    pub fn is_whole(&self, addr: usize, len: usize) -> bool {
        let pages = len.checked_next_multiple_of(sys::page_size());
        addr == self.start && pages.unwrap_or(usize::MAX) >= self.page_len()
    }
}

struct Cell {
    /// Odd while a region is entered: the kernel gives addresses out again, and the next region may begin where the last did.
    version: AtomicU32,
    /// 0 = free.
    start: AtomicUsize,
    len: AtomicUsize,
    mapped: AtomicUsize,
    origin: AtomicU32,
    pid: AtomicU32,
}

impl Cell {
    fn get(&self) -> Option<Region> {
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        if start == 0 || !version.is_multiple_of(2) {
            return None;
        }
        let region = Region {
            start,
            len: self.len.load(Ordering::Relaxed),
            mapped: self.mapped.load(Ordering::Relaxed),
            origin: match self.origin.load(Ordering::Relaxed) {
                0 => Origin::WithTail,
                _ => Origin::Driver,
            },
            pid: self.pid.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        // Taken out, or exchanged, while we read: the caller's range cannot have been in it.
        let same = self.start.load(Ordering::Relaxed) == start
            && self.version.load(Ordering::Relaxed) == version;
        same.then_some(region)
    }

    /// Enters a region where none is.
    fn set(&self, region: &Region) {
        // Odd whatever it was, as in the record: fork may have lost a writer in the middle.
        let odd = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        self.len.store(region.len, Ordering::Relaxed);
        self.mapped.store(region.mapped, Ordering::Relaxed);
        self.origin.store(region.origin as u32, Ordering::Relaxed);
        self.pid.store(region.pid, Ordering::Relaxed);
        self.start.store(region.start, Ordering::Relaxed);
        self.version.store(odd.wrapping_add(1), Ordering::Release);
    }
}

/// The buffers. Any thread looks them up; one at a time enters them.
pub struct Table {
    cells: [Cell; REGIONS],
}

shared! {
    static TABLE: Table = Table::new();
}

impl Table {
    constructor! {
        /// No buffer.
        pub fn new() -> Self {
            Table {
                cells: words![
                    Cell {
                        version: AtomicU32::new(0),
                        start: AtomicUsize::new(0),
                        len: AtomicUsize::new(0),
                        mapped: AtomicUsize::new(0),
                        origin: AtomicU32::new(0),
                        pid: AtomicU32::new(0),
                    };
                    REGIONS
                ],
            }
        }
    }

    /// As the function of that name.
    pub fn any(&self) -> bool {
        self.cells
            .iter()
            .any(|cell| cell.start.load(Ordering::Relaxed) != 0)
    }

    /// As the function of that name.
    pub fn containing(&self, addr: usize, len: usize) -> Option<Region> {
        let inside = |region: &Region| {
            addr >= region.start
                && len != 0
                && len <= region.len
                && addr - region.start <= region.len - len
        };
        self.cells.iter().filter_map(Cell::get).find(inside)
    }

    /// As the function of that name.
    pub fn overlapping(&self, addr: usize, len: usize) -> Option<Region> {
        let touches = |region: &Region| {
            addr < region.start.saturating_add(region.mapped)
                && region.start < addr.saturating_add(len)
        };
        self.cells.iter().filter_map(Cell::get).find(touches)
    }

    /// As the function of that name.
    pub fn insert(&self, region: &Region) -> bool {
        while let Some(old) = self.overlapping(region.start, region.mapped) {
            self.remove(old.start);
        }
        let Some(cell) = self
            .cells
            .iter()
            .find(|cell| cell.start.load(Ordering::Relaxed) == 0)
        else {
            return false;
        };
        cell.set(region);
        true
    }

    /// As the function of that name.
    pub fn has_place(&self) -> bool {
        self.cells
            .iter()
            .any(|cell| cell.start.load(Ordering::Relaxed) == 0)
    }

    /// As the function of that name.
    pub fn remove(&self, start: usize) {
        for cell in &self.cells {
            if cell.start.load(Ordering::Relaxed) == start {
                cell.start.store(0, Ordering::Release);
            }
        }
    }

    /// As the function of that name.
    pub fn forget_others(&self, pid: u32) {
        for cell in &self.cells {
            if cell.pid.load(Ordering::Relaxed) != pid {
                cell.start.store(0, Ordering::Release);
            }
        }
    }
}

/// Whether there is any region. The one test that every `mmap` of the program pays for.
pub fn any() -> bool {
    TABLE.any()
}

/// The region in which the whole range lies. A range of no bytes lies in none.
pub fn containing(addr: usize, len: usize) -> Option<Region> {
    TABLE.containing(addr, len)
}

/// A region of which the range takes at least one mapped byte.
pub fn overlapping(addr: usize, len: usize) -> Option<Region> {
    TABLE.overlapping(addr, len)
}

/// Enters a region; false when the table is full. One thread at a time. What the kernel has given away again cannot be a
/// buffer any longer: regions that it overlaps are taken out.
pub fn insert(region: &Region) -> bool {
    TABLE.insert(region)
}

/// Whether another region can be entered.
pub fn has_place() -> bool {
    TABLE.has_place()
}

/// Takes a region out.
pub fn remove(start: usize) {
    TABLE.remove(start);
}

/// Takes out what fork brought along from another process.
pub fn forget_others(pid: u32) {
    TABLE.forget_others(pid);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_found_by_what_lies_in_them() {
        let region = Region {
            start: 0x7000_0000,
            len: 10_000,
            mapped: 0x20_0000,
            origin: Origin::WithTail,
            pid: 1,
        };
        let table = Table::new();
        let containing = |addr, len| table.containing(addr, len);
        let overlapping = |addr, len| table.overlapping(addr, len);
        let (insert, remove) = (
            |new: &Region| table.insert(new),
            |start| table.remove(start),
        );
        assert!(!table.any() && insert(&region) && table.any());
        assert_eq!(containing(0x7000_0000, 10_000), Some(region));
        assert_eq!(containing(0x7000_0000 + 9_999, 1), Some(region));
        for (addr, len) in [
            (0x7000_0000, 10_001),
            (0x6fff_ffff, 2),
            (0x7000_0000 + 10_000, 1),
            (0x7000_0000, 0),
        ] {
            assert_eq!(containing(addr, len), None);
        }
        assert_eq!(containing(usize::MAX, usize::MAX), None);
        assert_eq!(overlapping(0x6fff_f000, 0x1001), Some(region));
        assert_eq!(overlapping(0x7000_0000 + 0x1f_ffff, 5), Some(region));
        assert_eq!(overlapping(0x7000_0000 + 0x20_0000, 5), None);
        assert_eq!(overlapping(0x6fff_f000, 0x1000), None);
        assert!(region.is_whole(0x7000_0000, 10_000) && region.is_whole(0x7000_0000, 12_288));
        assert!(!region.is_whole(0x7000_0000, 8_192) && !region.is_whole(0x7000_1000, 12_288));
        let other = |number: usize| Region {
            start: number << 32,
            pid: 2,
            ..region
        };
        assert!((1..4).all(|number| insert(&other(number))));
        assert!(!table.has_place() && !insert(&other(5)));
        let over = Region {
            start: (1 << 32) + 0x1000,
            ..region
        };
        remove(2 << 32);
        assert!(insert(&over));
        assert_eq!(containing((1 << 32) + 0x1000, 1), Some(over));
        assert_eq!(containing(1 << 32, 1), None);
        table.forget_others(1);
        assert!(table.has_place());
        remove(region.start);
        remove(over.start);
        assert!(!table.any());
    }

    #[derive(Clone, Debug)]
    enum Change {
        Insert(Region),
        Remove(usize),
        ForgetOthers(u32),
    }

    /// A small address space, so that ranges meet.
    fn range() -> impl Strategy<Value = (usize, usize)> {
        (1usize..24, 0usize..12).prop_map(|(start, len)| (start * 0x1000, len * 0x800))
    }

    fn change() -> impl Strategy<Value = Change> {
        let region =
            (1usize..24, 1usize..9000, 0usize..3, 1u32..4).prop_map(|(start, len, tail, pid)| {
                Region {
                    start: start * 0x1000,
                    len,
                    mapped: len.next_multiple_of(0x1000) + tail * 0x1000,
                    origin: if pid == 1 {
                        Origin::Driver
                    } else {
                        Origin::WithTail
                    },
                    pid,
                }
            });
        prop_oneof![
            4 => region.prop_map(Change::Insert),
            2 => (1usize..24).prop_map(|start| Change::Remove(start * 0x1000)),
            1 => (1u32..4).prop_map(Change::ForgetOthers),
        ]
    }

    proptest! {
        /// Whatever comes and goes, the table knows what a plain list knows.
        #[test]
        fn the_table_is_a_list_of_four(changes in proptest::collection::vec(change(), 1..30), looks in proptest::collection::vec(range(), 8)) {
            let table = Table::new();
            let mut list: Vec<Region> = Vec::new();
            for change in changes {
                match change {
                    Change::Insert(new) => {
                        list.retain(|old| old.start + old.mapped <= new.start || new.start + new.mapped <= old.start);
                        let fits = list.len() < REGIONS;
                        prop_assert_eq!(table.insert(&new), fits);
                        if fits {
                            list.push(new);
                        }
                    }
                    Change::Remove(start) => {
                        table.remove(start);
                        list.retain(|old| old.start != start);
                    }
                    Change::ForgetOthers(pid) => {
                        table.forget_others(pid);
                        list.retain(|old| old.pid == pid);
                    }
                }
                prop_assert_eq!(table.any(), !list.is_empty());
                prop_assert_eq!(table.has_place(), list.len() < REGIONS);
                for &(addr, len) in &looks {
                    let whole = |old: &&Region| len > 0 && old.start <= addr && addr + len <= old.start + old.len;
                    prop_assert_eq!(table.containing(addr, len), list.iter().find(whole).copied());
                    let part = |old: &Region| addr < old.start + old.mapped && old.start < addr + len;
                    let found = table.overlapping(addr, len);
                    prop_assert_eq!(found.is_some(), list.iter().any(part));
                    prop_assert!(found.is_none_or(|found| part(&found) && list.contains(&found)));
                }
            }
        }
    }
}
