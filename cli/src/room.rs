//! Room in main memory for what a checkpoint brings there: the machine's, and that of the control groups that the process is
//! charged to.

use std::path::{Path, PathBuf};

use serde::Serialize;

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
    let levels = membership.lines().filter_map(parse_membership);
    let groups = levels.flat_map(|(hierarchy, path)| climb(hierarchy.mounts(), path, hierarchy));
    Ok(groups.chain([machine]).collect())
}

/// What the machine has left, by the text of `/proc/meminfo`; without limit when that does not tell.
fn machine(meminfo: &str) -> Room {
    Room {
        bytes: kilobytes(meminfo, "MemAvailable:").unwrap_or(u64::MAX),
        limit: "MemAvailable".into(),
    }
}

/// The two kinds of control group hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hierarchy {
    Unified,
    Memory,
}

impl Hierarchy {
    /// Where it is mounted by custom.
    fn mounts(self) -> &'static [&'static str] {
        match self {
            Hierarchy::Unified => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            Hierarchy::Memory => &["/sys/fs/cgroup/memory"],
        }
    }

    /// Names of the files with limit and usage, and of the lines of `memory.stat` that are page cache.
    fn names(self) -> (&'static str, &'static str, [&'static str; 2]) {
        match self {
            Hierarchy::Unified => (
                "memory.max",
                "memory.current",
                ["inactive_file ", "active_file "],
            ),
            Hierarchy::Memory => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                ["total_inactive_file ", "total_active_file "],
            ),
        }
    }
}

/// Hierarchy and path of a line of `/proc/PID/cgroup`; `None` for hierarchies that do not limit memory.
fn parse_membership(line: &str) -> Option<(Hierarchy, &str)> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    if id == "0" && controllers.is_empty() {
        return Some((Hierarchy::Unified, path));
    }
    let memory = controllers.split(',').any(|name| name == "memory");
    memory.then_some((Hierarchy::Memory, path))
}

/// The room at each level that has a limit, from the group up to the mount. A path that leaves the namespace (`/../x`) names
/// nothing that can be seen from here: then only the mount itself counts.
fn climb(mounts: &[&str], path: &str, hierarchy: Hierarchy) -> Vec<Room> {
    let inside = !path.split('/').any(|part| part == "..");
    let mut rooms = Vec::new();
    for mount in mounts {
        let mount = Path::new(mount);
        let mut level: PathBuf = mount.to_path_buf();
        if inside {
            level.push(path.trim_start_matches('/'));
        }
        loop {
            rooms.extend(at_level(&level, hierarchy));
            if level == mount || !level.pop() {
                break;
            }
        }
    }
    rooms
}

fn at_level(level: &Path, hierarchy: Hierarchy) -> Option<Room> {
    let (limit_name, usage_name, cache) = hierarchy.names();
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

    #[test]
    fn both_kinds_of_membership_are_read() {
        assert_eq!(
            parse_membership("0::/a/b"),
            Some((Hierarchy::Unified, "/a/b"))
        );
        assert_eq!(
            parse_membership("7:cpu,memory:/x"),
            Some((Hierarchy::Memory, "/x"))
        );
        assert_eq!(parse_membership("3:cpuset:/x"), None);
    }

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
        let mount = folder.to_str().unwrap();
        let rooms = climb(&[mount], "/a/b", Hierarchy::Unified);
        assert_eq!(rooms.len(), 1, "{rooms:?}");
        assert_eq!(rooms[0].bytes, 250);
        assert!(rooms[0].limit.ends_with("/a/memory.max"));
        assert!(climb(&[mount], "/../a/b", Hierarchy::Unified).is_empty());
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
