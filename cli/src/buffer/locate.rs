//! Where the buffer of a process is: the library's record says so, or else the command line.

use std::fs::File;
use std::path::PathBuf;

use super::appeared::{self, Candidate, Usage};
use super::stop::Stop;
use super::verdict::{Stamp, Verdict};
use super::words::{At, Span};
use crate::foreign_file;
use crate::process::below;
use crate::process::cuda::CudaUse;
use crate::process::identity::Identity;
use crate::process::observe::descriptors;
use crate::process::target::{Mapping, MemoryError};
use crate::record::view::RecordView;
use crate::record::{Located, RecordError};

/// Longest copy of `/proc/PID/maps` that is read: 65,530 mappings with the longest paths.
const LARGEST_MAPS: u64 = 512 << 20;

/// What the command line says about the buffer's place.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Place {
    /// Without the library: a copy of /proc/PID/maps from before the checkpoint
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "at")]
    pub before: Option<PathBuf>,
    /// Without the library: the buffer's address, START or START-END in hexadecimal
    #[arg(long, global = true, value_name = "ADDRESS", value_parser = crate::values::read(str::parse::<At>))]
    pub at: Option<At>,
}

/// The record of the library in the process.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its place.
    pub located: Located,
    /// Its contents at the first look.
    pub view: RecordView,
}

/// A process and what its record says.
#[derive(Debug)]
pub struct Looked {
    /// The process.
    pub identity: Identity,
    /// Its mappings.
    pub mappings: Vec<Mapping>,
    /// The record; `Err`: why there is none that can be read.
    pub record: Result<Recorded, RecordError>,
}

/// Where the buffer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its addresses.
    pub span: Span,
    /// The checkpoint that it belongs to, when the record tells.
    pub stamp: Option<Stamp>,
    /// What is doubtful about it, for people.
    pub doubts: Vec<String>,
}

impl Looked {
    /// Looks at the process.
    ///
    /// # Errors
    /// There is no such process, or it may not be looked into.
    pub fn at(pid: i32) -> Result<Self, Stop> {
        let identity = Identity::of(pid)?;
        let target = identity.target();
        let memory = |error| Stop::memory(pid, &error);
        let mappings = target.mappings().map_err(memory)?;
        let record = Located::find(target).and_then(|located| {
            let view = located.read()?;
            Ok(Recorded { located, view })
        });
        match record {
            Err(RecordError::Memory(error @ (MemoryError::Gone | MemoryError::Denied))) => {
                Err(memory(error))
            }
            record => Ok(Looked {
                identity,
                mappings,
                record,
            }),
        }
    }

    /// What the record says; without one, why nothing is known.
    pub fn verdict(&self) -> Result<Verdict, String> {
        match &self.record {
            Ok(record) => match Verdict::of(&record.view) {
                Verdict::Blind(why) => Err(why.to_string()),
                verdict => Ok(verdict),
            },
            Err(error) => Err(error.to_string()),
        }
    }

    /// The buffer of a checkpointed process.
    ///
    /// # Errors
    /// The process is not checkpointed, or which memory is its buffer is not known.
    pub fn buffer(&self, place: &Place) -> Result<Found, Stop> {
        let found = match self.verdict() {
            Ok(verdict) => self.by_record(&verdict, place)?,
            Err(why) => self.by_hand(&why, place)?,
        };
        if covered(&self.mappings, found.span) {
            Ok(found)
        } else {
            Err(Stop::refused(format!(
                "there is no private writable memory all over {}, where the buffer of process {} should be",
                found.span, self.identity.pid
            )))
        }
    }

