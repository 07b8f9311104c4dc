//! The files that a report is written to.

use std::path::PathBuf;

use crate::document::Document;

/// Where the report goes.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Reports")]
pub struct OutputArgs {
    /// Write what was measured as JSON; - is stdout
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl OutputArgs {
    /// Whether one goes to stdout, which then is for nothing else.
    pub fn takes_stdout(&self) -> bool {
        self.json
            .as_ref()
            .is_some_and(|file| file.as_os_str() == "-")
    }

    /// Whether the files can be written.
    ///
    /// # Errors
    /// Which cannot, and why.
    pub fn check(&self) -> Result<(), String> {
        let folder = self.json.as_ref().and_then(|file| file.parent());
        match folder {
            Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                Err(format!("{}: there is no such folder", folder.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes them; returns their paths.
    ///
    /// # Errors
    /// Which could not be written, and why.
    pub fn write(
        &self,
        json: &str,
        _csv: &str,
        _document: &Document,
    ) -> Result<Vec<PathBuf>, String> {
        let Some(file) = &self.json else {
            return Ok(Vec::new());
        };
        if file.as_os_str() == "-" {
            println!("{json}");
            return Ok(Vec::new());
        }
        std::fs::write(file, json).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(vec![file.clone()])
    }
}
