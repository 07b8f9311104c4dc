//! The library to preload, and whether it is fit for it.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cudasnap_wire::SYMBOL;

use super::image::{self, Machine};
use super::preload::{self, Kin};
use crate::shim_library;

/// What became of the search.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    /// This file can be named in a preload.
    Fit(PathBuf, Machine),
    /// There is none, or it cannot be preloaded.
    Unfit(String),
}

/// The library that was asked for, or the one that is found.
///
/// # Errors
/// When a file that was asked for, by argument or by variable, is not there.
pub fn choose(asked: Option<&Path>) -> Result<Choice, String> {
    let path = match asked {
        Some(asked) => named(asked)?,
        None => match shim_library::find() {
            Ok(path) => path,
            Err(text) if is_variable_set() => return Err(text),
            Err(text) => return Ok(Choice::Unfit(text)),
        },
    };
    if !preload::can_name(&path) {
        return Ok(Choice::Unfit(format!(
            "{}: {}, install the library under another",
            path.display(),
            preload::UNNAMEABLE
        )));
    }
    Ok(match image::library_with(&path, SYMBOL) {
        Ok(machine) => Choice::Fit(path, machine),
        Err(text) => Choice::Unfit(text),
    })
}

fn is_variable_set() -> bool {
    std::env::var_os(shim_library::VARIABLE).is_some_and(|value| !value.is_empty())
}

/// Absolute, since children run in other folders.
fn named(asked: &Path) -> Result<PathBuf, String> {
    let path =
        std::path::absolute(asked).map_err(|error| format!("{}: {error}", asked.display()))?;
    if path.is_file() {
        Ok(path)
    } else {
        Err(format!("--lib {}: there is no such file", asked.display()))
    }
}

/// What elements of a list of preloads are to this library.
pub fn kin(library: &Path) -> impl Fn(&OsStr) -> Kin {
    let file = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let own = library.metadata().map(file).ok();
    move |element| {
        let path = Path::new(element);
        let same = own.is_some() && path.metadata().map(file).ok() == own;
        // A relative path holds in this folder only.
        match same && path.is_absolute() {
            true => Kin::Same,
            false if same || path.file_name() == Some(OsStr::new(shim_library::FILE)) => Kin::Copy,
            false => Kin::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_was_asked_for_is_never_replaced_by_another() {
        let error = choose(Some(Path::new("no/such/lib.so"))).unwrap_err();
        assert_eq!(error, "--lib no/such/lib.so: there is no such file");
    }

    #[test]
    fn files_that_are_no_library_of_ours_are_unfit() {
        let unfit = |path: &str| match choose(Some(Path::new(path))) {
            Ok(Choice::Unfit(text)) => text,
            other => panic!("{other:?}"),
        };
        let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(unfit(text), format!("{text} is no 64-bit shared library"));
        assert!(unfit("/proc/self/status").ends_with("it is no regular file"));
        let own = std::env::current_exe().unwrap();
        let text = unfit(own.to_str().unwrap());
        assert!(text.ends_with("is a library, but not cudasnap's"), "{text}");
    }

    #[test]
    fn kin_is_told_by_the_file_and_by_its_name() {
        let shell = Path::new("/bin/sh").canonicalize().unwrap();
        let kin = kin(&shell);
        assert_eq!(kin(OsStr::new("/bin/sh")), Kin::Same);
        assert_eq!(kin(OsStr::new("/bin/ls")), Kin::Other);
        assert_eq!(kin(OsStr::new("libjemalloc.so.2")), Kin::Other);
        for copy in ["libcudasnap.so", "/opt/cudasnap/0.0.1/libcudasnap.so"] {
            assert_eq!(kin(OsStr::new(copy)), Kin::Copy, "{copy}");
        }
    }
}
