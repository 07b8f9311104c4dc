//! The library's file: can it be preloaded, which build is it, who could change it.

use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cudasnap_wire::{Record, SYMBOL, VERSION};

use crate::doctor::elf_file::{hex, Library};
use crate::doctor::environment;
use crate::doctor::finding::{Finding, Group};
use crate::doctor::loader;
use crate::run::preload::{can_name, UNNAMEABLE};
use crate::shim_library;

/// What the file itself says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Build {
    version: String,
    layout: u32,
    build_id: Option<String>,
}

/// Looks for the file and into it.
pub fn look() -> Group {
    let mut findings = match shim_library::find() {
        Ok(path) => look_at(&path),
        Err(error) => vec![not_found(&error)],
    };
    findings.push(environment::look());
    Group {
        name: "library",
        findings,
    }
}

fn not_found(error: &str) -> Finding {
    Finding::failed(
        "file",
        error,
        "install libcudasnap.so beside cudasnap, or set CUDASNAP_LIB to its path",
    )
}

fn look_at(path: &Path) -> Vec<Finding> {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let build = std::fs::read(path)
        .map_err(|error| error.to_string())
        .and_then(|bytes| read_build(&bytes));
    vec![
        file(path, &build),
        if can_name(path) {
            preload(&loader::try_preload(path))
        } else {
            unnameable()
        },
        writable(&open_to_all(&real)),
    ]
}

fn read_build(bytes: &[u8]) -> Result<Build, String> {
    let library = Library::parse(bytes)?;
    let record = library.data_of(SYMBOL).ok_or("it is no cudasnap library")?;
    let word = |offset: usize| -> Option<u32> {
        let bytes = record.get(offset..offset.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let version = word(offset_of!(Record, library_version)).ok_or("its record is too short")?;
    Ok(Build {
        version: format!(
            "{}.{}.{}",
            version >> 16,
            version >> 8 & 0xff,
            version & 0xff
        ),
        layout: word(offset_of!(Record, version)).unwrap_or(0),
        build_id: library.build_id().map(hex),
    })
}

fn file(path: &Path, build: &Result<Build, String>) -> Finding {
    const CHECK: &str = "file";
    let build = match build {
        Ok(build) => build,
        Err(error) => return not_found(&format!("{}: {error}", path.display())),
    };
    let id = match &build.build_id {
        Some(id) => format!(", build {}", id.get(..12).unwrap_or(id)),
        None => String::new(),
    };
    let found = format!("{} {}{id}", path.display(), build.version);
    let own = env!("CARGO_PKG_VERSION");
    if build.layout != VERSION {
        return Finding::warning(
            CHECK,
            format!("{found}: this tool ({own}) cannot read its record"),
            "install library and tool of the same version",
        );
    }
    Finding::ok(CHECK, found)
}

fn preload(tried: &Result<(), String>) -> Finding {
    const CHECK: &str = "preload";
    match tried {
        Ok(()) => Finding::ok(CHECK, "a child process had it loaded"),
        Err(words) => Finding::failed(
            CHECK,
            words.as_str(),
            "install a build for this machine's libc and architecture (ldd --version)",
        ),
    }
}

/// The loader would look for parts of the path.
fn unnameable() -> Finding {
    Finding::failed(
        "preload",
        UNNAMEABLE,
        "install library and tool under another path",
    )
}

/// The file and the folders above it that every user may change.
fn open_to_all(path: &Path) -> Vec<PathBuf> {
    let is_open = |path: &&Path| {
        std::fs::metadata(path).is_ok_and(|data| is_open_to_all(data.mode(), data.is_dir()))
    };
    path.ancestors()
        .filter(is_open)
        .map(Path::to_path_buf)
        .collect()
}

/// In a folder with the sticky bit nobody can exchange what others put there.
fn is_open_to_all(mode: u32, is_folder: bool) -> bool {
    mode & 0o002 != 0 && !(is_folder && mode & 0o1000 != 0)
}

fn writable(open: &[PathBuf]) -> Finding {
    const CHECK: &str = "safety";
    if open.is_empty() {
        return Finding::ok(CHECK, "not everybody may change the file");
    }
    let names: Vec<String> = open.iter().map(|path| path.display().to_string()).collect();
    Finding::warning(
        CHECK,
        format!(
            "every user may change {}, and so run code in your servers",
            names.join(", ")
        ),
        format!("chmod o-w {}", names.join(" ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict::{Failed, Ok as Fine, Warning};

    #[test]
    fn a_file_that_everybody_may_change_is_told() {
        for (mode, is_folder, is) in [
            (0o100_644, false, false),
            (0o100_666, false, true),
            (0o040_777, true, true),
            (0o041_777, true, false),
            (0o101_666, false, true),
        ] {
            assert_eq!(is_open_to_all(mode, is_folder), is, "{mode:o}");
        }
        assert_eq!(writable(&[]).verdict, Fine);
        let open = writable(&["/a/b.so".into(), "/a".into()]);
        assert_eq!(open.mend.unwrap(), "chmod o-w /a/b.so /a");
    }

    #[test]
    fn the_build_is_told() {
        let build = |layout| {
            Ok(Build {
                version: "0.1.0".into(),
                layout,
                build_id: Some("0123456789abcdef0123".into()),
            })
        };
        let path = Path::new("/x.so");
        let fine = file(path, &build(VERSION));
        assert_eq!(
            (fine.verdict, fine.found.as_str()),
            (Fine, "/x.so 0.1.0, build 0123456789ab")
        );
        assert_eq!(file(path, &build(VERSION + 1)).verdict, Warning);
        assert_eq!(file(path, &Err("torn".into())).verdict, Failed);
        assert!(read_build(b"x").is_err());
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(read_build(&own).unwrap_err(), "it is no cudasnap library");
        assert_eq!(preload(&Ok(())).verdict, Fine);
        assert_eq!(preload(&Err("words".into())).found, "words");
    }
}
