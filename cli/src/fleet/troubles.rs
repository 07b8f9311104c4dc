//! Lines that are no phases: counted, and the first of each kind with their places.

use serde::Serialize;

use super::phase::Reject;

/// Places that are kept of each kind.
const PLACES: usize = 3;

/// Kinds of lines that are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// No JSON, or far too long.
    Broken,
    /// JSON that is no line of the library's.
    Foreign,
    /// Of a newer library.
    Newer,
    /// The last line of a file, which has no end: it is being written.
    Half,
}

/// Lines of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Kind.
    pub kind: Kind,
    /// How many.
    pub lines: u64,
    /// `FILE:LINE` of the first ones.
    pub places: Vec<String>,
    /// Highest schema, of those of a newer library.
    pub schema: Option<u64>,
}

/// Counts them.
#[derive(Debug, Clone, Default)]
pub struct Troubles(Vec<Trouble>);

impl Troubles {
    /// Takes a line that was rejected.
    pub fn reject(&mut self, reject: Reject, file: &str, line: u64) {
        match reject {
            Reject::Broken => self.add(Kind::Broken, file, line),
            Reject::Foreign => self.add(Kind::Foreign, file, line),
            Reject::Newer(schema) => {
                self.add(Kind::Newer, file, line);
                let newer = self
                    .0
                    .iter_mut()
                    .find(|trouble| trouble.kind == Kind::Newer);
                if let Some(newer) = newer {
                    newer.schema = newer.schema.max(Some(schema));
                }
            }
        }
    }

    /// Takes a line of this kind.
    pub fn add(&mut self, kind: Kind, file: &str, line: u64) {
        let found = self.0.iter().position(|trouble| trouble.kind == kind);
        let at = found.unwrap_or_else(|| {
            self.0.push(Trouble {
                kind,
                lines: 0,
                places: Vec::new(),
                schema: None,
            });
            self.0.len() - 1
        });
        let trouble = &mut self.0[at];
        trouble.lines += 1;
        if trouble.places.len() < PLACES {
            trouble.places.push(format!("{file}:{line}"));
        }
    }

    /// All kinds that were seen.
    pub fn all(&self) -> Vec<Trouble> {
        let mut all = self.0.clone();
        all.sort_by_key(|trouble| trouble.kind);
        all
    }
}

impl Trouble {
    /// In a sentence.
    pub fn told(&self) -> String {
        let lines = match self.lines {
            1 => "1 line".to_owned(),
            lines => format!("{lines} lines"),
        };
        let what = match (self.kind, self.schema) {
            (Kind::Broken, _) => "is broken: no JSON".to_owned(),
            (Kind::Foreign, _) => "is JSON and no line of the library's".to_owned(),
            (Kind::Newer, schema) => format!(
                "is of a newer library (schema {}, this program reads {})",
                schema.unwrap_or_default(),
                super::phase::SCHEMA
            ),
            (Kind::Half, _) => "at the end of a file is half written".to_owned(),
        };
        let what = match self.lines {
            1 => what,
            _ => what
                .replacen("is ", "are ", 1)
                .replace("no line of", "no lines of"),
        };
        let more = if self.lines > self.places.len() as u64 {
            ", ..."
        } else {
            ""
        };
        format!("{lines} {what} ({}{more})", self.places.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_and_the_first_have_their_place() {
        let mut troubles = Troubles::default();
        for line in 1..=5 {
            troubles.reject(Reject::Broken, "a", line);
        }
        troubles.reject(Reject::Newer(3), "b", 9);
        troubles.add(Kind::Half, "b", 10);
        let told: Vec<String> = troubles.all().iter().map(Trouble::told).collect();
        assert_eq!(
            told,
            [
                "5 lines are broken: no JSON (a:1, a:2, a:3, ...)",
                "1 line is of a newer library (schema 3, this program reads 1) (b:9)",
                "1 line at the end of a file is half written (b:10)",
            ]
        );
    }
}
