//! An outside tracer that takes the shim's helpers prisoner at a place of its choice, as a debugger or a process checkpointer
//! might by chance, and holds them, or has them end alone by an `exit` system call.
//!
//! It traces the restore thread, so that each helper is born traced, and has the CPU watch a word of the buffer for it: a helper
//! that touches the word is in the middle of that part or that unit of prefault. It can also tell the process that the machine
//! has more CPUs than it has, since the number of helpers follows from that.

mod order;

pub use order::{Caught, Fate, Order, Place};

use std::io;
use std::time::{Duration, Instant};

use crate::shimmed::Shimmed;
use crate::simdriver::{Begun, Control};
use crate::tracee::{Seen, Tracee};

/// Others may still be on their way when the first was taken.
const OTHERS: Duration = Duration::from_millis(100);
/// Instructions of the restore thread that are made one by one after each look at the clock: from before a job is published
/// until its first part would be claimed.
const SLOW_STEPS: u32 = 600;
/// How long it is held back in all, from that look on. Less than what sends an idle crew away (20 ms): the steps alone take 1 to 12 ms, and
/// on a machine where tracing is slow the crew left while it was held.
const HOLD_BACK: Duration = Duration::from_millis(15);
/// Before the first copy the crew has 2 s.
const HOLD_BACK_REQUEST: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unborn,
    Free,
    Taken,
    /// It was taken, and goes on.
    Released,
    Gone,
}

#[derive(Debug)]
struct Captor<'a> {
    host: &'a Shimmed,
    order: &'a Order,
    driver: Tracee,
    /// Address of a system call instruction.
    syscall: Option<u64>,
    /// The process has been told how many CPUs there are.
    told: bool,
    slow_steps: u32,
    /// When the last of them began.
    slow_since: Option<Instant>,
    /// It is stopped and stays so; counted from then.
    held_back: Option<Instant>,
    helpers: Vec<(Tracee, State)>,
    last_taken: Option<Instant>,
    decided: bool,
    taken: usize,
    waited: bool,
    released: Option<Instant>,
}

/// Has the driver make a step (`checkpoint`, `restore`) while helpers are taken. `restore_thread` must not be traced.
///
/// # Errors
/// When the process cannot be traced.
///
/// # Panics
/// When the step hangs.
pub fn step(
    host: &Shimmed,
    restore_thread: i32,
    action: &str,
    order: &Order,
) -> io::Result<Caught> {
    let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACESYSGOOD;
    let driver = Tracee::seize(restore_thread, options)?;
    driver.interrupt()?;
    driver.wait()?;
    driver.resume(libc::PTRACE_SYSCALL, 0)?;
    let mut captor = Captor {
        host,
        order,
        driver,
        syscall: None,
        told: false,
        slow_steps: 0,
        slow_since: None,
        held_back: None,
        helpers: Vec::new(),
        last_taken: None,
        decided: false,
        taken: 0,
        waited: false,
        released: None,
    };
    // A helper has nothing to do between two copies only when prefault is over: on a busy machine never, if copies come at once.
    let rate = match order.place {
        Place::After(_) => "1",
        _ => "0",
    };
    let environment = [("CUDASIM_NOISE", "0"), ("CUDASIM_DMA_GBPS", rate)];
    let mut begun = host.driver.begin(action, host.app.pid(), &environment);
    let control = captor.attend(&mut begun)?;
    let afterwards = captor.released.map_or(Duration::ZERO, |at| at.elapsed());
    Ok(Caught {
        born: captor.helpers.len(),
        taken: captor.taken,
        waited: captor.waited,
        afterwards,
        control,
    })
}

