//! The driver asks for its buffer.

use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{Direction, End, Mode, PageKind, Step};

use crate::buffer::Memory;
use crate::caller::{self, Caller};
use crate::config::Config;
use crate::copy::strategy;
use crate::crew::{First, CREW, STACKS};
use crate::got::Libcuda;
use crate::pages::How;
use crate::phase::Phase;
use crate::record::{self, BufferState};
use crate::region::{self, Origin, Region};
use crate::request::MapArgs;
use crate::{hollow, sys};

use super::copies::SPARSE_AHEAD;
use super::slots::{self, Slots};
use super::{Call, State};

/// Finds the libcuda that a matching `mmap` came from; `None` when it is somebody else's call.
#[inline(never)]
pub fn find_libcuda() -> Option<Libcuda> {
    match caller::find() {
        Caller::Object(object) => {
            let libcuda = Libcuda::at(object.base);
            if libcuda.is_none() && caller::is_restore_thread() {
                // Perhaps another preload stands between libcuda and us. Its munmap would not come to us: the driver's own
                // request it is.
                record::step(Step::NotUnderstood);
            }
            libcuda
        }
        Caller::Unknown if caller::is_restore_thread() => {
            record::step(Step::CallerByName);
            Libcuda::search()
        }
        Caller::Unlisted => {
            // The driver's own request it is: who asks cannot be seen.
            if caller::is_restore_thread() {
                record::step(Step::NotUnderstood);
            }
            None
        }
        Caller::NoObject | Caller::Unknown => None,
    }
}

/// What the exported `mmap` does with a request of libcuda. `pass` makes the driver's own call, unchanged.
#[inline(never)]
pub fn answer(
    args: &MapArgs,
    config: &Config,
    libcuda: &Libcuda,
    pass: impl Fn() -> sys::SysResult,
) -> sys::SysResult {
    let started_ns = sys::now_ns();
    let counters = &record::get().counters;
    counters.requests.fetch_add(1, Relaxed);
    let mode = record::mode();
    let pid = sys::getpid();
    // The arguments lie in the exported function's frame.
    let call = Call::from(core::ptr::from_ref(args) as usize);
    if mode == Mode::Off {
        if let Some(mut state) = super::enter(pid, &call) {
            state.drop_kept();
        }
        return pass();
    }
    let Some(mut state) = super::enter_anew(pid, &call) else {
        record::step(Step::SecondBuffer);
        return pass();
    };
    let slots = state.prepare(libcuda);
    let request = Request {
        args,
        config,
        started_ns,
        slots,
    };
    let place = region::has_place();
    if !place {
        record::step(Step::SecondBuffer);
    }
    if mode == Mode::Observe || !place || state.foreign {
        return state.watch(&request, mode, pass);
    }
    match state.give(&request) {
        Ok(address) => {
            counters.answered.fetch_add(1, Relaxed);
            Ok(address)
        }
        Err(step) => {
            record::step(step);
            state.watch(&request, mode, pass)
        }
    }
}

/// A request, and what is known of its surroundings.
pub(super) struct Request<'a> {
    pub args: &'a MapArgs,
    pub config: &'a Config,
    pub started_ns: u64,
    pub slots: Slots,
}

impl State {
    /// Ends what goes on, looks at CPU and library, takes the slots.
    fn prepare(&mut self, libcuda: &Libcuda) -> Slots {
        if self.current.is_some() {
            record::step(Step::SecondBuffer);
        }
        self.end_phase(End::NewBuffer);
        hollow::reclaim();
        self.current = None;
        self.memory = None;
        super::note_requester(sys::gettid());
        self.libcuda = libcuda.base();
        self.number = self.number.wrapping_add(1);
        self.start_copied = false;
        self.look_around();
        let slots = slots::hold(libcuda);
        self.told_of_all = slots.all;
        slots
    }

    /// Lets the driver's own request through and only watches the copies.
    fn watch(
        &mut self,
        request: &Request<'_>,
        mode: Mode,
        pass: impl Fn() -> sys::SysResult,
    ) -> sys::SysResult {
        self.mode = mode;
        self.from_kept = false;
        self.leave_ways_to_driver();
        self.sparse = false;
        // Kept memory and the driver's own would be more than the driver alone takes.
        self.drop_kept();
        let region = |start| Region {
            start,
            len: request.args.len,
            mapped: request.args.len.next_multiple_of(sys::page_size()),
            origin: Origin::Driver,
            pid: sys::getpid(),
        };
        let result = pass();
        // Without the munmap slot nobody would tell when the address is no longer the buffer's.
        let watched = result
            .ok()
            .map(region)
            .filter(|region| request.slots.unmaps && region::insert(region));
        match watched {
            Some(region) => {
                self.current = Some(region);
                record::buffer(
                    BufferState::Observed,
                    region.start,
                    region.len,
                    region.mapped,
                );
                self.open_checkpoint(request, PageKind::Driver);
            }
            None => slots::free_unless_needed(),
        }
        result
    }

