//! What happens when: the driver asks for its buffer ([`request`], [`memory`]), copies ([`copies`], [`ways`], [`faults`], [`staging`]), lets the buffer go
//! ([`release`], [`give_back`]) or does something else to it ([`disturb`]); meanwhile some of libcuda's slots are ours ([`slots`]). One state, used by one thread at a time and not
//! waited for but for a moment: who cannot have it passes the call on.

mod at_once;
pub mod copies;
pub mod disturb;
mod faults;
mod give_back;
mod kept;
mod memory;
pub mod release;
pub mod request;
pub mod slots;
mod staging;
mod ways;

use core::sync::atomic::{AtomicU32, Ordering};

use cudasnap_wire::{Direction, End, Mode, PageKind, Step};

use crate::buffer::Memory;
use crate::copy::kernel::{Cpu, Kernel};
use crate::copy::sparse;
use crate::copy::strategy::{Way, Ways};
use crate::copy::tune::Tuner;
use crate::crew::{First, CREW};
use crate::exclusive::{mark_at, Exclusive, Guard, Place, User};
use crate::phase::{Opening, Phase};
use crate::region::Region;
use crate::{hollow, record, region, sys};

use faults::Faults;
use staging::Staging;

/// Everything about the buffer that is in use, and the phase that goes on.
pub struct State {
    /// Load address of the libcuda that made the last request.
    libcuda: usize,
    /// The buffer whose copies are made; older ones are only remembered for their munmap.
    current: Option<Region>,
    memory: Option<Memory>,
    /// Number of the buffer in this process.
    number: u32,
    /// Mode that was latched when the buffer was requested.
    mode: Mode,
    /// Whether `memory` held pages from the cycle before, or was reserved and found full.
    from_kept: bool,
    /// Bytes of `memory` from its start on that were populated while it was reserved.
    ready: usize,
    /// What is kept or, with that option, reserved.
    kept: Option<Memory>,
    phase: Phase,
    kernel: Kernel,
    /// Threads of the open phase, the caller included; 1 = plain copies by the caller.
    threads: u32,
    /// The ways to copy in the open phase.
    ways: Ways,
    /// Which of them is best.
    tuner: Tuner,
    /// The way that the record tells of.
    way: Way,
    /// Where only the caller may copy in this phase.
    faults: Faults,
    /// What is zero is left out.
    sparse: bool,
    /// Whose lines may be flushed after the copy has returned.
    staging: Staging,
    /// Whatever takes addresses away in libcuda comes to us.
    told_of_all: bool,
    /// The buffer's first byte was copied in this phase.
    start_copied: bool,
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

/// Never about 0, which is what a process is told that may not ask for its id.
fn is_about(pid: u32) -> bool {
    pid != 0 && ABOUT.load(Ordering::Relaxed) == pid
}

/// As after a request.
#[cfg(all(test, target_arch = "x86_64", not(miri), not(cudasnap_portable)))]
pub fn be_about_this_process() {
    ABOUT.store(sys::getpid(), Ordering::Relaxed);
}

fn note_requester(tid: u32) {
    REQUESTER.store(tid, Ordering::Relaxed);
}

fn is_requester() -> bool {
    let tid = sys::gettid();
    tid != 0 && REQUESTER.load(Ordering::Relaxed) == tid
}

impl State {
    const fn new() -> Self {
        State {
            libcuda: 0,
            current: None,
            memory: None,
            number: 0,
            mode: Mode::On,
            from_kept: false,
            ready: 0,
            kept: None,
            phase: Phase::new(),
            kernel: Kernel::PORTABLE,
            threads: 1,
            ways: Ways::only(Ways::DRIVER),
            tuner: Tuner::settled(),
            way: Ways::DRIVER,
            faults: Faults::new(),
            sparse: false,
            staging: Staging::new(),
            told_of_all: false,
            start_copied: false,
            no_more_threads: false,
            foreign: false,
        }
    }

    /// Chooses the copy loops for a phase from what the CPU and the library are now, and looks who handles faults.
    fn look_around(&mut self) {
        self.foreign = !record::text_is_ours();
        self.no_more_threads = false;
        self.faults = Faults::look();
        self.staging = Staging::new();
        self.kernel = if self.foreign {
            record::step(Step::ForeignBuild);
            Kernel::PORTABLE
        } else {
            Kernel::of(Cpu::detect())
        };
    }

    /// Begins a phase with its first call. Threads and ways are chosen.
    fn begin_phase(
        &mut self,
        first: First,
        direction: Direction,
        pages: PageKind,
        expected: usize,
        started_ns: u64,
    ) {
        // What a copy did that was left by a jump has gone into no account, and is not this phase's.
        sparse::account();
        CREW.begin(sys::now_ns(), first, Phase::end_word());
        self.phase.open(&Opening {
            direction,
            mode: self.mode,
            pages,
            threads: self.threads,
            buffer: self.number,
            kept: self.from_kept,
            expected,
            started_ns,
        });
        self.begin_ways();
    }

    /// Ends the phase that goes on, if any: its helpers are gone, or proved to be late, when this returns.
    fn end_phase(&mut self, end: End) {
        if CREW.alive() > 0 {
            let late = CREW.dismiss();
            (0..late).for_each(|_| record::step(Step::HelperLate));
        }
        CREW.forget_units();
        let (bytes, done_ns) = (CREW.pages.bytes(), CREW.pages.finished_ns());
        if self.phase.is_any_open() && CREW.pages.was_slow() {
            record::step(Step::SlowHugePages);
        }
        self.phase.close(end, bytes, done_ns);
        CREW.pages.disarm();
    }

