//! Processes that real CRIU dumps, and brings back from the image under their old id. CRIU is the one of `scripts/criu-env`.
//!
//! Between the two nobody of the process exists. What talks to it goes on: the ends of its pipes are kept open here and handed to
//! the process that comes back.
//!
//! - [`subject`]: the process, with the shim or without.
//! - [`criu`]: dump and restore, and the image between them.
//! - [`edit`]: images and libraries that are not what they were.

pub mod criu;
pub mod edit;
pub mod subject;

use std::time::Duration;

/// A dump, a restore or a step of the driver that takes longer hangs. Each takes less than a second on two idle CPUs.
const LIMIT: Duration = Duration::from_secs(60);
