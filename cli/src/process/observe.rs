//! What a process holds: for showing it, and for proving that nothing was left behind.

use serde::Serialize;

use crate::foreign_text::printable;
use crate::process::target::{MemoryError, Target};

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Thread {
    /// Its id.
    pub tid: i32,
    /// Its name, at most 15 bytes.
    pub name: String,
}

/// A descriptor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Descriptor {
    /// Its number.
    pub number: i32,
    /// What it refers to, as the link in `/proc/PID/fd` reads: foreign text, not yet made harmless.
    pub refers_to: String,
}

/// A process's holdings at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holdings {
    /// Threads, by id.
    pub threads: Vec<Thread>,
    /// Descriptors, by number.
    pub descriptors: Vec<Descriptor>,
    /// Number of mappings.
    pub mappings: usize,
    /// Bytes of address space.
    pub address_space: u64,
    /// Resident private memory in bytes (`RssAnon`).
    pub anonymous: u64,
    /// Resident memory in bytes (`VmRSS`).
    pub resident: u64,
}

impl Holdings {
    /// Looks at the process.
    ///
    /// # Errors
    /// [`MemoryError::Gone`] when it ended, [`MemoryError::Denied`] when its descriptors may not be listed.
    pub fn of(target: Target) -> Result<Self, MemoryError> {
        let mappings = target.mappings()?;
        Ok(Holdings {
            threads: threads(target)?,
            descriptors: descriptors(target)?,
            mappings: mappings.len(),
            address_space: mappings.iter().map(|mapping| mapping.length()).sum(),
            anonymous: status_bytes(target, "RssAnon")?,
            resident: status_bytes(target, "VmRSS")?,
        })
    }
}

