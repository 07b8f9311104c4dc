//! What a soak has come to: cycles, kinds, growth, and the words for it. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::hosts::{HostPlan, EVERY_KIND_WITHIN};
use super::kinds::Kind;
use super::lane::Event;
use super::plan::CyclePlan;

/// The account of a run.
#[derive(Debug, Default)]
pub struct Account {
    seed: u64,
    passed: u64,
    failed: BTreeSet<u64>,
    skipped: u64,
    /// By kind: cycles that planned it, cycles in which it was seen.
    kinds: BTreeMap<Kind, (u64, u64)>,
    without: BTreeSet<Kind>,
    longest: Option<(f64, u64)>,
    steepest: Option<f64>,
    watched: u64,
    late: u64,
}

/// Helpers that nobody holds are late only where they get no CPU for 200 ms: on a machine that has far too few. More than one
/// cycle in so many is the shim's fault.
const LATE_ONE_IN: u64 = 20;

impl Account {
    /// Nothing yet; kinds in `without` are not asked for.
    #[must_use]
    pub fn new(seed: u64, without: BTreeSet<Kind>) -> Self {
        Account {
            seed,
            without,
            ..Account::default()
        }
    }

    /// Takes what a lane told; complaints in words, for a failure.
    pub fn take(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Began(_) | Event::Idle => {}
            Event::Passed {
                cycle,
                seen,
                seconds,
                late,
            } => {
                self.late += u64::from(*late);
                self.passed(*cycle, seen, *seconds);
            }
            Event::Skipped(_) => self.skipped += 1,
            Event::Grew { anonymous, .. } => {
                self.watched += 1;
                self.steepest = Some(
                    self.steepest
                        .map_or(*anonymous, |most| most.max(*anonymous)),
                );
            }
            Event::Failed { cycle, problems } => return Some(self.fail(*cycle, problems)),
        }
        None
    }

    fn passed(&mut self, cycle: u64, seen: &[String], seconds: f64) {
        self.passed += 1;
        if self.longest.is_none_or(|(longest, _)| seconds > longest) {
            self.longest = Some((seconds, cycle));
        }
        let planned = CyclePlan::new(self.seed, cycle).kinds(&HostPlan::of_cycle(self.seed, cycle));
        for kind in Kind::ALL {
            let counts = self.kinds.entry(*kind).or_default();
            counts.0 += u64::from(planned.contains(kind));
            counts.1 += u64::from(seen.iter().any(|word| word == kind.word()));
        }
    }

    fn fail(&mut self, cycle: u64, problems: &[String]) -> String {
        // A host whose last cycle was right may still have grown.
        if self.failed.insert(cycle) && problems.iter().any(|line| line.starts_with("over ")) {
            self.passed = self.passed.saturating_sub(1);
        }
        let host = HostPlan::of_cycle(self.seed, cycle);
        let seed = self.seed;
        let mut text = format!("FAILED  cycle {cycle} of seed {seed}\n");
        for problem in problems {
            text.push_str(&format!("    {problem}\n"));
        }
        let before = cycle + 1 - host.first;
        text.push_str(&format!(
            "    again: scripts/soak 1 {seed} --from {cycle}; with the host's life before it: scripts/soak {before} {seed} --from {}\n",
            host.first
        ));
        text
    }

    /// Cycles that came to an end.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.passed + self.skipped + self.failed.len() as u64
    }

    /// Cycles that failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failed.len() as u64
    }

    /// Counts as a failure of its own: a lane that died, a check over the whole run.
    pub fn fail_whole(&mut self, text: &str) -> String {
        // Not a cycle's number.
        self.failed.insert(u64::MAX - self.failed.len() as u64);
        format!("FAILED  {text}\n")
    }

    /// Kinds that should have been seen and were not. `whole`: the run began at cycle 0 and was not broken off.
    #[must_use]
    pub fn missing(&self, whole: bool) -> Vec<Kind> {
        let every = whole && self.cycles() >= EVERY_KIND_WITHIN;
        let missing = |kind: &Kind| {
            let (planned, seen) = self.kinds.get(kind).copied().unwrap_or_default();
            seen == 0 && (every || planned > 0) && !self.without.contains(kind)
        };
        Kind::ALL.iter().copied().filter(missing).collect()
    }

    /// Whether helpers were late too often.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.late > 2 && self.late * LATE_ONE_IN > self.passed
    }

    /// The last line.
    #[must_use]
    pub fn verdict(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed,
            self.failures(),
            self.skipped
        )
    }
}

