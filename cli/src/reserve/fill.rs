//! Fills a reserved range, slowly: which part is next, when it may be populated, and when to stop. What it looks at and what it
//! does lies behind [`World`], so that all of this is tested without a process, without memory and without time.

use std::time::Duration;

use crate::reserve::halt::{Halt, Why};
use crate::reserve::pace::Pace;

/// Populated at once: a huge page. A thread of the process that maps memory meanwhile waits for it, some 0.2 ms.
pub const UNIT: u64 = 2 << 20;
/// Populated from one look at the memory that is left to the next.
pub const BETWEEN_LOOKS: u64 = 32 << 20;
/// Nor is a look older than this.
const LOOK_AGE: Duration = Duration::from_millis(200);
/// Longest sleep: a signal is heeded after it.
const NAP: Duration = Duration::from_millis(50);

/// What there is around the loop.
pub trait World {
    /// Time since some moment.
    fn now(&self) -> Duration;
    /// Lets time pass.
    fn sleep(&mut self, time: Duration);
    /// The signal that asked to end, if one came.
    fn signal(&self) -> Option<i32>;
    /// Whether the range is still reserved, by the same process.
    fn standing(&mut self) -> Result<(), Halt>;
    /// Whether there is memory for `bytes` more.
    fn look(&mut self, bytes: u64) -> Result<(), Halt>;
    /// Bytes of a part of the range that are in memory.
    fn resident(&mut self, offset: u64, length: u64) -> Result<u64, Halt>;
    /// Lets the kernel put pages there.
    fn populate(&mut self, offset: u64, length: u64) -> Result<(), Halt>;
    /// Says how far it is.
    fn progress(&mut self, bytes: u64);
}

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of the range.
    pub length: u64,
    /// Bytes of it that may be in memory.
    pub limit: u64,
    /// Bytes per second; 0 = no limit.
    pub rate: u64,
}

/// How far it came.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Bytes that were populated.
    pub populated: u64,
    /// Bytes in memory, as far as the range was gone through.
    pub resident: u64,
    /// Why it was not gone through to its end.
    pub halt: Option<Halt>,
}

/// Goes through the range from its start.
pub fn fill(world: &mut impl World, plan: Plan) -> Filled {
    let mut run = Run {
        filled: Filled::default(),
        pace: Pace::new(plan.rate, world.now()),
        looked: None,
        plan,
    };
    let mut offset = 0;
    let mut end = Ok(());
    while end.is_ok() && offset < plan.length {
        let length = UNIT.min(plan.length - offset);
        end = run.unit(world, offset, length);
        offset += length;
    }
    // What was found in memory counts only if it is still what it was.
    run.filled.halt = end.and_then(|()| world.standing()).err();
    run.filled
}

struct Run {
    filled: Filled,
    pace: Pace,
    /// When there was a look, and how much was populated then.
    looked: Option<(Duration, u64)>,
    plan: Plan,
}

impl Run {
    fn unit(&mut self, world: &mut impl World, offset: u64, length: u64) -> Result<(), Halt> {
        not_asked_to_end(world)?;
        let before = world.resident(offset, length)?;
        self.filled.resident += before;
        if before >= length {
            world.progress(length);
            return Ok(());
        }
        let missing = length - before;
        if self.filled.resident + missing > self.plan.limit {
            return Err(Halt::new(Why::Limit, "as much as the limit allows"));
        }
        self.wait(world)?;
        self.look(world)?;
        world.standing()?;
        world.populate(offset, length)?;
        let after = world.resident(offset, length)?;
        self.filled.populated += after.saturating_sub(before);
        self.filled.resident += after.saturating_sub(before);
        self.pace.took(missing);
        world.progress(length);
        if after < length {
            // Perhaps because it is another's by now.
            world.standing()?;
            return Err(Halt::new(
                Why::NotGiven,
                "the kernel did not give all pages of a part",
            ));
        }
        Ok(())
    }

    fn wait(&mut self, world: &mut impl World) -> Result<(), Halt> {
        loop {
            let wait = self.pace.wait(world.now());
            if wait.is_zero() {
                return Ok(());
            }
            world.sleep(wait.min(NAP));
            not_asked_to_end(world)?;
        }
    }

    fn look(&mut self, world: &mut impl World) -> Result<(), Halt> {
        let now = world.now();
        let fresh = self.looked.is_some_and(|(at, populated)| {
            now.saturating_sub(at) < LOOK_AGE
                && self.filled.populated + UNIT <= populated + BETWEEN_LOOKS
        });
        if !fresh {
            world.look(BETWEEN_LOOKS)?;
            self.looked = Some((now, self.filled.populated));
        }
        Ok(())
    }
}

