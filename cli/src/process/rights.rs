//! The right to look into another process, and what exactly is missing where there is none.

use std::fmt;
use std::fs::File;

use super::identity::{line_of, number_of, uid_in};
use super::target::{MemoryError, Target};

/// Number of `CAP_SYS_PTRACE`.
const CAP_SYS_PTRACE: u32 = 19;

/// What this process lacks to read another one's memory; every cause that can be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pid: i32,
    causes: Vec<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "no right to look into process {}: ", self.pid)?;
        write!(out, "{}", self.causes.join("; "))
    }
}

impl std::error::Error for Missing {}

/// Tries whether the process's memory may be read, by opening it as a debugger would.
///
/// # Errors
/// What is missing. A process that has ended is no error here.
pub fn to_look_into(pid: i32) -> Result<(), Missing> {
    let opened = File::open(format!("/proc/{pid}/mem"));
    match opened.map_err(MemoryError::from) {
        Err(MemoryError::Denied) => Err(missing(pid)),
        _ => Ok(()),
    }
}

/// What keeps this process from looking into the other one, by what can be checked after it was refused.
pub fn missing(pid: i32) -> Missing {
    let status = |pid| Target::new(pid).proc_file("status").unwrap_or_default();
    let (other, own) = (status(pid), status(std::process::id() as i32));
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let scope = scope.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let capable = has_capability(&own, CAP_SYS_PTRACE);
    Missing {
        pid,
        causes: causes(&other, &own, scope, capable),
    }
}

fn causes(other: &str, own: &str, ptrace_scope: u32, capable: bool) -> Vec<String> {
    let mut causes = Vec::new();
    let (theirs, ours) = (uid_in(other), uid_in(own));
    let traced: i32 = number_of(other, "TracerPid").unwrap_or(0);
    if !capable {
        if theirs != ours {
            causes.push(format!(
                "it belongs to user {theirs} and this is user {ours}: run as user {theirs}, as root, or with CAP_SYS_PTRACE"
            ));
        } else if ptrace_scope > 0 {
            causes.push(format!(
                "kernel.yama.ptrace_scope is {ptrace_scope}: run as root or with CAP_SYS_PTRACE{}",
                if ptrace_scope == 1 {
                    ", or set it to 0 (sysctl kernel.yama.ptrace_scope=0)"
                } else {
                    ""
                }
            ));
        } else {
            causes.push(
                "it is the same user's, so it has made itself not dumpable, has more rights than this process, or is in another \
                 user namespace: run as root or with CAP_SYS_PTRACE"
                    .into(),
            );
        }
    } else if ptrace_scope == 3 {
        causes
            .push("kernel.yama.ptrace_scope is 3, which allows nobody until the next boot".into());
    } else {
        causes.push(
            "CAP_SYS_PTRACE is there, but not in the process's user namespace, or a security module (SELinux, AppArmor, seccomp) \
             refuses"
                .into(),
        );
    }
    if traced != 0 {
        causes.push(format!("it is being traced by process {traced}"));
    }
    causes
}

/// Whether a `status` file lists this capability as effective.
fn has_capability(status: &str, number: u32) -> bool {
    let bits = line_of(status, "CapEff").and_then(|text| u64::from_str_radix(text, 16).ok());
    bits.is_some_and(|bits| bits >> number & 1 == 1)
}

/// Whether this process may do to processes of any user what their own user may.
pub fn has_ptrace_capability() -> bool {
    let own = Target::new(std::process::id() as i32).proc_file("status");
    own.is_ok_and(|status| has_capability(&status, CAP_SYS_PTRACE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_named() {
        let own = "Uid:\t1000\t1000\t1000\t1000\n";
        let other =
            |uid: u32, tracer: u32| format!("Uid:\t{uid}\t{uid}\t0\t0\nTracerPid:\t{tracer}\n");
        for (other, scope, capable, words) in [
            (other(0, 0), 0, false, "user 0 and this is user 1000"),
            (other(1000, 0), 1, false, "ptrace_scope is 1"),
            (other(1000, 0), 2, false, "CAP_SYS_PTRACE"),
            (other(1000, 0), 0, false, "not dumpable"),
            (other(1000, 77), 0, false, "traced by process 77"),
            (other(0, 0), 3, true, "nobody until the next boot"),
            (other(0, 0), 0, true, "security module"),
        ] {
            let text = causes(&other, own, scope, capable).join("; ");
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn own_memory_may_be_read_and_the_dead_are_no_error() {
        to_look_into(std::process::id() as i32).unwrap();
        to_look_into(i32::MAX).unwrap();
    }

    #[test]
    fn capabilities_are_bits() {
        let status = "CapPrm:\t0\nCapEff:\t0000000000080000\n";
        assert!(has_capability(status, 19) && !has_capability(status, 18));
        assert!(!has_capability("", 19));
    }
}
