//! `cudasnap ab`: cycles of lock, checkpoint, restore, unlock in several variants that take turns, and what they say about each other.
//!
//! | file | job |
//! |---|---|
//! | [`data`] | what was measured, as it is written to and read from `--json` |
//! | [`csv`] | the same as a row per cycle |
//! | [`outputs`] | the files of a report |
//! | [`target`] | the program of `-- CMD`: started, awaited, ended |

pub mod csv;
pub mod data;
pub mod outputs;
pub mod target;
