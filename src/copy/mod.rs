//! How bytes are moved: cut into parts ([`plan`]), each part by a loop that fits this CPU ([`kernel`]), in the way that is best for what
//! the phase copies between ([`strategy`]), or that is found to be while it copies ([`tune`]); if asked for, without what is zero
//! anyway ([`sparse`]).

pub mod cover;
pub mod kernel;
pub mod plan;
pub mod sparse;
pub mod strategy;
pub mod tune;
