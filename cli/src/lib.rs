//! The calling side of cudasnap: drives the CUDA driver's checkpoint calls on another process and looks into that process.
//!
//! What the commands are built on:
//!
//! * [`driver`]: libcuda's `cuCheckpointProcess*` calls with typed errors. Loading it costs 0.3 s and more (driver attach),
//!   so only the verbs of [`flow`] and [`dropin`] use it.
//! * [`process`]: other processes: identity, tree, rights, memory and mappings, how far they came with CUDA, how they ended.
//! * [`record`]: finds, copies and steers the record that the shim keeps in the target.
//! * [`selection`]: the processes that a command line names. [`room`], [`gpus`]: main memory and GPUs.
//!   [`control_groups`], [`cpus`]: limits on memory, CPUs and threads. [`signals`]: signals as messages.
//!   [`per_process`], [`refusal`]: the report on several processes, why nothing was done for one.
//! * [`shell`]: commands that the user gives.
//! * [`pinned`]: what a GPU's link gives at best, measured in a child process.
//! * [`shim_library`]: the library's file. [`units`], [`exit`], [`output`]: words, statuses,
//!   stdout and stderr. [`foreign_text`], [`foreign_file`]: what others wrote, made harmless; opened without waiting for a pipe.
//!
//! The commands: [`grammar`] is the whole command line; [`flow`] (lock, checkpoint, restore, unlock, toggle, state), [`run`],
//! [`status`], [`buffer`], [`doctor`], [`control`] (mode, drop), [`reserve`], [`workload`], [`fleet`] (report), [`metrics`],
//! [`links`], [`generate`] (completions, man pages); [`dropin`]
//! is NVIDIA's `cuda-checkpoint` with the same flags, words and exit codes.
//!
//! Whatever comes out of another process is foreign: each offset is checked before use, and a process that ends in the middle
//! is an error value.

pub mod ab;
pub mod buffer;
pub mod control;
pub mod control_groups;
pub mod cpus;
pub mod doctor;
pub mod document;
pub mod driver;
pub mod dropin;
pub mod exit;
pub mod fleet;
pub mod flow;
pub mod foreign_file;
pub mod foreign_text;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod generate;
pub mod gpus;
pub mod grammar;
pub mod job;
pub mod links;
pub mod metrics;
pub mod output;
pub mod per_process;
pub mod pinned;
pub mod process;
pub mod record;
pub mod refusal;
pub mod reserve;
pub mod room;
pub mod run;
pub mod selection;
pub mod shell;
pub mod shim_library;
pub mod signals;
pub mod status;
pub mod units;
pub mod values;
pub mod workload;
