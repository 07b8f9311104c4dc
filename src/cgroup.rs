//! What the control groups of this process allow, read anew each time. Both hierarchies, every level that is visible.

use crate::lines::{for_each_line, parse_number, sum_of};
use crate::sys;
use crate::text::Text;

type Path = Text<1024>;

/// One level of a hierarchy.
struct Level<'a> {
    directory: &'a mut Path,
    unified: bool,
}

impl Level<'_> {
    /// The first bytes of a file in this level's directory.
    fn read<const N: usize>(&mut self, name: &str) -> Option<Text<N>> {
        self.with_path(name, read_file).flatten()
    }

    /// Calls `body` with the path of a file in this level's directory, unless it is too long.
    fn with_path<T>(&mut self, name: &str, body: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let length = self.directory.len();
        self.directory.push(b"/");
        self.directory.push(name.as_bytes());
        self.directory.push(b"\0");
        let result = (!self.directory.is_cut()).then(|| body(self.directory.as_bytes()));
        self.directory.truncate(length);
        result
    }

    /// Sum of the named lines of a file. Line by line: all of it at once took 12 KiB of the stack, and the smallest that a thread
    /// can have is 16.
    fn sum(&mut self, name: &str, keys: &[&[u8]]) -> u64 {
        let mut sum = 0u64;
        self.with_path(name, |path| {
            for_each_line(path, |line| {
                sum = sum.saturating_add(sum_of(line, keys));
                true
            })
        });
        sum
    }

    /// A file that holds one number; `None` for `max` or when there is no such file.
    fn number(&mut self, name: &str) -> Option<u64> {
        let text: Text<64> = self.read(name)?;
        parse_number(text.as_bytes().trim_ascii(), 10)
    }
}

fn read_file<const N: usize>(path: &[u8]) -> Option<Text<N>> {
    let fd = sys::open(path, libc::O_RDONLY, 0).ok()?;
    let mut bytes = [0u8; N];
    let got = sys::read_at(fd, &mut bytes, 0);
    sys::close(fd);
    let mut text = Text::new();
    text.push(bytes.get(..got.ok()?)?);
    Some(text)
}

/// Splits a line of `/proc/self/cgroup`: whether it is the unified hierarchy or one with this controller, and the path.
pub fn parse_membership<'a>(line: &'a [u8], controller: &[u8]) -> Option<(bool, &'a [u8])> {
    let mut fields = line.splitn(3, |&byte| byte == b':');
    let id = fields.next()?;
    let controllers = fields.next()?;
    let path = fields.next()?;
    if id == b"0" && controllers.is_empty() {
        return Some((true, path));
    }
    let listed = controllers
        .split(|&byte| byte == b',')
        .any(|name| name == controller);
    listed.then_some((false, path))
}

