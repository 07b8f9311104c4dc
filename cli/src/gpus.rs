//! GPUs and their processes as NVML tells them: no driver attach (`cuInit`), a few milliseconds.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, Receiver};

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use serde::Serialize;

/// Name by which the loader finds NVML; the name without a number belongs to development packages.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// How long NVML may take, which answers in some 50 ms on a sound driver and not at all on a wedged one.
const PATIENCE: Duration = Duration::from_secs(10);

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// Its number, as NVML counts.
    pub index: u32,
    /// `GPU-` and its UUID; empty when NVML does not say.
    pub uuid: String,
    /// Its product name.
    pub name: String,
    /// Bytes of memory.
    pub total: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Persistence mode; `None` when NVML does not say.
    pub persistence: Option<bool>,
    /// Multi-instance mode; `None` where there is no such thing.
    pub mig: Option<bool>,
    /// Processes with a compute context.
    pub processes: Vec<GpuProcess>,
}

/// A process that has a compute context on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuProcess {
    /// Its id. NVML counts in the pid namespace of its caller where the driver knows it, else in the host's.
    pub pid: i32,
    /// Bytes of device memory; `None` when NVML does not say (MIG, some containers).
    pub used: Option<u64>,
}

/// What NVML says at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gpus {
    /// Driver version, such as `580.159.04`.
    pub driver: String,
    /// The GPUs, by number.
    pub gpus: Vec<Gpu>,
}

/// How much is asked of NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Everything in [`Gpu`].
    Everything,
    /// Memory and processes; the rest stays empty. For those who are in a hurry.
    Memory,
}

/// A question to NVML that is under way in a thread of its own, since a wedged driver never answers.
#[derive(Debug)]
pub struct Asked {
    since: Instant,
    answer: Result<Receiver<Result<Gpus, String>>, String>,
}

impl Asked {
    /// Asks.
    pub fn now(depth: Depth) -> Self {
        let (send, answer) = bounded(1);
        let ask = move || {
            let nvml = open(OsStr::new(LIBRARY));
            let _ = send.send(
                nvml.as_ref()
                    .map_err(String::clone)
                    .and_then(|nvml| all(nvml, depth)),
            );
            // NVML's own end, some 3 ms, holds up nobody.
            drop(nvml);
        };
        let asked = std::thread::Builder::new().name("NVML".into()).spawn(ask);
        Asked {
            since: Instant::now(),
            answer: asked
                .map(|_| answer)
                .map_err(|error| format!("no thread to ask NVML with: {error}")),
        }
    }

    /// Waits for the answer, for at most ten seconds since the question.
    ///
    /// # Errors
    /// Why there is none: no library, no driver, or no answer in time.
    pub fn answer(self) -> Result<Gpus, String> {
        let left = PATIENCE.saturating_sub(self.since.elapsed());
        let told = self.answer?.recv_timeout(left);
        told.unwrap_or_else(|_| Err("NVML does not answer".into()))
    }
}

impl Gpus {
    /// Asks NVML, for at most ten seconds.
    ///
    /// # Errors
    /// Why there is no answer: no library, no driver, or no answer in time.
    pub fn look() -> Result<Self, String> {
        Asked::now(Depth::Everything).answer()
    }

    /// The same, with the library of this name or path.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn look_with(library: &OsStr) -> Result<Self, String> {
        all(&open(library)?, Depth::Everything)
    }

    /// Device memory of the process on all GPUs, in bytes; `None` when NVML does not list it, or not its memory.
    pub fn used_by(&self, pid: i32) -> Option<u64> {
        let of_process = self.contexts_of(pid).map(|(_, process)| process.used);
        of_process.fold(None, |sum, used| Some(sum.unwrap_or(0) + used?))
    }

    /// The GPUs on which the process has a context.
    pub fn contexts_of(&self, pid: i32) -> impl Iterator<Item = (&Gpu, &GpuProcess)> {
        self.gpus.iter().flat_map(move |gpu| {
            let processes = gpu.processes.iter();
            processes
                .filter(move |process| process.pid == pid)
                .map(move |process| (gpu, process))
        })
    }
}

