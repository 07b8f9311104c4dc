//! Pure: the buffer without the library's record, as it is found by hand: the large private memory that appeared between a
//! copy of `/proc/PID/maps` from before the checkpoint and now.

use super::words::Span;
use crate::process::target::Mapping;

/// Smallest mapping that is thought of. A bare context needs some 400 MB (driver 580).
const SMALLEST: u64 = 32 << 20;
/// How much larger than every other one a mapping must be to be taken for the buffer without asking.
const FAR_LARGER: u64 = 8;

/// What `/proc/PID/smaps` says of a mapping that could be the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Where it lies.
    pub span: Span,
    /// Bytes of it that are in memory.
    pub resident: u64,
    /// Bytes of it that lie on huge pages.
    pub huge: u64,
}

impl Candidate {
    /// The driver has its buffer filled with memory before it gets it.
    fn is_filled(&self) -> bool {
        u128::from(self.resident) * 10 >= u128::from(self.span.length()) * 9
    }
}

/// A mapping with what memory it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The mapping.
    pub mapping: Mapping,
    /// Bytes in memory.
    pub resident: u64,
    /// Bytes on huge pages of either kind.
    pub huge: u64,
}

/// Reads the text of `/proc/PID/smaps`.
pub fn usages(smaps: &str) -> Vec<Usage> {
    let mut found: Vec<Usage> = Vec::new();
    for line in smaps.lines() {
        if let Some(mapping) = Mapping::parse(line) {
            found.push(Usage {
                mapping,
                resident: 0,
                huge: 0,
            });
        } else if let Some(last) = found.last_mut() {
            match kilobytes(line) {
                Some(("Rss", bytes)) => last.resident += bytes,
                // Pages of the hugetlb pool are not in Rss.
                Some(("Private_Hugetlb", bytes)) => {
                    last.resident += bytes;
                    last.huge += bytes;
                }
                Some(("AnonHugePages", bytes)) => last.huge += bytes,
                _ => {}
            }
        }
    }
    found
}

fn kilobytes(line: &str) -> Option<(&str, u64)> {
    let (name, value) = line.split_once(':')?;
    let number: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((name, number.saturating_mul(1024)))
}

/// Memory in the range, resident and on huge pages, by the share of each mapping that lies in it.
pub fn usage_of(usages: &[Usage], span: Span) -> (u64, u64) {
    let mut sums = (0, 0);
    for usage in usages {
        let start = usage.mapping.start.max(span.start);
        let end = usage.mapping.end.min(span.end);
        let inside = end.saturating_sub(start);
        let length = u128::from(usage.mapping.length().max(1));
        let share = |bytes: u64| (u128::from(bytes) * u128::from(inside) / length) as u64;
        sums.0 += share(usage.resident);
        sums.1 += share(usage.huge);
    }
    sums
}

/// Large plain private memory that is filled: the mappings that could be the driver's buffer. With `before`, only what was not
/// mapped then: the kernel joins neighbours, so a mapping may have grown by the buffer.
pub fn candidates(usages: &[Usage], before: Option<&[Mapping]>) -> Vec<Candidate> {
    let plain = usages
        .iter()
        .filter(|usage| usage.mapping.is_private_memory() && usage.mapping.path.is_empty());
    plain
        .flat_map(|usage| {
            let whole = Span {
                start: usage.mapping.start,
                end: usage.mapping.end,
            };
            fresh_parts(whole, before.unwrap_or_default())
        })
        .filter(|span| span.length() >= SMALLEST)
        .map(|span| {
            let (resident, huge) = usage_of(usages, span);
            Candidate {
                span,
                resident,
                huge,
            }
        })
        .filter(Candidate::is_filled)
        .collect()
}

/// What of the range no mapping of `before` covers; those are in the order of their addresses.
fn fresh_parts(whole: Span, before: &[Mapping]) -> Vec<Span> {
    let mut parts = Vec::new();
    let mut from = whole.start;
    for old in before {
        if old.end <= from || old.start >= whole.end {
            continue;
        }
        if old.start > from {
            parts.push(Span {
                start: from,
                end: old.start,
            });
        }
        from = old.end;
    }
    if from < whole.end {
        parts.push(Span {
            start: from,
            end: whole.end,
        });
    }
    parts
}

/// The candidate that is far larger than every other one.
pub fn choose(candidates: &[Candidate]) -> Option<&Candidate> {
    let largest = candidates
        .iter()
        .max_by_key(|candidate| candidate.span.length())?;
    let alone = candidates
        .iter()
        .filter(|other| other.span != largest.span)
        .all(|other| other.span.length().saturating_mul(FAR_LARGER) <= largest.span.length());
    alone.then_some(largest)
}