/// Calls `each` for every level from the process's own group up to the root that is mounted.
fn for_each_level(controller: &str, mut each: impl FnMut(Level<'_>)) {
    for_each_line(b"/proc/self/cgroup\0", |line| {
        if let Some((unified, path)) = parse_membership(line, controller.as_bytes()) {
            let mounts: [&[u8]; 2] = if unified {
                [b"", b"/unified"]
            } else if controller == "cpu" {
                [b"/cpu", b"/cpu,cpuacct"]
            } else {
                [b"/memory", b""]
            };
            for mount in mounts.iter().filter(|mount| unified || !mount.is_empty()) {
                climb(mount, path, unified, &mut each);
            }
        }
        true
    });
}

fn climb(mount: &[u8], path: &[u8], unified: bool, each: &mut impl FnMut(Level<'_>)) {
    let mut directory = Path::new();
    directory.push(b"/sys/fs/cgroup");
    directory.push(mount);
    let root = directory.len();
    // A path that leaves the namespace names nothing that is visible here.
    if !path.windows(2).any(|two| two == b"..") {
        directory.push(path);
    }
    if directory.is_cut() {
        directory.truncate(root);
    }
    loop {
        let at_root = directory.len() <= root;
        each(Level {
            directory: &mut directory,
            unified,
        });
        if at_root {
            return;
        }
        let parent = directory
            .as_bytes()
            .iter()
            .rposition(|&byte| byte == b'/')
            .unwrap_or(root);
        directory.truncate(parent.max(root));
    }
}

/// Calls `each` with the directories that stand for a path below a mount.
#[cfg(any(test, fuzzing))]
pub fn visit_levels(mount: &[u8], path: &[u8], mut each: impl FnMut(&[u8])) {
    climb(mount, path, true, &mut |level: Level<'_>| {
        each(level.directory.as_bytes());
    });
}

/// Bytes that may still be charged before some level's limit is met, page cache counted as free; `u64::MAX` when no level
/// has a limit.
pub fn memory_room() -> u64 {
    let mut room = u64::MAX;
    for_each_level("memory", |mut level| {
        let (limit, usage, cache): (_, _, [&[u8]; 2]) = if level.unified {
            (
                "memory.max",
                "memory.current",
                [b"inactive_file", b"active_file"],
            )
        } else {
            (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                [b"total_inactive_file", b"total_active_file"],
            )
        };
        if let (Some(limit), Some(usage)) = (level.number(limit), level.number(usage)) {
            let cached = level.sum("memory.stat", &cache);
            room = room.min(limit.saturating_sub(usage.saturating_sub(cached)));
        }
    });
    room
}

/// CPUs that the tightest quota pays for, rounded up; `u32::MAX` when no level has one.
pub fn cpu_quota() -> u32 {
    let mut least = u32::MAX;
    for_each_level("cpu", |mut level| {
        let quota = if level.unified {
            let text: Option<Text<64>> = level.read("cpu.max");
            text.and_then(|text| parse_cpu_max(text.as_bytes()))
        } else {
            match (
                level.number("cpu.cfs_quota_us"),
                level.number("cpu.cfs_period_us"),
            ) {
                (Some(quota), Some(period)) => cpus(quota, period),
                _ => None,
            }
        };
        least = least.min(quota.unwrap_or(u32::MAX));
    });
    least
}

pub fn parse_cpu_max(text: &[u8]) -> Option<u32> {
    let mut fields = text.trim_ascii().split(|&byte| byte == b' ');
    let quota = parse_number(fields.next()?, 10)?;
    let period = parse_number(fields.next()?, 10)?;
    cpus(quota, period)
}

fn cpus(quota: u64, period: u64) -> Option<u32> {
    if period == 0 {
        return None;
    }
    u32::try_from(quota.div_ceil(period).max(1)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What the kernel prints is read back, whatever else stands there.
        #[test]
        fn sums_and_quotas_are_read_back(file in any::<u32>(), active in any::<u32>(), other in "[a-z_]{1,12}", quota in 1u64..1 << 40, period in 1u64..1 << 20) {
            prop_assume!(other != "inactive_file" && other != "active_file");
            let stat = format!("{other} 7\ninactive_file {file}\n{other} 9\nactive_file {active}\nbroken\n");
            let sum = sum_of(stat.as_bytes(), &[b"inactive_file", b"active_file"]);
            prop_assert_eq!(sum, u64::from(file) + u64::from(active));
            let cpus = parse_cpu_max(format!("{quota} {period}\n").as_bytes());
            let expected = u32::try_from(quota.div_ceil(period)).ok();
            prop_assert_eq!(cpus, expected);
            prop_assert_eq!(crate::lines::parse_kib(format!("   {file} kB").as_bytes()), Some(u64::from(file) * 1024));
        }

        /// Every level is visited once, from the group itself to the mount, and none beside it.
        #[test]
        fn levels_are_the_ancestors(parts in proptest::collection::vec("[a-z0-9.:-]{1,9}", 0..8)) {
            prop_assume!(!parts.iter().any(|part| part.contains("..")));
            let path = format!("/{}", parts.join("/"));
            let mut seen = Vec::new();
            visit_levels(b"/unified", path.as_bytes(), |directory| seen.push(String::from_utf8(directory.to_vec()).unwrap()));
            let root = "/sys/fs/cgroup/unified".to_string();
            let mut expected: Vec<String> = (1..=parts.len()).rev().map(|count| format!("{root}/{}", parts[..count].join("/"))).collect();
            expected.push(root.clone());
            seen.dedup_by_key(|directory| directory.trim_end_matches('/').to_string());
            let seen: Vec<String> = seen.iter().map(|directory| directory.trim_end_matches('/').to_string()).collect();
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn no_line_makes_it_fall_over(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            crate::fuzz::cgroup(&line);
        }
    }

    #[test]
    fn memberships_of_both_hierarchies_are_understood() {
        assert_eq!(
            parse_membership(b"0::/a/b:c", b"memory"),
            Some((true, &b"/a/b:c"[..]))
        );
        assert_eq!(
            parse_membership(b"9:memory:/docker/1", b"memory"),
            Some((false, &b"/docker/1"[..]))
        );
        assert_eq!(
            parse_membership(b"4:cpu,cpuacct:/x", b"cpu"),
            Some((false, &b"/x"[..]))
        );
        assert_eq!(parse_membership(b"5:cpuset:/x", b"cpu"), None);
        assert_eq!(parse_membership(b"1:name=systemd:/x", b"memory"), None);
        assert_eq!(parse_membership(b"nonsense", b"memory"), None);
    }

    #[test]
    fn quotas_are_rounded_up() {
        assert_eq!(parse_cpu_max(b"max 100000\n"), None);
        assert_eq!(parse_cpu_max(b"150000 100000\n"), Some(2));
        assert_eq!(parse_cpu_max(b"1000 100000\n"), Some(1));
        assert_eq!(parse_cpu_max(b"800000 0\n"), None);
    }

    #[test]
    fn every_level_up_to_the_mount_is_visited() {
        let mut seen = Vec::new();
        climb(b"/memory", b"/a/b", false, &mut |level: Level<'_>| {
            seen.push(String::from_utf8(level.directory.as_bytes().to_vec()).unwrap());
        });
        assert_eq!(
            seen,
            [
                "/sys/fs/cgroup/memory/a/b",
                "/sys/fs/cgroup/memory/a",
                "/sys/fs/cgroup/memory"
            ]
        );
        seen.clear();
        climb(b"", b"/../..", true, &mut |level: Level<'_>| {
            seen.push(String::from_utf8(level.directory.as_bytes().to_vec()).unwrap());
        });
        assert_eq!(seen, ["/sys/fs/cgroup"]);
    }

    #[test]
    fn this_machine_has_room() {
        assert!(memory_room() > 0);
        assert!(cpu_quota() > 0);
    }
}
