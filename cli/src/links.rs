//! `cudasnap install-links DIR`: the link under whose name the binary is a drop-in.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::exit::Exit;
use crate::output;

/// NVIDIA's name for its tool; CRIU's CUDA plugin executes it from PATH.
pub const NAME: &str = "cuda-checkpoint";

/// Arguments of `cudasnap install-links`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for the link, one that stands in PATH
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Makes the link.
pub fn run(args: &Args) -> Exit {
    match install(&args.folder) {
        Ok(text) => output::say(&text, Exit::Done),
        Err(error) => {
            output::complain(format_args!("{}/{NAME}: {error}", args.folder.display()));
            Exit::Failed
        }
    }
}

/// Never overwrites: what is there may be NVIDIA's own tool.
fn install(folder: &Path) -> io::Result<String> {
    let program = std::env::current_exe()?;
    let link = folder.join(NAME);
    match std::fs::symlink_metadata(&link) {
        Ok(_) if std::fs::canonicalize(&link).is_ok_and(|target| target == program) => {
            return Ok(format!("{} is there already", link.display()));
        }
        Ok(_) => {
            return Err(io::Error::other(
                "something else is there: remove it first, or take another folder",
            ))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if !folder.is_dir() {
        return Err(io::Error::other("no such folder: make it first"));
    }
    symlink(&program, &link)?;
    Ok(format!("{} -> {}", link.display(), program.display()))
}
