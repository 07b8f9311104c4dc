//! How often the kernel made somebody wait for memory: what tells a page that came slowly because memory is short, or in pieces, from one
//! that came slowly because the machine is.

use crate::lines::{for_each_line, value_of};

/// Waits of `/proc/vmstat` that a page which is asked for may have to go through: memory is moved to make room for a huge one, or taken from
/// others, in whichever zone.
const WAITS: [&[u8]; 8] = [
    b"compact_stall",
    // Of all zones, before Linux 4.10.
    b"allocstall",
    b"allocstall_dma",
    b"allocstall_dma32",
    b"allocstall_normal",
    b"allocstall_highmem",
    b"allocstall_movable",
    b"allocstall_device",
];

/// How often any thread of this machine has waited so, since it was started. `None`: the kernel does not say, or does not count.
pub fn count() -> Option<u64> {
    let mut sum = None;
    let read = for_each_line(b"/proc/vmstat\0", |line| {
        if let Some(waits) = value_of(line, &WAITS) {
            sum = Some(waits.saturating_add(sum.unwrap_or(0)));
        }
        true
    });
    sum.filter(|_| read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_it_says_elsewhere() {
        let told = || {
            let text = std::fs::read_to_string("/proc/vmstat").unwrap();
            let counts = text.lines().filter(|line| {
                line.starts_with("compact_stall ") || line.starts_with("allocstall_")
            });
            counts
                .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
                .sum::<u64>()
        };
        let before = told();
        let counted = count().unwrap();
        assert!(before <= counted && counted <= told());
    }

    #[test]
    fn other_counts_are_no_waits() {
        let waits = |line: &[u8]| value_of(line, &WAITS);
        assert_eq!(waits(b"allocstall_movable 352"), Some(352));
        assert_eq!(waits(b"compact_stall 0"), Some(0));
        for line in [
            &b"compact_stalls 1"[..],
            b"pgfault 7",
            b"compact_stall",
            b"",
        ] {
            assert_eq!(waits(line), None);
        }
    }
}
