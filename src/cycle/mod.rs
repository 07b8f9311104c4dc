//! What happens when: the driver asks for its buffer ([`request`]), copies ([`copies`]), lets the buffer go or does something
//! to it ([`release`]). One state, used by one thread at a time and never waited for: who cannot have it passes the call on.

pub mod copies;
pub mod release;
pub mod request;

use core::sync::atomic::{AtomicU32, Ordering};

use cudasnap_wire::{End, Mode, Step};

use crate::buffer::Memory;
use crate::copy::kernel::{choose, Isa, Kernel};
use crate::crew::CREW;
use crate::exclusive::{Exclusive, Guard};
use crate::phase::Phase;
use crate::region::Region;
use crate::{record, region, sys};

/// Most address ranges that wait for a stopped helper.
const HOLLOWS: usize = 4;

/// Everything about the buffer that is in use, and the phase that goes on.
pub struct State {
    /// Process that this state is about.
    pid: u32,
    /// Load address of the libcuda that made the last request.
    libcuda: usize,
    /// The buffer whose copies are made; older ones are only remembered for their munmap.
    current: Option<Region>,
    memory: Option<Memory>,
    /// Number of the buffer in this process.
    number: u32,
    /// Mode that was latched when the buffer was requested.
    mode: Mode,
    /// Whether `memory` held pages from the cycle before.
    from_kept: bool,
    kept: Option<Memory>,
    hollows: [Option<Memory>; HOLLOWS],
    phase: Phase,
    kernel: Kernel,
    /// Threads of the open phase, the caller included; 1 = plain copies by the caller.
    threads: u32,
    /// The kernel refused a thread in this phase: no more are asked for.
    no_more_threads: bool,
    /// The text is of another build than the data: plain copies.
    foreign: bool,
}

static STATE: Exclusive<State> = Exclusive::new(State::new());

/// Thread of the last request: the restore thread. Outside the state, so that other threads need not take it to see that a
/// call is not theirs.
static REQUESTER: AtomicU32 = AtomicU32::new(0);

/// Process that the state is about; 0 = none yet.
static ABOUT: AtomicU32 = AtomicU32::new(0);

fn is_about(pid: u32) -> bool {
    ABOUT.load(Ordering::Relaxed) == pid
}

fn note_requester(tid: u32) {
    REQUESTER.store(tid, Ordering::Relaxed);
}

fn is_requester() -> bool {
    REQUESTER.load(Ordering::Relaxed) == sys::gettid()
}

impl State {
    const fn new() -> Self {
        State {
            pid: 0,
            libcuda: 0,
            current: None,
            memory: None,
            number: 0,
            mode: Mode::On,
            from_kept: false,
            kept: None,
            hollows: [None; HOLLOWS],
            phase: Phase::new(),
            kernel: Kernel::PORTABLE,
            threads: 1,
            no_more_threads: false,
            foreign: false,
        }
    }

    /// Chooses the copy loops for a phase from what the CPU and the library are now.
    fn look_around(&mut self) {
        self.foreign = !record::text_is_ours();
        self.no_more_threads = false;
        self.kernel = if self.foreign {
            record::step(Step::ForeignBuild);
            choose(Isa::Portable, false)
        } else {
            let (isa, clflushopt) = crate::copy::kernel::detect();
            choose(isa, clflushopt)
        };
    }

    /// Ends the phase that goes on, if any: its helpers are gone, or proved to be late, when this returns.
    fn end_phase(&mut self, end: End) {
        if CREW.alive() > 0 {
            let late = CREW.dismiss();
            (0..late).for_each(|_| record::step(Step::HelperLate));
        }
        let (bytes, done_ns) = (CREW.prefault.bytes(), CREW.prefault.finished_ns());
        if self.phase.is_any_open() && CREW.prefault.was_slow() {
            record::step(Step::SlowHugePages);
        }
        self.phase.close(end, bytes, done_ns);
        CREW.prefault.disarm();
    }

    /// Unmaps memory that nobody but a helper could still touch. While a stopped one lives, its stack and the addresses that
    /// it may prefault stay, and only the buffer's pages are freed.
    fn dispose(&mut self, memory: Memory) -> sys::SysResult {
        if CREW.alive() == 0 {
            // SAFETY: the driver has let it go and no helper lives.
            return unsafe { crate::buffer::unmap(&memory) };
        }
        if let Some(stacks) = memory.stacks() {
            crate::buffer::hollow(memory.start, stacks - memory.start);
        }
        match self.hollows.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(memory),
            // Never unmapped: addresses, but hardly any memory.
            None => record::step(Step::HelperLate),
        }
        Ok(0)
    }

    /// Gives a kept buffer back.
    fn drop_kept(&mut self) {
        if let Some(kept) = self.kept.take() {
            let _ = self.dispose(kept);
            if self.current.is_none() {
                record::buffer(record::BufferState::None, 0, 0, 0);
            }
        }
    }

    /// Unmaps what waited for stopped helpers, once they are gone.
    fn reclaim(&mut self) {
        if CREW.alive() > 0 {
            return;
        }
        for place in &mut self.hollows {
            if let Some(memory) = place.take() {
                // SAFETY: nobody but a helper could still touch it, and none lives.
                let _ = unsafe { crate::buffer::unmap(&memory) };
            }
        }
    }
}

/// The state for the calling thread; `None` while another thread uses it, or when it is another process's: in a child of
/// fork it is the parent's copy, in a child of vfork the parent's own.
fn enter(pid: u32) -> Option<Guard<'static, State>> {
    STATE.try_use(pid).filter(|state| state.pid == pid)
}

/// The state for a request of this process. What fork brought along from another process is forgotten: its helpers do not
/// exist here.
fn enter_anew(pid: u32) -> Option<Guard<'static, State>> {
    let mut state = STATE.try_use_after_fork(pid)?;
    if state.pid != pid {
        *state = State {
            pid,
            ..State::new()
        };
        ABOUT.store(pid, Ordering::Relaxed);
        CREW.forget_all();
        region::forget_others(pid);
    }
    Some(state)
}
