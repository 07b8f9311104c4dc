//! What the shim is tested and measured with: host programs under control, one checkpoint and restore cycle with every
//! state and content checked, a frozen world as CRIU's CUDA plugin makes it, and runs that alternate between arms.
//!
//! A host program speaks a line protocol: it prints `ready PID`, answers `sum` with `bad N` (wrong words counted) and ends on
//! `quit`. The same programs run against the simulated driver and the real one.

pub mod attack;
pub mod busy;
pub mod captor;
pub mod ceiling;
pub mod container;
pub mod cycle;
pub mod elf;
pub mod exposition;
pub mod folder;
pub mod freeze;
pub mod host;
pub mod images;
pub mod last_words;
pub mod leaks;
pub mod limits;
pub mod machine;
pub mod meet;
pub mod package;
pub mod performance;
pub mod run;
pub mod shimmed;
pub mod simdriver;
pub mod soak;
pub mod split;
pub mod standing;
pub mod steps;
pub mod table;
pub mod terminal;
pub mod tool;
pub mod tracee;
pub mod watchdog;
