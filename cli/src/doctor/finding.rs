//! What a check found, and the whole report.

use serde::Serialize;

/// What a finding means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Checkpoints work, but are slower than they could be, or something about them does not work.
    Warning,
    /// Checkpoints cannot work.
    Failed,
    /// Cannot be said, or does not matter here.
    Unknown,
}

impl Verdict {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failed => "failed",
            Verdict::Unknown => "unknown",
        }
    }
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// What it means.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it: a command where there is one.
    pub mend: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, found, None)
    }

    /// Works, but not as well as it could.
    pub fn warning(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::new(check, Verdict::Warning, found, Some(mend.into()))
    }

    /// Makes checkpoints impossible.
    pub fn failed(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::new(check, Verdict::Failed, found, Some(mend.into()))
    }

    /// Cannot be said, or does not matter here; `found` says which.
    pub fn unknown(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Verdict::Unknown, found, None)
    }

    fn new(
        check: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        mend: Option<String>,
    ) -> Self {
        Finding {
            check,
            verdict,
            found: found.into(),
            mend,
        }
    }
}

/// Findings about one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// What they are about.
    pub name: &'static str,
    /// In the order in which they are shown.
    pub findings: Vec<Finding>,
}

/// How many findings of each kind there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// [`Verdict::Ok`].
    pub ok: usize,
    /// [`Verdict::Warning`].
    pub warning: usize,
    /// [`Verdict::Failed`].
    pub failed: usize,
    /// [`Verdict::Unknown`].
    pub unknown: usize,
}

impl Counts {
    /// Counts the findings.
    pub fn of(groups: &[Group]) -> Self {
        let mut counts = Counts::default();
        for finding in groups.iter().flat_map(|group| &group.findings) {
            let count = match finding.verdict {
                Verdict::Ok => &mut counts.ok,
                Verdict::Warning => &mut counts.warning,
                Verdict::Failed => &mut counts.failed,
                Verdict::Unknown => &mut counts.unknown,
            };
            *count += 1;
        }
        counts
    }

    /// The worst of them.
    pub fn worst(&self) -> Verdict {
        match self {
            Counts { failed: 1.., .. } => Verdict::Failed,
            Counts { warning: 1.., .. } => Verdict::Warning,
            _ => Verdict::Ok,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_counted_and_the_worst_of_them_is_told() {
        let group = |findings| Group {
            name: "g",
            findings,
        };
        let ok = || Finding::ok("a", "b");
        let counts = Counts::of(&[group(vec![ok(), Finding::unknown("c", "d")])]);
        assert_eq!((counts.ok, counts.unknown), (1, 1));
        assert_eq!(counts.worst(), Verdict::Ok);
        let warning = Finding::warning("e", "f", "g");
        let failed = Finding::failed("h", "i", "j");
        let counts = Counts::of(&[group(vec![ok(), warning.clone()])]);
        assert_eq!(counts.worst(), Verdict::Warning);
        let counts = Counts::of(&[group(vec![failed]), group(vec![warning])]);
        assert_eq!(counts.worst(), Verdict::Failed);
    }
}
