//! Policy of the buffer's memory: which pages, how aligned, what is kept. Every refusal of the kernel is a step down that the
//! caller counts: "again" is asked again for a while, ENOMEM gives everything back, anything else means base pages.

use cudasnap_wire::{PageKind, Step};

use crate::crew::STACKS;
use crate::sys;
use crate::text::Text;

/// A huge page: what every mapping here is aligned to.
pub const HUGE: usize = 2 << 20;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
/// `MADV_DONTNEED_LOCKED`, since Linux 5.18.
const DONTNEED_LOCKED: i32 = 24;

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
    /// Whether the kernel was asked for huge pages though none of 2 MiB is allowed: it may have others, of 16 kB to 1 MiB.
    pub mixed: bool,
}

impl Memory {
    /// Memory of which only the place matters, since it is to be given back.
    pub const fn to_give_back(start: usize, mapped: usize, tail: bool) -> Self {
        Memory {
            start,
            mapped,
            pages: PageKind::Thp,
            tail,
            mixed: false,
        }
    }

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

/// Maps memory for a buffer of `len` bytes on huge pages, or on base pages where those are wanted or all that can be had, which
/// `step` is told. The error is the step down that is left to take: the driver's own request.
///
/// Children of fork inherit it, as they inherit what the driver maps itself: `MADV_DONTFORK` would make a child's touch a
/// SIGSEGV, and fork copies fewer page table entries of huge pages than of the driver's base pages.
pub fn map(
    len: usize,
    wanted: PageKind,
    tail: bool,
    step: impl FnMut(Step),
) -> Result<Memory, Step> {
    let mapped = mapped_len(len, tail);
    let start = map_aligned(mapped).map_err(|_| Step::MmapRefused)?;
    let mut memory = Memory {
        start,
        mapped,
        pages: wanted,
        tail,
        mixed: false,
    };
    if let Err(refused) = ask_for_pages(&mut memory, wanted, step) {
        // SAFETY: mapped a moment ago, used by nobody.
        let _ = unsafe { sys::munmap(start, mapped) };
        return Err(refused);
    }
    Ok(memory)
}

/// Asks for pages of a mapping, once more where what can be had may have changed since. The error is the step down that is left to take:
/// the kernel has no memory to take the advice. Any other refusal means base pages.
pub fn ask_for_pages(
    memory: &mut Memory,
    wanted: PageKind,
    mut step: impl FnMut(Step),
) -> Result<(), Step> {
    let Advice { advice, pages } = advice_for(wanted);
    let give = |advice| {
        // SAFETY: only advice about page sizes is given here.
        sys::again(|| unsafe { sys::madvise(memory.start, memory.mapped, advice) })
    };
    let is_taken = match advice.map(give) {
        Some(Ok(_)) => true,
        Some(Err(libc::ENOMEM)) => return Err(Step::LowMemory),
        Some(Err(_)) | None => false,
    };
    memory.pages = if is_taken { pages } else { PageKind::Small };
    memory.mixed =
        is_taken && advice == Some(libc::MADV_HUGEPAGE) && memory.pages == PageKind::Small;
    if memory.pages != wanted {
        step(Step::NoHugePages);
    }
    Ok(())
}

/// What the kernel is told about page sizes, and the pages that it then gives.
struct Advice {
    /// `None`: nothing, since it would not matter.
    advice: Option<i32>,
    pages: PageKind,
}

/// Where 2 MiB pages are not allowed, others may be, to who asks (Linux 6.8 and newer): 12 GiB in pages of 64 kB took a fifth less
/// time than in base pages (H200 host).
fn advice_for(wanted: PageKind) -> Advice {
    let (advice, pages) = match wanted {
        PageKind::Small => (Some(libc::MADV_NOHUGEPAGE), PageKind::Small),
        _ if are_disabled_here() => (None, PageKind::Small),
        _ if huge_pages_allowed() => (Some(libc::MADV_HUGEPAGE), wanted),
        _ => (Some(libc::MADV_HUGEPAGE), PageKind::Small),
    };
    Advice { advice, pages }
}

/// Maps memory for a buffer of `len` bytes and its tail from the pool of 2 MiB pages. Without a tail that is no good: the
/// driver's own munmap of a length that is no multiple of 2 MiB would be refused.
pub fn map_hugetlb(len: usize) -> Result<Memory, i32> {
    let mapped = mapped_len(len, true);
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
        mixed: false,
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
    let ends = [(base, start), (start + mapped, base + reserved)];
    if let Err(errno) = got.and_then(|_| cut(&ends)) {
        // All of it: otherwise every cycle would leave some addresses behind.
        // SAFETY: the reservation is ours and unused.
        let _ = unsafe { sys::munmap(base, reserved) };
        return Err(errno);
    }
    Ok(start)
}

/// Unmaps what a reservation has too much.
fn cut(ends: &[(usize, usize)]) -> sys::SysResult {
    for &(from, to) in ends.iter().filter(|(from, to)| from < to) {
        // SAFETY: a part of a reservation, unused.
        unsafe { sys::munmap(from, to - from) }?;
    }
    Ok(0)
}

/// Whether this process gets no transparent huge page, whatever it asks for.
fn are_disabled_here() -> bool {
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
    disabled == Ok(1)
}

/// Whether the kernel would grant 2 MiB pages to a range that asks for them. The advice succeeds even where it will be
/// ignored.
fn huge_pages_allowed() -> bool {
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
    let got = sys::read_at(fd, &mut bytes, 0);
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

/// Frees all pages and keeps the addresses: whatever touches them finds zeros. False when the kernel does not.
pub fn hollow(start: usize, mapped: usize) -> bool {
    // SAFETY: the contents are no longer wanted.
    let free = |advice| sys::again(|| unsafe { sys::madvise(start, mapped, advice) });
    match free(libc::MADV_DONTNEED) {
        // A program that locks its memory (`mlockall`).
        Err(libc::EINVAL) => free(DONTNEED_LOCKED).is_ok(),
        freed => freed.is_ok(),
    }
}

/// Frees the pages of a kept buffer from `resident` bytes on, the helpers' stacks among them; false when the kernel does not. Not
/// for hugetlb pages: they might not be had again when they are touched, and that is a SIGBUS.
pub fn trim(memory: &Memory, resident: u64) -> bool {
    if memory.pages == PageKind::Hugetlb {
        return true;
    }
    let from = usize::try_from(resident).unwrap_or(usize::MAX);
    let from = from.checked_next_multiple_of(HUGE).unwrap_or(usize::MAX);
    from >= memory.mapped || hollow(memory.start + from, memory.mapped - from)
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
            assert!(trim(&memory, 1));
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
        let memory = map(40_000_123, PageKind::Thp, false, |_| {}).unwrap();
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
    fn what_cannot_be_mapped_is_left_to_the_driver() {
        let mut steps = 0;
        assert_eq!(
            map(1 << 60, PageKind::Thp, true, |_| steps += 1),
            Err(Step::MmapRefused)
        );
        assert_eq!(steps, 0);
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
