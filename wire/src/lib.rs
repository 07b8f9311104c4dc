//! What the shim and its tools share: the layout of the record in the shim's data segment, and the names of the options.
//!
//! The shim exports one [`Record`] under the name [`SYMBOL`]. A tool finds it in the target's memory and copies it out with
//! `process_vm_readv`. Every field is an atomic of natural alignment, so any copy of the bytes is a valid `Record`; a block
//! that carries a sequence counter is consistent when the counter was even and unchanged around the copy ([`Seq`]).
//!
//! [`VERSION`] is raised whenever a field moves, changes its meaning or is taken away; adding a field at the end of
//! [`Record`] or an enum value raises nothing, and readers must take an unknown number as "unknown number N".
#![no_std]

mod names;
mod options;
mod record;
mod seq;
mod sync;

pub use names::{Choice, Direction, End, Mode, PageKind, Rest, Slot, SlotState, Step, Strategy};
pub use options::{OptionSpec, Options, OPTIONS};
pub use record::{
    Buffer, Complaint, Counters, Phase, Record, Slots, BUILD_ID_BYTES, COMPLAINTS, HISTORY, MAGIC,
    SYMBOL, VERSION,
};
pub use seq::Seq;
