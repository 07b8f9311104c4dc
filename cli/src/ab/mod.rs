//! `cudasnap ab`: cycles of lock, checkpoint, restore, unlock in several variants that take turns, and what they say about each other.
//!
//! | file | job |
//! |---|---|
//! | [`args`], [`variant`] | the command line; which variants there are, which can share a process |
//! | [`plan`] | pure: the balanced random order of the cycles |
//! | [`session`], [`bench`](mod@bench) | carries the plan out; what makes a cycle, behind a trait |
//! | [`real`], [`work`], [`place`], [`watch`], [`seen`] | a cycle through the driver; the process, its words switched and put back; signals; what the record says |
//! | [`target`], [`verify`] | a program's start and end; the verification command |
//! | [`host`], [`surroundings`], [`limit`] | the machine, what else it did, the limit of the bus |
//! | [`data`], [`json`] | what was measured, as it is written to and read from `--json` |
//! | [`stats`], [`summary`], [`doubts`] | pure: statistics; numbers derived from what was measured; what not to trust them for |
//! | [`document`], [`csv`] | the report; a row per cycle |
//! | [`run`](mod@run) | a run from its command line to its exit status |

pub mod args;
pub mod bench;
pub mod csv;
pub mod data;
pub mod document;
pub mod doubts;
pub mod host;
pub mod json;
pub mod limit;
#[cfg(test)]
pub(crate) mod made_up;
pub mod place;
pub mod plan;
pub mod real;
pub mod run;
pub mod seen;
pub mod session;
pub mod stats;
pub mod summary;
pub mod surroundings;
pub mod target;
pub mod variant;
pub mod verify;
pub mod watch;
pub mod work;

pub use args::Args;
pub use run::run;