/// The threads of a process, by id. One that ends while they are listed is left out.
pub fn threads(target: Target) -> Result<Vec<Thread>, MemoryError> {
    let mut found = Vec::new();
    for tid in numbered_entries(target, "task")? {
        match target.proc_file(&format!("task/{tid}/comm")) {
            Ok(name) => found.push(Thread {
                tid,
                name: printable(name.trim_end_matches('\n')),
            }),
            Err(MemoryError::Gone) => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    Ok(found)
}

/// The thread with the lowest id whose name fits. Unlike [`threads`] it looks no further than that one.
pub(crate) fn thread_named(
    target: Target,
    fits: impl Fn(&str) -> bool,
) -> Result<Option<i32>, MemoryError> {
    let mut ids = numbered_entries(target, "task")?;
    ids.sort_unstable();
    for tid in ids {
        match target.proc_file(&format!("task/{tid}/comm")) {
            Ok(name) if fits(name.trim_end_matches('\n')) => return Ok(Some(tid)),
            Ok(_) | Err(MemoryError::Gone) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The descriptors of a process, by number. One that is closed while they are listed is left out.
pub fn descriptors(target: Target) -> Result<Vec<Descriptor>, MemoryError> {
    let mut found = Vec::new();
    for number in numbered_entries(target, "fd")? {
        if let Ok(link) = std::fs::read_link(format!("/proc/{}/fd/{number}", target.pid())) {
            found.push(Descriptor {
                number,
                refers_to: link.to_string_lossy().into_owned(),
            });
        }
    }
    found.sort();
    Ok(found)
}

/// A line of `/proc/PID/status` that is given in kB, in bytes; 0 when the kernel has no such line.
pub fn status_bytes(target: Target, name: &str) -> Result<u64, MemoryError> {
    Ok(kilobytes(&target.proc_file("status")?, name))
}

/// Bytes of the range that lie on huge pages (`AnonHugePages` of the mappings that touch it).
pub fn huge_page_bytes(target: Target, start: u64, end: u64) -> Result<u64, MemoryError> {
    Ok(sum_in(
        &target.proc_file("smaps")?,
        &["AnonHugePages"],
        start,
        end,
    ))
}

/// Bytes of the range that are in memory, hugetlb pages included (of the mappings that touch it).
pub fn resident_bytes(target: Target, start: u64, end: u64) -> Result<u64, MemoryError> {
    let names = ["Rss", "Private_Hugetlb", "Shared_Hugetlb"];
    Ok(sum_in(&target.proc_file("smaps")?, &names, start, end))
}

/// Whether a mapping that touches the range has one of these flags (`VmFlags`, two letters each).
pub fn has_flag(target: Target, start: u64, end: u64, flags: &[&str]) -> Result<bool, MemoryError> {
    Ok(flag_in(&target.proc_file("smaps")?, flags, start, end))
}

fn flag_in(smaps: &str, flags: &[&str], start: u64, end: u64) -> bool {
    let mut touches = false;
    smaps.lines().any(|line| {
        if let Some(mapping) = crate::process::target::Mapping::parse(line) {
            touches = mapping.start < end && start < mapping.end;
        }
        let words = line.strip_prefix("VmFlags:").unwrap_or_default();
        touches && words.split_whitespace().any(|word| flags.contains(&word))
    })
}

/// The sum of these lines of `smaps` over the mappings that touch the range.
fn sum_in(smaps: &str, names: &[&str], start: u64, end: u64) -> u64 {
    let mut touches = false;
    let mut sum = 0;
    for line in smaps.lines() {
        if let Some(mapping) = crate::process::target::Mapping::parse(line) {
            touches = mapping.start < end && start < mapping.end;
        } else if touches {
            sum += names.iter().map(|name| kilobytes(line, name)).sum::<u64>();
        }
    }
    sum
}

/// The value of a line `Name: value kB`, in bytes; 0 when there is none.
pub(crate) fn kilobytes(text: &str, name: &str) -> u64 {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number =
        value.and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    number.map_or(0, |kilobytes| kilobytes.saturating_mul(1024))
}

fn numbered_entries(target: Target, folder: &str) -> Result<Vec<i32>, MemoryError> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{}/{folder}", target.pid()))? {
        numbers.extend(entry?.file_name().to_string_lossy().parse::<i32>().ok());
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let target = Target::new(std::process::id() as i32);
        let file = std::fs::File::open("/dev/null").unwrap();
        let holdings = Holdings::of(target).unwrap();
        assert!(holdings
            .threads
            .iter()
            .any(|thread| thread.tid == target.pid()));
        assert!(holdings
            .descriptors
            .iter()
            .any(|descriptor| descriptor.refers_to == "/dev/null"));
        assert!(holdings.anonymous > 0 && holdings.resident >= holdings.anonymous);
        drop(file);
    }

    #[test]
    fn huge_pages_are_summed_inside_the_range_only() {
        let smaps = "1000-3000 rw-p 0 0:0 0\nSize: 8 kB\nAnonHugePages:      4 kB\n\
                     5000-6000 rw-p 0 0:0 0\nAnonHugePages:      2 kB\n";
        let huge = |start, end| sum_in(smaps, &["AnonHugePages"], start, end);
        assert_eq!(huge(0x2000, 0x2001), 4096);
        assert_eq!(huge(0x3000, 0x5000), 0);
        assert_eq!(huge(0, u64::MAX), 6144);
    }

    #[test]
    fn flags_are_looked_for_inside_the_range_only() {
        let smaps =
            "1000-3000 rw-p 0 0:0 0\nVmFlags: rd wr mr\n5000-6000 rw-p 0 0:0 0\nVmFlags: rd um\n";
        assert!(!flag_in(smaps, &["um"], 0x1000, 0x5000));
        assert!(flag_in(smaps, &["uw", "um"], 0x1000, 0x5001));
    }

    #[test]
    fn resident_bytes_count_hugetlb_pages_too() {
        let smaps = "1000-3000 rw-p 0 0:0 0\nSize: 8 kB\nRss:      4 kB\nPss: 4 kB\nPrivate_Hugetlb:     8 kB\n";
        let names = ["Rss", "Private_Hugetlb", "Shared_Hugetlb"];
        assert_eq!(sum_in(smaps, &names, 0x1000, 0x3000), 12 << 10);
    }

    #[test]
    fn a_gone_process_is_an_error_value() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let target = Target::new(child.id() as i32);
        child.wait().unwrap();
        assert_eq!(Holdings::of(target), Err(MemoryError::Gone));
    }
}
