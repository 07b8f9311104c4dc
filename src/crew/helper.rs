//! A helper's life: copy, populate, look again, leave.

use cudasnap_wire::End;

use super::death::NAMED;
use super::{Crew, CREW};
use crate::sync::{spin_loop, Ordering};
use crate::sys;

/// A crew that has had no copy for so long leaves by itself. The longest pause of a running loop was 4.1 ms, the driver's
/// work after its last copy 30 ms (H200, driver 580.159.04).
pub(super) const IDLE_NS: u64 = 20_000_000;
/// A crew that has had no copy at all leaves after this.
const UNUSED_NS: u64 = 2_000_000_000;
/// A copy that goes on for so long does not need a helper that has nothing to do: its caller waits for one that somebody
/// stopped, or is gone itself in mid-copy.
const COPY_NS: u64 = 2_000_000_000;
/// Looks at the board between two looks at the clock, while a helper does not offer its CPU.
const LOOKS: u32 = 64;
/// Looks at the board before a helper offers its CPU to others at each look.
const SPINS: u32 = 256;

impl Crew {
    /// Why a helper should leave by itself now; `Running` when it should not.
    fn leave(&self) -> End {
        let now = sys::now_ns();
        if self.copying.load(Ordering::Acquire) != 0 {
            let began = self.copy_began_ns.load(Ordering::Relaxed);
            let long = now > began.saturating_add(COPY_NS);
            return if long { End::Idle } else { End::Running };
        }
        let last = self.last_copy_ns.load(Ordering::Relaxed);
        if last != 0 {
            let idle = now > last.saturating_add(IDLE_NS);
            return if idle { End::Idle } else { End::Running };
        }
        let over = now
            > self
                .born_ns
                .load(Ordering::Relaxed)
                .saturating_add(UNUSED_NS);
        if over || self.pages.is_done() {
            return End::NoCopy;
        }
        End::Running
    }

    fn say_left(&self, why: End) {
        let left = self.left.load(Ordering::Relaxed);
        if !left.is_null() {
            // SAFETY: `begin` was given a static word.
            let left = unsafe { &*left };
            let running = End::Running.number();
            let _ =
                left.compare_exchange(running, why.number(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// A helper's life; its thread ends with it. Runs on a stack of ours with the caller's thread-local storage: no libc, no
/// panic, nothing thread-local.
pub(super) unsafe extern "C" fn live(argument: usize) {
    let index = argument >> 32;
    let epoch = argument as u32;
    // Without its name it would be taken for another thread, and so for dead, as soon as somebody has to wait for it.
    let named = sys::set_thread_name(&name(index));
    if let Some(tid) = CREW.tids.get(index).filter(|_| named) {
        tid.fetch_or(NAMED, Ordering::Release);
    }
    let mark = (index + 1) as u8;
    let mut seen = 0;
    let mut idle = 0u32;
    while CREW.epoch.load(Ordering::Acquire) == epoch {
        if index >= CREW.stay.load(Ordering::Relaxed) as usize {
            break;
        }
        let generation = CREW.board.generation();
        let is_asked = index < CREW.team.load(Ordering::Relaxed) as usize;
        let is_new = generation != seen && generation != 0;
        // SAFETY: see `work`.
        if is_asked && is_new && unsafe { CREW.work(generation, mark) } {
            seen = generation;
            idle = 0;
            continue;
        }
        seen = generation;
        let copying = CREW.last_copy_ns.load(Ordering::Relaxed) != 0
            || CREW.copying.load(Ordering::Relaxed) != 0;
        if CREW.pages.step(copying) {
            idle = 0;
            continue;
        }
        idle = idle.wrapping_add(1).max(1);
        if idle < SPINS {
            spin_loop();
        } else {
            sys::sched_yield();
        }
        // To come back from such an offer may take a time slice of everybody else.
        if idle >= SPINS || idle.is_multiple_of(LOOKS) {
            let why = CREW.leave();
            if why != End::Running {
                CREW.say_left(why);
                break;
            }
        }
    }
}

/// What the names of helpers begin with. Names that begin with `cuda` are taken for the driver's restore thread.
pub(super) const NAME: &[u8] = b"csnap-";

/// A helper's name, `csnap-NN`.
pub(super) fn name(index: usize) -> [u8; 16] {
    let mut name = *b"csnap-00\0\0\0\0\0\0\0\0";
    name[6] = b'0' + (index / 10 % 10) as u8;
    name[7] = b'0' + (index % 10) as u8;
    name
}
