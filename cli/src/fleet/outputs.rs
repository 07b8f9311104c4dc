//! Files that the report is written to.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueHint;

use crate::document::Document;
use crate::metrics::textfile;

/// Where the report goes.
#[derive(Debug, Default, clap::Args)]
pub struct OutputArgs {
    /// Write it as one JSON object; - is stdout
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Write a row of CSV for each group; - is stdout
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    csv: Option<PathBuf>,
}

impl OutputArgs {
    /// Whether the files can be written.
    ///
    /// # Errors
    /// Which cannot, and why.
    pub fn check(&self) -> Result<(), String> {
        let is_stdout = |path: &&PathBuf| path.as_os_str() == "-";
        let all = || self.json.iter().chain(&self.csv);
        if all().filter(is_stdout).count() > 1 {
            return Err("only one of the outputs can be stdout".into());
        }
        for path in all().filter(|path| !is_stdout(path)) {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            if !folder.unwrap_or(Path::new(".")).is_dir() {
                return Err(format!("{}: there is no such folder", path.display()));
            }
        }
        Ok(())
    }

    /// Whether something goes to stdout, which then has no room for tables.
    pub fn takes_stdout(&self) -> bool {
        let mut all = self.json.iter().chain(&self.csv);
        all.any(|path| path.as_os_str() == "-")
    }

    /// Writes them; returns the files.
    ///
    /// # Errors
    /// Which could not be written, and why.
    pub fn write(
        &self,
        json: &str,
        csv: &str,
        _document: &Document,
    ) -> Result<Vec<PathBuf>, String> {
        let mut written = Vec::new();
        for (path, text) in [(&self.json, json), (&self.csv, csv)] {
            let Some(path) = path else { continue };
            let done = if path.as_os_str() == "-" {
                io::stdout().lock().write_all(text.as_bytes())
            } else {
                written.push(path.clone());
                textfile::write(path, text)
            };
            match done {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                done => done.map_err(|error| format!("{}: {error}", path.display()))?,
            }
        }
        Ok(written)
    }
}
