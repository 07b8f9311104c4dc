//! The simulated driver for tests: built by `scripts/sim-env`, which also says where it lies.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The environment that puts the simulated driver in front.
#[derive(Debug, Clone)]
pub struct SimEnv {
    /// Value of `LD_LIBRARY_PATH`.
    pub library_path: String,
    /// The host program `simapp`.
    pub simapp: PathBuf,
}

impl SimEnv {
    /// Builds what is missing and asks for the environment.
    ///
    /// # Errors
    /// Text: what the script printed, or what it did not.
    pub fn new() -> Result<Self, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let script =
            "eval \"$(scripts/sim-env)\" && printf '%s\\n%s\\n' \"$LD_LIBRARY_PATH\" \"$SIMAPP\"";
        let output = Command::new("sh")
            .args(["-c", script])
            .current_dir(root)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        match text.lines().collect::<Vec<_>>()[..] {
            [library_path, simapp] if output.status.success() => Ok(SimEnv {
                library_path: library_path.into(),
                simapp: simapp.into(),
            }),
            _ => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}
