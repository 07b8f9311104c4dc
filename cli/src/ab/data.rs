//! What was measured: the model of `--json FILE`, which every report is made from. Times are seconds, sizes bytes, rates GB/s (10^9).
//!
//! Nothing in here is computed from other fields: medians, ratios and doubts are derived when a report is made, so that a file of an older
//! tool gives the newer one's statistics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the model. It is raised when a field changes its meaning or goes; new fields alone do not raise it.
pub const SCHEMA: u32 = 1;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// [`SCHEMA`] of the tool that wrote it.
    pub schema: u32,
    /// Version of that tool.
    pub tool: String,
    /// Start, seconds since 1970.
    pub started_unix: u64,
    /// Seed of the order of cycles.
    pub seed: u64,
    /// The machine.
    pub host: Host,
    /// The GPU; `None` where nobody could be asked.
    pub gpu: Option<Gpu>,
    /// One program at one size each; a run without a sweep has one.
    pub workloads: Vec<Workload>,
    /// Why the run ended before all cycles were made; `None`: it did not.
    pub stopped: Option<String>,
    /// Least confidence that intervals were asked to have, as a part of 1; `None`: 0.95.
    #[serde(default)]
    pub confidence: Option<f64>,
}

/// The machine, as far as it explains numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// CPUs that this process may use.
    pub cpus: u32,
    /// Model of the CPU.
    pub cpu: String,
    /// Main memory.
    pub memory: u64,
    /// Kernel release.
    pub kernel: String,
    /// The word in force of `/sys/kernel/mm/transparent_hugepage/enabled`; empty where there is none.
    pub thp: String,
}

/// The GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Name.
    pub name: String,
    /// Version of the driver, such as `580.159.04`; `simulated` for the simulated one.
    pub driver: String,
    /// Its PCIe link: generation and lanes, where NVML knows.
    pub link: Option<String>,
    /// Its number by PCI bus, as NVML counts.
    #[serde(default)]
    pub number: Option<u32>,
}

/// One program at one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// `24 GiB` for the built-in workload, else the program's name.
    pub name: String,
    /// The command, when the tool started it.
    pub command: Vec<String>,
    /// Variants, the baseline first.
    pub variants: Vec<Variant>,
    /// Pinned copies of the same GPU in the same run.
    pub limit: Option<Limit>,
    /// Why there is no limit.
    #[serde(default)]
    pub no_limit: Option<String>,
    /// Cycles in the order in which they were made, warm-ups too.
    pub cycles: Vec<Cycle>,
}

/// What is compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Name; no other variant of the run has it.
    pub name: String,
    /// `stock` (without the library), `observe`, `on` or `off`.
    pub mode: String,
    /// What it sets beside that: options of the library (`CUDASNAP_PAGES`) and `threads`, the record's cap.
    pub settings: BTreeMap<String, String>,
}

/// Rates of pinned copies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// From the device to main memory, the direction of a checkpoint.
    pub to_host: f64,
    /// From main memory to the device, the direction of a restore.
    pub to_device: f64,
    /// Bytes of each copy.
    pub bytes: u64,
    /// Copies each way; the rates are medians.
    pub repeats: u32,
}

/// One cycle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cycle {
    /// Number in the workload, from 1, warm-ups too.
    pub number: u32,
    /// Round: the variants of a round are what is compared in pairs. 0 for a warm-up.
    pub round: u32,
    /// Name of the variant.
    pub variant: String,
    /// Whether it is left out of all statistics.
    pub warm_up: bool,
    /// The process.
    pub pid: i32,
    /// A buffer that the process had kept was dropped before, so that no variant finds another's: whether its memory was free at once, or
    /// only in the checkpoint, which then took longer. `None`: there was none, or the variant has the process to itself.
    #[serde(default)]
    pub dropped: Option<bool>,
    /// Start, seconds since the run's.
    pub at: f64,
    /// Time inside the driver's lock call.
    pub lock: Option<f64>,
    /// The checkpoint; `None`: it did not come to that.
    pub checkpoint: Option<Phase>,
    /// The restore.
    pub restore: Option<Phase>,
    /// Time inside the driver's unlock call.
    pub unlock: Option<f64>,
    /// What the verification command said, or the built-in workload; `None`: neither was asked.
    pub verified: Option<bool>,
    /// What went wrong; the cycle then is left out of all statistics.
    pub error: Option<String>,
    /// What the machine did meanwhile.
    pub surroundings: Surroundings,
}

/// A checkpoint or a restore.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Time inside the driver's call, as the caller saw it.
    pub seconds: f64,
    /// Bytes of the driver's buffer, where the library saw its request; 0: nobody knows.
    pub bytes: u64,
    /// What the library recorded; `None` without it.
    pub seen: Option<Seen>,
}

/// A phase as the library saw it, from inside; see `cudasnap_wire::Phase` for the meaning of each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "the fields are those of cudasnap_wire::Phase, documented there"
)]
pub struct Seen {
    pub effective: bool,
    pub mode: String,
    pub pages: String,
    pub kept: bool,
    pub threads: u32,
    pub strategy: String,
    pub copied: u64,
    pub zeros: u64,
    pub mmap: f64,
    pub prefault: f64,
    pub first_copy: f64,
    pub copying: f64,
    pub waiting: f64,
    pub copy_loop: f64,
    pub munmap: f64,
    /// Start of the phase to its end; `seconds` of the call less this is the driver's time before and after.
    pub total: f64,
    /// Names of the steps down that were taken, with how often.
    pub steps_down: BTreeMap<String, u32>,
}

/// The machine during a cycle, for doubts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Surroundings {
    /// Share of all CPUs' time that others than the target used, 0 to 1.
    pub others_busy: Option<f64>,
    /// Lowest and highest CPU frequency in MHz at the end of the cycle.
    pub mhz: Option<(u32, u32)>,
    /// Other processes that NVML lists on the GPU.
    pub others_on_gpu: Option<u32>,
    /// Main memory that was available before the cycle.
    pub available: Option<u64>,
}
