//! A tracer that meets the shim's helpers in mid-phase: stops them at whatever instruction they are at and lets them go, or makes
//! them exit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cudasnap_cli::control::ptrace::{self, Event};
use cudasnap_cli::process::observe::threads;
use cudasnap_cli::process::target::{Memory, Target};

use crate::leaks::HELPER;

use super::faults::Deed;

/// `syscall`.
const INSTRUCTION: [u8; 2] = [0x0f, 0x05];

/// The tracer at work, on a thread of its own: ptrace knows threads, not processes.
#[derive(Debug)]
pub struct Meddler {
    over: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Meddler {
    /// Begins to look for helpers of this process; meets those that are there so long after the first was seen.
    #[must_use]
    pub fn new(target: Target, after: Duration, deed: Deed) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let phase_over = Arc::clone(&over);
        let thread = std::thread::spawn(move || meddle(target, after, deed, &phase_over));
        Meddler { over, thread }
    }

    /// The phase is over: how many helpers were met.
    #[must_use]
    pub fn met(self) -> u32 {
        self.over.store(true, Ordering::Release);
        self.thread.join().unwrap_or(0)
    }
}

fn helpers(target: Target) -> Vec<i32> {
    let all = threads(target).unwrap_or_default();
    let helpers = all
        .into_iter()
        .filter(|thread| thread.name.starts_with(HELPER));
    helpers.map(|thread| thread.tid).collect()
}

fn meddle(target: Target, after: Duration, deed: Deed, over: &AtomicBool) -> u32 {
    let instruction = match deed {
        Deed::Kill => find_instruction(target),
        Deed::Hold(_) => None,
    };
    let mut seen = false;
    while !over.load(Ordering::Acquire) {
        let met: Vec<i32> = match helpers(target) {
            found if found.is_empty() => Vec::new(),
            found if seen => found.into_iter().filter(|helper| stop(*helper)).collect(),
            _ => {
                std::thread::sleep(after);
                seen = true;
                continue;
            }
        };
        if met.is_empty() {
            std::thread::sleep(Duration::from_micros(100));
            continue;
        }
        return match (deed, instruction) {
            (Deed::Hold(ms), _) => hold(&met, Duration::from_millis(ms)),
            (Deed::Kill, Some(at)) => met.iter().map(|helper| u32::from(kill(*helper, at))).sum(),
            (Deed::Kill, None) => {
                // Let go as they were: nobody was met.
                hold(&met, Duration::ZERO);
                0
            }
        };
    }
    0
}

fn stop(helper: i32) -> bool {
    // It may be gone by now.
    ptrace::seize(helper).is_ok()
        && ptrace::interrupt(helper).is_ok()
        && matches!(
            ptrace::wait(helper, None),
            Ok(Some(Event::Stopped | Event::Signal(_)))
        )
}

fn hold(helpers: &[i32], time: Duration) -> u32 {
    std::thread::sleep(time);
    let released = helpers.iter().filter(|helper| {
        let released = ptrace::detach(**helper).is_ok();
        if !released {
            // Its process was killed meanwhile, and cannot end before its tracer has seen that.
            let _ = ptrace::wait(**helper, None);
        }
        released
    });
    released.count() as u32
}

/// Lets a stopped thread make the system call `exit`; whether it ended.
#[cfg(target_arch = "x86_64")]
fn kill(helper: i32, instruction: u64) -> bool {
    let Ok(mut registers) = ptrace::registers(helper) else {
        return false;
    };
    registers.rip = instruction;
    registers.rax = libc::SYS_exit as u64;
    registers.rdi = 0;
    // Not inside a system call that would be made again.
    registers.orig_rax = u64::MAX;
    ptrace::set_registers(helper, &registers).is_ok()
        && ptrace::go_on(helper, 0).is_ok()
        && matches!(ptrace::wait(helper, None), Ok(Some(Event::Ended)))
}

/// Elsewhere the shim has no helpers.
#[cfg(not(target_arch = "x86_64"))]
fn kill(helper: i32, _instruction: u64) -> bool {
    hold(&[helper], Duration::ZERO);
    false
}

/// A system call instruction in the code that the kernel maps into every process.
fn find_instruction(target: Target) -> Option<u64> {
    let mappings = target.mappings().ok()?;
    let code = mappings.iter().find(|mapping| mapping.path == "[vdso]")?;
    let mut bytes = vec![0; code.length() as usize];
    target.read(code.start, &mut bytes).ok()?;
    let at = bytes.windows(2).position(|two| two == INSTRUCTION)?;
    Some(code.start + at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_code_has_a_system_call() {
        assert!(find_instruction(Target::new(std::process::id() as i32)).is_some());
    }
}
