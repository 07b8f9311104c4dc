//! Runs thousands of cycles on the simulated driver under the shim, with faults of all kinds, from a seed; `scripts/soak` builds
//! what it needs. Ends with `N passed, M failed, K skipped`.
//!
//! Exit status: 0 all right; 1 something failed, or was planned and never seen; 2 it could not run; 130 and the like: a signal
//! ended it early.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use cudasnap_cli::driver::Driver;
use cudasnap_cli::signals;
use cudasnap_shim_tests::last_words;
use cudasnap_shim_tests::shimmed::{compile_hostile, library};
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::soak::account::Account;
use cudasnap_shim_tests::soak::crowd::{Crowd, Order};
use cudasnap_shim_tests::soak::groups;
use cudasnap_shim_tests::soak::guest::Tools;
use cudasnap_shim_tests::soak::kinds::Kind;
use cudasnap_shim_tests::soak::lane::Lane;

/// Cycles on the simulated driver under the shim, with faults of all kinds.
#[derive(Parser)]
#[command(name = "soak")]
struct Options {
    /// Cycles.
    cycles: u64,
    /// Everything follows from it.
    seed: u64,
    /// The first cycle: repeats a failure.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// No new host after so many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Lanes side by side; 0 = one per CPU.
    #[arg(long, default_value_t = 0)]
    lanes: usize,
    /// Longest time for one cycle, in seconds.
    #[arg(long, default_value_t = 120)]
    patience: u64,
    /// Seconds between two progress lines.
    #[arg(long, default_value_t = 30)]
    progress: u64,
    /// Kinds that this machine cannot do: cycles that need them are skipped.
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    without: Vec<Kind>,
    /// This process is a lane, with simapp, mate and a folder for them.
    #[arg(long, hide = true, num_args = 3)]
    lane: Option<Vec<PathBuf>>,
}

fn kind(word: &str) -> Result<Kind, String> {
    let found = Kind::ALL.iter().find(|kind| kind.word() == word);
    found.copied().ok_or_else(|| {
        let words: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
        format!("not one of {}", words.join(", "))
    })
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match &options.lane {
        Some(paths) => lane(&options, paths).map(|()| 0),
        None => soak(&options),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(text) => {
            eprintln!("soak: {text}");
            ExitCode::from(2)
        }
    }
}

fn without(options: &Options) -> BTreeSet<Kind> {
    options.without.iter().copied().collect()
}

fn lane(options: &Options, paths: &[PathBuf]) -> Result<(), String> {
    last_words::on_faults();
    let driver = Driver::load().map_err(|error| error.to_string())?;
    let without = without(options);
    let [simapp, mate, folder] = paths else {
        return Err("a lane needs three paths".into());
    };
    let tools = Tools {
        simapp: simapp.clone(),
        shim: library(),
        mate: mate.clone(),
        folder: folder.clone(),
        patience: Duration::from_secs(options.patience),
        groups: !(without.contains(&Kind::Quota) && without.contains(&Kind::NoThreads)),
    };
    Lane {
        seed: options.seed,
        tools: &tools,
        without,
        driver: &driver,
    }
    .run()
}

/// A folder that goes with the run.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("cudasnap-soak-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left behind it does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn order(
    options: &Options,
    driver: &SimDriver,
    mate: &std::path::Path,
    folder: &std::path::Path,
) -> Order {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let mut lane = vec![
        options.cycles.to_string(),
        options.seed.to_string(),
        "--patience".into(),
        options.patience.to_string(),
    ];
    if !options.without.is_empty() {
        let words: Vec<&str> = options.without.iter().map(|kind| kind.word()).collect();
        lane.extend(["--without".into(), words.join(",")]);
    }
    lane.push("--lane".into());
    lane.extend([
        text(&driver.programs.join("simapp")),
        text(mate),
        text(folder),
    ]);
    Order {
        seed: options.seed,
        from: options.from,
        count: options.cycles,
        lanes: if options.lanes == 0 {
            cpus
        } else {
            options.lanes
        },
        time: options
            .minutes
            .map(|minutes| Duration::from_secs_f64(minutes * 60.0)),
        driver: driver.library.clone(),
        lane,
        progress: Duration::from_secs(options.progress),
    }
}

fn soak(options: &Options) -> Result<u8, String> {
    let signals = signals::listen(&signals::ENDING).map_err(|error| error.to_string())?;
    let driver = SimDriver::build(false);
    let folder = Folder::new()?;
    let mate = folder.0.join("libsoakmate.so");
    compile_hostile("soakmate.c", &["-shared", "-fPIC", "-ldl"], &mate);
    groups::sweep();
    let order = order(options, &driver, &mate, &folder.0);
    println!(
        "soak: {} cycles from {}, seed {}, {} lanes, {}",
        order.count,
        order.from,
        order.seed,
        order.lanes,
        library().display()
    );
    let account = Account::new(options.seed, without(options));
    let mut crowd = Crowd::start(&order, account)?;
    crowd.run(&signals)?;
    Ok(end(crowd))
}

fn end(mut crowd: Crowd<'_>) -> u8 {
    print!("{}", crowd.account);
    let (cycles, seconds) = (crowd.account.cycles(), crowd.seconds());
    println!(
        "{cycles} cycles in {seconds:.0} s, {:.1} per second",
        cycles as f64 / seconds
    );
    let whole = crowd.is_whole();
    if let Some(signal) = crowd.interrupted {
        println!("{}", crowd.account.verdict());
        return 128u8.saturating_add(signal as u8);
    }
    for kind in crowd.account.missing(whole) {
        let text = crowd
            .account
            .fail_whole(&format!("{} was never seen", kind.word()));
        print!("{text}");
    }
    if crowd.account.is_late() {
        print!(
            "{}",
            crowd.account.fail_whole("helpers were late too often")
        );
    }
    println!("{}", crowd.account.verdict());
    u8::from(crowd.account.failures() > 0)
}
