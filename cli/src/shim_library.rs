//! Where the shim's library file is: `run` preloads it, `doctor` looks at it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Name of the library's file.
pub const FILE: &str = "libcudasnap.so";
/// Environment variable that names the library's file.
pub const VARIABLE: &str = "CUDASNAP_LIB";

/// Finds the library: at [`VARIABLE`], beside this program, in the folders where packages put libraries.
///
/// # Errors
/// What was looked at, and what to do.
pub fn find() -> Result<PathBuf, String> {
    let beside = std::env::current_exe().and_then(std::fs::canonicalize);
    let folder = beside
        .ok()
        .and_then(|path| Some(path.parent()?.to_path_buf()));
    search(
        std::env::var_os(VARIABLE),
        folder.as_deref(),
        &Path::is_file,
    )
}

fn search(
    named: Option<OsString>,
    beside: Option<&Path>,
    is_file: &dyn Fn(&Path) -> bool,
) -> Result<PathBuf, String> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        return if !path.is_absolute() {
            Err(format!(
                "{VARIABLE} is {}: give an absolute path, since child processes run in other folders",
                path.display()
            ))
        } else if is_file(&path) {
            Ok(path)
        } else {
            Err(format!(
                "{VARIABLE} is {}: there is no such file",
                path.display()
            ))
        };
    }
    let candidates = candidates(beside);
    candidates
        .iter()
        .find(|path| is_file(path))
        .cloned()
        .ok_or_else(|| {
            let looked: Vec<String> = candidates
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            format!(
                "{FILE} is not there: looked at {}; build it (cargo build --release) or name it with {VARIABLE}",
                looked.join(", ")
            )
        })
}

/// Beside the program (a build, a wheel), in the library folder beside its `bin`, and in those of the system.
fn candidates(beside: Option<&Path>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(beside) = beside {
        folders.push(beside.to_path_buf());
        if let Some(above) = beside.parent() {
            folders.extend([above.join("lib/cudasnap"), above.join("lib")]);
        }
    }
    // The version is in the path where several versions live side by side: a process that was moved to another host needs the
    // same file at the same path.
    folders.push(concat!("/opt/cudasnap/", env!("CARGO_PKG_VERSION")).into());
    let system = [
        "/usr/local/lib/cudasnap",
        "/usr/local/lib",
        "/usr/lib/cudasnap",
        "/usr/lib",
    ];
    folders.extend(system.map(PathBuf::from));
    folders.iter().map(|folder| folder.join(FILE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(named: Option<&str>, beside: &str, files: &[&str]) -> Result<PathBuf, String> {
        let is_file = |path: &Path| files.iter().any(|file| Path::new(file) == path);
        search(named.map(OsString::from), Some(Path::new(beside)), &is_file)
    }

    #[test]
    fn the_variable_wins_and_is_never_ignored() {
        let files = ["/x/my.so", "/b/bin/libcudasnap.so"];
        assert_eq!(
            found(Some("/x/my.so"), "/b/bin", &files).unwrap(),
            Path::new("/x/my.so")
        );
        assert!(found(Some("/x/none.so"), "/b/bin", &files).is_err());
        assert!(found(Some("x/my.so"), "/b/bin", &files).is_err());
        assert!(found(Some(""), "/b/bin", &files).is_ok());
    }

    #[test]
    fn the_nearest_file_is_taken() {
        let files = [
            "/b/bin/libcudasnap.so",
            "/b/lib/libcudasnap.so",
            "/usr/lib/libcudasnap.so",
        ];
        for first in 0..files.len() {
            assert_eq!(
                found(None, "/b/bin", &files[first..]).unwrap(),
                Path::new(files[first])
            );
        }
        let error = found(None, "/b/bin", &[]).unwrap_err();
        assert!(
            error.contains("/b/lib/cudasnap/libcudasnap.so") && error.contains(VARIABLE),
            "{error}"
        );
    }
}
