//! What the shim is tested with: the simulated driver, host programs, integration tests.

pub mod simdriver;