    /// Answers the request with memory of ours.
    fn give(&mut self, request: &Request<'_>) -> Result<usize, Step> {
        let memory = self.obtain(request)?;
        self.mode = Mode::On;
        self.choose_ways(self.work_of_request(), request.slots.copies, request.config);
        self.sparse = request.config.sparse && request.slots.copies && memory.tail && !self.foreign;
        self.arm_prefault(&memory, request);
        self.open_checkpoint(request, memory.pages);
        if !request.slots.copies {
            record::step(Step::NoCopySlot);
        }
        if request.slots.unmaps {
            self.keep_track(&memory, request);
            if !CREW.pages.is_done() {
                self.recruit();
            }
        } else {
            record::step(Step::NoMunmapSlot);
            self.prefault_before_answer(&memory)?;
        }
        self.phase.mapped(sys::now_ns());
        Ok(memory.start)
    }

    fn arm_prefault(&self, memory: &Memory, request: &Request<'_>) {
        let how = match memory.pages {
            PageKind::Hugetlb => return,
            // The driver will unmap without telling us. A helper that was stopped in the middle then gets an error and not a
            // signal.
            _ if !memory.tail => How::Populate,
            PageKind::Small if memory.mixed => How::TouchMixed,
            PageKind::Small => How::TouchSmall,
            _ => How::TouchHuge,
        };
        let all_there = self.from_kept && request.config.keep_max == 0;
        // A late helper of the phase before may be in the middle of a unit, and would mix the old range with the new.
        if all_there || CREW.alive() > 0 {
            CREW.pages.disarm();
            return;
        }
        let share = strategy::prefaulting(self.ways.get(0).strategy);
        let limit = (self.threads * share / 16).max(1);
        CREW.pages
            .arm(memory.start, request.args.len, memory.mapped, how, limit);
        CREW.pages.copied_up_to(self.ready);
        if self.sparse {
            CREW.pages.want_up_to(self.ready + SPARSE_AHEAD);
        }
    }

    fn open_checkpoint(&mut self, request: &Request<'_>, pages: PageKind) {
        self.begin_phase(
            First::Request,
            Direction::Checkpoint,
            pages,
            request.args.len,
            request.started_ns,
        );
        self.phase.mapped(sys::now_ns());
    }

    fn keep_track(&mut self, memory: &Memory, request: &Request<'_>) {
        let region = Region {
            start: memory.start,
            len: request.args.len,
            mapped: memory.mapped,
            origin: Origin::WithTail,
            pid: sys::getpid(),
        };
        // There is a place: checked before anything was done, and nobody else enters regions.
        region::insert(&region);
        self.current = Some(region);
        self.memory = Some(*memory);
        record::buffer(BufferState::Live, region.start, region.len, region.mapped);
    }

    /// The driver will unmap without telling us: all threads are gone, and nothing of ours is mapped, when it gets the address
    /// (but for a helper that somebody stopped, and its stack). An error means that memory is short and has been given back.
    fn prefault_before_answer(&mut self, memory: &Memory) -> Result<(), Step> {
        // SAFETY: a new mapping anywhere.
        let stacks = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            sys::mmap(0, STACKS, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if let Ok(stacks) = stacks {
            self.recruit_on(stacks);
        }
        CREW.finish_units();
        let refusal = CREW.pages.refusal();
        self.phase.mapped(sys::now_ns());
        self.end_phase(End::NoCopy);
        if let Ok(start) = stacks {
            let _ = hollow::dispose(&Memory::to_give_back(start, STACKS, false));
        }
        slots::free_unless_needed();
        match refusal {
            None => {}
            Some(errno) if is_no_such_call(errno) => record::step(Step::NoPopulate),
            Some(_) => {
                let _ = hollow::dispose(memory);
                return Err(Step::LowMemory);
            }
        }
        Ok(())
    }

    /// Brings the crew to its size on the stacks behind the buffer.
    pub(super) fn recruit(&mut self) {
        if let Some(stacks) = self.memory.and_then(|memory| memory.stacks()) {
            self.recruit_on(stacks);
        }
    }

    fn recruit_on(&mut self, stacks: usize) {
        if self.no_more_threads || self.threads < 2 {
            return;
        }
        // SAFETY: the stacks are ours and are unmapped, or handed to `dispose`, only when the crew is gone.
        let recruited = unsafe { CREW.recruit(self.threads - 1, stacks) };
        let counters = &record::get().counters;
        counters
            .helpers_started
            .fetch_add(recruited.started.into(), Relaxed);
        if recruited.refused {
            self.no_more_threads = true;
            self.threads = CREW.alive() + 1;
            Phase::set_threads(self.threads);
            record::step(Step::NoThread);
            log::debug!("the kernel refused a thread: {} helpers", CREW.alive());
        }
    }
}

/// Whether a refused population says nothing about memory: a kernel before 5.14, or one that may not be asked.
const fn is_no_such_call(errno: i32) -> bool {
    matches!(
        errno,
        libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EINTR | libc::EAGAIN
    )
}
