//! Finds the program's file as `execvp` does.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{accessat, Access, AtFlags, CWD};
use rustix::io::Errno;

use crate::exit::Exit;

/// Where glibc and POSIX look when there is no `PATH`.
const NO_PATH: &str = "/bin:/usr/bin";

/// Why a program cannot be started.
#[derive(Debug, PartialEq, Eq)]
pub struct NotRunnable {
    /// Which of the two statuses of a shell: 127 or 126.
    pub exit: Exit,
    /// For people.
    pub text: String,
}

impl NotRunnable {
    /// From what the system said about this program.
    pub fn new(program: &Path, error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Exit::NotFound,
            _ => Exit::NotExecutable,
        };
        let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NOTDIR) => "there is no such program".into(),
            Some(Errno::ISDIR) => "it is a folder".into(),
            Some(Errno::ACCESS) => {
                "it may not be executed (permissions, or a mount with noexec)".into()
            }
            Some(Errno::LOOP) => {
                "too many links, or scripts whose interpreters are scripts, lead to it".into()
            }
            Some(Errno::NOEXEC) => "it is in no format that this machine executes".into(),
            _ => error.to_string(),
        };
        NotRunnable {
            exit,
            text: format!("{}: {why}", program.display()),
        }
    }
}

/// The file that would be executed under this name.
///
/// # Errors
/// 127 when there is none, 126 when there are only some that may not be executed.
pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, NotRunnable> {
    let mut error = io::Error::from(Errno::NOENT);
    for candidate in candidates(name, path) {
        match runnable(&candidate) {
            Ok(()) => return Ok(candidate),
            // A file that may not be executed is told only when no other is found.
            Err(other) if other.kind() != io::ErrorKind::NotFound => error = other,
            Err(_) => {}
        }
    }
    let mut not = NotRunnable::new(Path::new(name), &error);
    if not.exit == Exit::NotFound && !is_path(name) {
        not.text += " in PATH";
    }
    Err(not)
}

fn is_path(name: &OsStr) -> bool {
    name.as_bytes().contains(&b'/')
}

fn candidates(name: &OsStr, path: Option<&OsStr>) -> Vec<PathBuf> {
    if name.is_empty() {
        return Vec::new();
    }
    if is_path(name) {
        return vec![name.into()];
    }
    let folders = path.unwrap_or(OsStr::new(NO_PATH)).as_bytes();
    let folders = folders.split(|byte| *byte == b':');
    folders
        .map(|folder| match folder {
            // An empty element is the current folder; the name must not be searched for again.
            b"" => Path::new(".").join(name),
            _ => Path::new(OsStr::from_bytes(folder)).join(name),
        })
        .collect()
}

fn runnable(path: &Path) -> io::Result<()> {
    let metadata = path.metadata()?;
    if metadata.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    if !metadata.is_file() {
        return Err(Errno::ACCESS.into());
    }
    // With the effective ids, as the kernel will.
    Ok(accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, path: Option<&str>) -> Vec<String> {
        let found = candidates(name.as_ref(), path.map(OsStr::new));
        found
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn names_with_a_slash_are_not_searched_for() {
        assert_eq!(listed("./a", Some("/x")), ["./a"]);
        assert_eq!(listed("b/a", Some("/x")), ["b/a"]);
    }

    #[test]
    fn the_search_goes_through_path() {
        assert_eq!(listed("a", Some("/x:/y")), ["/x/a", "/y/a"]);
        assert_eq!(listed("a", Some(":/y:")), ["./a", "/y/a", "./a"]);
        assert_eq!(listed("a", Some("")), ["./a"]);
        assert_eq!(listed("a", None), ["/bin/a", "/usr/bin/a"]);
        assert!(listed("", Some("/x")).is_empty());
    }

    #[test]
    fn what_is_missing_is_127_and_what_may_not_be_is_126() {
        let said = |name: &str, path: &str| find(name.as_ref(), Some(path.as_ref())).unwrap_err();
        assert_eq!(said("no-such-program", "/bin").exit, Exit::NotFound);
        assert_eq!(
            said("no-such-program", "/bin").text,
            "no-such-program: there is no such program in PATH"
        );
        assert_eq!(said("", "/bin").exit, Exit::NotFound);
        assert_eq!(said("/bin/sh/x", "").exit, Exit::NotFound);
        assert_eq!(said("/tmp", "").exit, Exit::NotExecutable);
        assert_eq!(said("/dev/null", "").exit, Exit::NotExecutable);
        assert_eq!(said("tmp", "/").text, "tmp: it is a folder");
        // No executable file, though readable.
        assert_eq!(said("/proc/self/maps", "").exit, Exit::NotExecutable);
        // A hit further on wins over a folder of that name.
        assert_eq!(
            find("sh".as_ref(), Some("/proc/self:/etc:/bin".as_ref())),
            Ok("/bin/sh".into())
        );
    }
}
