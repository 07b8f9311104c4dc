//! Loads the library on trial: the program's own loader lists what it would load, and runs nothing.
//!
//! `LD_TRACE_LOADED_OBJECTS` is what `ldd` uses. With the program's loader, and with its libraries, it finds what would make
//! every child print an error or die: a libc older than the library needs, a library that is missing, a file that cannot be
//! read.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use super::preload;

/// What would make a loader run, report or load something else than it is asked here.
pub(crate) const UNWANTED: [&str; 6] = [
    "LD_DEBUG",
    "LD_DEBUG_OUTPUT",
    "LD_VERBOSE",
    "LD_AUDIT",
    "LD_PROFILE",
    "LD_SHOW_AUXV",
];

/// Loads `library`, which stands in `with`, into `program` by `loader`; `without` is the same list without it.
///
/// # Errors
/// Why it cannot be loaded, in the loader's own words where it has some.
pub fn load(
    loader: &Path,
    program: &Path,
    library: &Path,
    with: &OsStr,
    without: &OsStr,
) -> Result<(), String> {
    let trace = |list: &OsStr| {
        let listed = trace(loader, program, list);
        let listed = listed.map(|text| in_one_line(&text, library));
        listed.map_err(|error| format!("trying it failed: {error}"))
    };
    let listed = trace(with)?;
    if lists(&listed, library) && complaints(&listed).next().is_none() {
        return Ok(());
    }
    // The program may have troubles of its own.
    match new_complaint(&listed, &trace(without)?) {
        Some(complaint) => Err(complaint),
        None if lists(&listed, library) => Ok(()),
        None => Err("the loader does not list it, and does not say why".into()),
    }
}

/// Everything that the loader writes, on either of its outputs.
fn trace(loader: &Path, program: &Path, list: &OsStr) -> io::Result<String> {
    let (mut reader, writer) = io::pipe()?;
    let mut command = Command::new(loader);
    command
        .arg(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        // Undefined symbols too.
        .env("LD_WARN", "1")
        .env("LD_BIND_NOW", "1")
        .env(preload::VARIABLE, list)
        .stdin(Stdio::inherit())
        .stderr(writer.try_clone()?)
        .stdout(writer);
    for name in UNWANTED {
        command.env_remove(name);
    }
    let mut child = command.spawn()?;
    // It holds the writing end, which would keep the reading one from ending.
    drop(command);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    // No status where SIGCHLD is ignored; what was written tells all.
    let _ = child.wait();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The library's path as it is looked for in the listing: a line end in it would make two lines of one.
fn flat(library: &Path) -> String {
    library.display().to_string().replace('\n', "?")
}

fn in_one_line(text: &str, library: &Path) -> String {
    text.replace(&library.display().to_string(), &flat(library))
}

fn lists(text: &str, library: &Path) -> bool {
    let entry = format!("\t{} (0x", flat(library));
    text.lines().any(|line| line.starts_with(&entry))
}

/// All lines but those that say what is loaded from where.
fn complaints(text: &str) -> impl Iterator<Item = &str> {
    let fine = |line: &&str| line.starts_with('\t') && !line.ends_with("=> not found");
    text.lines()
        .filter(move |line| !fine(line) && !line.is_empty())
}

fn new_complaint(with: &str, without: &str) -> Option<String> {
    let new = |line: &&str| complaints(without).all(|other| other != *line);
    complaints(with)
        .find(new)
        .map(|line| line.trim().replace('\t', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: &str = "\tlinux-vdso.so.1 (0x00007f)\n\t/o/libcudasnap.so (0x00007f)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n";

    #[test]
    fn a_list_with_the_library_and_nothing_else_is_fine() {
        assert!(
            lists(FINE, Path::new("/o/libcudasnap.so")) && !lists(FINE, Path::new("/o/lib.so"))
        );
        assert_eq!(complaints(FINE).count(), 0);
        assert_eq!(complaints("\tstatically linked\n").count(), 0);
    }

    #[test]
    fn a_line_end_in_the_path_makes_no_second_line() {
        let library = Path::new("/o/a\nb/libcudasnap.so");
        let listed = FINE.replace("/o/", "/o/a\nb/");
        assert!(!lists(&listed, library));
        let listed = in_one_line(&listed, library);
        assert!(lists(&listed, library), "{listed}");
        assert_eq!(complaints(&listed).count(), 0);
    }

    #[test]
    fn what_comes_only_with_the_library_is_its_fault() {
        let version = "/bin/sh: /lib/libc.so.6: version `GLIBC_9.34' not found (required by /o/libcudasnap.so)";
        let own = "\tlibmissing.so.1 => not found";
        let with = format!("{version}\n{FINE}{own}\n");
        let without = format!("\tlibc.so.6 => /lib/libc.so.6 (0x00008f)\n{own}\n");
        assert_eq!(new_complaint(&with, &without).as_deref(), Some(version));
        assert_eq!(new_complaint(&without, &without), None);
        let needed = format!("{FINE}\tlibz.so.9 => not found\n");
        assert_eq!(
            new_complaint(&needed, FINE).as_deref(),
            Some("libz.so.9 => not found")
        );
    }
}
