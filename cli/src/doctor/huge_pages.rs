//! Huge pages: with them a buffer is filled up to twice as fast, and unmapped ten times as fast.

use std::path::Path;

use crate::doctor::finding::{Finding, Group};
use crate::doctor::read;
use crate::units;

const SETTINGS: &str = "/sys/kernel/mm";
const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

/// Looks at the machine.
pub fn look() -> Group {
    let setting = |name: &str| read(&format!("{FOLDER}/{name}"));
    let of_size = setting("hugepages-2048kB/enabled");
    // SAFETY: takes numbers only and changes nothing.
    let disabled = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) };
    let wanted = std::env::var("CUDASNAP_PAGES").unwrap_or_default();
    Group {
        name: "huge pages",
        findings: vec![
            match is_told() {
                true => enabled(setting("enabled").as_deref(), of_size.as_deref()),
                false => untold(),
            },
            of_process(disabled),
            defrag(setting("defrag").as_deref()),
            pool(
                Pool::read(2048),
                "2 MiB",
                wanted.eq_ignore_ascii_case("hugetlb"),
            ),
            pool(Pool::read(1 << 20), "1 GiB", false),
        ],
    }
}

/// Whether this kernel's settings of memory can be read here at all.
fn is_told() -> bool {
    Path::new(SETTINGS).is_dir()
}

/// The library asks the same files, and takes what is safe.
fn untold() -> Finding {
    Finding::warning(
        "transparent",
        format!("{SETTINGS} cannot be read, so nobody here knows whether there are any: buffers get 4 KiB pages"),
        "mount -t sysfs sysfs /sys; in a container: one that has /sys, read-only will do",
    )
}

/// The word in brackets of a setting such as `always [madvise] never`.
fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

fn enabled(global: Option<&str>, of_size: Option<&str>) -> Finding {
    const CHECK: &str = "transparent";
    let (word, file) = match of_size.and_then(chosen) {
        Some(word @ ("always" | "madvise" | "never")) => (Some(word), "hugepages-2048kB/enabled"),
        _ => (global.and_then(chosen), "enabled"),
    };
    match word {
        Some(word @ ("always" | "madvise")) => {
            Finding::ok(CHECK, format!("{word}: a buffer gets them when it asks"))
        }
        Some(word) => Finding::warning(
            CHECK,
            format!("{word}: buffers get 4 KiB pages, which take twice as long to fill, or other sizes that are allowed"),
            format!("echo madvise > {FOLDER}/{file}"),
        ),
        None => Finding::warning(
            CHECK,
            "this kernel has none",
            "boot a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        ),
    }
}

fn of_process(disabled: i32) -> Finding {
    const CHECK: &str = "for this process";
    match disabled {
        0 => Finding::ok(CHECK, "allowed"),
        // PR_THP_DISABLE_EXCEPT_ADVISED, since Linux 6.18.
        3 => Finding::ok(CHECK, "only for memory that asks for them, as a buffer does"),
        1.. => Finding::warning(
            CHECK,
            "switched off (PR_SET_THP_DISABLE), and for all that it starts",
            "start the server from something that did not switch them off: a new login, another container runtime",
        ),
        _ => Finding::unknown(CHECK, "the kernel does not say"),
    }
}

fn defrag(text: Option<&str>) -> Finding {
    const CHECK: &str = "defragmentation";
    match text.and_then(chosen) {
        Some(word @ ("always" | "madvise" | "defer+madvise")) => Finding::ok(
            CHECK,
            format!("{word}: huge pages are made where none is free"),
        ),
        Some(word) => Finding::warning(
            CHECK,
            format!("{word}: a buffer gets only those huge pages that happen to be free"),
            format!("echo madvise > {FOLDER}/defrag"),
        ),
        None => Finding::unknown(CHECK, "the kernel does not say"),
    }
}

/// Reserved pages of one size, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pool {
    total: u64,
    free: u64,
}

impl Pool {
    fn read(kilobytes: u64) -> Option<Self> {
        let folder = format!("/sys/kernel/mm/hugepages/hugepages-{kilobytes}kB");
        let number = |name: &str| {
            read(&format!("{folder}/{name}"))?
                .trim()
                .parse::<u64>()
                .ok()
        };
        let bytes = |name: &str| Some(number(name)?.saturating_mul(kilobytes << 10));
        Some(Pool {
            total: bytes("nr_hugepages")?,
            free: bytes("free_hugepages")?,
        })
    }
}

