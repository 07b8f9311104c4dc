//! `cudasnap install-links DIR`: the link under whose name the binary is a drop-in.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::ExitCode;

/// NVIDIA's name for its tool; CRIU's CUDA plugin executes it from PATH.
pub const NAME: &str = "cuda-checkpoint";

/// Makes the link in the folder that is the one argument. Exit status 0 done, 1 not, 2 usage.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let [folder] = arguments else {
        eprintln!("usage: cudasnap install-links DIR");
        return ExitCode::from(2);
    };
    match install(Path::new(folder)) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cudasnap: {}/{NAME}: {error}", folder.to_string_lossy());
            ExitCode::FAILURE
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
    symlink(&program, &link)?;
    Ok(format!("{} -> {}", link.display(), program.display()))
}