    fn by_record(&self, verdict: &Verdict, place: &Place) -> Result<Found, Stop> {
        let (span, stamp, after_restore) = match verdict {
            Verdict::There {
                span,
                stamp,
                after_restore,
            } => (*span, *stamp, *after_restore),
            other => {
                let why = refusal(&self.identity, other);
                return Err(Stop::refused(match below::remark(&self.identity) {
                    Some(remark) => format!("{why}; {remark}: name that one"),
                    None => why,
                }));
            }
        };
        if place.at.is_some_and(|at| at.start != span.start) {
            return Err(Stop::refused(format!(
                "the library says that the buffer is at {span}: leave --at out"
            )));
        }
        let doubt = "a restore went over this buffer and did not unmap it: it has failed, or is about to end";
        Ok(Found {
            span,
            stamp: Some(stamp),
            doubts: after_restore.then(|| doubt.into()).into_iter().collect(),
        })
    }

    fn by_hand(&self, why: &str, place: &Place) -> Result<Found, Stop> {
        let pid = self.identity.pid;
        let uses = CudaUse::with(self.identity.target(), &self.mappings);
        if uses.map_err(|error| Stop::memory(pid, &error))? == CudaUse::None {
            let below = below::hint(pid);
            return Err(Stop::refused(format!(
                "process {pid} ({}) does not use CUDA: libcuda is not mapped in it{}",
                self.identity.shown_name(),
                below.map_or_else(String::new, |below| format!("; {below}: name that one"))
            )));
        }
        let span = match (&place.at, &place.before) {
            (Some(at), _) => self.given(*at)?,
            (None, Some(file)) => self.since(file)?,
            (None, None) => return Err(self.unknown(why)),
        };
        Ok(Found {
            span,
            stamp: None,
            doubts: self.doubts_by_hand(why),
        })
    }

    fn given(&self, at: At) -> Result<Span, Stop> {
        let plain = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&at.start);
        let mapping = self.mappings.iter().find(plain).ok_or_else(|| {
            Stop::refused(format!(
                "nothing is mapped at {:#x} in process {}",
                at.start, self.identity.pid
            ))
        })?;
        Ok(Span {
            start: at.start,
            end: at.end.unwrap_or(mapping.end),
        })
    }

    fn since(&self, file: &std::path::Path) -> Result<Span, Stop> {
        let text = File::open(file).and_then(|open| foreign_file::read(open, LARGEST_MAPS));
        let text = text.map_err(|error| Stop::file(file, &error))?;
        let before = appeared::parse_before(&String::from_utf8_lossy(&text), &self.mappings)
            .map_err(|why| Stop::refused(format!("{}: {why}", file.display())))?;
        let candidates = appeared::candidates(&self.usages()?, Some(&before));
        match appeared::choose(&candidates) {
            Some(candidate) => Ok(candidate.span),
            None if candidates.is_empty() => Err(Stop::refused(format!(
                "no large private memory appeared in process {} since {} was written: it is not checkpointed, or was already then",
                self.identity.pid,
                file.display()
            ))),
            None => Err(Stop::refused(format!(
                "more than one could be the buffer ({}): say which with --at",
                listed(&candidates)
            ))),
        }
    }

    fn unknown(&self, why: &str) -> Stop {
        let candidates = self
            .usages()
            .map(|usages| appeared::candidates(&usages, None))
            .unwrap_or_default();
        let could = if candidates.is_empty() {
            "no memory of it looks like a buffer".into()
        } else {
            format!("this could be it: {}", listed(&candidates))
        };
        Stop::refused(format!(
            "process {}: {why}, so whether it is checkpointed and where its buffer lies cannot be known; {could}. Give --at \
             ADDRESS, or --before FILE, a copy of /proc/PID/maps from before the checkpoint",
            self.identity.pid
        ))
    }

    fn doubts_by_hand(&self, why: &str) -> Vec<String> {
        let mut doubts = vec![format!(
            "{why}: that this is the buffer is taken from the command line"
        )];
        let open = descriptors(self.identity.target()).unwrap_or_default();
        let gpu = |path: &str| path.starts_with("/dev/nvidia");
        let count = open.iter().filter(|one| gpu(&one.refers_to)).count();
        if count > 0 {
            doubts.push(format!(
                "{count} descriptors of /dev/nvidia* are open in the process: it may not be checkpointed at all"
            ));
        }
        doubts
    }

    /// Memory of each mapping.
    ///
    /// # Errors
    /// The process has ended, or may not be looked into.
    pub fn usages(&self) -> Result<Vec<Usage>, Stop> {
        let smaps = self.identity.target().proc_file("smaps");
        let smaps = smaps.map_err(|error| Stop::memory(self.identity.pid, &error))?;
        Ok(appeared::usages(&smaps))
    }
}

