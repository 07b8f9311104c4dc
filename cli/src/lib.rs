//! The calling side of cudasnap: drives the CUDA driver's checkpoint calls on another process and looks into that process.
//!
//! * [`driver`]: libcuda's `cuCheckpointProcess*` calls with typed errors. Loading it costs 0.3 s and more (driver attach),
//!   so nothing else here needs it.
//! * [`dropin`]: NVIDIA's `cuda-checkpoint` with the same flags, words and exit codes; [`links`] makes its name.
//! * [`target`]: another process's memory and its list of mappings.
//! * [`elf`]: finds a symbol in a mapped ELF image, from memory alone.
//! * [`record`]: finds, copies and steers the record that the shim keeps in the target.
//! * [`view`]: the record as plain values, with words for its numbers.
//! * [`observe`]: what a process holds (threads, descriptors, mappings, memory), for leak checks.
//!
//! Whatever comes out of another process is foreign: each offset is checked before use, and a process that ends in the middle
//! is an error value.

pub mod driver;
pub mod dropin;
pub mod elf;
pub mod links;
pub mod observe;
pub mod record;
pub mod target;
pub mod view;
