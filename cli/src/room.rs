//! Room in main memory for what a checkpoint brings there: the machine's, and that of the control groups that the process is
//! charged to.

use std::path::Path;

use serde::Serialize;

use crate::control_groups::levels;
use crate::process::target::{MemoryError, Target};

/// How many more bytes a process can get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Bytes; page cache counts as free.
    pub bytes: u64,
    /// What sets this limit: `MemAvailable`, or the file of a control group.
    pub limit: String,
}

/// The least of `MemAvailable` and the room in every control group of the process that can be seen from here.
///
/// # Errors
/// The process has ended, or `/proc` cannot be read.
pub fn for_process(target: Target) -> Result<Room, MemoryError> {
    let least = limits(target)?.into_iter().min_by_key(|room| room.bytes);
    // The machine's own room is always among them.
    Ok(least.unwrap_or_else(|| machine("")))
}

/// Every limit that holds for the process: those of its control groups, then the machine's `MemAvailable`. Two processes that
/// have a limit of the same name share it.
///
/// # Errors
/// The process has ended, or `/proc` cannot be read.
pub fn limits(target: Target) -> Result<Vec<Room>, MemoryError> {
    let membership = match target.proc_file("cgroup") {
        // A kernel without control groups has no such file; a process that has ended has no file at all.
        Err(MemoryError::Gone) => target.proc_file("stat").map(|_| String::new()),
        read => read,
    }?;
    let meminfo = std::fs::read_to_string("/proc/meminfo")?;
    let machine = machine(&meminfo);
    let levels = levels(&membership, "memory");
    let groups = levels.iter().filter_map(|level| at_level(level));
    Ok(groups.chain([machine]).collect())
}

/// What the machine has left, by the text of `/proc/meminfo`; without limit when that does not tell.
fn machine(meminfo: &str) -> Room {
    Room {
        bytes: kilobytes(meminfo, "MemAvailable:").unwrap_or(u64::MAX),
        limit: "MemAvailable".into(),
    }
}

/// In each kind of hierarchy: the files with limit and usage, and the lines of `memory.stat` that are page cache.
const FILES: [(&str, &str, [&str; 2]); 2] = [
    (
        "memory.max",
        "memory.current",
        ["inactive_file ", "active_file "],
    ),
    (
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ["total_inactive_file ", "total_active_file "],
    ),
];

/// The room in the control group with this folder; `None` when it has no limit, or is not there.
fn at_level(level: &Path) -> Option<Room> {
    FILES
        .into_iter()
        .find_map(|(limit, usage, cache)| by_files(level, limit, usage, cache))
}

fn by_files(level: &Path, limit_name: &str, usage_name: &str, cache: [&str; 2]) -> Option<Room> {
    let read = |name: &str| std::fs::read_to_string(level.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let (limit, usage) = (number(limit_name)?, number(usage_name)?);
    let stat = read("memory.stat").unwrap_or_default();
    let cached: u64 = stat
        .lines()
        .filter_map(|line| {
            let value = cache.iter().find_map(|key| line.strip_prefix(key))?;
            value.parse::<u64>().ok()
        })
        .sum();
    Some(Room {
        bytes: limit.saturating_sub(usage.saturating_sub(cached)),
        limit: level.join(limit_name).display().to_string(),
    })
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_groups::climb;
    use std::path::PathBuf;

    #[test]
    fn every_level_counts_and_page_cache_is_free() {
        let folder = std::env::temp_dir().join(format!("cudasnap-room-{}", std::process::id()));
        let inner = folder.join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let write = |path: PathBuf, text: &str| std::fs::write(path, text).unwrap();
        write(inner.join("memory.max"), "max\n");
        write(inner.join("memory.current"), "5\n");
        write(folder.join("a/memory.max"), "1000\n");
        write(folder.join("a/memory.current"), "900\n");
        write(
            folder.join("a/memory.stat"),
            "anon 7\ninactive_file 100\nactive_file 50\n",
        );
        let rooms_below = |path| -> Vec<Room> {
            let levels = climb(&folder, path);
            levels.iter().filter_map(|level| at_level(level)).collect()
        };
        let rooms = rooms_below("/a/b");
        assert_eq!(rooms.len(), 1, "{rooms:?}");
        assert_eq!(rooms[0].bytes, 250);
        assert!(rooms[0].limit.ends_with("/a/memory.max"));
        assert!(rooms_below("/../a/b").is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn memory_that_is_available_is_read() {
        let text = "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:    4 kB\n";
        assert_eq!(machine(text).bytes, 4096);
        assert_eq!(machine("").bytes, u64::MAX);
        assert_eq!(
            machine("MemAvailable: 18446744073709551615 kB").bytes,
            u64::MAX
        );
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let target = Target::new(child.id() as i32);
        child.wait().unwrap();
        assert_eq!(limits(target), Err(MemoryError::Gone));
    }

    #[test]
    fn this_machine_has_some_room() {
        let room = for_process(Target::new(std::process::id() as i32)).unwrap();
        assert!(room.bytes > 0 && !room.limit.is_empty());
    }
}
