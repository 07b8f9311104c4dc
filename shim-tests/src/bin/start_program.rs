//! Starts a program as `cudasnap ab -- CMD` does, for tests: says `pid N` when it is ready, and answers lines on stdin: `ask LINE`, `ending`,
//! `end`. Exit status: that of the error which it prints, else 0.

use std::ffi::OsString;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use cudasnap_cli::ab::target::launch::Launch;
use cudasnap_cli::ab::target::{Error, StartOptions, Started};
use cudasnap_cli::signals;

/// Starts a program and keeps it.
#[derive(Parser)]
struct Options {
    /// The tool, which is the program's keeper.
    #[arg(long)]
    tool: PathBuf,
    /// Without the library.
    #[arg(long)]
    stock: bool,
    #[command(flatten)]
    start: StartOptions,
    /// Variables, NAME=VALUE.
    #[arg(long)]
    set: Vec<String>,
    /// The program and its arguments.
    #[arg(required = true, last = true)]
    program: Vec<OsString>,
}

fn start(options: &Options) -> Result<Started, Error> {
    let signals =
        signals::listen(&signals::ENDING).map_err(|error| Error::Failed(error.to_string()))?;
    let pairs = options.set.iter().filter_map(|pair| pair.split_once('='));
    let env: Vec<(OsString, OsString)> = pairs
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let launch = if options.stock {
        Launch::stock(&options.program, &env)
    } else {
        Launch::with_library(&options.program, &env)
    };
    Started::start_by(&options.tool, &launch?, &options.start, &signals)
}

fn main() -> ExitCode {
    let mut started = match start(&Options::parse()) {
        Ok(started) => started,
        Err(error) => {
            println!("error {error}");
            return error.exit().into();
        }
    };
    println!("pid {}", started.pid());
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.as_str() {
            "ending" => println!("{:?}", started.ending()),
            "end" => {
                println!("{:?}", started.end());
                return ExitCode::SUCCESS;
            }
            line => {
                let question = line.strip_prefix("ask ").unwrap_or(line);
                let answer = started.ask(question, Duration::from_secs(60), || false);
                println!("{:?}", answer.map(Option::unwrap_or_default));
            }
        }
    }
    ExitCode::SUCCESS
}
