//! The GPU that a process is on, and the limit of its link, measured in the same run.

use super::data::{Gpu, Limit};
use super::host;
use crate::gpus::Gpus;
use crate::pinned;

/// Bytes of each pinned copy.
const BYTES: u64 = 1 << 30;
/// Copies each way.
const REPEATS: u32 = 5;

/// A process's GPU.
#[derive(Debug, Clone)]
pub struct Link {
    /// The GPU; the first one where NVML does not tell which the process is on.
    pub gpu: Option<Gpu>,
    /// Rates of pinned copies between main memory and that GPU, or why there are none.
    pub limit: Result<Limit, String>,
}

impl Link {
    /// Of a process that is ready and not at work: `wanted` says whether copies are made. Beside it, since a program alone knows which GPU
    /// it takes.
    pub fn of(pid: i32, wanted: bool) -> Self {
        let gpus = Gpus::look().ok();
        let on = gpus.as_ref().and_then(|gpus| gpus.contexts_of(pid).next());
        let index = on.map_or(0, |(gpu, _)| gpu.index);
        Link {
            gpu: gpus.as_ref().and_then(|gpus| host::gpu(gpus, index)),
            limit: match wanted {
                true => pinned::measure(pid, BYTES, REPEATS),
                false => Err("--no-limit".into()),
            },
        }
    }
}
