//! Steps down that are new with a phase. A line says how often each was taken since its process started; counted are the differences
//! between the lines of a process.

use std::collections::{BTreeMap, HashMap};

/// Most processes whose last counts are remembered: those without steps down need no memory.
const PROCESSES: usize = 1 << 16;

/// The last counts of each process.
#[derive(Debug, Default)]
pub struct Steps {
    last: HashMap<(u32, i64), BTreeMap<String, u64>>,
    /// Processes that were forgotten: all their counts are taken as new.
    pub forgotten: u64,
}

impl Steps {
    /// What is new in the counts of a process of a host. Where a count is lower than before, its id is another process's.
    pub fn new_in(
        &mut self,
        host: u32,
        pid: i64,
        counts: &BTreeMap<String, u64>,
        name: impl Fn(&str) -> String,
    ) -> Vec<(String, u64)> {
        let process = (host, pid);
        if counts.is_empty() {
            self.last.remove(&process);
            return Vec::new();
        }
        if self.last.len() >= PROCESSES && !self.last.contains_key(&process) {
            self.forgotten += self.last.len() as u64;
            self.last.clear();
        }
        let before = self.last.entry(process).or_default();
        let same = before
            .iter()
            .all(|(name, count)| counts.get(name).is_some_and(|now| now >= count));
        if !same {
            before.clear();
        }
        let grown = counts.iter().map(|(step, now)| {
            let then = before.get(step).copied().unwrap_or(0);
            (name(step), now - then)
        });
        let grown: Vec<_> = grown.filter(|(_, count)| *count > 0).collect();
        before.clone_from(counts);
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, count)| ((*name).into(), *count))
            .collect()
    }

    fn new(steps: &mut Steps, host: u32, pid: i64, pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
        steps.new_in(host, pid, &counts(pairs), str::to_owned)
    }

    #[test]
    fn what_grew_is_new() {
        let mut steps = Steps::default();
        assert_eq!(new(&mut steps, 0, 7, &[("a", 2)]), [("a".into(), 2)]);
        assert_eq!(new(&mut steps, 0, 7, &[("a", 2)]), []);
        assert_eq!(
            new(&mut steps, 0, 7, &[("a", 5), ("b", 1)]),
            [("a".into(), 3), ("b".into(), 1)]
        );
        assert_eq!(
            new(&mut steps, 1, 7, &[("a", 5)]),
            [("a".into(), 5)],
            "another host"
        );
    }

    #[test]
    fn a_lower_count_is_another_process() {
        let mut steps = Steps::default();
        new(&mut steps, 0, 7, &[("a", 5), ("b", 1)]);
        assert_eq!(new(&mut steps, 0, 7, &[("a", 6)]), [("a".into(), 6)]);
        assert_eq!(new(&mut steps, 0, 7, &[]), []);
        assert_eq!(new(&mut steps, 0, 7, &[("a", 6)]), [("a".into(), 6)]);
    }

    #[test]
    fn memory_is_limited() {
        let mut steps = Steps::default();
        for pid in 0..=PROCESSES as i64 {
            new(&mut steps, 0, pid, &[("a", 1)]);
        }
        assert!(steps.last.len() <= PROCESSES && steps.forgotten > 0);
    }
}