fn listed(candidates: &[Candidate]) -> String {
    let spans: Vec<String> = candidates
        .iter()
        .map(|candidate| candidate.span.to_string())
        .collect();
    spans.join(", ")
}

/// Why there is no buffer to work on, and what to do.
fn refusal(identity: &Identity, verdict: &Verdict) -> String {
    let (pid, name) = (identity.pid, identity.shown_name());
    match verdict {
        Verdict::UnderWay(direction) => {
            format!("a {direction} of process {pid} ({name}) is going on: try again when it has ended")
        }
        Verdict::Kept(_) => format!(
            "process {pid} ({name}) is not checkpointed; the buffer that it keeps for its next checkpoint is not touched. \
             Checkpoint it first: cudasnap checkpoint {pid}"
        ),
        _ => format!(
            "process {pid} ({name}) is not checkpointed: it has no buffer. Checkpoint it first: cudasnap checkpoint {pid}"
        ),
    }
}

/// Whether private readable and writable memory lies all over the range. Pages of the hugetlb pool look like a file.
pub fn covered(mappings: &[Mapping], span: Span) -> bool {
    let mut at = span.start;
    for mapping in mappings {
        if mapping.end <= at || mapping.start > at {
            continue;
        }
        let memory = mapping.inode == 0 || mapping.path.starts_with("/anon_hugepage");
        if !(mapping.private && mapping.readable && mapping.writable && memory) {
            return false;
        }
        at = mapping.end;
        if at >= span.end {
            break;
        }
    }
    span.start < span.end && at >= span.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(lines: &[&str]) -> Vec<Mapping> {
        let parsed = lines.iter().map(|line| Mapping::parse(line).unwrap());
        parsed.collect()
    }

    #[test]
    fn memory_must_lie_all_over_the_range() {
        let span = Span {
            start: 0x2000,
            end: 0x3500,
        };
        for (lines, expected) in [
            (vec!["1000-4000 rw-p 0 0:0 0"], true),
            (
                vec!["1000-3000 rw-p 0 0:0 0", "3000-4000 rw-p 0 0:0 0"],
                true,
            ),
            (
                vec!["2000-4000 rw-p 0 0:0f 99 /anon_hugepage (deleted)"],
                true,
            ),
            (
                vec!["1000-3000 rw-p 0 0:0 0", "3400-4000 rw-p 0 0:0 0"],
                false,
            ),
            (
                vec!["1000-3000 rw-p 0 0:0 0", "3000-4000 r--p 0 0:0 0"],
                false,
            ),
            (vec!["1000-3000 rw-p 0 0:0 0"], false),
            (vec!["1000-4000 rw-s 0 0:0 0"], false),
            (vec!["1000-4000 rw-p 0 fe:0 7 /x"], false),
            (vec![], false),
        ] {
            assert_eq!(covered(&maps(&lines), span), expected, "{lines:?}");
        }
        let empty = Span {
            start: 0x2000,
            end: 0x2000,
        };
        assert!(!covered(&maps(&["1000-4000 rw-p 0 0:0 0"]), empty));
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let identity = Identity {
            pid: 7,
            parent: 1,
            started: 1,
            uid: 0,
            name: "python3".into(),
            namespace_pids: vec![7],
        };
        let span = Span { start: 0, end: 1 };
        for (verdict, words) in [
            (Verdict::None, "cudasnap checkpoint 7"),
            (Verdict::Kept(span), "keeps for its next checkpoint"),
            (
                Verdict::UnderWay("restore"),
                "a restore of process 7 (python3) is going on",
            ),
        ] {
            let text = refusal(&identity, &verdict);
            assert!(text.contains(words), "{text}");
        }
    }
}
