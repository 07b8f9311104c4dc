//! Other processes: who they are, what they hold, what may be read of them.

pub mod below;
pub mod cuda;
pub mod ending;
pub mod file_mappings;
pub mod identity;
pub mod image;
pub mod observe;
pub mod rights;
pub mod target;
pub mod tree;