impl Captor<'_> {
    fn attend(&mut self, begun: &mut Begun) -> io::Result<Control> {
        loop {
            if let Some(control) = begun.poll() {
                return Ok(control);
            }
            while self.look_at_driver()? {}
            for index in 0..self.helpers.len() {
                self.look_at_helper(index)?;
            }
            self.end_of_holding_back()?;
            self.decide(begun)?;
            if self.is_quick() {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    fn look_at_driver(&mut self) -> io::Result<bool> {
        let Some(seen) = self.driver.look()? else {
            return Ok(false);
        };
        let mut signal = 0;
        match seen {
            Seen::Syscall => self.at_syscall()?,
            Seen::Event(libc::PTRACE_EVENT_CLONE) => {
                let tid = self.driver.newborn()?;
                self.helpers.push((Tracee { tid }, State::Unborn));
            }
            Seen::Signal(libc::SIGTRAP) if self.slow_steps > 0 => {
                self.slow_steps -= 1;
                if self.slow_steps == 0 && !self.is_enough() {
                    self.held_back = self.slow_since;
                    return Ok(false);
                }
            }
            Seen::Signal(other) => signal = other,
            Seen::Event(_) => {}
            Seen::Ended => return Err(io::Error::other("the restore thread ended")),
        }
        self.resume_driver(signal)?;
        Ok(true)
    }

    fn resume_driver(&mut self, signal: i32) -> io::Result<()> {
        if self.is_enough() {
            self.slow_steps = 0;
        }
        let how = match (self.slow_steps, self.is_quick()) {
            (1.., _) => libc::PTRACE_SINGLESTEP,
            (0, true) => libc::PTRACE_SYSCALL,
            (0, false) => libc::PTRACE_CONT,
        };
        self.driver.resume(how, signal)
    }

    fn end_of_holding_back(&mut self) -> io::Result<()> {
        let time = match self.order.place {
            Place::Prefault(_) => HOLD_BACK_REQUEST,
            _ => HOLD_BACK,
        };
        let is_over = |since: Instant| since.elapsed() > time;
        if self.held_back.is_some_and(is_over) || (self.held_back.is_some() && self.is_enough()) {
            self.held_back = None;
            self.resume_driver(0)?;
        }
        Ok(())
    }

    /// Whether the copy that goes on, or comes next, is one of those.
    fn is_to_be_held_back(&self) -> bool {
        if self.order.held_back.is_empty() || self.is_enough() {
            return false;
        }
        let record = self.host.located().read();
        record.is_ok_and(|record| self.order.held_back.contains(&record.current.copies))
    }

    /// Whether the restore thread stops at every turn, so that it should not be kept waiting. It asks for its CPUs more than once before it
    /// has helpers: for each way to copy that the CPU offers.
    fn is_quick(&self) -> bool {
        !self.told
            || self.helpers.is_empty()
            || !(self.order.held_back.is_empty() || self.is_enough())
    }

    fn at_syscall(&mut self) -> io::Result<()> {
        let registers = self.driver.registers()?;
        self.syscall = Some(registers.rip - 2);
        let result = registers.rax as i64;
        // At its start the result says that there is no such call.
        if result == -i64::from(libc::ENOSYS) {
            return Ok(());
        }
        match registers.orig_rax as i64 {
            libc::SYS_sched_getaffinity if result > 0 => {
                self.told = true;
                let mask = (1u64 << self.order.cpus) - 1;
                self.driver.poke(registers.rdx, mask.to_ne_bytes())?;
            }
            libc::SYS_clock_gettime if self.is_to_be_held_back() => {
                self.slow_steps = SLOW_STEPS;
                self.slow_since = Some(Instant::now());
            }
            _ => {}
        }
        Ok(())
    }

    fn look_at_helper(&mut self, index: usize) -> io::Result<()> {
        let (helper, state) = self.helpers[index];
        if matches!(state, State::Gone | State::Taken) {
            return Ok(());
        }
        let state = match helper.look()? {
            None => return Ok(()),
            Some(Seen::Ended) => State::Gone,
            Some(Seen::Signal(libc::SIGTRAP)) => {
                helper.unwatch()?;
                self.at_watch(helper)?
            }
            Some(_) if state == State::Unborn => self.at_birth(helper)?,
            Some(Seen::Syscall) => self.at_helpers_syscall(helper)?,
            Some(_) => {
                helper.resume(libc::PTRACE_CONT, 0)?;
                state
            }
        };
        self.helpers[index].1 = state;
        Ok(())
    }

    fn is_enough(&self) -> bool {
        self.decided || self.taken >= self.order.helpers
    }

    fn take(&mut self, helper: Tracee) -> io::Result<State> {
        self.taken += 1;
        self.last_taken = Some(Instant::now());
        if self.order.fate != Fate::Exit {
            return Ok(State::Taken);
        }
        let syscall = self.syscall.ok_or(io::Error::other("no system call yet"))?;
        helper.make_exit(syscall)?;
        Ok(State::Gone)
    }

    fn at_birth(&mut self, helper: Tracee) -> io::Result<State> {
        let order = self.order;
        if matches!(order.place, Place::Birth) && !self.is_enough() {
            return self.take(helper);
        }
        if let Place::Prefault(offsets) | Place::Part(offsets) = &order.place {
            let start = self.buffer()?;
            let addresses: Vec<u64> = offsets.iter().map(|offset| start + offset).collect();
            helper.watch(&addresses)?;
        }
        helper.resume(self.pace(), 0)?;
        Ok(State::Free)
    }

    fn buffer(&self) -> io::Result<u64> {
        let record = self.host.located().read().map_err(io::Error::other)?;
        Ok(record.buffer.address)
    }

    /// A prefault is a locked "or" with zero: it is told from a copy's load or store by its code.
    fn at_watch(&mut self, helper: Tracee) -> io::Result<State> {
        let code = helper.peek(helper.registers()?.rip - 8)?;
        let touches = matches!(
            code,
            [.., 0xf0, 0x80, _, 0] | [.., 0xf0, 0x41, 0x80, _, 0] | [.., 0xf0, 0x80, _, _, 0]
        );
        let wanted = matches!(self.order.place, Place::Prefault(_)) == touches;
        if wanted && !self.is_enough() {
            return self.take(helper);
        }
        helper.resume(libc::PTRACE_CONT, 0)?;
        Ok(State::Free)
    }

    /// A helper that offers its CPU to others is in the middle of nothing.
    fn at_helpers_syscall(&mut self, helper: Tracee) -> io::Result<State> {
        let offers = helper.registers()?.orig_rax as i64 == libc::SYS_sched_yield;
        if offers && !self.is_enough() && self.has_copied() {
            return self.take(helper);
        }
        helper.resume(self.pace(), 0)?;
        Ok(State::Free)
    }

    /// Whether the copies have come to where helpers are to be taken between two of them.
    fn has_copied(&self) -> bool {
        // It cannot be read while the restore thread is stopped in the middle of a change.
        let record = self.host.located().read();
        matches!(self.order.place, Place::After(copies)
            if record.is_ok_and(|record| record.current.copies >= copies))
    }

    /// How a helper goes on.
    fn pace(&self) -> libc::c_uint {
        match self.order.place {
            Place::After(_) if !self.is_enough() => libc::PTRACE_SYSCALL,
            _ => libc::PTRACE_CONT,
        }
    }

    /// Releases who was held for long enough.
    fn decide(&mut self, begun: &mut Begun) -> io::Result<()> {
        let (Fate::Held(time), Some(since)) = (self.order.fate, self.last_taken) else {
            return Ok(());
        };
        let held = since.elapsed();
        self.decided |= held > OTHERS;
        if !self.is_enough() || held < time {
            return Ok(());
        }
        for (helper, state) in &mut self.helpers {
            if *state == State::Taken {
                self.waited |= begun.is_under_way();
                helper.resume(libc::PTRACE_CONT, 0)?;
                *state = State::Released;
                self.released = Some(Instant::now());
            }
        }
        Ok(())
    }
}

/// Lets all go, also when a test fails: its process could not end before its tracer.
impl Drop for Captor<'_> {
    fn drop(&mut self) {
        // A process that is gone has nobody left to be released.
        let _ = self.let_all_go();
    }
}

impl Captor<'_> {
    fn let_all_go(&self) -> io::Result<()> {
        let stopped = |state| state == State::Taken;
        let helpers = self
            .helpers
            .iter()
            .filter(|(_, state)| *state != State::Gone);
        let all = helpers.map(|(helper, state)| (*helper, stopped(*state)));
        let driver = (self.driver, self.held_back.is_some());
        for (thread, is_stopped) in all.chain([driver]) {
            let mut seen = Seen::Syscall;
            if !is_stopped {
                // One that ends now is waited for.
                let _ = thread.interrupt();
                seen = thread.wait()?;
            }
            if seen != Seen::Ended {
                thread.unwatch()?;
                thread.detach()?;
            }
        }
        Ok(())
    }
}
