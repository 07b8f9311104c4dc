//! How often the kernel made somebody wait for memory: what tells a page that came slowly because memory is short, or in pieces, from one
//! that came slowly because the machine is.

use crate::lines::{for_each_line, sum_of};

/// Waits of `/proc/vmstat` that a page which is asked for may have to go through: memory is moved to make room for a huge one, or taken from
/// others, in whichever zone.
const WAITS: [&[u8]; 7] = [
    b"compact_stall",
    b"allocstall_dma",
    b"allocstall_dma32",
    b"allocstall_normal",
    b"allocstall_highmem",
    b"allocstall_movable",
    b"allocstall_device",
];

/// How often any thread of this machine has waited so, since it was started. `None`: the kernel does not say.
pub fn count() -> Option<u64> {
    let (mut sum, mut any) = (0u64, false);
    let read = for_each_line(b"/proc/vmstat\0", |line| {
        sum = sum.saturating_add(sum_of(line, &WAITS));
        any = true;
        true
    });
    (read && any).then_some(sum)
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
}
