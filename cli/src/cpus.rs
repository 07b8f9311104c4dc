//! How the kernel writes down which CPUs may be used, and for how much of the time.

use std::path::Path;

/// More CPUs than any machine has would be a mistake in the text.
const MOST: usize = 1 << 16;

/// CPU numbers in a list such as `0-3,8,10-11`.
pub fn list(text: &str) -> Vec<u32> {
    let ranges = text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
    });
    ranges.flatten().take(MOST).collect()
}

/// CPUs worth of time that the control group with this folder may use: `cpu.max`, or the two files of the older hierarchy;
/// `None` without a limit.
pub fn quota(level: &Path) -> Option<f64> {
    let read = |name: &str| std::fs::read_to_string(level.join(name)).ok();
    let text = read("cpu.max").or_else(|| {
        let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
        Some(format!("{} {}", quota.trim(), period.trim()))
    })?;
    parse_quota(&text)
}

/// `QUOTA PERIOD`, in the same unit; no number, or a negative one, is no limit.
fn parse_quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(list("0-2,1025\n"), [0, 1, 2, 1025]);
        assert_eq!(list(" 7 "), [7]);
        for nothing in ["", "x,3-1", "-"] {
            assert!(list(nothing).is_empty(), "{nothing}");
        }
        assert_eq!(list("0-4294967295").len(), MOST);
    }

    #[test]
    fn quotas_are_cpus() {
        for (text, quota) in [
            ("max 100000", None),
            ("-1 100000", None),
            ("150000 100000\n", Some(1.5)),
            ("400000 0", None),
            ("", None),
        ] {
            assert_eq!(parse_quota(text), quota, "{text}");
        }
    }
}
