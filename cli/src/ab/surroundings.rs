//! What else the machine did during a cycle.

use super::data::Surroundings;
use crate::gpus::{Asked, Depth};
use crate::process::target::Target;

/// Fewer ticks of all CPUs together are too coarse to tell shares by.
const FEWEST_TICKS: u64 = 40;

/// A look before a cycle.
#[derive(Debug)]
pub struct Before {
    pid: i32,
    ticks: Option<Ticks>,
    others_on_gpu: Option<u32>,
    available: Option<u64>,
}

/// CPU time so far, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    all: u64,
    busy: u64,
    /// The target's, and the tool's own: a caller works in the driver for its target.
    ours: u64,
}

impl Before {
    /// Looks. The GPU is asked now, since a process that is checkpointed is on none.
    pub fn look(pid: i32) -> Self {
        let gpus = Asked::now(Depth::Memory).answer();
        let others = gpus.ok().and_then(|gpus| {
            // Nobody knows which GPU it is on where NVML counts in another pid namespace.
            gpus.contexts_of(pid).next()?;
            let all = gpus.contexts_of(pid).flat_map(|(gpu, _)| &gpu.processes);
            let mut others: Vec<i32> = all.map(|process| process.pid).collect();
            others.retain(|other| *other != pid);
            others.sort_unstable();
            others.dedup();
            Some(others.len() as u32)
        });
        Before {
            pid,
            ticks: Ticks::now(pid),
            others_on_gpu: others,
            available: memory("MemAvailable"),
        }
    }

    /// What was between then and now.
    pub fn until_now(self) -> Surroundings {
        let now = Ticks::now(self.pid);
        let others = self.ticks.zip(now).and_then(|(then, now)| now.others(then));
        Surroundings {
            others_busy: others,
            mhz: megahertz(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            others_on_gpu: self.others_on_gpu,
            available: self.available,
        }
    }
}

impl Ticks {
    fn now(pid: i32) -> Option<Self> {
        let (all, busy) = of_machine(&std::fs::read_to_string("/proc/stat").ok()?)?;
        let used = |pid| of_process(&Target::new(pid).proc_file("stat").ok()?);
        Some(Ticks {
            all,
            busy,
            ours: used(pid)? + used(std::process::id() as i32)?,
        })
    }

    /// Share of all CPUs' time since then that others took.
    fn others(self, then: Self) -> Option<f64> {
        let all = self.all.checked_sub(then.all)?;
        let busy = self.busy.saturating_sub(then.busy);
        let ours = self.ours.saturating_sub(then.ours);
        let share = busy.saturating_sub(ours) as f64 / all as f64;
        (all >= FEWEST_TICKS).then_some(share.min(1.0))
    }
}

/// All ticks and those that were not idle, of the first line of `/proc/stat`. Time that another machine of the same host took counts as
/// busy; guests' time is contained in the user's already.
fn of_machine(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .take(8)
        .filter_map(|word| word.parse().ok())
        .collect();
    let all: u64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all, all - idle))
}

/// User and system time of all threads, of `/proc/PID/stat`. The name may contain anything, so it is read from behind it.
fn of_process(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Lowest and highest frequency.
fn megahertz(cpuinfo: &str) -> Option<(u32, u32)> {
    let values = cpuinfo.lines().filter_map(|line| {
        let (_, value) = line.strip_prefix("cpu MHz")?.split_once(':')?;
        Some(value.trim().parse::<f64>().ok()?.round() as u32)
    });
    let values: Vec<u32> = values.collect();
    Some((*values.iter().min()?, *values.iter().max()?))
}

/// A line of `/proc/meminfo`, in bytes.
pub fn memory(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_from_the_right_fields() {
        let stat = "cpu  100 20 30 400 50 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(of_machine(stat), Some((621, 171)));
        let process = "7 (a) b) c) S 1 7 7 0 -1 4194304 1 2 3 4 55 66 7 8 20 0 1 0 99";
        assert_eq!(of_process(process), Some(121));
        assert_eq!(of_machine("intr 5"), None);
        assert_eq!(of_process("7 nothing"), None);
    }

    #[test]
    fn what_the_target_and_the_tool_used_is_not_the_others() {
        let ticks = |all, busy, ours| Ticks { all, busy, ours };
        let then = ticks(1000, 500, 100);
        let share = ticks(1100, 560, 110).others(then).unwrap();
        assert!((share - 0.5).abs() < 1e-12);
        // Ticks are counted in different places: never below nothing.
        assert_eq!(ticks(1100, 505, 120).others(then), Some(0.0));
        assert_eq!(ticks(1010, 505, 100).others(then), None);
    }

    #[test]
    fn frequencies_and_memory_are_read() {
        let text = "processor\t: 0\ncpu MHz\t\t: 2100.4\n\ncpu MHz\t\t: 3500.6\n";
        assert_eq!(megahertz(text), Some((2100, 3501)));
        assert_eq!(megahertz(""), None);
        assert!(memory("MemTotal").unwrap() > memory("MemAvailable").unwrap());
    }
}
