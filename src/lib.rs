//! cudasnap's shim: a library preloaded into an unmodified CUDA program. When NVIDIA's driver checkpoints that program, the
//! shim answers the driver's request for a buffer with huge pages that several threads prefault, and makes the driver's
//! copies with several threads.
//!
//! This is code inside somebody else's process. Its rules:
//! - Outside a checkpoint it owns no thread, no descriptor, no buffer, and the program's own calls cost one argument test.
//! - Any failure steps down, never out: the driver's own request, the caller alone. Each step down is counted in the record.
//! - Other threads of the process may have been stopped at any instruction, holding any lock of libc: between the driver's
//!   request and the end of the phase no lock of libc is taken, nothing is allocated, no lock of ours is waited for.
//! - A call that is not the driver's is passed on without lock, allocation, log or thread-local storage.
//! - Nothing is remembered from one phase to the next: a process checkpointer may have moved the process to another host.
//!
//! Where to look: `hooks` is what others call; `cycle` is what happens then; `crew` and `board` are the threads and
//! their protocol (docs/crew.md); `record` is what a tool sees.
#![warn(missing_docs)]
// Without the exports nothing calls most of it: the rlib for benches, and the tests of single modules.
#![cfg_attr(any(test, not(feature = "preload")), allow(dead_code))]

#[doc(hidden)]
pub mod bench;
mod board;
mod buffer;
mod caller;
mod cgroup;
mod config;
mod copy;
mod cpus;
mod crew;
mod cycle;
mod elf;
mod exclusive;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod got;
mod guard;
mod hollow;
mod hooks;
mod lines;
mod maps;
mod own;
mod pages;
mod phase;
mod record;
mod region;
mod report;
mod request;
mod resident;
mod room;
mod stalls;
mod startup;
mod sync;
mod sys;
mod text;
mod unwind;
