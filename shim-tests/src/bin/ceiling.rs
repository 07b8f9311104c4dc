//! Measures how fast the driver's copy loop goes when its copies cost nothing: the ceiling of whatever copies for it.
//!
//! Each process is checkpointed once and killed: its contents are lost. Exit status: 0, or 2 when it could not go on.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use cudasnap_cli::driver::Driver;
use cudasnap_shim_tests::ceiling::{run, Ceiling, Plan};
use cudasnap_shim_tests::host::HostSpec;
use cudasnap_shim_tests::table::median;

/// Checkpoints PROGRAM with copies left out, and throws it away; prints the rate of the driver's loop.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The library that leaves the copies out, from shim-tests/gpu/freecopy.c.
    #[arg(long)]
    library: PathBuf,
    /// Processes, one after the other.
    #[arg(long, default_value_t = 3)]
    cycles: u32,
    /// Longest time for the start of the program, and for its checkpoint, in seconds.
    #[arg(long, default_value_t = 120)]
    patience: u64,
    /// File for the result as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, last = true)]
    program: Vec<OsString>,
}

fn main() -> ExitCode {
    match measure(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("ceiling: {text}");
            ExitCode::from(2)
        }
    }
}

fn measure(options: Options) -> Result<(), String> {
    let mut words = options.program.into_iter();
    let plan = Plan {
        host: HostSpec::new(words.next().unwrap_or_default(), words),
        library: std::path::absolute(&options.library).map_err(|error| error.to_string())?,
        cycles: options.cycles,
        patience: Duration::from_secs(options.patience),
    };
    let driver = Driver::load().map_err(|error| error.to_string())?;
    let result = run(&driver, &plan)?;
    print(&result);
    if let Some(path) = options.json {
        let text = serde_json::to_string_pretty(&result).map_err(|error| error.to_string())?;
        std::fs::write(&path, text + "\n")
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn print(result: &Ceiling) {
    for run in &result.runs {
        println!(
            "checkpoint {:.3} s: mmap {:.3} s, loop {:.3} s with {} copies left out and {} made: {:.1} GB/s",
            run.seconds, run.mmap, run.copy_loop, run.skipped, run.made, run.gbs
        );
    }
    let rate = median(result.runs.iter().map(|run| run.gbs));
    println!("{}: median {:.1} GB/s", result.device, rate.unwrap_or(0.0));
}
