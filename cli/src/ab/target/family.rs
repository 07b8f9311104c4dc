//! Processes below another one, also those that `/proc` shows little of, and signals that reach no stranger.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::process::cuda::CudaUse;
use crate::process::identity::Identity;
use crate::process::tree;

/// A process, as its `stat` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its session's.
    pub session: i32,
    /// Its start, in clock ticks since boot.
    pub started: u64,
    /// Whether it has ended, and is only not collected yet.
    pub is_dead: bool,
}

impl Member {
    fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Member::parse(pid, &stat)
    }

    /// The name may hold blanks and parentheses: fields count from the last one.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let rest = stat.get(stat.rfind(')')? + 1..)?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse().ok();
        // A first thread that has ended shows as a zombie too: field 20 counts the threads.
        let threads: u64 = fields.get(17)?.parse().ok()?;
        Some(Member {
            pid,
            parent: number(1)?,
            session: number(3)?,
            started: fields.get(19)?.parse().ok()?,
            is_dead: matches!(*fields.first()?, "Z" | "X" | "x") && threads <= 1,
        })
    }

    /// Sends it a signal, if its id still means the same process.
    pub fn signal(&self, number: i32) {
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        let is_same = || Member::of(self.pid).is_some_and(|now| now.started == self.started);
        if fd < 0 {
            // Before Linux 5.3, or a filter: as near as it gets.
            if is_same() {
                // SAFETY: takes numbers only.
                unsafe { libc::kill(self.pid, number) };
            }
            return;
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        if is_same() {
            let none = std::ptr::null::<u8>();
            // SAFETY: a descriptor that is open, numbers, and no information.
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), number, none, 0) };
        }
    }
}

/// Everything below a process, itself left out.
pub fn below(root: i32) -> Vec<Member> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    descend(root, pids.filter_map(Member::of))
}

fn descend(root: i32, all: impl Iterator<Item = Member>) -> Vec<Member> {
    let mut children: BTreeMap<i32, Vec<Member>> = BTreeMap::new();
    for member in all {
        children.entry(member.parent).or_default().push(member);
    }
    let mut seen = BTreeSet::from([root]);
    let (mut found, mut parents) = (Vec::new(), vec![root]);
    while let Some(parent) = parents.pop() {
        for member in children.get(&parent).into_iter().flatten() {
            // The listing is no snapshot: a reused id could close a circle.
            if seen.insert(member.pid) {
                found.push(*member);
                parents.push(member.pid);
            }
        }
    }
    found
}

/// Processes below this one that have initialised CUDA.
pub fn with_cuda(root: i32) -> Vec<Identity> {
    let mut found = tree::below(root, &tree::all());
    found.retain(|identity| {
        let used = CudaUse::of(identity.target());
        identity.pid != root && matches!(used, Ok(CudaUse::Initialised { .. }))
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, Stdio};

    #[test]
    fn fields_count_from_the_name() {
        let stat = "7 (a) S (b) S 3 5 6 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 4 0 4711 0 0";
        let member = Member::parse(7, stat).unwrap();
        assert_eq!(
            (member.parent, member.session, member.started),
            (3, 6, 4711)
        );
        assert!(!member.is_dead);
        let zombie = |threads: &str| {
            let stat = stat
                .replacen(") S 3", ") Z 3", 1)
                .replace(" 20 0 4 ", &format!(" 20 0 {threads} "));
            Member::parse(7, &stat).unwrap().is_dead
        };
        assert!(
            zombie("1") && !zombie("2"),
            "only its first thread has ended"
        );
        assert_eq!(Member::parse(7, "7 (a) S 3"), None);
    }

    #[test]
    fn everything_below_is_found_and_a_circle_ends() {
        let member = |pid, parent| Member {
            pid,
            parent,
            session: 1,
            started: 1,
            is_dead: false,
        };
        let all = [
            member(5, 4),
            member(4, 3),
            member(9, 1),
            member(3, 5),
            member(6, 3),
        ];
        let mut found: Vec<i32> = descend(3, all.into_iter()).iter().map(|m| m.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [4, 5, 6]);
    }

    #[test]
    fn a_signal_reaches_the_process_that_was_meant_and_no_later_one() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let found = below(std::process::id() as i32);
        let pid = child.id() as i32;
        let member = *found.iter().find(|member| member.pid == pid).unwrap();
        let another = Member {
            started: member.started + 1,
            ..member
        };
        another.signal(libc::SIGKILL);
        assert!(child.try_wait().unwrap().is_none());
        member.signal(libc::SIGTERM);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }
}
