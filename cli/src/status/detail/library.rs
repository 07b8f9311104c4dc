//! What is told of the library in a process: its file, whether it works, its place in `LD_PRELOAD`.

use super::Line;
use crate::foreign_text::printable;
use crate::status::facts::{Library, Process};
use crate::status::judge::Verdict;
use crate::status::library_file::FileState;
use crate::status::preload::Preload;
use crate::status::text::count;

pub fn lines(process: &Process, verdict: &Verdict) -> Vec<Line> {
    let loaded = match &process.library {
        Library::Absent => return vec![("library", "not loaded".into())],
        Library::Unreadable { path, reason } => {
            let path = path.as_deref().map(printable);
            let path = path.map_or_else(String::new, |path| path + ": ");
            return vec![("library", format!("{path}{}", printable(reason)))];
        }
        Library::Loaded(loaded) => loaded,
    };
    let record = &loaded.record;
    let file = match &loaded.file {
        FileState::Same => "the file at its path is this build",
        FileState::OtherBuild { .. } => "ANOTHER build lies at its path",
        FileState::Missing => "the file is GONE",
        FileState::Unknown => "its file cannot be compared",
    };
    let id = if record.build_id.is_empty() {
        "none"
    } else {
        &record.build_id
    };
    let counters = &record.counters;
    vec![
        ("library", printable(&loaded.path)),
        (
            "",
            format!("version {}, build id {id}; {file}", record.library_version),
        ),
        (
            "activity",
            format!(
                "{}: {} of {} answered, {}",
                verdict.activity.word(),
                counters.answered,
                count(counters.requests as usize, "request", "requests"),
                count(counters.phases as usize, "phase", "phases")
            ),
        ),
    ]
}

pub fn preload(process: &Process) -> Option<Line> {
    let preload = process.preload.as_ref()?;
    if preload.entries.is_empty() && process.library == Library::Absent {
        return None;
    }
    let place = match preload.position {
        Some(1) => "first in LD_PRELOAD".into(),
        Some(position) => format!("number {position} in LD_PRELOAD"),
        None if process.library == Library::Absent && preload.names_library => {
            "LD_PRELOAD names the library, and it is not mapped".into()
        }
        None if process.library == Library::Absent => "LD_PRELOAD does not name the library".into(),
        None => "not by LD_PRELOAD (perhaps /etc/ld.so.preload)".into(),
    };
    let others = if preload.entries.len() > 1 || preload.position.is_none() {
        entries(preload)
    } else {
        String::new()
    };
    Some(("preload", place + &others))
}

/// What is in `LD_PRELOAD`, and what became of it.
fn entries(preload: &Preload) -> String {
    let entries = printable(&preload.entries.join(" "));
    let mapped = printable(&preload.mapped.join(" "));
    match (preload.entries.len(), preload.mapped.len()) {
        (0, _) => String::new(),
        (1, 0) if !preload.names_library => format!(": {entries}, not mapped"),
        (1, _) => format!(": {entries}"),
        (_, 0) => format!(": {entries}; none of them is mapped"),
        (_, 1) => format!(": {entries}; only {mapped} is mapped"),
        _ => format!(": {entries}; mapped in the order {mapped}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::facts::tests::process;

    #[test]
    fn a_library_that_is_named_and_not_mapped_is_told_as_such() {
        let said = |entries: &[&str], mapped: &[&str], names_library| {
            let own = |names: &[&str]| names.iter().map(ToString::to_string).collect();
            let mut process = process(7);
            process.preload = Some(Preload {
                entries: own(entries),
                mapped: own(mapped),
                names_library,
                ..Preload::default()
            });
            preload(&process).unwrap().1
        };
        assert_eq!(
            said(&["/gone/libcudasnap.so"], &[], true),
            "LD_PRELOAD names the library, and it is not mapped: /gone/libcudasnap.so"
        );
        assert_eq!(
            said(&["/x/a.so"], &["/x/a.so"], false),
            "LD_PRELOAD does not name the library: /x/a.so"
        );
        assert!(said(&["/x/a.so"], &[], false).ends_with(": /x/a.so, not mapped"));
        let gone = said(&["/x/a.so", "/gone/libcudasnap.so"], &["/x/a.so"], true);
        assert!(gone.ends_with("; only /x/a.so is mapped"), "{gone}");
        assert!(
            said(&["a.so", "b.so"], &["b.so", "a.so"], false).ends_with("in the order b.so a.so")
        );
    }
}
