//! Checkpoints and restores a host program, alternating between arms with and without the shim, and prints what it took.
//!
//! Exit status: 0 all right; 1 contents differ; 2 the run could not go on; 3 anything else was wrong (bytes that did not go
//! through the shim, something left behind); 4 a step hung.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use cudasnap_cli::driver::{kernel_driver_version, Driver};
use cudasnap_shim_tests::host::HostSpec;
use cudasnap_shim_tests::meet::Meet;
use cudasnap_shim_tests::run::{run, Arm, Kind, Plan, RunResult};
use cudasnap_shim_tests::table::{medians, ratios, render, summary};
use serde_json::{json, Value};

/// Checkpoints and restores PROGRAM in turns with and without the shim; prints times, rates, medians and ratios.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The shim's library.
    #[arg(long, default_value = "target/release/libcudasnap.so")]
    shim: PathBuf,
    /// The tool, for arms of kind reserve; default: `cudasnap` beside this program, else target/release/cudasnap.
    #[arg(long)]
    tool: Option<PathBuf>,
    /// Arms, taken in turns: stock, shim, keep, reserve, observe, off; the second to fourth also with words after a colon, joined by +: a
    /// strategy, sparse, and one of thp, 4k, hugetlb. keep:tune+sparse.
    #[arg(long, value_delimiter = ',', default_value = "stock,shim")]
    arms: Vec<Arm>,
    /// Cycles per arm.
    #[arg(long, default_value_t = 3)]
    cycles: u32,
    /// Cycles per arm in which the driver's own loop copies (stock, observe, off); default: as many as the others.
    #[arg(long)]
    slow_cycles: Option<u32>,
    /// Look at the contents only before the first and after the last cycle of an arm.
    #[arg(long, conflicts_with = "before_each")]
    verify_last: bool,
    /// Meet other processes before each checkpoint and restore: FOLDER:COUNT.
    #[arg(long)]
    meet: Option<String>,
    /// Environment variable for the program, NAME=VALUE; may be repeated.
    #[arg(long, value_parser = variable)]
    env: Vec<(String, String)>,
    /// Stop all threads but the restore thread during checkpoint and restore.
    #[arg(long)]
    freeze: bool,
    /// The program's own threads map memory and come and go meanwhile: only descriptors and the shim's threads are leaks.
    #[arg(long)]
    busy: bool,
    /// Line to send to the program before each cycle, so that its contents change.
    #[arg(long)]
    before_each: Option<String>,
    /// Longest time for an answer of the program or a step of the driver, in seconds.
    #[arg(long, default_value_t = 120)]
    patience: u64,
    /// File for the whole result as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Print one more line at the end, a row of a larger table: `summary NAME ...`.
    #[arg(long)]
    summary: Option<String>,
    /// Only say which device the driver has, `NAME, driver VERSION`; exit status 2 when it has none.
    #[arg(long)]
    probe: bool,
    /// The program and its arguments.
    #[arg(required_unless_present = "probe", last = true)]
    program: Vec<OsString>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("not NAME=VALUE")?;
    Ok((name.into(), value.into()))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = if options.probe {
        probe()
    } else {
        measure(options)
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(text) => {
            eprintln!("cycle: {text}");
            ExitCode::from(2)
        }
    }
}

fn probe() -> Result<u8, String> {
    let driver = Driver::load().map_err(|error| error.to_string())?;
    if driver.device_count().map_err(|error| error.to_string())? == 0 {
        return Err("the driver has no device".into());
    }
    let name = driver.device_name(0).map_err(|error| error.to_string())?;
    let version = kernel_driver_version().unwrap_or_else(|| "unknown".into());
    println!("{name}, driver {version}");
    Ok(0)
}

fn measure(options: Options) -> Result<u8, String> {
    let shim = std::path::absolute(&options.shim).map_err(|error| error.to_string())?;
    let needs_shim = options.arms.iter().any(|arm| !arm.is(Kind::Stock));
    if needs_shim && !shim.exists() {
        return Err(format!("no shim at {}", shim.display()));
    }
    let needs_tool = options.arms.iter().any(|arm| arm.is(Kind::Reserve));
    let tool = tool(options.tool, needs_tool)?;
    let mut words = options.program.into_iter();
    let mut host = HostSpec::new(words.next().unwrap_or_default(), words);
    host.env = options.env;
    let driver = Driver::load().map_err(|error| error.to_string())?;
    let patience = Duration::from_secs(options.patience);
    let meet = options.meet.map(|text| Meet::parse(&text, patience));
    let plan = Plan {
        host,
        shim,
        tool,
        arms: options.arms,
        cycles: options.cycles,
        slow_cycles: options.slow_cycles.unwrap_or(options.cycles),
        verify_last: options.verify_last,
        meet: meet.transpose()?,
        frozen: options.freeze,
        before_each: options.before_each,
        busy: options.busy,
        patience,
    };
    let result = run(&driver, &plan)?;
    print!("{}", render(&result));
    if let Some(name) = options.summary {
        println!("summary {}", summary(&result, &name));
    }
    if let Some(path) = options.json {
        let text = format!("{:#}\n", report(&result)?);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(verdict(&result))
}

/// The tool's absolute path. It may be missing where no arm needs it.
fn tool(given: Option<PathBuf>, needed: bool) -> Result<PathBuf, String> {
    let beside = || {
        let own = std::env::current_exe().ok()?;
        Some(own.with_file_name("cudasnap")).filter(|path| path.is_file())
    };
    let path = given.or_else(beside);
    let path = path.unwrap_or_else(|| PathBuf::from("target/release/cudasnap"));
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    if needed && !path.is_file() {
        return Err(format!(
            "no tool at {}, which arms of kind reserve need: give --tool PATH",
            path.display()
        ));
    }
    Ok(path)
}

fn verdict(result: &RunResult) -> u8 {
    if !result.verified {
        1
    } else if !result.problems.is_empty() {
        3
    } else {
        0
    }
}

/// The result with its medians and ratios.
fn report(result: &RunResult) -> Result<Value, String> {
    let mut value = serde_json::to_value(result).map_err(|error| error.to_string())?;
    let medians: serde_json::Map<String, Value> = result
        .arms
        .iter()
        .map(|arm| (arm.arm.to_string(), json!(medians(arm))))
        .collect();
    let ratios: serde_json::Map<String, Value> = result
        .arms
        .iter()
        .filter_map(|arm| Some((arm.arm, ratios(result, arm.arm)?)))
        .map(|(arm, (checkpoint, restore))| {
            let pair = json!({"checkpoint": checkpoint, "restore": restore});
            (arm.to_string(), pair)
        })
        .collect();
    value["medians"] = medians.into();
    value["ratios"] = ratios.into();
    Ok(value)
}
