//! Main memory: a checkpoint brings there all of what the process holds in GPU memory.

use crate::doctor::finding::{Finding, Group};
use crate::doctor::read;
use crate::gpus::Gpus;
use crate::process::target::Target;
use crate::room::{self, Room};
use crate::units;

/// Looks at the machine, the control groups and limits of this process, and at what the GPUs hold.
pub fn look(gpus: Option<&Gpus>) -> Group {
    let own = Target::new(std::process::id() as i32);
    let room = room::for_process(own).map_err(|error| error.to_string());
    Group {
        name: "memory",
        findings: vec![
            enough(room.as_ref(), gpus.map(largest_use)),
            overcommit(
                read("/proc/sys/vm/overcommit_memory").as_deref(),
                &read("/proc/meminfo").unwrap_or_default(),
            ),
            address_space(limit(libc::RLIMIT_AS)),
        ],
    }
}

/// Bytes in use on the GPU where most are.
fn largest_use(gpus: &Gpus) -> u64 {
    let used = gpus
        .gpus
        .iter()
        .map(|gpu| gpu.total.saturating_sub(gpu.free));
    used.max().unwrap_or(0)
}

fn enough(room: Result<&Room, &String>, used: Option<u64>) -> Finding {
    const CHECK: &str = "room";
    let room = match room {
        Ok(room) => room,
        Err(error) => return Finding::unknown(CHECK, error.as_str()),
    };
    let there = format!("{} ({})", units::bytes(room.bytes), room.limit);
    match used {
        Some(used) if used > room.bytes => Finding::warning(
            CHECK,
            format!("{there}, and one GPU alone holds {}", units::bytes(used)),
            if room.limit == "MemAvailable" {
                "free memory before a checkpoint, or checkpoint processes one after another".into()
            } else {
                format!("raise {}", room.limit)
            },
        ),
        Some(used) => Finding::ok(
            CHECK,
            format!("{there}; the fullest GPU holds {}", units::bytes(used)),
        ),
        None => Finding::ok(CHECK, there),
    }
}

fn overcommit(mode: Option<&str>, meminfo: &str) -> Finding {
    const CHECK: &str = "overcommit";
    let bytes = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(number.saturating_mul(1024))
    };
    match mode.map(str::trim) {
        Some(mode @ ("0" | "1")) => {
            Finding::ok(CHECK, format!("mode {mode}: nothing is charged in advance"))
        }
        Some("2") => {
            let limit = bytes("CommitLimit:").unwrap_or(0);
            let left = limit.saturating_sub(bytes("Committed_AS:").unwrap_or(0));
            Finding::warning(
                CHECK,
                format!(
                    "mode 2: a buffer is charged before it is used, and {} of {} can still be charged",
                    units::bytes(left),
                    units::bytes(limit)
                ),
                "sysctl vm.overcommit_memory=0, or a larger vm.overcommit_ratio",
            )
        }
        _ => Finding::unknown(CHECK, "the kernel does not say"),
    }
}

fn address_space(limit: Option<u64>) -> Finding {
    const CHECK: &str = "address space";
    match limit {
        None => Finding::ok(CHECK, "unlimited"),
        Some(bytes) => Finding::warning(
            CHECK,
            format!(
                "limited to {} (RLIMIT_AS) for what is started here",
                units::bytes(bytes)
            ),
            "ulimit -v unlimited",
        ),
    }
}

/// A soft limit of this process; `None` = unlimited.
pub fn limit(which: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the structure is valid for the call.
    unsafe { libc::getrlimit(which, &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict::{Ok as Fine, Unknown, Warning};

    const MEMINFO: &str =
        "MemTotal:       131072000 kB\nCommitLimit:    65536000 kB\nCommitted_AS:   60000000 kB\n";

    #[test]
    fn room_is_compared_with_the_fullest_gpu() {
        let room = |bytes, limit: &str| Room {
            bytes,
            limit: limit.into(),
        };
        let plenty = room(100 << 30, "MemAvailable");
        assert_eq!(enough(Ok(&plenty), Some(80 << 30)).verdict, Fine);
        assert_eq!(enough(Ok(&plenty), None).verdict, Fine);
        let short = enough(Ok(&plenty), Some(120 << 30));
        assert!(short.mend.unwrap().starts_with("free memory"));
        let group = room(1 << 30, "/sys/fs/cgroup/a/memory.max");
        let short = enough(Ok(&group), Some(2 << 30));
        assert_eq!(short.mend.unwrap(), "raise /sys/fs/cgroup/a/memory.max");
        assert_eq!(enough(Err(&"gone".into()), None).verdict, Unknown);
    }

    #[test]
    fn strict_accounting_is_told_with_what_is_left() {
        assert_eq!(overcommit(Some("0\n"), MEMINFO).verdict, Fine);
        assert_eq!(overcommit(Some("1\n"), MEMINFO).verdict, Fine);
        let strict = overcommit(Some("2\n"), MEMINFO);
        assert_eq!(strict.verdict, Warning);
        assert!(
            strict.found.contains("5.67 GB of 67.1 GB"),
            "{}",
            strict.found
        );
        assert_eq!(overcommit(None, "").verdict, Unknown);
        assert_eq!(overcommit(Some("2"), "").verdict, Warning);
    }

    #[test]
    fn a_limited_address_space_is_told() {
        assert_eq!(address_space(None).verdict, Fine);
        assert_eq!(
            address_space(Some(1 << 34)).mend.unwrap(),
            "ulimit -v unlimited"
        );
    }
}
