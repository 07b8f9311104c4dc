//! Files into a fleet: line by line, with what cannot be taken.

use std::io::{self, Read};

use super::Fleet;
use crate::fleet::lines::{Line, Lines};
use crate::fleet::phase::{Phase, Reject};
use crate::fleet::troubles::Kind;

impl Fleet {
    /// Reads a file of this host to its end.
    ///
    /// # Errors
    /// It cannot be read on; what came until then counts. Or it is something else, of which no line counts.
    pub fn read(&mut self, host: &str, file: &str, from: impl Read) -> io::Result<()> {
        let mut lines = Lines::new(from);
        if is_report_of_ab(lines.beginning()?) {
            return Err(io::Error::other(
                "it is what \"cudasnap ab --json\" writes, a whole run and no lines of CUDASNAP_REPORT: the same run's --html, --markdown \
                 and --csv show it; name the files of CUDASNAP_REPORT here",
            ));
        }
        self.files += 1;
        let mut number = 0;
        while let Some(line) = lines.read()? {
            number += 1;
            self.lines += 1;
            self.take(host, file, number, &line);
        }
        Ok(())
    }

    fn take(&mut self, host: &str, file: &str, number: u64, line: &Line<'_>) {
        match line {
            Line::TooLong => self.troubles.reject(Reject::Broken, file, number),
            Line::Whole(bytes) => match Phase::read(bytes) {
                Ok(phase) => self.add(host, &phase),
                Err(reject) => self.troubles.reject(reject, file, number),
            },
            // Whole but for its end, it can be taken.
            Line::Unended(bytes) => match Phase::read(bytes) {
                Ok(phase) => self.add(host, &phase),
                Err(Reject::Broken) => self.troubles.add(Kind::Half, file, number),
                Err(reject) => self.troubles.reject(reject, file, number),
            },
        }
    }
}

/// By its first fields, which no line of the library's has.
fn is_report_of_ab(beginning: &[u8]) -> bool {
    let head = &beginning[..beginning.len().min(4096)];
    let has = |name: &[u8]| memchr::memmem::find(head, name).is_some();
    head.trim_ascii_start().starts_with(b"{")
        && [
            &b"\"schema\""[..],
            b"\"started_unix\"",
            b"\"seed\"",
            b"\"host\"",
        ]
        .into_iter()
        .all(has)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fleet, line};
    use super::*;

    #[test]
    fn broken_foreign_newer_and_half_lines_are_told_with_their_place() {
        let good = line(&[]);
        let text = format!(
            "{good}\nnot json\n{{\"a\":1}}\n{}\n{good}\n{}",
            line(&[("schema", 2.into())]),
            &good[..100]
        );
        let fleet = fleet(&[("a", &text)]);
        assert_eq!((fleet.phases, fleet.lines), (2, 6));
        let told: Vec<(Kind, String)> = fleet
            .troubles()
            .into_iter()
            .map(|trouble| (trouble.kind, trouble.places.join(" ")))
            .collect();
        let at = |kind, place: &str| (kind, place.to_owned());
        assert_eq!(
            told,
            [
                at(Kind::Broken, "a:2"),
                at(Kind::Foreign, "a:3"),
                at(Kind::Newer, "a:4"),
                at(Kind::Half, "a:6")
            ]
        );
    }

    #[test]
    fn a_report_of_ab_is_told_as_such() {
        let text = crate::ab::json::write(&crate::ab::made_up::run(2, 3.0)).unwrap();
        let mut fleet = Fleet::new(0);
        let error = fleet.read("a", "a", text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("cudasnap ab --json"), "{error}");
        assert_eq!((fleet.files, fleet.lines, fleet.phases), (0, 0, 0));
        fleet.read("a", "a", line(&[]).as_bytes()).unwrap();
        assert_eq!(fleet.phases, 1);
    }

    #[test]
    fn a_mark_of_the_encoding_is_no_part_of_the_first_line() {
        let text = format!("\u{feff}{}\n{}\n", line(&[]), line(&[]));
        let fleet = fleet(&[("a", &text)]);
        assert_eq!((fleet.phases, fleet.troubles()), (2, Vec::new()));
    }
}
