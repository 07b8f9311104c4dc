//! Warnings about the library in a process: whether it is there, which file it is, what it was told and whether it works.

use super::{warning, Warning};
use crate::foreign_text::printable;
use crate::run::options;
use crate::status::facts::{Library, Loaded, Process};
use crate::status::judge::{Activity, Verdict};
use crate::status::library_file::FileState;

/// All of them.
pub fn of(process: &Process, verdict: &Verdict) -> Vec<Warning> {
    let mut all = Vec::new();
    all.extend(no_library(process));
    all.extend(unreadable(process));
    if let Library::Loaded(loaded) = &process.library {
        all.extend(file(loaded));
        all.extend(complaints(loaded));
        all.extend(order(process));
        all.extend(activity(process, verdict));
    }
    all
}

/// A process that ought to have the library and has not.
fn no_library(process: &Process) -> Option<Warning> {
    if process.library != Library::Absent {
        return None;
    }
    if process
        .preload
        .as_ref()
        .is_some_and(|preload| preload.names_library)
    {
        return Some(warning(
            "preload-failed",
            "LD_PRELOAD names the library and it is not loaded: the loader could not load it (wrong path, architecture or libc), \
             or the program is static or has file capabilities; `cudasnap run` says which",
        ));
    }
    let above = process.library_above.as_ref()?;
    Some(warning(
        "child-without-library",
        format!(
            "process {} ({}) above it has the library and this one has not: something in between dropped LD_PRELOAD",
            above.pid,
            printable(&above.name)
        ),
    ))
}

fn unreadable(process: &Process) -> Option<Warning> {
    let Library::Unreadable { path, reason } = &process.library else {
        return None;
    };
    if process.missing_right.is_some() {
        return None;
    }
    let place = path
        .as_deref()
        .map_or_else(String::new, |path| format!(" ({})", printable(path)));
    Some(warning(
        "record-unreadable",
        format!(
            "the library's record{place} cannot be read: {}",
            printable(reason)
        ),
    ))
}

fn file(loaded: &Loaded) -> Option<Warning> {
    let path = printable(loaded.path.trim_end_matches(" (deleted)"));
    match &loaded.file {
        FileState::Same | FileState::Unknown => None,
        FileState::Missing => Some(warning(
            "library-missing",
            format!("{path} is gone: child processes run without the library, and a restore on another host needs the file"),
        )),
        FileState::OtherBuild { build_id } => Some(warning(
            "library-replaced",
            format!(
                "{path} is another build by now ({}): this process goes on with the one it has loaded; a restore after a dump \
                 needs that one at this path",
                if build_id.is_empty() { "without a build id" } else { build_id }
            ),
        )),
    }
}

fn complaints(loaded: &Loaded) -> Vec<Warning> {
    let complaints = loaded.record.complaints.iter();
    complaints
        .map(|complaint| {
            let option = complaint.option.unwrap_or("an option of a newer library");
            warning(
                "option-not-understood",
                format!(
                    "{option}=\"{}\" was not understood: {}the default is in force",
                    printable(&complaint.value),
                    options::what_it_takes(option).map_or_else(String::new, |text| text + "; "),
                ),
            )
        })
        .collect()
}

fn order(process: &Process) -> Option<Warning> {
    let rivals = &process.preload.as_ref()?.rivals;
    (!rivals.is_empty()).then(|| {
        warning(
            "not-first",
            format!(
                "{} defines mmap too and stands before the library: the driver's requests may not be recognised; put the library \
                 first in LD_PRELOAD",
                printable(&rivals.join(", "))
            ),
        )
    })
}

fn activity(process: &Process, verdict: &Verdict) -> Option<Warning> {
    match verdict.activity {
        Activity::Off => Some(warning(
            "off",
            format!(
                "the library is switched off: `cudasnap mode {} on` switches it on",
                process.identity.pid
            ),
        )),
        Activity::NotEffective => Some(warning(
            "not-effective",
            "less than 99 % of a last phase went through the library: see its steps down",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::facts::tests::{process, with_record};
    use crate::status::facts::Relative;
    use crate::status::preload::Preload;
    use crate::status::warnings::tests::{about, change_loaded};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn missing_libraries_are_told() {
        let mut child = process(7);
        child.library_above = Some(Relative {
            pid: 3,
            name: "launch\n".into(),
            library: Some(true),
        });
        assert_eq!(about(&child), ["child-without-library"]);
        assert!(!Verdict::of(&child, 1).warnings[0].text.contains('\n'));
        child.preload = Some(Preload {
            names_library: true,
            ..Preload::default()
        });
        assert_eq!(about(&child), ["preload-failed"]);
    }

    #[test]
    fn the_librarys_file_order_and_options_are_told() {
        let mut process = with_record(7, |record| {
            record.complaints[0].option.store(2, Relaxed);
            record.complaints[0].length.store(1, Relaxed);
            record.complaints[0].value[0].store(27, Relaxed);
        });
        assert_eq!(about(&process), ["option-not-understood"]);
        assert!(Verdict::of(&process, 1).warnings[0].text.starts_with(
            "CUDASNAP_THREADS=\"\\u{1b}\" was not understood: it takes 0 to 32; the default"
        ));
        change_loaded(&mut process, |loaded| loaded.file = FileState::Missing);
        process.preload = Some(Preload {
            rivals: vec!["/x.so".into()],
            ..Preload::default()
        });
        assert_eq!(
            about(&process),
            ["library-missing", "option-not-understood", "not-first"]
        );
        change_loaded(&mut process, |loaded| {
            loaded.file = FileState::OtherBuild {
                build_id: String::new(),
            };
            loaded.record.complaints.clear();
        });
        assert_eq!(about(&process), ["library-replaced", "not-first"]);
    }

    #[test]
    fn a_library_that_is_switched_off_is_told() {
        assert_eq!(
            about(&with_record(7, |record| record.mode.store(2, Relaxed))),
            ["off"]
        );
    }
}
