//! Whether there is room for a buffer: in the machine, in the control groups, in the limits of the process. Where it is tight
//! the driver's own request must go through unchanged: what the shim maps besides would be missing to the driver afterwards.

use crate::lines::{for_each_line, parse_kib};
use crate::{cgroup, sys};

/// What the driver maps and touches besides its buffer before a checkpoint is over: two staging buffers of 2 MiB for each of
/// up to eight GPUs, and its channels.
const HEADROOM: u64 = 64 << 20;
/// What the kernel holds back under strict accounting: `user_reserve_kbytes` and `admin_reserve_kbytes`, at their defaults.
const HELD_BACK: u64 = (128 + 8) << 20;

/// Whether that much memory can be had without pushing anybody out, and charged: machine and control groups.
pub fn in_machine(bytes: usize) -> bool {
    let room = memory_available().min(cgroup::memory_room());
    need(bytes) <= room && need(bytes).saturating_add(HELD_BACK) <= chargeable()
}

/// Whether that much more may be mapped by this process.
pub fn in_process(bytes: usize) -> bool {
    fits(bytes, libc::RLIMIT_AS, b"VmSize:", false)
        && fits(bytes, libc::RLIMIT_DATA, b"VmData:", false)
        && fits(bytes, libc::RLIMIT_MEMLOCK, b"VmLck:", true)
}

const fn need(bytes: usize) -> u64 {
    (bytes as u64).saturating_add(HEADROOM)
}

/// One limit, and the line of `/proc/self/status` that counts against it. A limit of locked memory counts only if what will be
/// mapped is locked (`mlockall`), which cannot be asked: where nothing is locked it is not, and where the buffer alone does not
/// fit the kernel says so.
fn fits(bytes: usize, resource: libc::__rlimit_resource_t, key: &[u8], locked: bool) -> bool {
    let limit = match sys::limit(resource as usize) {
        Some(limit) => limit,
        None => return true,
    };
    let Some(used) = field("/proc/self/status\0", key) else {
        return true;
    };
    let room = limit.saturating_sub(used);
    if locked && (used == 0 || room < bytes as u64) {
        return true;
    }
    need(bytes) <= room
}

/// Bytes that strict overcommit accounting still allows; `u64::MAX` where it is not in force.
fn chargeable() -> u64 {
    let mut strict = false;
    for_each_line(b"/proc/sys/vm/overcommit_memory\0", |line| {
        strict = line == b"2";
        false
    });
    if !strict {
        return u64::MAX;
    }
    let of = |key| field("/proc/meminfo\0", key);
    match (of(b"CommitLimit:"), of(b"Committed_AS:")) {
        (Some(limit), Some(charged)) => limit.saturating_sub(charged),
        _ => u64::MAX,
    }
}

/// `MemAvailable` of the machine in bytes; `u64::MAX` when it cannot be read.
fn memory_available() -> u64 {
    field("/proc/meminfo\0", b"MemAvailable:").unwrap_or(u64::MAX)
}

/// A line such as `MemAvailable:   1234 kB`, in bytes.
fn field(path: &str, key: &[u8]) -> Option<u64> {
    let mut value = None;
    for_each_line(path.as_bytes(), |line| match line.strip_prefix(key) {
        Some(rest) => {
            value = parse_kib(rest);
            false
        }
        None => true,
    });
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory() {
        assert!(memory_available() > 1 << 20);
        assert!(memory_available() != u64::MAX);
        assert!(in_machine(4096) && !in_machine(1 << 60));
    }

    #[test]
    fn lines_in_kib_are_read() {
        assert!(field("/proc/self/status\0", b"VmSize:") > Some(1 << 20));
        assert_eq!(field("/proc/self/status\0", b"VmNothing:"), None);
        assert_eq!(field("/proc/self/status\0", b"Name:"), None);
        assert_eq!(field("/nowhere\0", b"VmSize:"), None);
    }

    #[test]
    fn without_limits_everything_may_be_mapped() {
        assert!(in_process(1 << 40) || sys::limit(libc::RLIMIT_AS as usize).is_some());
    }
}
