//! The soak: thousands of simulated cycles on hosts of all kinds, with faults of all kinds, from a seed.
//!
//! - What will happen: [`kinds`] names everything; [`hosts`], [`faults`] and [`plan`] compute hosts, faults and cycles from the
//!   seed ([`random`]).
//! - What must be seen: [`expect`] after each step, from the record; [`flat`] over the life of a host.
//! - How it is done: [`crowd`] gives the lives of hosts to [`lane`] processes; each starts [`guest`]s and runs their [`cycle`]s,
//!   made of [`steps`]; [`seen`] notes what happened. [`world`], [`groups`], [`mate`] and [`meddler`] change the world around a host.
//! - What came of it: [`account`].

pub mod account;
pub mod crowd;
pub mod cycle;
pub mod expect;
pub mod faults;
pub mod flat;
pub mod groups;
pub mod guest;
pub mod hosts;
pub mod kinds;
pub mod lane;
pub mod mate;
pub mod meddler;
pub mod plan;
pub mod random;
pub mod seen;
pub mod steps;
pub mod world;
