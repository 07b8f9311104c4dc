//! A line of a report, read: `src/report.rs` of the library writes it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

/// Version of the lines that are understood.
pub const SCHEMA: u64 = 1;

/// A phase. Fields that an older library does not write are empty.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[allow(
    missing_docs,
    reason = "the fields are those of cudasnap_wire::Phase, documented there"
)]
pub struct Phase<'a> {
    pub pid: i64,
    pub unix_ns: u64,
    #[serde(borrow)]
    pub phase: Cow<'a, str>,
    #[serde(borrow)]
    pub mode: Cow<'a, str>,
    #[serde(borrow, default)]
    pub pages: Cow<'a, str>,
    #[serde(default)]
    pub kept: bool,
    #[serde(default)]
    pub threads: u32,
    #[serde(borrow, default)]
    pub strategy: Cow<'a, str>,
    pub bytes: u64,
    pub copied: u64,
    #[serde(default)]
    pub zeros: u64,
    pub effective: bool,
    #[serde(default)]
    pub mmap_ns: u64,
    #[serde(default)]
    pub prefault_ns: u64,
    #[serde(default)]
    pub first_copy_ns: u64,
    #[serde(default)]
    pub copying_ns: u64,
    #[serde(default)]
    pub waiting_ns: u64,
    #[serde(default)]
    pub loop_ns: u64,
    pub total_ns: u64,
    #[serde(default)]
    pub munmap_ns: u64,
    #[serde(default)]
    pub not_understood: Vec<String>,
    #[serde(default)]
    pub steps_down: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Head {
    schema: Option<u64>,
}

/// Why a line is no phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reject {
    /// No JSON.
    Broken,
    /// JSON, and not a line of the library's.
    Foreign,
    /// A line of a newer library, with this schema.
    Newer(u64),
}

impl<'a> Phase<'a> {
    /// Reads a line.
    ///
    /// # Errors
    /// Why it is none.
    pub fn read(line: &'a [u8]) -> Result<Self, Reject> {
        let text = std::str::from_utf8(line).map_err(|_| Reject::Broken)?;
        match serde_json::from_str::<Head>(text) {
            Ok(Head {
                schema: Some(SCHEMA),
            }) => {}
            Ok(Head {
                schema: Some(newer),
            }) if newer > SCHEMA => return Err(Reject::Newer(newer)),
            Ok(_) => return Err(Reject::Foreign),
            Err(error) if error.is_data() => return Err(Reject::Foreign),
            Err(_) => return Err(Reject::Broken),
        }
        let phase: Phase<'a> = serde_json::from_str(text).map_err(|_| Reject::Foreign)?;
        match phase.phase.as_ref() {
            "checkpoint" | "restore" => Ok(phase),
            _ => Err(Reject::Foreign),
        }
    }

    /// Pieces of the time, none of which overlaps another: inside mmap, then until the first copy as far as pages were made, copying,
    /// everything of the driver's (before the first copy, between copies, after the last), inside munmap.
    pub fn pieces(&self) -> [u64; PIECES.len()] {
        let before = self.first_copy_ns.max(self.mmap_ns);
        let prefault = self.prefault_ns.clamp(self.mmap_ns, before) - self.mmap_ns;
        let after = self
            .total_ns
            .saturating_sub(before.saturating_add(self.loop_ns));
        let driver = (before - self.mmap_ns - prefault)
            .saturating_add(self.waiting_ns)
            .saturating_add(after);
        [
            self.mmap_ns,
            prefault,
            self.copying_ns,
            driver,
            self.munmap_ns,
        ]
    }
}

/// Names of the pieces.
pub const PIECES: [&str; 5] = ["mmap", "prefault", "copying", "driver", "munmap"];

#[cfg(test)]
mod tests {
    use super::*;

    /// As the library writes it.
    pub const LINE: &str = r#"{"schema":1,"pid":42,"unix_ns":1764500000000000000,"buffer":1,"phase":"checkpoint","end":"covered","mode":"on","pages":"thp","kept":false,"threads":16,"strategy":"demote","tried":0,"bytes":1000,"copied":1000,"copies":3,"prefaulted":1000,"zeros":0,"effective":true,"mmap_ns":10,"prefault_ns":70,"first_copy_ns":50,"copying_ns":100,"waiting_ns":30,"longest_wait_ns":20,"loop_ns":130,"total_ns":200,"munmap_ns":5,"gb_per_s":5.00,"not_understood":["CUDASNAP_PAGES"],"steps_down":{"no-thread":2}}"#;

    #[test]
    fn a_line_of_the_librarys_is_read() {
        let phase = Phase::read(LINE.as_bytes()).unwrap();
        assert_eq!((phase.pid, phase.threads, phase.copied), (42, 16, 1000));
        assert_eq!((&*phase.mode, &*phase.strategy), ("on", "demote"));
        assert_eq!(phase.not_understood, ["CUDASNAP_PAGES"]);
        assert_eq!(phase.steps_down["no-thread"], 2);
        // mmap 10, prefault 10 to 50, copies 50 to 180, the rest of 200 is the driver's.
        assert_eq!(phase.pieces(), [10, 40, 100, 30 + 20, 5]);
    }

    #[test]
    fn pieces_make_the_whole_and_cannot_be_less_than_nothing() {
        let read = |change: &dyn Fn(&mut Phase)| {
            let mut phase = Phase::read(LINE.as_bytes()).unwrap();
            change(&mut phase);
            phase.pieces()
        };
        // Prefault was done early: what is left until the first copy is the driver's.
        assert_eq!(read(&|phase| phase.prefault_ns = 20), [10, 10, 100, 80, 5]);
        assert_eq!(read(&|phase| phase.prefault_ns = 0), [10, 0, 100, 90, 5]);
        assert_eq!(read(&|phase| phase.first_copy_ns = 0), [10, 0, 100, 90, 5]);
        let odd = read(&|phase| {
            phase.waiting_ns = u64::MAX;
            phase.loop_ns = u64::MAX;
        });
        assert_eq!(odd, [10, 40, 100, u64::MAX, 5]);
    }

    #[test]
    fn what_is_no_line_of_the_librarys_is_told_apart() {
        let with = |from: &str, to: &str| LINE.replace(from, to);
        for (line, reject) in [
            (String::new(), Reject::Broken),
            (LINE[..LINE.len() - 9].into(), Reject::Broken),
            ("{\"schema\":".into(), Reject::Broken),
            ("\0\0\0".into(), Reject::Broken),
            (format!("{LINE}{LINE}"), Reject::Broken),
            ("{}".into(), Reject::Foreign),
            ("[1]".into(), Reject::Foreign),
            ("{\"schema\":\"x\"}".into(), Reject::Foreign),
            (with("\"schema\":1", "\"schema\":0"), Reject::Foreign),
            (with("\"schema\":1", "\"schema\":3"), Reject::Newer(3)),
            (with("\"checkpoint\"", "\"none\""), Reject::Foreign),
            (with("\"bytes\":1000", "\"bytes\":-1"), Reject::Foreign),
            (with("\"bytes\":1000,", ""), Reject::Foreign),
        ] {
            assert_eq!(Phase::read(line.as_bytes()), Err(reject), "{line}");
        }
        assert_eq!(Phase::read(b"\xff"), Err(Reject::Broken));
    }

    #[test]
    fn lines_of_an_older_library_are_read() {
        let line = LINE.replace(r#""strategy":"demote","tried":0,"#, "");
        let line = line.replace(r#""zeros":0,"#, "");
        let phase = Phase::read(line.as_bytes()).unwrap();
        assert_eq!((&*phase.strategy, phase.zeros), ("", 0));
    }
}
