//! What somebody should know or mend. Pure.

mod buffer;
mod library;

use serde::Serialize;

use super::facts::{Library, Process};
use super::judge::Verdict;

/// A warning. The words for scripts do not change; the text may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// What it is about, for scripts.
    pub about: &'static str,
    /// For people; harmless on a terminal.
    pub text: String,
}

fn warning(about: &'static str, text: impl Into<String>) -> Warning {
    Warning {
        about,
        text: text.into(),
    }
}

/// All warnings about a process, at a moment in nanoseconds since 1970.
pub fn of(process: &Process, verdict: &Verdict, now: u64) -> Vec<Warning> {
    let mut all = Vec::new();
    all.extend(buffer::left_behind(process, verdict));
    all.extend(library::of(process, verdict));
    if let Library::Loaded(loaded) = &process.library {
        all.extend(buffer::interrupted(process, loaded, verdict, now));
        all.extend(buffer::few_huge_pages(process, loaded));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::{process, with_record};
    use super::super::facts::Loaded;
    use super::*;

    /// What the warnings are about.
    pub fn about(process: &Process) -> Vec<&'static str> {
        let verdict = Verdict::of(process, 1_000_000_000_000);
        verdict
            .warnings
            .iter()
            .map(|warning| warning.about)
            .collect()
    }

    pub fn change_loaded(process: &mut Process, change: impl FnOnce(&mut Loaded)) {
        match &mut process.library {
            Library::Loaded(loaded) => change(loaded),
            _ => panic!("no library"),
        }
    }

    #[test]
    fn a_sound_process_has_none() {
        assert!(about(&process(7)).is_empty());
        assert!(about(&with_record(7, |_| {})).is_empty());
    }
}