/// The PCIe link that a GPU and its slot can have, such as `Gen5 x16`. Not what it has now: an idle link is slower. `None` where NVML does
/// not say, or not in time.
pub fn link(index: u32) -> Option<String> {
    let (send, answer) = bounded(1);
    let ask = move || {
        let found = open(OsStr::new(LIBRARY)).ok().and_then(|nvml| {
            let device = nvml.device_by_index(index).ok()?;
            let (gen, lanes) = (
                device.max_pcie_link_gen().ok()?,
                device.max_pcie_link_width().ok()?,
            );
            Some(format!("Gen{gen} x{lanes}"))
        });
        let _ = send.send(found);
    };
    std::thread::Builder::new()
        .name("NVML".into())
        .spawn(ask)
        .ok()?;
    answer.recv_timeout(PATIENCE).ok()?
}

fn open(library: &OsStr) -> Result<Nvml, String> {
    let nvml = Nvml::builder().lib_path(library).init();
    nvml.map_err(|error| match error {
        // The loader names the file itself.
        NvmlError::LibloadingError(error) => error.to_string(),
        error => format!("NVML ({}): {error}", library.to_string_lossy()),
    })
}

fn all(nvml: &Nvml, depth: Depth) -> Result<Gpus, String> {
    let count = nvml.device_count().map_err(|error| error.to_string())?;
    let gpus = (0..count).map(|index| gpu(nvml, index, depth));
    Ok(Gpus {
        driver: nvml.sys_driver_version().unwrap_or_default(),
        gpus: gpus
            .collect::<Result<_, _>>()
            .map_err(|error| format!("NVML: {error}"))?,
    })
}

fn gpu(nvml: &Nvml, index: u32, depth: Depth) -> Result<Gpu, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let memory = device.memory_info().ok();
    let mut gpu = Gpu {
        index,
        uuid: String::new(),
        name: String::new(),
        total: memory.as_ref().map_or(0, |memory| memory.total),
        free: memory.as_ref().map_or(0, |memory| memory.free),
        persistence: None,
        mig: None,
        processes: processes(&device),
    };
    if depth == Depth::Everything {
        gpu.uuid = device.uuid().unwrap_or_default();
        gpu.name = device.name().unwrap_or_default();
        gpu.persistence = device.is_in_persistent_mode().ok();
        gpu.mig = device.mig_mode().ok().map(|mode| mode.current != 0);
    }
    Ok(gpu)
}

fn processes(device: &Device<'_>) -> Vec<GpuProcess> {
    let listed = device.running_compute_processes().unwrap_or_default();
    let of = |process: &ProcessInfo| GpuProcess {
        pid: process.pid as i32,
        used: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    };
    listed.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_told_in_the_loaders_words() {
        let error = Gpus::look_with(OsStr::new("/no/such/libnvidia-ml.so.1")).unwrap_err();
        assert!(
            error.starts_with("/no/such/libnvidia-ml.so.1: cannot open"),
            "{error}"
        );
        assert_eq!(error.matches("libnvidia-ml").count(), 1, "{error}");
    }

    #[test]
    fn memory_is_summed_over_gpus_and_unknown_stays_unknown() {
        let gpu = |index, used| Gpu {
            index,
            uuid: String::new(),
            name: String::new(),
            total: 0,
            free: 0,
            persistence: None,
            mig: None,
            processes: vec![GpuProcess { pid: 7, used }],
        };
        let of = |gpus| Gpus {
            driver: String::new(),
            gpus,
        };
        assert_eq!(
            of(vec![gpu(0, Some(3)), gpu(1, Some(4))]).used_by(7),
            Some(7)
        );
        assert_eq!(of(vec![gpu(0, Some(3)), gpu(1, None)]).used_by(7), None);
        assert_eq!(of(vec![gpu(0, Some(3))]).used_by(8), None);
        assert_eq!(
            of(vec![gpu(0, Some(3)), gpu(1, None)])
                .contexts_of(7)
                .count(),
            2
        );
    }
}
