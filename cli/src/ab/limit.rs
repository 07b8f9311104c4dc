//! The limit of the bus, measured in the same run.

use super::data::Limit;
use crate::pinned;

/// Bytes of each pinned copy.
const BYTES: u64 = 1 << 30;
/// Copies each way.
const REPEATS: u32 = 5;

/// Rates of pinned copies between main memory and the GPU of this process, or else the first one.
///
/// # Errors
/// Why they could not be measured.
pub fn measure(pid: Option<i32>) -> Result<Limit, String> {
    match pid {
        Some(pid) => pinned::measure_for(pid, BYTES, REPEATS),
        None => pinned::measure(0, BYTES, REPEATS),
    }
}
