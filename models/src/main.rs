//! Models of the shim's protocols. The modules below are the shipped source files; only `sync`, `sys` and the copy loop are
//! others. See docs/proofs.md.
//!
//! models [NAME...]              every model, or these, and every weakened variant, which must fail
//! models --run NAME [SITE]      one model in this process, perhaps weakened at one place
#![allow(dead_code, clippy::new_without_default)]

#[path = "../../src/board.rs"]
mod board;
mod cell;
mod copy;
#[path = "../../src/crew/mod.rs"]
mod crew;
#[path = "../../src/exclusive.rs"]
mod exclusive;
mod harmless;
mod harness;
mod models;
mod mutate;
#[path = "../../src/pages/mod.rs"]
mod pages;
#[path = "../../src/region.rs"]
mod region;
#[path = "../../wire/src/seq.rs"]
mod seq;
mod stalls;
mod sync;
mod sys;
mod world;

fn main() -> std::process::ExitCode {
    harness::main()
}
