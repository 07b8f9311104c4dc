//! Where the shim's library file is: `run` preloads it, `doctor` looks at it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Name of the library's file.
pub const FILE: &str = "libcudasnap.so";
/// Environment variable that names the library's file.
pub const VARIABLE: &str = "CUDASNAP_LIB";
/// The version, part of the path where several live side by side: a process that was moved to another host needs the same file
/// at the same path.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Packages (`packages/floor.py`) say which build of the library belongs to this tool: the first digits of its build id.
const BUILD: Option<&str> = option_env!("CUDASNAP_BUILD");

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
        BUILD,
        &Path::is_file,
    )
}

fn search(
    named: Option<OsString>,
    beside: Option<&Path>,
    build: Option<&str>,
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
    let candidates = candidates(beside, build);
    candidates
        .iter()
        .find(|path| is_file(path))
        .cloned()
        .ok_or_else(|| {
            let looked: Vec<String> = candidates
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            // A tool that was told its build came in a package, with its library.
            let mend = match build {
                Some(_) => "install again what this program came with, whole (pip install --target leaves the library out),",
                None => "build it (cargo build --release -p cudasnap)",
            };
            format!(
                "{FILE} is not there: looked at {}; {mend} or name it with {VARIABLE}",
                looked.join(", ")
            )
        })
}

/// Beside the program (a build), in the library folder beside its `bin` (a package), and in those of the system.
fn candidates(beside: Option<&Path>, build: Option<&str>) -> Vec<PathBuf> {
    let own = build.map(|build| format!("{VERSION}-{build}"));
    let below = |lib: &Path| {
        let shared = lib.join("cudasnap");
        let mine = own.as_ref().map(|own| shared.join(own));
        mine.into_iter().chain([shared, lib.to_path_buf()])
    };
    let mut folders: Vec<PathBuf> = beside.map(Path::to_path_buf).into_iter().collect();
    if let Some(above) = beside.and_then(Path::parent) {
        folders.extend(below(&above.join("lib")));
    }
    let versions = own.iter().map(String::as_str).chain([VERSION]);
    folders.extend(versions.map(|name| Path::new("/opt/cudasnap").join(name)));
    for lib in ["/usr/local/lib", "/usr/lib"] {
        folders.extend(below(Path::new(lib)));
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let file = folder.join(FILE);
        // A program in /usr/bin has folders of the system beside it.
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(named: Option<&str>, beside: &str, files: &[&str]) -> Result<PathBuf, String> {
        let is_file = |path: &Path| files.iter().any(|file| Path::new(file) == path);
        let build = Some("c0ffee123456");
        search(
            named.map(OsString::from),
            Some(Path::new(beside)),
            build,
            &is_file,
        )
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
        let error = found(
            None,
            "/b/bin",
            &["/b/lib/cudasnap/0.0.1-c0ffee/libcudasnap.so"],
        )
        .unwrap_err();
        assert!(
            error.contains("/b/lib/cudasnap/libcudasnap.so") && error.contains(VARIABLE),
            "{error}"
        );
    }

    #[test]
    fn each_place_is_named_once_with_what_to_do_about_this_tool() {
        for beside in ["/usr/bin", "/usr/local/bin", "/b/bin"] {
            let error = found(None, beside, &[]).unwrap_err();
            let (places, mend) = error.split_once("; ").unwrap();
            let places = places.split_once("looked at ").unwrap().1;
            let mut places: Vec<&str> = places.split(", ").collect();
            let count = places.len();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), count, "{error}");
            assert!(mend.starts_with("install again what "), "{error}");
        }
        let built = search(None, Some(Path::new("/b/bin")), None, &|_| false);
        let built = built.unwrap_err();
        assert!(built.contains("; build it (cargo build "), "{built}");
    }

    #[test]
    fn a_package_finds_the_build_that_came_with_it() {
        let own = format!("{VERSION}-c0ffee123456");
        for prefix in [
            "/b/lib/cudasnap",
            "/opt/cudasnap",
            "/usr/local/lib/cudasnap",
            "/usr/lib/cudasnap",
        ] {
            let mine = format!("{prefix}/{own}/{FILE}");
            let other = format!("{prefix}/{VERSION}-decaf0123456/{FILE}");
            let plain = format!("{prefix}/{FILE}");
            let files = [&*other, &*plain, &*mine];
            assert_eq!(found(None, "/b/bin", &files).unwrap(), Path::new(&mine));
            assert!(found(None, "/b/bin", &files[..1]).is_err());
        }
        let without = candidates(Some(Path::new("/b/bin")), None);
        assert!(without
            .iter()
            .all(|path| !path.to_string_lossy().contains("c0ffee")));
        assert_eq!(without.len(), 8);
    }
}
