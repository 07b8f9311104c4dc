//! Which kind of page the kernel has granted for a range: not what was asked for.

use std::fs::File;
use std::io::{BufRead, BufReader};

use serde::Serialize;

use crate::process::observe::kilobytes;
use crate::process::target::{Mapping, MemoryError, Target};

/// Memory behind a range, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pages {
    /// Resident memory, pages of the hugetlb pool included.
    pub resident: u64,
    /// Of it on transparent huge pages.
    pub huge: u64,
    /// Of it on pages of the hugetlb pool.
    pub hugetlb: u64,
}

impl Pages {
    /// Asks `/proc/PID/smaps`. The kernel walks the pages of every mapping up to the range's end and holds the process's mapping
    /// lock meanwhile, so this is not for a process that is in the middle of a phase.
    ///
    /// # Errors
    /// The process has ended, or may not be looked into.
    pub fn of(target: Target, start: u64, end: u64) -> Result<Self, MemoryError> {
        let file = File::open(format!("/proc/{}/smaps", target.pid()))?;
        Ok(read(BufReader::new(file), start, end)?)
    }

    /// Hundredths of the resident memory that lie on huge pages of either kind; `None` when nothing is resident.
    pub fn huge_percent(&self) -> Option<u64> {
        let huge = self.huge.saturating_add(self.hugetlb);
        (huge.min(self.resident).saturating_mul(100)).checked_div(self.resident)
    }
}

/// Reads as far as the range's end, so that mappings above it cost nothing.
fn read(smaps: impl BufRead, start: u64, end: u64) -> std::io::Result<Pages> {
    let mut pages = Pages::default();
    let mut touches = false;
    for line in smaps.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Some(mapping) = Mapping::parse(&line) {
            if mapping.start >= end {
                break;
            }
            touches = mapping.end > start;
        } else if touches {
            pages.add(&line);
        }
    }
    Ok(pages)
}

impl Pages {
    fn add(&mut self, line: &str) {
        let pool = kilobytes(line, "Private_Hugetlb") + kilobytes(line, "Shared_Hugetlb");
        self.resident += kilobytes(line, "Rss") + pool;
        self.huge += kilobytes(line, "AnonHugePages");
        self.hugetlb += pool;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str =
        "1000-3000 rw-p 0 0:0 0\nRss:  100 kB\nAnonHugePages: 50 kB\nPrivate_Hugetlb: 0 kB\n\
        3000-5000 rw-p 0 0:0 0\nRss:  300 kB\nAnonHugePages: 150 kB\nPrivate_Hugetlb: 0 kB\n\
        7000-9000 rw-p 0 0:0 0\nRss:  0 kB\nAnonHugePages: 0 kB\nPrivate_Hugetlb: 2048 kB\n";

    #[test]
    fn only_the_range_counts() {
        let of = |start, end| read(SMAPS.as_bytes(), start, end).unwrap();
        let middle = of(0x3000, 0x5000);
        assert_eq!((middle.resident, middle.huge), (300 << 10, 150 << 10));
        assert_eq!(middle.huge_percent(), Some(50));
        let pool = of(0x7000, 0x8000);
        assert_eq!((pool.resident, pool.hugetlb), (2 << 20, 2 << 20));
        assert_eq!(pool.huge_percent(), Some(100));
        assert_eq!(of(0x5000, 0x7000), Pages::default());
        assert_eq!(Pages::default().huge_percent(), None);
        assert_eq!(of(0, u64::MAX).resident, (400 << 10) + (2 << 20));
    }

    #[test]
    fn own_memory_is_seen() {
        let memory = vec![1u8; 1 << 20];
        let start = memory.as_ptr() as u64;
        let own = Target::new(std::process::id() as i32);
        let pages = Pages::of(own, start, start + (1 << 20)).unwrap();
        assert!(pages.resident >= 1 << 20, "{pages:?}");
    }
}
