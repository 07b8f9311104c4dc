//! Whether there is memory to spare: what is left in the machine and in the process's control groups, and whether anybody waits
//! for memory (pressure stall information, where the kernel keeps it).

use std::path::{Path, PathBuf};

use crate::control_groups::levels;
use crate::process::target::{MemoryError, Target};
use crate::reserve::halt::{Halt, Why};
use crate::room::{self, Room};
use crate::units;

/// How much is left to others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Margins {
    /// Bytes that stay free.
    pub free: u64,
    /// Hundredths of the last ten seconds in which some process waited for memory, from which on it stops.
    pub waiting: f64,
}

/// Who waits for memory, and how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// Hundredths of the last ten seconds.
    pub percent: f64,
    /// File that says so.
    pub file: String,
}

/// Reads both and decides.
///
/// # Errors
/// Why not.
pub fn look(target: Target, margins: Margins, bytes: u64) -> Result<(), Halt> {
    let room = room::for_process(target).map_err(|error| ended(&error))?;
    let membership = target.proc_file("cgroup").unwrap_or_default();
    decide(&room, waiting(&membership).as_ref(), margins, bytes)
}

fn ended(error: &MemoryError) -> Halt {
    match error {
        MemoryError::Gone => Halt::new(Why::Ended, "the process has ended"),
        error => Halt::new(Why::Failed, error.to_string()),
    }
}

/// Whether `bytes` more may be taken.
fn decide(
    room: &Room,
    waiting: Option<&Waiting>,
    margins: Margins,
    bytes: u64,
) -> Result<(), Halt> {
    if room.bytes < margins.free.saturating_add(bytes) {
        let text = format!(
            "memory is short: {} left ({}), of which {} are to stay free (--margin)",
            units::bytes(room.bytes),
            room.limit,
            units::bytes(margins.free)
        );
        return Err(Halt::new(Why::Memory, text));
    }
    match waiting.filter(|waiting| waiting.percent >= margins.waiting) {
        None => Ok(()),
        Some(Waiting { percent, file }) => Err(Halt::new(
            Why::Pressure,
            format!("processes waited for memory in {percent} % of the last ten seconds ({file})"),
        )),
    }
}

/// The worst of the machine's pressure and that of the process's control groups (second hierarchy); `None` where the kernel keeps
/// none.
fn waiting(membership: &str) -> Option<Waiting> {
    let groups = levels(membership, "memory");
    let files = groups.iter().map(|level| level.join("memory.pressure"));
    let all = files.chain([PathBuf::from("/proc/pressure/memory")]);
    all.filter_map(|file| read(&file))
        .max_by(|one, other| one.percent.total_cmp(&other.percent))
}

fn read(file: &Path) -> Option<Waiting> {
    Some(Waiting {
        percent: some_of_ten_seconds(&std::fs::read_to_string(file).ok()?)?,
        file: file.display().to_string(),
    })
}

/// `avg10` of the line `some`.
fn some_of_ten_seconds(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let mut words = line.split_whitespace();
    let value = words.find_map(|word| word.strip_prefix("avg10="))?;
    value.parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGINS: Margins = Margins {
        free: 1000,
        waiting: 10.0,
    };

    fn room(bytes: u64) -> Room {
        Room {
            bytes,
            limit: "MemAvailable".into(),
        }
    }

    #[test]
    fn the_margin_stays_free() {
        for (left, taken) in [(1200, true), (1199, false), (1000, false), (0, false)] {
            let decided = decide(&room(left), None, MARGINS, 200);
            assert_eq!(decided.is_ok(), taken, "{left}");
        }
        let halt = decide(&room(5), None, MARGINS, 1).unwrap_err();
        assert!(halt.why == Why::Memory && halt.text.contains("5 B left (MemAvailable)"));
        assert!(decide(&room(u64::MAX), None, MARGINS, u64::MAX).is_ok());
    }

    #[test]
    fn nobody_is_to_wait() {
        for (percent, why) in [(0.0, None), (9.99, None), (10.0, Some(Why::Pressure))] {
            let waiting = Waiting {
                percent,
                file: "x".into(),
            };
            let decided = decide(&room(5000), Some(&waiting), MARGINS, 1);
            assert_eq!(decided.err().map(|halt| halt.why), why, "{percent}");
        }
    }

    #[test]
    fn the_kernels_lines_are_read() {
        let text = "some avg10=1.53 avg60=0.87 avg300=0.20 total=4\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(some_of_ten_seconds(text), Some(1.53));
        for other in [
            "",
            "full avg10=9.00",
            "some avg10=x",
            "some avg10=NaN",
            "some",
        ] {
            assert_eq!(some_of_ten_seconds(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_that_has_ended_is_told() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let target = Target::new(child.id() as i32);
        child.wait().unwrap();
        let halt = look(target, MARGINS, 1).unwrap_err();
        assert_eq!(halt.why, Why::Ended);
    }
}
