//! How bytes are moved: cut into parts ([`plan`]), each part by the loop that fits this CPU ([`kernel`]).

pub mod cover;
pub mod kernel;
pub mod plan;
