//! What the fuzz targets (`fuzz/`) run: one function per kind of foreign bytes that the library reads. Each returns for any
//! bytes, and checks what must hold whatever they are. The tests run them over the corpus.

use cudasnap_wire::{Record, Slot, SlotState};

use crate::elf::{Image, Memory};
use crate::got::{self, Libcuda};
use crate::{cgroup, config, elf, lines, maps, sys};

/// Bytes as they would lie in memory at an address.
struct Bytes<'a> {
    base: usize,
    bytes: &'a [u8],
}

impl Memory for Bytes<'_> {
    fn read(&self, address: usize, out: &mut [u8]) -> bool {
        let from = address.checked_sub(self.base);
        let range = from.and_then(|from| Some(from..from.checked_add(out.len())?));
        let Some(source) = range.and_then(|range| self.bytes.get(range)) else {
            return false;
        };
        out.copy_from_slice(source);
        true
    }
}

/// The walk over a mapped image: program headers, dynamic section, relocations, notes.
pub fn elf(data: &[u8]) {
    let memory = Bytes {
        base: 0x10_0000,
        bytes: data,
    };
    let mut id = [0u8; cudasnap_wire::BUILD_ID_BYTES];
    if let Some(length) = elf::build_id(&memory, memory.base, &mut id) {
        assert!(length <= id.len());
        let id = &id[..length];
        assert!(id.is_empty() || data.windows(length).any(|window| window == id));
    }
    if let Some(image) = Image::parse(&memory, memory.base) {
        let _ = image.is_named(got::LIBCUDA);
        for slot in Slot::ALL {
            assert!(image
                .slot(slot.word())
                .is_none_or(|place| place.address.is_multiple_of(8)));
        }
    }
}

/// Text in pieces of any length: every line arrives once, and those that fit arrive whole.
fn for_each_line(data: &[u8], mut each: impl FnMut(&[u8])) {
    let (&piece, text) = data.split_first().unwrap_or((&0, data));
    let mut rest = text;
    let mut whole = text.split(|&byte| byte == b'\n');
    let read = |room: &mut [u8]| {
        let taken = rest.len().min(room.len()).min(usize::from(piece) + 1);
        let (now, later) = rest.split_at(taken);
        room[..taken].copy_from_slice(now);
        rest = later;
        Ok(taken)
    };
    let complete = lines::read_lines(read, &mut |line| {
        let expected = whole.next().expect("no more lines than there are");
        assert_eq!(line, &expected[..expected.len().min(lines::LINE)]);
        each(line);
        true
    });
    assert!(complete && whole.all(<[u8]>::is_empty));
}

/// The list of mappings: its lines, and which object each belongs to.
pub fn maps(data: &[u8]) {
    let mut walk = maps::object::Walk::default();
    for_each_line(data, |line| {
        let path = maps::line::path_of(line);
        assert!(path.is_empty() || line.windows(path.len()).any(|part| part == path));
        if let Some(mapping) = maps::parse_line(line) {
            let base = walk.take(&mapping);
            assert!(base.is_none() || mapping.is_file());
            let _ = mapping.contains(mapping.start);
        }
    });
}

/// Control groups' files, `/proc/meminfo` and `/proc/vmstat`.
pub fn cgroup(data: &[u8]) {
    for controller in [&b"cpu"[..], b"memory"] {
        for line in data.split(|&byte| byte == b'\n') {
            if let Some((unified, path)) = cgroup::parse_membership(line, controller) {
                assert!(line.ends_with(path) && (!unified || line.starts_with(b"0::")));
                cgroup::visit_levels(b"", path, |directory| {
                    assert!(directory.starts_with(b"/sys/fs/cgroup"));
                });
            }
        }
    }
    let one = lines::sum_of(data, &[b"inactive_file"]);
    assert!(one <= lines::sum_of(data, &[b"inactive_file", b"active_file"]));
    assert_ne!(cgroup::parse_cpu_max(data), Some(0));
    let _ = lines::parse_kib(data);
}

/// The environment: `NAME=VALUE` lines. What is not understood leaves the default, and is told.
pub fn options(data: &[u8]) {
    let record = Record::new(0);
    let value = |name: &str| {
        let lines = data.split(|&byte| byte == b'\n');
        let mut values = lines.filter_map(|line| line.strip_prefix(name.as_bytes()));
        values.find_map(|rest| rest.strip_prefix(b"="))
    };
    let config = config::read_from(&record, value);
    assert!(config.threads <= config::THREADS_MAX);
    let (path, length) = &config.report;
    assert!(*length == 0 || path[0] == b'/');
    assert!(*length < config::PATH_MAX && path[*length] == 0);
    let number =
        |cell: &core::sync::atomic::AtomicU32| cell.load(core::sync::atomic::Ordering::Relaxed);
    for complaint in &record.complaints {
        let option = number(&complaint.option) as usize;
        assert!(option <= cudasnap_wire::OPTIONS.len());
        assert!(number(&complaint.length) as usize <= complaint.value.len());
        assert!(option == 0 || number(&complaint.length) > 0);
    }
}

const PAGE: usize = 4096;
/// Room for an image; longer ones are cut.
const IMAGE: usize = 4 * PAGE;

/// Memory with an image between two pages of somebody else.
struct Area {
    start: usize,
}

impl Area {
    const LEN: usize = PAGE + IMAGE + PAGE;

    fn new(image: &[u8]) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping anywhere.
        let start = unsafe { sys::mmap(0, Self::LEN, 3, flags, -1, 0) }.expect("memory");
        let mut area = Area { start };
        let image = &image[..image.len().min(IMAGE)];
        area.bytes()[PAGE..PAGE + image.len()].copy_from_slice(image);
        area
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: this mapping, borrowed as long as the area.
        unsafe { core::slice::from_raw_parts_mut(self.start as *mut u8, Self::LEN) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: nothing else knows the address, and every slot in it was given back.
        let _ = unsafe { sys::munmap(self.start, Self::LEN) };
    }
}

/// The table of held slots is one per process: tests take turns.
pub fn take_turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The words of [`Slot::ALL`] in an image that is called libcuda: taken and given back, in its own memory and nowhere else.
pub fn slots(data: &[u8]) {
    let _turn = take_turn();
    let mut area = Area::new(data);
    let before = area.bytes().to_vec();
    let Some(libcuda) = Libcuda::pretend(area.start + PAGE, IMAGE) else {
        return;
    };
    got::forget();
    let ours = slots as fn(&[u8]) as usize;
    let mut held = 0;
    for (number, &slot) in Slot::ALL.iter().enumerate() {
        held += usize::from(libcuda.hold(slot, ours + number) == SlotState::Held);
    }
    let now = area.bytes();
    let words = |bytes: &[u8], place: usize| bytes[place * 8..place * 8 + 8].to_vec();
    let changed = (0..Area::LEN / 8).filter(|&place| words(now, place) != words(&before, place));
    assert!(changed.clone().count() <= held);
    assert!(changed
        .clone()
        .all(|place| (PAGE..PAGE + IMAGE).contains(&(place * 8))));
    let _ = libcuda.retake();
    got::release_all(|_| false, |_, _| {});
    assert!(area.bytes() == before, "a slot was not put back");
}

#[cfg(test)]
#[path = "../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn the_corpus_of_each_target_is_survived() {
        replay("elf", super::elf);
        replay("maps", super::maps);
        replay("cgroup", super::cgroup);
        replay("options", super::options);
        replay("slots", super::slots);
    }
}
