//! Policy of the buffer's memory: which pages, how aligned, whether there is room, what is kept. Every refusal of the
//! kernel is a step down that the caller counts.

use cudasnap_wire::{PageKind, Step};

use crate::crew::STACKS;
use crate::text::Text;
use crate::{cgroup, sys};

const HUGE: usize = 2 << 20;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Memory for a buffer: the driver's bytes from `start`, helpers' stacks in the last [`STACKS`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// First address, a multiple of 2 MiB.
    pub start: usize,
    /// Bytes mapped.
    pub mapped: usize,
    /// Pages that were asked for.
    pub pages: PageKind,
    /// Whether the last [`STACKS`] bytes are ours: only when the driver's munmap comes to us, which then takes them too.
    pub tail: bool,
}

impl Memory {
    /// Where the helpers' stacks begin; `None` without a tail.
    pub const fn stacks(&self) -> Option<usize> {
        if self.tail {
            Some(self.start + self.mapped - STACKS)
        } else {
            None
        }
    }

    /// Whether it can hold a buffer of `len` bytes and the stacks.
    pub fn fits(&self, len: usize) -> bool {
        self.tail && self.mapped >= mapped_len(len, true)
    }
}

/// Bytes that are mapped for a buffer of `len`: with a tail at most 2.5 MiB more, so that strict overcommit accounting is
/// not charged much more than the driver asked for; without one exactly the driver's pages, which its munmap takes away.
pub fn mapped_len(len: usize, tail: bool) -> usize {
    if tail {
        (len + STACKS).next_multiple_of(HUGE)
    } else {
        len.next_multiple_of(sys::page_size())
    }
}

/// Whether that much memory can be had without pushing anybody out: machine and control groups.
pub fn has_room(bytes: usize) -> bool {
    let room = cgroup::memory_available().min(cgroup::memory_room());
    bytes as u64 <= room
}

/// Maps memory for a buffer of `len` bytes with the kind of pages that can be had; `step` is told each step down. The
/// error is the kernel's for the last and plainest way. Hugetlb pages need a tail: the driver's own munmap of a length that
/// is no multiple of 2 MiB would be refused.
pub fn map(
    len: usize,
    wanted: PageKind,
    tail: bool,
    mut step: impl FnMut(Step),
) -> Result<Memory, i32> {
    let mapped = mapped_len(len, tail);
    if wanted == PageKind::Hugetlb {
        match map_hugetlb(mapped) {
            Ok(memory) if tail => return Ok(memory),
            Ok(memory) => {
                // SAFETY: mapped a moment ago, used by nobody.
                let _ = unsafe { unmap(&memory) };
                step(Step::NoHugetlb);
            }
            Err(_) => step(Step::NoHugetlb),
        }
    }
    let start = map_aligned(mapped)?;
    let mut pages = if wanted == PageKind::Small {
        PageKind::Small
    } else {
        PageKind::Thp
    };
    if pages == PageKind::Thp
        && !(huge_pages_allowed() && advise(start, mapped, libc::MADV_HUGEPAGE))
    {
        step(Step::NoHugePages);
        pages = PageKind::Small;
    }
    if wanted == PageKind::Small {
        advise(start, mapped, libc::MADV_NOHUGEPAGE);
    }
    Ok(Memory {
        start,
        mapped,
        pages,
        tail,
    })
}

fn map_hugetlb(mapped: usize) -> Result<Memory, i32> {
    // SAFETY: a new mapping anywhere.
    let start = unsafe {
        sys::mmap(
            0,
            mapped,
            READ_WRITE,
            ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
            -1,
            0,
        )
    }?;
    Ok(Memory {
        start,
        mapped,
        pages: PageKind::Hugetlb,
        tail: true,
    })
}

/// Maps `mapped` bytes at a multiple of 2 MiB. The address range is reserved without access first, which strict overcommit
/// accounting does not charge, and then opened in part, so that never more than `mapped` is charged and there is no moment
/// at which another thread's mapping could come to lie in it.
fn map_aligned(mapped: usize) -> Result<usize, i32> {
    let reserved = mapped.checked_add(HUGE).ok_or(libc::ENOMEM)?;
    // SAFETY: a new mapping anywhere.
    let base = unsafe { sys::mmap(0, reserved, libc::PROT_NONE, ANONYMOUS, -1, 0) }?;
    let start = base.next_multiple_of(HUGE);
    // SAFETY: a part of the reservation made above.
    let got = unsafe { sys::mprotect(start, mapped, READ_WRITE) };
    if let Err(errno) = got {
        // SAFETY: the reservation is ours and unused.
        let _ = unsafe { sys::munmap(base, reserved) };
        return Err(errno);
    }
    let end = start + mapped;
    for (from, to) in [(base, start), (end, base + reserved)] {
        if from < to {
            // SAFETY: the rest of the reservation, unused.
            let _ = unsafe { sys::munmap(from, to - from) };
        }
    }
    Ok(start)
}

fn advise(start: usize, len: usize, advice: i32) -> bool {
    // SAFETY: only advice about page sizes is given here.
    unsafe { sys::madvise(start, len, advice) }.is_ok()
}