/// Reads a copy of `/proc/PID/maps` that was made before the checkpoint, and looks whether it is of this process: a file
/// (the program, a library) must be mapped where it is mapped now.
///
/// # Errors
/// What is wrong with it.
pub fn parse_before(text: &str, now: &[Mapping]) -> Result<Vec<Mapping>, &'static str> {
    let mut before: Vec<Mapping> = text.lines().filter_map(Mapping::parse).collect();
    if before.is_empty() {
        return Err("no line of it is one of /proc/PID/maps");
    }
    let same = |old: &Mapping| {
        old.inode != 0
            && now
                .iter()
                .any(|new| (new.start, new.inode, &new.path) == (old.start, old.inode, &old.path))
    };
    if !before.iter().any(same) {
        return Err("it is a copy of another process's maps: no file is mapped where it is now");
    }
    before.sort_by_key(|mapping| mapping.start);
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn smaps(rows: &[(u64, u64, &str, u64)]) -> Vec<Usage> {
        let text: String = rows
            .iter()
            .map(|(start, end, rest, resident)| {
                format!(
                    "{:x}-{:x} {rest}\nSize: 4 kB\nRss: {} kB\nAnonHugePages: 2048 kB\nVmFlags: rd wr\n",
                    start * MIB,
                    end * MIB,
                    resident * 1024
                )
            })
            .collect();
        usages(&text)
    }

    fn spans(found: &[Candidate]) -> Vec<(u64, u64)> {
        let mib = |span: Span| (span.start / MIB, span.end / MIB);
        found.iter().map(|candidate| mib(candidate.span)).collect()
    }

    const PLAIN: &str = "rw-p 00000000 00:00 0";

    #[test]
    fn only_large_filled_plain_memory_counts() {
        let usages = smaps(&[
            (100, 200, PLAIN, 100),
            (300, 331, PLAIN, 31),
            (400, 500, PLAIN, 50),
            (600, 700, "rw-p 00000000 00:00 0 [heap]", 100),
            (800, 900, "rw-s 00000000 00:00 0", 100),
            (1000, 1100, "rw-p 00000000 fe:00 7 /x", 100),
            (1200, 1300, "---p 00000000 00:00 0", 100),
        ]);
        assert_eq!(spans(&candidates(&usages, None)), [(100, 200)]);
    }

    #[test]
    fn what_was_there_before_is_no_candidate_even_when_it_has_grown() {
        let usages = smaps(&[(100, 300, PLAIN, 200), (400, 500, PLAIN, 100)]);
        let before: Vec<Mapping> = smaps(&[(100, 150, PLAIN, 1), (400, 500, PLAIN, 1)])
            .into_iter()
            .map(|usage| usage.mapping)
            .collect();
        assert_eq!(spans(&candidates(&usages, Some(&before))), [(150, 300)]);
    }

    #[test]
    fn one_that_is_far_larger_is_chosen() {
        let candidate = |start: u64, length: u64| Candidate {
            span: Span {
                start,
                end: start + length,
            },
            resident: length,
            huge: 0,
        };
        assert_eq!(choose(&[]), None);
        let one = [candidate(0, 10)];
        assert_eq!(choose(&one), Some(&one[0]));
        let clear = [candidate(0, 10), candidate(100, 80)];
        assert_eq!(choose(&clear), Some(&clear[1]));
        assert_eq!(choose(&[candidate(0, 10), candidate(100, 79)]), None);
        assert_eq!(choose(&[candidate(0, 10), candidate(100, 10)]), None);
    }

    #[test]
    fn a_copy_of_maps_must_be_of_this_process() {
        let parse = |line: &str| Mapping::parse(line).unwrap();
        let program = "1000-2000 r--p 00000000 fe:00 42 /bin/x";
        let now = [parse(program), parse("5000-6000 rw-p 0 0:0 0")];
        assert_eq!(parse_before(program, &now).unwrap().len(), 1);
        assert!(parse_before("hello", &now).is_err());
        assert!(parse_before("5000-6000 rw-p 0 0:0 0", &now).is_err());
        assert!(parse_before("3000-4000 r--p 00000000 fe:00 42 /bin/x", &now).is_err());
    }

    #[test]
    fn memory_is_shared_out_by_the_part_that_lies_inside() {
        let usages = smaps(&[(100, 200, PLAIN, 100)]);
        let half = Span {
            start: 150 * MIB,
            end: 400 * MIB,
        };
        assert_eq!(usage_of(&usages, half), (50 * MIB, MIB));
    }

    proptest! {
        #[test]
        fn fresh_parts_are_exactly_what_is_not_covered(
            cuts in proptest::collection::btree_set(0u64..60, 0..12),
            start in 0u64..50, length in 1u64..20,
        ) {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let before: Vec<Mapping> = cuts.chunks_exact(2)
                .map(|pair| Mapping::parse(&format!("{:x}-{:x} rw-p 0 0:0 0", pair[0], pair[1])).unwrap())
                .collect();
            let whole = Span { start, end: start + length };
            let parts = fresh_parts(whole, &before);
            for page in start..start + length {
                let covered = before.iter().any(|old| (old.start..old.end).contains(&page));
                let fresh = parts.iter().any(|part| (part.start..part.end).contains(&page));
                prop_assert_eq!(covered, !fresh);
            }
        }
    }
}
