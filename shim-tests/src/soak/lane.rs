//! A lane: a process that runs the cycles of one host after the other. It is told ranges of cycles on stdin, `FROM TO`, each within
//! the life of one host, and tells what came of each on stdout, one JSON object per line. A process, because the simulated driver
//! reads its faults from the environment of its caller.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::time::Instant;

use crossbeam_channel::{unbounded, Receiver, TryRecvError};
use cudasnap_cli::driver::Driver;
use serde::{Deserialize, Serialize};

use crate::watchdog::Watchdog;

use super::cycle::{Cycle, Done};
use super::flat::Slopes;
use super::guest::{Guest, Tools};
use super::hosts::HostPlan;
use super::kinds::Kind;
use super::plan::CyclePlan;

/// What a lane tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A cycle begins.
    Began(u64),
    /// A cycle was right.
    Passed {
        /// Its number.
        cycle: u64,
        /// Words of the kinds that were seen.
        seen: Vec<String>,
        /// How long it took.
        seconds: f64,
        /// Whether helpers were late although nobody held them.
        late: bool,
    },
    /// A cycle was not.
    Failed {
        /// Its number.
        cycle: u64,
        /// What was wrong.
        problems: Vec<String>,
    },
    /// A cycle was left out.
    Skipped(u64),
    /// The life of a host was long enough to see whether it grows: bytes and mappings per cycle.
    Grew {
        /// Cycles that were compared.
        cycles: usize,
        /// Resident private bytes per cycle.
        anonymous: f64,
        /// Bytes of address space per cycle.
        address_space: f64,
        /// Mappings per cycle.
        mappings: f64,
    },
    /// The range is done.
    Idle,
}

/// A lane's work.
pub struct Lane<'a> {
    /// The seed.
    pub seed: u64,
    /// How hosts are started.
    pub tools: &'a Tools,
    /// Kinds whose cycles are left out.
    pub without: BTreeSet<Kind>,
    /// The driver.
    pub driver: &'a Driver,
}

/// Lines of stdin, from a thread: their end must be seen between two cycles.
fn lines() -> Receiver<String> {
    let (send, lines) = unbounded();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

fn tell(event: &Event) {
    let mut out = std::io::stdout().lock();
    let line = serde_json::to_string(event).unwrap_or_default();
    // Nobody listens any more: stdin has ended too, which ends the lane.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

impl Lane<'_> {
    /// Works until stdin ends.
    ///
    /// # Errors
    /// A line that is no range.
    pub fn run(&self) -> Result<(), String> {
        let lines = lines();
        while let Ok(line) = lines.recv() {
            let range = line
                .split_once(' ')
                .and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
            let (from, to) = range.ok_or(format!("\"{line}\" is no range"))?;
            if !self.live(from, to, &lines) {
                break;
            }
            tell(&Event::Idle);
        }
        Ok(())
    }

    /// Cycles of one host; whether the lane goes on.
    fn live(&self, from: u64, to: u64, lines: &Receiver<String>) -> bool {
        let host = HostPlan::of_cycle(self.seed, from);
        let mut guest = None;
        for number in from..to {
            if lines.try_recv() == Err(TryRecvError::Disconnected) {
                return false;
            }
            tell(&Event::Began(number));
            let event = self.one(&host, number, &mut guest);
            let failed = matches!(event, Event::Failed { .. });
            tell(&event);
            if failed {
                guest = None;
            }
        }
        if let Some(problems) = guest.as_ref().and_then(|guest| self.grown(&host, guest)) {
            tell(&Event::Failed {
                cycle: to - 1,
                problems,
            });
        }
        true
    }

    fn one(&self, host: &HostPlan, number: u64, guest: &mut Option<Guest>) -> Event {
        let plan = CyclePlan::new(self.seed, number);
        if plan.anew {
            *guest = None;
        }
        if plan
            .kinds(host)
            .iter()
            .any(|kind| self.without.contains(kind))
        {
            return Event::Skipped(number);
        }
        let began = Instant::now();
        match self.watched(host, &plan, guest) {
            Ok(done) => Event::Passed {
                cycle: number,
                seen: done.seen.iter().map(|kind| kind.word().into()).collect(),
                seconds: began.elapsed().as_secs_f64(),
                late: done.late,
            },
            Err(mut problems) => {
                problems.push(format!("{host:?}"));
                problems.push(format!("{plan:?}"));
                Event::Failed {
                    cycle: number,
                    problems,
                }
            }
        }
    }

    fn watched(
        &self,
        host: &HostPlan,
        plan: &CyclePlan,
        guest: &mut Option<Guest>,
    ) -> Result<Done, Vec<String>> {
        let guest = match guest {
            Some(guest) => guest,
            None => guest.insert(
                Guest::start(host, self.tools, self.driver)
                    .map_err(|error| vec![format!("start: {error}")])?,
            ),
        };
        let watchdog = Watchdog::new("a cycle", guest.pid(), self.tools.patience);
        let outcome = Cycle::new(self.driver, guest, host, plan).run();
        if watchdog.has_fired() {
            return Err(vec![format!("it hung for {:?}", self.tools.patience)]);
        }
        let said = guest.stderr();
        match outcome {
            Ok(_) if !said.is_empty() => Err(vec![format!("the host wrote to stderr: {said}")]),
            Ok(done) => Ok(done),
            Err(mut problems) => {
                if !said.is_empty() {
                    problems.push(format!("stderr of the host: {said}"));
                }
                Err(problems)
            }
        }
    }

    /// Whether the host grew; `None` when it did not, or when it did not live for long enough.
    fn grown(&self, host: &HostPlan, guest: &Guest) -> Option<Vec<String>> {
        let slopes = guest.series.slopes()?;
        let Slopes {
            anonymous,
            address_space,
            mappings,
        } = slopes;
        let cycles = guest.series.anonymous.len();
        tell(&Event::Grew {
            cycles,
            anonymous,
            address_space,
            mappings,
        });
        let mut complaints = slopes.complaints(host.mates);
        if complaints.is_empty() {
            return None;
        }
        complaints.push(format!("over {cycles} cycles of {host:?}"));
        Some(complaints)
    }
}
