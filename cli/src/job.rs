//! `--launch-job`: a program whose CUDA processes share one job file, as driver 590 and later understand it.
//!
//! NVIDIA describes it as: initialise a memfd to become a job file, let `CUDA_CHECKPOINT_JOB_FILE` point to it, launch the
//! command. What the driver expects in that file is not public, so NVIDIA's own tool is preferred where it is installed beside
//! this one; otherwise the file is an empty memfd. No driver of that age was at hand: neither way is tested against one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{memfd_create, MemfdFlags};

use crate::driver::kernel_driver_version;
use crate::links::NAME;

/// First major version of the driver that knows jobs.
pub const FIRST_DRIVER: u32 = 590;
/// Environment variable by which the driver finds the job file.
pub const VARIABLE: &str = "CUDA_CHECKPOINT_JOB_FILE";

/// Whether a driver of this version, such as `590.44.01`, knows jobs.
pub fn known_to(version: &str) -> bool {
    let major = version.split('.').next().and_then(|word| word.parse().ok());
    major.is_some_and(|major: u32| major >= FIRST_DRIVER)
}

/// The first other program of NVIDIA's name in these folders: not this one, nor a link to it.
pub fn nvidias_tool(path: &OsStr, own: &Path) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(NAME))
        .find(|candidate| {
            std::fs::canonicalize(candidate).is_ok_and(|real| real.is_file() && real != own)
        })
}

/// Starts the program in this process's place. Returns only when that did not work, with the reason.
pub fn launch(program: &OsStr, arguments: &[OsString]) -> String {
    let version = kernel_driver_version();
    if !version.as_deref().is_some_and(known_to) {
        let version = version.map_or("no driver is loaded".into(), |version| {
            format!("this one is {version}")
        });
        return format!("--launch-job needs driver {FIRST_DRIVER} or later: {version}");
    }
    let own = std::env::current_exe().and_then(std::fs::canonicalize);
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(tool) = own.ok().and_then(|own| nvidias_tool(&path, &own)) {
        let error = Command::new(&tool)
            .arg("--launch-job")
            .arg(program)
            .args(arguments)
            .exec();
        return format!("{}: {error}", tool.display());
    }
    let file = match JobFile::new() {
        Ok(file) => file,
        Err(error) => return format!("cannot make a job file: {error}"),
    };
    let mut command = Command::new(program);
    let error = command.args(arguments).env(VARIABLE, file.path()).exec();
    format!("{}: {error}", program.to_string_lossy())
}

/// A job file: what [`VARIABLE`] must say, and the descriptor, which is inherited by every child.
#[derive(Debug)]
pub struct JobFile {
    file: OwnedFd,
}

impl JobFile {
    /// Makes one.
    ///
    /// # Errors
    /// The kernel refuses the memfd.
    pub fn new() -> io::Result<Self> {
        // The system call: libc's function is newer (2.27) than the oldest glibc that packages run with. No close-on-exec: the
        // program and its children need it.
        let file = memfd_create("cuda-checkpoint-job", MemfdFlags::empty())?;
        Ok(JobFile { file })
    }

    /// Value of [`VARIABLE`] in the program and its children, which inherit the descriptor under the same number.
    pub fn path(&self) -> OsString {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{symlink, PermissionsExt};

    #[test]
    fn jobs_come_with_driver_590() {
        for (version, known) in [
            ("580.159.04", false),
            ("590.44.01", true),
            ("610.1", true),
            ("", false),
            ("x.1", false),
        ] {
            assert_eq!(known_to(version), known, "{version}");
        }
    }

    #[test]
    fn a_child_finds_the_file_by_the_variable() {
        let file = JobFile::new().unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("readlink \"${VARIABLE}\"")])
            .env(VARIABLE, file.path())
            .output()
            .unwrap();
        let link = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(link.starts_with("/memfd:cuda-checkpoint-job"), "{link}");
    }

    #[test]
    fn nvidias_tool_is_another_program_than_this_one() {
        let folder = std::env::temp_dir().join(format!("cudasnap-job-{}", std::process::id()));
        let (ours, theirs) = (folder.join("ours"), folder.join("theirs"));
        std::fs::create_dir_all(&ours).unwrap();
        std::fs::create_dir_all(&theirs).unwrap();
        let own = std::fs::canonicalize(std::env::current_exe().unwrap()).unwrap();
        symlink(&own, ours.join(NAME)).unwrap();
        let path = std::env::join_paths([&ours, &theirs]).unwrap();
        assert_eq!(nvidias_tool(&path, &own), None);
        std::fs::write(theirs.join(NAME), "#!/bin/sh\n").unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(theirs.join(NAME), executable).unwrap();
        assert_eq!(nvidias_tool(&path, &own), Some(theirs.join(NAME)));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
