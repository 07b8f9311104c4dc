//! Which memory a request is answered with: a kept or reserved buffer, the pool of 2 MiB pages, new memory; or none, for lack of room.

use cudasnap_wire::{PageKind, Rest, Step};

use crate::buffer::{self, Memory};
use crate::config::Config;
use crate::cpus::{self, Use};
use crate::crew::CREW;
use crate::pages::{How, Pages};
use crate::sync::Ordering;
use crate::{hollow, record, resident, room};

use super::request::Request;
use super::{at_once, kept, State};

impl State {
    /// A kept buffer if it fits, else new memory, if there is room.
    pub(super) fn obtain(&mut self, request: &Request<'_>) -> Result<Memory, Step> {
        let len = request.args.len;
        self.from_kept = false;
        self.ready = 0;
        if let Some(memory) = self.reuse_kept(request)? {
            return Ok(memory);
        }
        let tail = request.slots.unmaps;
        let mapped = buffer::mapped_len(len, tail);
        if !room::in_process(mapped) {
            return Err(Step::LowMemory);
        }
        let mut wanted = request.config.pages;
        if wanted == PageKind::Hugetlb {
            if let Some(memory) = from_pool(request) {
                return Ok(memory);
            }
            record::step(Step::NoHugetlb);
            wanted = pages_for_thp(wanted);
        }
        if !room::in_machine(mapped) {
            return Err(Step::LowMemory);
        }
        buffer::map(len, wanted, tail, record::step)
    }

    /// The kept or reserved buffer, if it fits and there is room for what of it is not resident; else it is given back.
    fn reuse_kept(&mut self, request: &Request<'_>) -> Result<Option<Memory>, Step> {
        let Some(mut memory) = self.take_kept() else {
            return Ok(None);
        };
        let found = kept::look(&memory);
        if found == kept::Found::Unknown {
            // Kept on: it may be sound.
            self.kept = Some(memory);
            record::step(Step::KeptUnfit);
            return Ok(None);
        }
        let fits =
            request.slots.unmaps && memory.fits(request.args.len) && found == kept::Found::Sound;
        if !fits {
            kept::dispose(&memory);
            record::step(Step::KeptUnfit);
            return Ok(None);
        }
        let missing = self.look_at_kept(&memory, request);
        let has_room = missing == 0 || room::in_machine(missing);
        if !has_room || self.renew(&mut memory, request).is_err() {
            self.from_kept = false;
            self.ready = 0;
            kept::dispose(&memory);
            return Err(Step::LowMemory);
        }
        kept::forget();
        buffer::trim(&memory, request.args.len as u64);
        Ok(Some(memory))
    }

    /// Notes what of it is resident; the bytes that are not. What lies in a reserved buffer was not put there by us: the kernel is
    /// asked.
    fn look_at_kept(&mut self, memory: &Memory, request: &Request<'_>) -> usize {
        let len = request.args.len;
        if request.config.buffer == Rest::Reserve {
            let resident = resident::of(memory.start, len);
            self.ready = resident.from_start;
            self.from_kept = resident.total >= len;
            return len.saturating_sub(resident.total);
        }
        self.from_kept = true;
        match request.config.keep_max {
            0 => 0,
            most => (len as u64).saturating_sub(most) as usize,
        }
    }

    /// What is not resident of a reserved buffer is new memory: it gets what new memory would get now.
    fn renew(&self, memory: &mut Memory, request: &Request<'_>) -> Result<(), Step> {
        if request.config.buffer != Rest::Reserve || self.from_kept {
            return Ok(());
        }
        buffer::ask_for_pages(memory, pages_for_thp(request.config.pages), record::step)
    }
}

/// The pages that are asked for where the pool of 2 MiB pages is not.
pub(super) const fn pages_for_thp(wanted: PageKind) -> PageKind {
    match wanted {
        PageKind::Hugetlb => PageKind::Thp,
        other => other,
    }
}

/// Memory from the pool of 2 MiB pages, filled before anybody can touch it: a page that cannot be had then is an error, later a
/// SIGBUS.
fn from_pool(request: &Request<'_>) -> Option<Memory> {
    if !request.slots.unmaps || CREW.alive() > 0 {
        return None;
    }
    let memory = buffer::map_hugetlb(request.args.len).ok()?;
    if fill(&memory, request.config) {
        return Some(memory);
    }
    CREW.pages.disarm();
    let _ = hollow::dispose(&memory);
    None
}

/// Has the pages of the pool mapped, with as many threads as zero fresh memory: one zeroes 5 GB a second (H200 host). False
/// when one of them cannot be had.
fn fill(memory: &Memory, config: &Config) -> bool {
    let Some(stacks) = memory.stacks() else {
        return false;
    };
    let end = memory.start + memory.mapped;
    // They lie in the last page, and their first touch must not be the one that is refused.
    if Pages::populate(stacks & !(buffer::HUGE - 1), end).is_err() {
        return false;
    }
    let cap = record::get().thread_cap.load(Ordering::Relaxed);
    let threads = cpus::threads(config.threads, cap, Use::Fresh);
    CREW.pages
        .arm(memory.start, memory.mapped, memory.mapped, How::Populate, 0);
    // SAFETY: the stacks are ours and mapped to their last byte; they are unmapped, or kept, when the crew is gone, or late.
    unsafe { at_once::do_units(threads, stacks) };
    CREW.pages.is_populated()
}
