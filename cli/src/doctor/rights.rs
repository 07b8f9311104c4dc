//! The right to look into other processes: `status`, `buffer`, `drop` and `mode` need it, and so does the driver.

use crate::doctor::finding::{Finding, Group};
use crate::doctor::read;
use crate::process::rights;

/// Looks at this process.
pub fn look() -> Group {
    let scope = read("/proc/sys/kernel/yama/ptrace_scope");
    // SAFETY: takes nothing.
    let user = unsafe { libc::geteuid() };
    Group {
        name: "rights",
        findings: vec![ptrace(
            scope.as_deref(),
            rights::has_ptrace_capability(),
            user,
        )],
    }
}

fn ptrace(scope: Option<&str>, capable: bool, user: u32) -> Finding {
    const CHECK: &str = "other processes";
    let scope: u32 = scope.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    match (scope, capable) {
        (3.., _) => Finding::warning(
            CHECK,
            "nobody may look into them: kernel.yama.ptrace_scope is 3 until the next boot",
            "boot with kernel.yama.ptrace_scope=1",
        ),
        (_, true) => Finding::ok(
            CHECK,
            "those of other users may be looked into (CAP_SYS_PTRACE)",
        ),
        (0, false) => Finding::ok(CHECK, format!("those of user {user} may be looked into")),
        (_, false) => Finding::warning(
            CHECK,
            format!("only own children may be looked into: kernel.yama.ptrace_scope is {scope}"),
            "run cudasnap as root or with CAP_SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict::{Ok, Warning};

    #[test]
    fn scope_and_capability_decide() {
        for (scope, capable, verdict) in [
            (None, false, Ok),
            (Some("0\n"), false, Ok),
            (Some("1\n"), false, Warning),
            (Some("1\n"), true, Ok),
            (Some("2\n"), true, Ok),
            (Some("3\n"), true, Warning),
        ] {
            assert_eq!(
                ptrace(scope, capable, 1000).verdict,
                verdict,
                "{scope:?} {capable}"
            );
        }
    }
}