fn pool(pool: Option<Pool>, size: &'static str, wanted: bool) -> Finding {
    let check = match size {
        "2 MiB" => "pool of 2 MiB",
        _ => "pool of 1 GiB",
    };
    match pool {
        Some(Pool { total: 0, .. }) | None if wanted => Finding::warning(
            check,
            "empty, and CUDASNAP_PAGES=hugetlb asks for it: buffers get transparent huge pages instead",
            "sysctl vm.nr_hugepages=N, N = bytes of a buffer / 2 MiB, early after boot",
        ),
        Some(Pool { total: 0, .. }) => {
            Finding::ok(check, "empty, as it should be without CUDASNAP_PAGES=hugetlb")
        }
        Some(Pool { total, free }) if wanted || size != "2 MiB" => Finding::ok(
            check,
            format!("{} free of {}", units::bytes(free), units::bytes(total)),
        ),
        Some(Pool { total, free }) if free > total / 2 => Finding::warning(
            check,
            format!("{} lie free in it, where nothing else can use them", units::bytes(free)),
            "CUDASNAP_PAGES=hugetlb for the server, or sysctl vm.nr_hugepages=0",
        ),
        Some(Pool { total, .. }) => Finding::ok(check, format!("{}, in use", units::bytes(total))),
        None if is_told() => Finding::unknown(check, "this kernel has none"),
        None => Finding::unknown(check, format!("{SETTINGS} cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict::{self, Ok, Unknown, Warning};

    #[test]
    fn the_setting_of_the_size_wins_over_the_general_one() {
        for (global, of_size, verdict) in [
            (Some("always [madvise] never\n"), None, Ok),
            (Some("[always] madvise never\n"), None, Ok),
            (Some("always madvise [never]\n"), None, Warning),
            (
                Some("always madvise [never]\n"),
                Some("always inherit [madvise] never\n"),
                Ok,
            ),
            (
                Some("always [madvise] never\n"),
                Some("always inherit madvise [never]\n"),
                Warning,
            ),
            (
                Some("always [madvise] never\n"),
                Some("always [inherit] madvise never\n"),
                Ok,
            ),
            (None, None, Warning),
        ] {
            let finding = enabled(global, of_size);
            assert_eq!(finding.verdict, verdict, "{global:?} {of_size:?}");
        }
        let mend = enabled(Some("[never]"), Some("[never]")).mend.unwrap();
        assert!(mend.ends_with("hugepages-2048kB/enabled"), "{mend}");
    }

    #[test]
    fn defragmentation_is_needed_for_pages_on_request() {
        let verdict = |text| defrag(text).verdict;
        assert_eq!(
            verdict(Some("always defer defer+madvise [madvise] never\n")),
            Ok
        );
        assert_eq!(
            verdict(Some("always defer [defer+madvise] madvise never\n")),
            Ok
        );
        assert_eq!(
            verdict(Some("always [defer] defer+madvise madvise never\n")),
            Warning
        );
        assert_eq!(
            verdict(Some("always defer defer+madvise madvise [never]\n")),
            Warning
        );
        assert_eq!(verdict(None), Unknown);
        assert_eq!(
            [0, 1, 3, -1].map(|number| of_process(number).verdict),
            [Ok, Warning, Ok, Unknown]
        );
    }

    #[test]
    fn a_pool_should_be_used_or_empty() {
        let of = |total, free| Some(Pool { total, free });
        let verdict = |pages, wanted| -> Verdict { pool(pages, "2 MiB", wanted).verdict };
        assert_eq!(verdict(of(0, 0), false), Ok);
        assert_eq!(verdict(of(0, 0), true), Warning);
        assert_eq!(verdict(of(1 << 34, 1 << 34), false), Warning);
        assert_eq!(verdict(of(1 << 34, 1 << 34), true), Ok);
        assert_eq!(verdict(of(1 << 34, 1 << 20), false), Ok);
        assert_eq!(verdict(None, false), Unknown);
        assert_eq!(verdict(None, true), Warning);
        assert_eq!(pool(of(1 << 34, 1 << 34), "1 GiB", false).verdict, Ok);
    }
}
