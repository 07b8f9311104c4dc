//! The soak: thousands of simulated cycles on hosts of all kinds, with faults of all kinds, from a seed.
//!
//! - What will happen: [`kinds`] names everything, [`plan`] computes hosts and cycles from the seed ([`random`]).
//! - What must be seen: [`expect`] after each step, from the record; [`flat`] over the life of a host.
//! - How it is done: [`crowd`] gives the lives of hosts to [`lane`] processes; each starts [`guest`]s and runs their [`cycle`]s.
//!   [`world`], [`groups`], [`mate`] and [`meddler`] change the world around a host.
//! - What came of it: [`account`].

pub mod account;
pub mod crowd;
pub mod cycle;
pub mod expect;
pub mod flat;
pub mod groups;
pub mod guest;
pub mod kinds;
pub mod lane;
pub mod mate;
pub mod meddler;
pub mod plan;
pub mod random;
pub mod world;