fn not_asked_to_end(world: &impl World) -> Result<(), Halt> {
    match world.signal() {
        None => Ok(()),
        Some(number) => Err(Halt::new(
            Why::Signal(number),
            format!("interrupted by signal {number}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A range of so many units, and a memory of so many.
    struct Mock {
        now: Duration,
        there: Vec<u64>,
        room: u64,
        looks: u32,
        /// Populations after which this happens.
        then: (usize, Option<Why>),
        populations: Vec<(Duration, u64)>,
        gives: u64,
        progress: u64,
    }

    impl Mock {
        fn new(units: usize) -> Self {
            Mock {
                now: Duration::from_secs(9),
                there: vec![0; units],
                room: u64::MAX,
                looks: 0,
                then: (usize::MAX, None),
                populations: Vec::new(),
                gives: UNIT,
                progress: 0,
            }
        }

        fn happened(&self) -> Option<Why> {
            self.then
                .1
                .filter(|_| self.populations.len() >= self.then.0)
        }
    }

    impl World for Mock {
        fn now(&self) -> Duration {
            self.now
        }
        fn sleep(&mut self, time: Duration) {
            assert!(time <= NAP);
            self.now += time;
        }
        fn signal(&self) -> Option<i32> {
            match self.happened() {
                Some(Why::Signal(number)) => Some(number),
                _ => None,
            }
        }
        fn standing(&mut self) -> Result<(), Halt> {
            match self.happened() {
                Some(why @ (Why::Checkpoint | Why::Ended)) => Err(Halt::new(why, "")),
                _ => Ok(()),
            }
        }
        fn look(&mut self, bytes: u64) -> Result<(), Halt> {
            self.looks += 1;
            match self.room < bytes {
                true => Err(Halt::new(Why::Memory, "")),
                false => Ok(()),
            }
        }
        fn resident(&mut self, offset: u64, length: u64) -> Result<u64, Halt> {
            Ok(self.there[(offset / UNIT) as usize].min(length))
        }
        fn populate(&mut self, offset: u64, length: u64) -> Result<(), Halt> {
            assert!(self.happened().is_none(), "nothing is written after that");
            assert_eq!(offset % UNIT, 0);
            self.populations.push((self.now, length));
            let there = &mut self.there[(offset / UNIT) as usize];
            self.room = self.room.saturating_sub(self.gives.min(length) - *there);
            *there = self.gives.min(length);
            Ok(())
        }
        fn progress(&mut self, bytes: u64) {
            self.progress += bytes;
        }
    }

    const fn plan(units: u64, rate: u64) -> Plan {
        Plan {
            length: units * UNIT,
            limit: u64::MAX,
            rate,
        }
    }

    #[test]
    fn all_of_it_is_populated_and_what_is_there_is_not_touched() {
        let mut world = Mock::new(100);
        world.there[3] = UNIT;
        world.there[4] = 4096;
        let mut odd = plan(100, 0);
        odd.length -= 5000;
        let filled = fill(&mut world, odd);
        assert_eq!(filled.halt, None);
        assert_eq!(filled.resident, odd.length);
        assert_eq!(filled.populated, odd.length - UNIT - 4096);
        assert_eq!(world.populations.len(), 99);
        assert_eq!(world.populations[98].1, UNIT - 5000);
        assert_eq!(world.progress, odd.length);
        // Once more finds nothing to do.
        let again = fill(&mut world, odd);
        assert_eq!((again.populated, again.resident), (0, odd.length));
        assert_eq!(world.populations.len(), 99);
    }

    #[test]
    fn the_rate_is_kept() {
        let mut world = Mock::new(50);
        assert_eq!(fill(&mut world, plan(50, 10 * UNIT)).halt, None);
        let took = world.populations[49].0 - world.populations[0].0;
        assert_eq!(took, Duration::from_millis(4900));
    }

    #[test]
    fn it_stops_before_memory_is_short() {
        for room in [0, BETWEEN_LOOKS - 1, BETWEEN_LOOKS, 5 * BETWEEN_LOOKS + 7] {
            let mut world = Mock::new(200);
            world.room = room;
            let filled = fill(&mut world, plan(200, 0));
            assert_eq!(filled.halt.unwrap().why, Why::Memory);
            // A look covers what is populated until the next.
            assert!(filled.populated <= room, "{room}");
            assert!(filled.populated + 2 * BETWEEN_LOOKS > room, "{room}");
        }
    }

    #[test]
    fn looks_are_neither_many_nor_old() {
        let per_look = BETWEEN_LOOKS / UNIT;
        let mut world = Mock::new(160);
        let _ = fill(&mut world, plan(160, 0));
        assert_eq!(u64::from(world.looks), 160 / per_look);
        let mut world = Mock::new(10);
        let _ = fill(&mut world, plan(10, 2 * UNIT));
        assert_eq!(world.looks, 10);
    }

    #[test]
    fn nothing_is_populated_after_a_checkpoint_began() {
        for (then, why) in [
            (0, Why::Checkpoint),
            (7, Why::Checkpoint),
            (10, Why::Checkpoint),
            (7, Why::Ended),
            (3, Why::Signal(15)),
        ] {
            let mut world = Mock::new(10);
            world.then = (then, Some(why));
            let filled = fill(&mut world, plan(10, 0));
            assert_eq!(filled.halt.unwrap().why, why);
            assert_eq!(world.populations.len(), then);
        }
    }

    #[test]
    fn a_signal_ends_a_long_wait() {
        let mut world = Mock::new(10);
        world.then = (1, Some(Why::Signal(2)));
        // One unit in a hundred seconds.
        let filled = fill(&mut world, plan(10, UNIT / 100));
        assert_eq!(filled.halt.unwrap().why, Why::Signal(2));
        assert!(world.now < Duration::from_secs(10));
    }

    #[test]
    fn the_limit_counts_what_was_there() {
        let mut world = Mock::new(10);
        world.there[0] = UNIT;
        let mut some = plan(10, 0);
        some.limit = 4 * UNIT + 5;
        let filled = fill(&mut world, some);
        assert_eq!(filled.halt.unwrap().why, Why::Limit);
        assert_eq!((filled.populated, filled.resident), (3 * UNIT, 4 * UNIT));
    }

    #[test]
    fn pages_that_do_not_come_end_it() {
        let mut world = Mock::new(10);
        world.gives = UNIT / 2;
        let filled = fill(&mut world, plan(10, 0));
        assert_eq!(filled.halt.unwrap().why, Why::NotGiven);
        assert_eq!((filled.populated, filled.resident), (UNIT / 2, UNIT / 2));
    }
}