impl fmt::Display for Account {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "seen in so many cycles (planned in so many):")?;
        for (kind, (planned, seen)) in &self.kinds {
            writeln!(
                out,
                "  {:26} {seen:>7} {:>9}",
                kind.word(),
                format!("({planned})")
            )?;
        }
        if let Some((seconds, cycle)) = self.longest {
            writeln!(out, "longest cycle: {seconds:.2} s, number {cycle}")?;
        }
        writeln!(
            out,
            "helpers late that nobody held: {} cycles, at most one in {LATE_ONE_IN}",
            self.late
        )?;
        match self.steepest {
            Some(bytes) => writeln!(
                out,
                "resident memory: {} hosts that lived for long enough, steepest {bytes:+.0} bytes per cycle",
                self.watched
            ),
            None => writeln!(out, "resident memory: no host lived for long enough to see a slope"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(cycle: u64, seen: &[Kind]) -> Event {
        let seen = seen.iter().map(|kind| kind.word().to_string()).collect();
        Event::Passed {
            cycle,
            seen,
            seconds: 0.1,
            late: false,
        }
    }

    #[test]
    fn a_kind_that_was_never_seen_is_missing() {
        let mut account = Account::new(1, BTreeSet::new());
        for cycle in 0..EVERY_KIND_WITHIN {
            assert_eq!(account.take(&passed(cycle, &Kind::ALL[1..])), None);
        }
        assert_eq!(account.missing(true), [Kind::Calm]);
        assert_eq!(
            account.verdict(),
            format!("{EVERY_KIND_WITHIN} passed, 0 failed, 0 skipped")
        );
    }

    #[test]
    fn a_short_run_misses_only_what_it_planned() {
        let mut account = Account::new(1, BTreeSet::new());
        account.take(&passed(0, &[]));
        let planned = CyclePlan::new(1, 0).kinds(&HostPlan::of_cycle(1, 0));
        let missing = account.missing(true);
        assert!(missing.iter().all(|kind| planned.contains(kind)) && !missing.is_empty());
        let without = Account::new(1, planned.into_iter().collect());
        assert!(without.missing(true).is_empty());
    }

    #[test]
    fn a_failure_says_how_to_repeat_it() {
        let mut account = Account::new(3, BTreeSet::new());
        let event = Event::Failed {
            cycle: 500,
            problems: vec!["9 words are wrong".into()],
        };
        let text = account.take(&event).unwrap();
        assert!(text.contains("scripts/soak 1 3 --from 500") && text.contains("9 words are wrong"));
        let first = HostPlan::of_cycle(3, 500).first;
        assert!(text.contains(&format!("scripts/soak {} 3 --from {first}", 501 - first)));
        assert_eq!(account.verdict(), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn late_helpers_are_a_failure_when_they_are_the_rule() {
        let mut account = Account::new(1, BTreeSet::new());
        for cycle in 0..100 {
            let mut event = passed(cycle, &[]);
            if let Event::Passed { late, .. } = &mut event {
                *late = cycle < 5;
            }
            account.take(&event);
            assert_eq!(account.is_late(), (2..99).contains(&cycle));
        }
    }

    #[test]
    fn a_host_that_grew_fails_the_cycle_that_had_passed() {
        let mut account = Account::new(3, BTreeSet::new());
        account.take(&passed(107, &[]));
        let problems = vec!["mappings grow".into(), "over 100 cycles of x".into()];
        account.take(&Event::Failed {
            cycle: 107,
            problems,
        });
        assert_eq!(account.verdict(), "0 passed, 1 failed, 0 skipped");
    }
}
