//! What a captor is told, and what it tells.

use std::time::Duration;

use crate::simdriver::Control;

/// Where a helper is taken.
#[derive(Debug, Clone)]
pub enum Place {
    /// Before its first instruction.
    Birth,
    /// Between two copies, when so many have been made: it has nothing to do and offers its CPU to others.
    After(u64),
    /// Inside the unit of prefault that touches one of these offsets in the buffer.
    Prefault(Vec<u64>),
    /// Inside the part of a copy that has one of these offsets.
    Part(Vec<u64>),
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Held for so long, then released.
    Held(Duration),
    /// Held until the driver's step is over.
    HeldToTheEnd,
    /// Made to end, alone.
    Exit,
}

/// What the captor is to do during one step of the driver.
#[derive(Debug, Clone)]
pub struct Order {
    /// Where.
    pub place: Place,
    /// How many helpers, at most.
    pub helpers: usize,
    /// What becomes of them.
    pub fate: Fate,
    /// CPUs that the process sees.
    pub cpus: u32,
    /// Copies, by number, in which the restore thread is slowed down and held back, so that helpers take what they can: else the
    /// first part is always its own, and on a busy machine most of the others too.
    pub held_back: Vec<u64>,
}

/// What came of it.
#[derive(Debug)]
pub struct Caught {
    /// Helpers that were born.
    pub born: usize,
    /// Those that were taken.
    pub taken: usize,
    /// Whether the driver's step was still under way when they were released.
    pub waited: bool,
    /// From then to its end.
    pub afterwards: Duration,
    /// The driver's step.
    pub control: Control,
}