    /// Somebody has left the state in the middle. What it says is not to be relied on: the buffer is the driver's own from now
    /// on.
    fn recover(&mut self) {
        CREW.settle();
        let in_pool = self
            .memory
            .is_some_and(|memory| memory.pages == PageKind::Hugetlb);
        match self.current {
            // Its length is rounded to 2 MiB, without which the kernel does not unmap it: the driver's munmap must come to us.
            Some(_) if in_pool => self.let_go_of(),
            Some(region) => self.forget(&region),
            None => self.end_phase(End::Disturbed),
        }
    }

    /// Takes a kept or reserved buffer out, to be given back.
    fn take_kept(&mut self) -> Option<Memory> {
        let kept = self.kept.take();
        if kept.is_some() && self.current.is_none() {
            record::buffer(record::BufferState::None, 0, 0, 0);
        }
        kept
    }

    /// Gives a kept or reserved buffer back.
    fn drop_kept(&mut self) {
        if let Some(memory) = self.take_kept() {
            kept::dispose(&memory);
        }
    }
}

/// Where a call comes from.
struct Call {
    /// Marked while the call uses the state; read by a signal handler, or after a jump, as a word of the stack.
    place: Place,
    /// Address of something in our outermost frame.
    entry: usize,
}

impl Call {
    /// A call from somewhere below.
    fn here() -> Self {
        Self::from(0)
    }

    /// A call whose outermost frame of ours holds `entry`.
    fn from(entry: usize) -> Self {
        Call {
            place: Place::new(sys::signal_stack().range),
            entry,
        }
    }
}

/// Frames of one stack lie nearer to each other than those of two.
const ONE_STACK: usize = 64 << 10;

/// Whether the calling thread has left its earlier use of the state by a jump: `siglongjmp` out of a copy, whose source was not
/// there. Otherwise it is in a signal handler, in the middle of that use, whose frame is then still there and above ours, or
/// on another stack: the one that was in use as the handler's when that use began may be disarmed by now.
fn jumped_out(earlier: User, entry: usize) -> bool {
    let is_known = earlier.place != 0;
    if !is_known || earlier.place.abs_diff(entry) > ONE_STACK || sys::signal_stack().in_use {
        return false;
    }
    let mut mark = [0; size_of::<u64>()];
    match sys::read_own(earlier.place, &mut mark) {
        // Where its frame was there is another, or nothing.
        Ok(()) if u64::from_ne_bytes(mark) != mark_at(earlier.place) => true,
        Err(libc::EFAULT) => true,
        // The frame is there, or the kernel forbids the question.
        _ => {
            let (from, to) = earlier.signal_stack;
            entry >= earlier.place && !(from..to).contains(&entry)
        }
    }
}

/// Whether a user of the state does not go on, seen from thread `tid` of process `pid`.
fn is_gone(user: User, pid: u32, tid: u32, entry: usize) -> bool {
    match user.tid == tid {
        true => jumped_out(user, entry),
        false => !sys::thread_exists(pid, user.tid),
    }
}

/// The calling thread, by its number; `None` where it may not ask for it: then nobody can be told from anybody else.
fn own_tid() -> Option<u32> {
    Some(sys::gettid()).filter(|&tid| tid != 0)
}

/// The state as it is, for the calling thread.
fn take(pid: u32, call: &Call) -> Option<Guard<'_, State>> {
    let tid = own_tid().filter(|_| pid != 0)?;
    STATE.try_use(tid, &call.place, |user| is_gone(user, pid, tid, call.entry))
}

fn recovered(mut state: Guard<'_, State>) -> Guard<'_, State> {
    if state.was_left() {
        state.recover();
    }
    state
}

/// The state for the calling thread; `None` while another thread uses it, or when it is another process's: in a child of
/// fork it is the parent's copy, in a child of vfork the parent's own.
fn enter(pid: u32, call: &Call) -> Option<Guard<'_, State>> {
    if !is_about(pid) {
        return None;
    }
    take(pid, call).map(recovered)
}

/// The same, with a short wait for a thread that uses it for a moment: for calls after which the state must be right. Not
/// longer, since that thread may have been stopped.
fn enter_soon(pid: u32, call: &Call) -> Option<Guard<'_, State>> {
    let deadline = sys::now_ns().saturating_add(10_000_000);
    loop {
        let state = enter(pid, call);
        if state.is_some() || !is_about(pid) || sys::is_past(deadline) {
            return state;
        }
        sys::sched_yield();
    }
}

/// The state for a request of this process. What fork brought along from another process is forgotten: its threads do not
/// exist here.
fn enter_anew(pid: u32, call: &Call) -> Option<Guard<'_, State>> {
    if is_about(pid) {
        return enter(pid, call);
    }
    let mut state = take(pid, call)?;
    if is_about(pid) {
        // Another thread's first request was first.
        return Some(recovered(state));
    }
    *state = State::new();
    ABOUT.store(pid, Ordering::Relaxed);
    record::own();
    CREW.forget_all();
    hollow::forget();
    kept::forget();
    region::forget_others(pid);
    Some(state)
}

#[cfg(all(test, target_arch = "x86_64", not(miri), not(cudasnap_portable)))]
mod tests;
