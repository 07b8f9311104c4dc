//! Which steps down must have been counted.

use std::collections::BTreeMap;

use cudasnap_cli::record::view::{PhaseView, RecordView};
use cudasnap_wire::Step;

use super::Problems;

/// Steps down that must or may have been taken.
#[derive(Debug, Default)]
pub struct Ledger(BTreeMap<&'static str, (u32, u32)>);

impl Ledger {
    /// This one must be taken so many times more.
    pub fn expect(&mut self, step: Step, times: u32) {
        let (least, most) = self.0.entry(step.word()).or_default();
        *least += times;
        *most += times;
    }

    /// This one may be taken so many times more.
    pub fn allow(&mut self, step: Step, times: u32) {
        self.0.entry(step.word()).or_default().1 += times;
    }

    /// What was taken too rarely or too often between two records.
    #[must_use]
    pub fn compare(&self, before: &RecordView, after: &RecordView) -> Problems {
        let mut problems = Problems::new();
        for step in Step::ALL {
            let taken = after.steps(*step).wrapping_sub(before.steps(*step));
            let (least, most) = self.0.get(step.word()).copied().unwrap_or_default();
            if !(least..=most).contains(&taken) {
                problems.push(format!(
                    "step {}: {taken} times, should be {least} to {most}",
                    step.word()
                ));
            }
        }
        problems
    }
}

/// Phases that ended between two records, oldest first, as far as the record remembers them.
#[must_use]
pub fn new_phases<'a>(before: &RecordView, after: &'a RecordView) -> &'a [PhaseView] {
    let new = (after.counters.phases - before.counters.phases) as usize;
    let known = after.history.len();
    &after.history[known - new.min(known)..]
}

/// What holds over a whole cycle.
pub fn account(before: &RecordView, after: &RecordView, ledger: &mut Ledger) -> Problems {
    let too_little = |phase: &&PhaseView| phase.copied < phase.expected / 100 * 99;
    let not_effective = new_phases(before, after).iter().filter(too_little).count();
    ledger.expect(Step::NotEffective, not_effective as u32);
    // Compaction is the machine's affair.
    ledger.allow(Step::SlowHugePages, 10);
    ledger.compare(before, after)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::super::tests::view;
    use super::*;

    #[test]
    fn steps_are_counted_both_ways() {
        let mut ledger = Ledger::default();
        ledger.expect(Step::NoThread, 2);
        ledger.allow(Step::HelperLate, 1);
        let before = view(|_| {});
        let after = |threads: u32, late: u32| {
            view(|record| {
                record.counters.steps[Step::NoThread as usize].store(threads, Relaxed);
                record.counters.steps[Step::HelperLate as usize].store(late, Relaxed);
            })
        };
        assert!(ledger.compare(&before, &after(2, 0)).is_empty());
        assert!(ledger.compare(&before, &after(2, 1)).is_empty());
        assert_eq!(ledger.compare(&before, &after(1, 0)).len(), 1);
        assert_eq!(ledger.compare(&before, &after(2, 2)).len(), 1);
        assert_eq!(ledger.compare(&before, &after(3, 2)).len(), 2);
    }

    #[test]
    fn phases_that_are_not_effective_must_have_been_counted() {
        let phases = |copied: u64, counted: u32| {
            view(|record| {
                record.history[0].expected.store(1000, Relaxed);
                record.history[0].copied.store(copied, Relaxed);
                record.history_count.store(1, Relaxed);
                record.counters.phases.store(1, Relaxed);
                record.counters.steps[Step::NotEffective as usize].store(counted, Relaxed);
            })
        };
        let problems =
            |after: &RecordView| account(&view(|_| {}), after, &mut Ledger::default()).len();
        assert_eq!(problems(&phases(990, 0)), 0);
        assert_eq!(problems(&phases(980, 1)), 0);
        assert_eq!(problems(&phases(980, 0)), 1);
        assert_eq!(problems(&phases(990, 1)), 1);
    }
}
