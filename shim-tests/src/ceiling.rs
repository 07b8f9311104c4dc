//! The ceiling of the driver's own copy loop: a checkpoint whose copies cost nothing (`gpu/freecopy.c`). The contents of the
//! buffer are wrong then, so each process is checkpointed once and killed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cudasnap_cli::driver::{kernel_driver_version, Driver};
use serde::{Deserialize, Serialize};

use crate::host::{Host, HostSpec};
use crate::watchdog::Watchdog;

/// Words of the library's report.
const WORDS: usize = 6;
/// A lock that takes longer fails, in milliseconds: the host is idle.
const LOCK_TIMEOUT_MS: u32 = 20_000;

/// What to run.
#[derive(Debug)]
pub struct Plan {
    /// The host program.
    pub host: HostSpec,
    /// `libfreecopy.so`.
    pub library: PathBuf,
    /// Processes, one after the other.
    pub cycles: u32,
    /// How long a host may take to start, and the driver for its checkpoint.
    pub patience: Duration,
}

/// One checkpoint with free copies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The whole call, in seconds.
    pub seconds: f64,
    /// The buffer's mmap, in seconds.
    pub mmap: f64,
    /// First copy that was left out to the last of them, in seconds.
    pub copy_loop: f64,
    /// Length of the buffer.
    pub buffer_bytes: u64,
    /// Copies that were left out, 2 MiB each.
    pub skipped: u64,
    /// Copies into the buffer that were made.
    pub made: u64,
    /// GB/s of the loop: bytes left out over the time from the first to the last.
    pub gbs: f64,
}

/// All of them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ceiling {
    /// Name of the device, as the driver tells it.
    pub device: String,
    /// Version of the kernel driver; `None` without one.
    pub kernel_driver: Option<String>,
    /// The checkpoints.
    pub runs: Vec<Run>,
}

/// Checkpoints new processes with free copies and throws them away.
///
/// # Errors
/// Text for what kept it from going on; also when no copy was left out.
pub fn run(driver: &Driver, plan: &Plan) -> Result<Ceiling, String> {
    let report = std::env::temp_dir().join(format!("cudasnap-freecopy-{}", std::process::id()));
    let runs: Result<Vec<Run>, String> = (0..plan.cycles)
        .map(|_| {
            let result = one(driver, plan, &report);
            let _ = std::fs::remove_file(&report);
            result.map_err(|error| error.to_string())
        })
        .collect();
    Ok(Ceiling {
        device: driver.device_name(0).unwrap_or_default(),
        kernel_driver: kernel_driver_version(),
        runs: runs?,
    })
}

fn one(driver: &Driver, plan: &Plan, report: &Path) -> Result<Run, Box<dyn std::error::Error>> {
    let spec = plan.host.clone().with_shim(&plan.library);
    let spec = spec.with_env("FREECOPY_REPORT", &report.to_string_lossy());
    // Dropping it kills it.
    let host = Host::start(&spec, plan.patience)?;
    driver.lock(host.pid(), LOCK_TIMEOUT_MS)?;
    let watchdog = Watchdog::new("checkpoint", host.pid(), plan.patience);
    let start = Instant::now();
    driver.checkpoint(host.pid())?;
    let seconds = start.elapsed().as_secs_f64();
    drop(watchdog);
    let bytes = std::fs::read(report).map_err(|error| format!("no report of freecopy: {error}"))?;
    Ok(parse(seconds, &bytes)?)
}

/// The library's report (`struct report` of `gpu/freecopy.c`).
fn parse(seconds: f64, bytes: &[u8]) -> Result<Run, String> {
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
        .collect();
    let words: [u64; WORDS] = words
        .try_into()
        .map_err(|words: Vec<u64>| format!("report of {} words", words.len()))?;
    let [buffer_bytes, skipped, made, first_ns, last_ns, mmap_ns] = words;
    if skipped < 2 || last_ns <= first_ns {
        return Err(format!("{skipped} copies were left out, {made} were made"));
    }
    let copy_loop = (last_ns - first_ns) as f64 / 1e9;
    // Between the first and the last there is one chunk less.
    let bytes = ((skipped - 1) << 21) as f64;
    Ok(Run {
        seconds,
        mmap: mmap_ns as f64 / 1e9,
        copy_loop,
        buffer_bytes,
        skipped,
        made,
        gbs: bytes / copy_loop / 1e9,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_and_an_empty_one_is_an_error() {
        let words: [u64; WORDS] = [100 << 20, 49, 3, 1_000, 2_001_000, 5_000_000];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let run = parse(0.5, &bytes).unwrap();
        assert!((run.copy_loop - 0.002).abs() < 1e-12);
        assert!((run.gbs - 48.0 * 2.097_152e6 / 0.002 / 1e9).abs() < 1e-9);
        assert_eq!(
            (run.skipped, run.made, run.buffer_bytes),
            (49, 3, 100 << 20)
        );
        assert!(parse(0.5, &[0; WORDS * 8]).is_err());
        assert!(parse(0.5, &bytes[8..]).is_err());
    }
}
