//! `cudasnap ab`: cycles of lock, checkpoint, restore, unlock in several variants that take turns, and what they say about each other.
//!
//! | file | job |
//! |---|---|
//! | [`data`] | what was measured, as it is written to and read from `--json` |

pub mod data;
