//! The limit of the bus, measured in the same run.

use super::data::Limit;

/// Bytes of each pinned copy.
const BYTES: u64 = 1 << 30;
/// Copies each way.
const REPEATS: u32 = 5;

/// Rates of pinned copies between main memory and the GPU of this process, or else the first one.
///
/// # Errors
/// Why they could not be measured.
pub fn measure(pid: Option<i32>) -> Result<Limit, String> {
    let _ = (pid, BYTES, REPEATS);
    Err("this build does not measure it".into())
}
