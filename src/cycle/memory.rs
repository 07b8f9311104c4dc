//! Which memory a request is answered with: a kept buffer, the pool of 2 MiB pages, new memory; or none, for lack of room.

use cudasnap_wire::{PageKind, Step};

use crate::buffer::{self, Memory};
use crate::crew::CREW;
use crate::prefault::How;
use crate::{hollow, record, room};

use super::kept;
use super::request::Request;
use super::State;

impl State {
    /// A kept buffer if it fits, else new memory, if there is room.
    pub(super) fn obtain(&mut self, request: &Request<'_>) -> Result<Memory, Step> {
        let len = request.args.len;
        self.from_kept = false;
        if let Some(memory) = self.reuse_kept(request)? {
            self.from_kept = true;
            return Ok(memory);
        }
        let tail = request.slots.unmaps;
        let mapped = buffer::mapped_len(len, tail);
        if !room::in_process(mapped) {
            return Err(Step::LowMemory);
        }
        let mut wanted = request.config.pages;
        if wanted == PageKind::Hugetlb {
            if let Some(memory) = hugetlb(len, tail) {
                return Ok(memory);
            }
            record::step(Step::NoHugetlb);
            wanted = PageKind::Thp;
        }
        if !room::in_machine(mapped) {
            return Err(Step::LowMemory);
        }
        buffer::map(len, wanted, tail, record::step)
    }

    /// The kept buffer, if it fits and there is room for what of it is not resident; else it is given back.
    fn reuse_kept(&mut self, request: &Request<'_>) -> Result<Option<Memory>, Step> {
        let Some(memory) = self.take_kept() else {
            return Ok(None);
        };
        let len = request.args.len;
        let fits = request.slots.unmaps && memory.fits(len) && kept::is_sound(&memory);
        let missing = match request.config.keep_max {
            0 => 0,
            most => (len as u64).saturating_sub(most) as usize,
        };
        let has_room = missing == 0 || room::in_machine(missing);
        if fits && has_room {
            kept::forget();
            buffer::trim(&memory, len as u64);
            return Ok(Some(memory));
        }
        kept::dispose(&memory);
        if fits {
            return Err(Step::LowMemory);
        }
        record::step(Step::KeptUnfit);
        Ok(None)
    }
}

/// Memory from the pool of 2 MiB pages, filled before anybody can touch it: a page that cannot be had then is an error, later a
/// SIGBUS.
fn hugetlb(len: usize, tail: bool) -> Option<Memory> {
    if !tail || CREW.alive() > 0 {
        return None;
    }
    let memory = buffer::map_hugetlb(len).ok()?;
    let (start, mapped) = (memory.start, memory.mapped);
    CREW.prefault.arm(start, mapped, mapped, How::Populate, 0);
    CREW.prefault_now();
    if CREW.prefault.is_done() && CREW.prefault.refusal().is_none() {
        return Some(memory);
    }
    let _ = hollow::dispose(&memory);
    None
}
