//! Turns the files of `gpu-check --full` into the tables and plots of docs/performance.md.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use cudasnap_shim_tests::performance::{fill, markdown, plot_sizes, plot_splits, Measured};

/// Merges the files that `gpu-check --full` wrote; prints the tables, or puts them into a document, and draws the plots.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Document whose text between the marks `measured: begin` and `measured: end` is replaced by the tables.
    #[arg(long)]
    doc: Option<PathBuf>,
    /// Folder for `performance-split.svg` and `performance-size.svg`.
    #[arg(long)]
    plots: Option<PathBuf>,
    /// File for all parts in one.
    #[arg(long)]
    merged: Option<PathBuf>,
    /// Files of parts, or merged ones. A step that is in more than one counts as in the last.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match make(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("performance: {text}");
            ExitCode::from(2)
        }
    }
}

fn make(options: &Options) -> Result<(), String> {
    let measured = Measured::load(&options.files)?;
    let tables = markdown(&measured)?;
    match &options.doc {
        Some(path) => {
            let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let document = std::fs::read_to_string(path).map_err(|error| named(&error))?;
            put(
                path,
                &fill(&document, &tables).map_err(|error| named(&error))?,
            )?;
        }
        None => print!("{tables}"),
    }
    if let Some(path) = &options.merged {
        // Not for the eye: with a line for each figure it would be three times as long.
        let text = serde_json::to_string(&measured).map_err(|error| error.to_string())?;
        put(path, &(text + "\n"))?;
    }
    if let Some(folder) = &options.plots {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        plot_splits(&measured, &folder.join("performance-split.svg"))?;
        plot_sizes(&measured, &folder.join("performance-size.svg"))?;
    }
    Ok(())
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