/// Whether the kernel would grant 2 MiB pages to a range that asks for them. The advice succeeds even where it will be
/// ignored.
fn huge_pages_allowed() -> bool {
    // SAFETY: PR_GET_THP_DISABLE has no other arguments and no effects.
    let disabled = unsafe {
        sys::call6(
            libc::SYS_prctl,
            libc::PR_GET_THP_DISABLE as usize,
            0,
            0,
            0,
            0,
            0,
        )
    };
    if disabled == Ok(1) {
        return false;
    }
    let of_size = chosen(b"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled\0");
    match of_size.as_ref().map(Text::as_bytes) {
        Some(b"always" | b"madvise") => return true,
        Some(b"never") => return false,
        _ => {}
    }
    let global = chosen(b"/sys/kernel/mm/transparent_hugepage/enabled\0");
    matches!(
        global.as_ref().map(Text::as_bytes),
        Some(b"always" | b"madvise")
    )
}

/// The word in brackets of a kernel setting such as `always [madvise] never`.
fn chosen(path: &[u8]) -> Option<Text<16>> {
    let fd = sys::open(path, libc::O_RDONLY, 0).ok()?;
    let mut bytes = [0u8; 128];
    let got = sys::read(fd, &mut bytes);
    sys::close(fd);
    bracketed(bytes.get(..got.ok()?)?)
}

fn bracketed(line: &[u8]) -> Option<Text<16>> {
    let from = line.iter().position(|&byte| byte == b'[')? + 1;
    let to = line.iter().position(|&byte| byte == b']')?;
    let mut word = Text::new();
    word.push(line.get(from..to)?);
    Some(word)
}

/// Gives memory back to the kernel.
///
/// # Safety
/// Nobody uses it any more, no helper lives on its stacks.
pub unsafe fn unmap(memory: &Memory) -> sys::SysResult {
    // SAFETY: promised by the caller.
    unsafe { sys::munmap(memory.start, memory.mapped) }
}

/// Frees all pages and keeps the addresses: whatever touches them finds zeros.
pub fn hollow(start: usize, mapped: usize) {
    // SAFETY: the contents are no longer wanted.
    let _ = unsafe { sys::madvise(start, mapped, libc::MADV_DONTNEED) };
}

/// Frees the pages of a kept buffer from `resident` bytes on, the helpers' stacks among them. Not for hugetlb pages: they might
/// not be had again when they are touched, and that is a SIGBUS.
pub fn trim(memory: &Memory, resident: u64) {
    if memory.pages == PageKind::Hugetlb {
        return;
    }
    let from = usize::try_from(resident).unwrap_or(usize::MAX);
    let from = from.checked_next_multiple_of(HUGE).unwrap_or(usize::MAX);
    if from < memory.mapped {
        hollow(memory.start + from, memory.mapped - from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_writable_and_little_larger() {
        for wanted in [PageKind::Thp, PageKind::Small] {
            let len = 40_000_123;
            let memory = map(len, wanted, true, |_| {}).unwrap();
            assert_eq!(memory.start % HUGE, 0);
            assert!(memory.mapped >= len + STACKS && memory.mapped <= len + (4 << 20));
            assert!(memory.fits(len) && !memory.fits(len + HUGE));
            let stacks = memory.stacks().unwrap();
            assert!(stacks % 16 == 0 && stacks >= memory.start + len);
            // SAFETY: inside the mapping.
            unsafe {
                *(memory.start as *mut u8) = 1;
                *((memory.start + memory.mapped - 1) as *mut u8) = 2;
            }
            trim(&memory, 1);
            // SAFETY: inside the mapping.
            let (first, last) = unsafe {
                let last = memory.start + memory.mapped - 1;
                (*(memory.start as *const u8), *(last as *const u8))
            };
            assert_eq!((first, last), (1, 0));
            // SAFETY: nobody uses it any more.
            unsafe { unmap(&memory) }.unwrap();
        }
    }

    #[test]
    fn without_a_tail_the_mapping_is_what_the_driver_will_unmap() {
        let memory = map(40_000_123, PageKind::Hugetlb, false, |_| {}).unwrap();
        assert_eq!(
            memory.mapped,
            40_000_123usize.next_multiple_of(sys::page_size())
        );
        assert_eq!(memory.stacks(), None);
        assert!(!memory.fits(1));
        // SAFETY: nobody uses it.
        unsafe { unmap(&memory) }.unwrap();
    }

    #[test]
    fn the_buffer_is_one_mapping() {
        let memory = map(64 << 20, PageKind::Thp, true, |_| {}).unwrap();
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let ranges = text
            .lines()
            .filter_map(|line| crate::maps::parse_line(line.as_bytes()));
        let found = ranges
            .into_iter()
            .find(|mapping| mapping.contains(memory.start))
            .unwrap();
        // A kernel without huge pages may merge it with a neighbour: then it is part of one.
        assert!(found.start <= memory.start && found.end >= memory.start + memory.mapped);
        // SAFETY: nobody uses it.
        unsafe { unmap(&memory) }.unwrap();
    }

    #[test]
    fn what_cannot_be_mapped_gives_the_errno() {
        let mut steps = 0;
        assert_eq!(
            map(1 << 60, PageKind::Thp, true, |_| steps += 1),
            Err(libc::ENOMEM)
        );
        assert_eq!(steps, 0);
        assert!(!has_room(1 << 60) && has_room(4096));
    }

    #[test]
    fn the_chosen_word_is_in_brackets() {
        let word = |line: &[u8]| bracketed(line).map(|word| word.as_bytes().to_vec());
        assert_eq!(word(b"always [madvise] never\n"), Some(b"madvise".to_vec()));
        assert_eq!(word(b"[never]"), Some(b"never".to_vec()));
        assert_eq!(word(b"x]y["), None);
        assert_eq!(word(b""), None);
    }
}
