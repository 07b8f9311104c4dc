//! Finds the doubts. `numbers` are those about the numbers themselves.

mod numbers;

use std::collections::{BTreeMap, BTreeSet};

use super::Doubt;
use crate::ab::data::{Cycle, Measured, Seen, Variant, Workload};
use crate::ab::summary::{confidence, counts, Direction};
use crate::ab::variant::{keeps_buffer, ON};
use crate::foreign_text::printable;

/// Others' share of the CPUs that is worth a word, and in which part of the cycles.
const BUSY: f64 = 0.10;
const BUSY_CYCLES: f64 = 0.25;
/// Change of the highest frequency.
const FREQUENCY: f64 = 0.10;

/// All doubts about a run, the gravest first.
pub fn look(measured: &Measured) -> Vec<Doubt> {
    let mut found = Vec::new();
    let several = measured.workloads.len() > 1;
    if let Some(why) = &measured.stopped {
        found.push(Doubt::Stopped {
            why: printable(why),
        });
    }
    for workload in &measured.workloads {
        let look = Look {
            name: if several {
                printable(&workload.name)
            } else {
                String::new()
            },
            workload,
            confidence: confidence(measured),
        };
        found.extend(look.all());
    }
    if measured.host.thp == "never" {
        found.push(Doubt::ThpOff);
    }
    found.sort_by_key(gravity);
    found
}

fn gravity(doubt: &Doubt) -> u32 {
    match doubt {
        Doubt::Wrong { .. } => 0,
        Doubt::Stopped { .. } | Doubt::Failed { .. } => 1,
        Doubt::NotEffective { .. } | Doubt::OtherMode { .. } => 2,
        Doubt::KeptInSome { .. } | Doubt::NotKept { .. } | Doubt::UnequalBytes { .. } => 3,
        Doubt::FewPairs { .. } | Doubt::SharedProcesses { .. } | Doubt::FreshPages { .. } => 4,
        Doubt::Outliers { .. } | Doubt::NoLimit { .. } => 6,
        _ => 5,
    }
}

struct Look<'a> {
    name: String,
    workload: &'a Workload,
    confidence: f64,
}

impl Look<'_> {
    fn all(&self) -> Vec<Doubt> {
        let mut found = Vec::new();
        found.extend(self.wrong());
        found.extend(self.failed());
        for variant in &self.workload.variants {
            found.extend(self.not_effective(variant));
            found.extend(self.other_mode(variant));
            found.extend(self.not_kept(variant));
            found.extend(self.steps_down(variant));
        }
        found.extend(self.kept_in_some());
        found.extend(self.dropped());
        found.extend(self.fresh_pages());
        found.extend(self.shared_processes());
        for direction in Direction::ALL {
            found.extend(self.of_direction(direction));
        }
        found.extend(self.machine());
        found.extend(self.no_limit());
        found
    }

    fn counted(&self) -> impl Iterator<Item = &Cycle> {
        self.workload.cycles.iter().filter(|cycle| counts(cycle))
    }

    fn of<'a>(&'a self, variant: &'a Variant) -> impl Iterator<Item = &'a Cycle> {
        self.counted().filter(|cycle| cycle.variant == variant.name)
    }

    fn wrong(&self) -> Option<Doubt> {
        // Warm-ups too: contents are right or they are not.
        let wrong = self.workload.cycles.iter();
        let wrong = wrong.filter(|cycle| cycle.verified == Some(false));
        let cycles: Vec<u32> = wrong.map(|cycle| cycle.number).collect();
        (!cycles.is_empty()).then(|| Doubt::Wrong {
            workload: self.name.clone(),
            cycles,
        })
    }

    fn failed(&self) -> Option<Doubt> {
        let all = self.workload.cycles.iter();
        let failed: Vec<&Cycle> = all.filter(|cycle| cycle.error.is_some()).collect();
        let why = failed.first()?.error.as_deref().unwrap_or_default();
        Some(Doubt::Failed {
            workload: self.name.clone(),
            why: printable(why),
            cycles: failed.iter().map(|cycle| cycle.number).collect(),
        })
    }

    /// What was recorded about each phase of a variant's cycles.
    fn phases<'a>(&'a self, variant: &'a Variant) -> Vec<Option<&'a Seen>> {
        let mut all = Vec::new();
        for cycle in self.of(variant) {
            for direction in Direction::ALL {
                all.extend(direction.of(cycle).map(|phase| phase.seen.as_ref()));
            }
        }
        all
    }

    fn not_effective(&self, variant: &Variant) -> Option<Doubt> {
        if variant.mode != ON {
            return None;
        }
        let phases = self.phases(variant);
        let not = |seen: &&Option<&Seen>| !seen.is_some_and(|seen| seen.effective);
        let cycles = phases.iter().filter(not).count();
        (cycles > 0).then(|| Doubt::NotEffective {
            workload: self.name.clone(),
            variant: variant.name.clone(),
            cycles,
            of: phases.len(),
        })
    }

    fn other_mode(&self, variant: &Variant) -> Option<Doubt> {
        let phases = self.phases(variant);
        let other = phases.iter().flatten();
        let other: Vec<&&Seen> = other.filter(|seen| seen.mode != variant.mode).collect();
        let mode = &other.first()?.mode;
        Some(Doubt::OtherMode {
            workload: self.name.clone(),
            variant: variant.name.clone(),
            mode: printable(mode),
            cycles: other.len(),
        })
    }

    fn kept(cycle: &Cycle) -> bool {
        let seen = cycle
            .checkpoint
            .as_ref()
            .and_then(|phase| phase.seen.as_ref());
        seen.is_some_and(|seen| seen.kept)
    }

    fn not_kept(&self, variant: &Variant) -> Option<Doubt> {
        let keeps = variant.settings.get("CUDASNAP_BUFFER");
        if keeps.is_none_or(|what| what != "keep") {
            return None;
        }
        let of = self.of(variant).count();
        let cycles = of - self.of(variant).filter(|cycle| Self::kept(cycle)).count();
        (cycles > 0).then(|| Doubt::NotKept {
            workload: self.name.clone(),
            variant: variant.name.clone(),
            cycles,
            of,
        })
    }

    /// Found where it was not asked for, and not by all alike.
    fn kept_in_some(&self) -> Option<Doubt> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        let mut unasked = false;
        for variant in &self.workload.variants {
            let of = self.of(variant).count();
            let kept = self.of(variant).filter(|cycle| Self::kept(cycle)).count();
            unasked |= kept > 0 && !keeps_buffer(variant);
            if kept > 0 {
                with.push(variant.name.clone());
            }
            if kept < of {
                without.push(variant.name.clone());
            }
        }
        (unasked && !without.is_empty()).then(|| Doubt::KeptInSome {
            workload: self.name.clone(),
            with,
            without,
        })
    }

    fn dropped(&self) -> Option<Doubt> {
        let dropped: Vec<bool> = self.counted().filter_map(|cycle| cycle.dropped).collect();
        (!dropped.is_empty()).then(|| Doubt::Dropped {
            workload: self.name.clone(),
            cycles: dropped.len(),
            late: dropped.iter().filter(|at_once| !**at_once).count(),
        })
    }

    /// Cycles that count and are the first of their process in this run.
    fn fresh_pages(&self) -> Option<Doubt> {
        let mut known = BTreeSet::new();
        let firsts = self.workload.cycles.iter();
        let firsts = firsts.filter(|cycle| known.insert(cycle.pid) && counts(cycle));
        let cycles: Vec<u32> = firsts.map(|cycle| cycle.number).collect();
        (!cycles.is_empty()).then(|| Doubt::FreshPages {
            workload: self.name.clone(),
            cycles,
        })
    }

    /// Variants have processes of their own, and those serve several rounds.
    fn shared_processes(&self) -> Option<Doubt> {
        let mut served: BTreeMap<i32, BTreeSet<u32>> = BTreeMap::new();
        let mut of_round: BTreeMap<u32, BTreeSet<i32>> = BTreeMap::new();
        for cycle in self.counted() {
            served.entry(cycle.pid).or_default().insert(cycle.round);
            of_round.entry(cycle.round).or_default().insert(cycle.pid);
        }
        let apart = of_round.values().any(|processes| processes.len() > 1);
        let rounds = served.values().map(BTreeSet::len).max()?;
        (apart && rounds > 1).then(|| Doubt::SharedProcesses {
            workload: self.name.clone(),
            rounds,
        })
    }

    fn steps_down(&self, variant: &Variant) -> Option<Doubt> {
        let mut steps: BTreeMap<String, u32> = BTreeMap::new();
        for seen in self.phases(variant).into_iter().flatten() {
            for (name, count) in &seen.steps_down {
                *steps.entry(printable(name)).or_default() += count;
            }
        }
        (!steps.is_empty()).then(|| Doubt::StepsDown {
            workload: self.name.clone(),
            variant: variant.name.clone(),
            steps,
        })
    }

    fn machine(&self) -> Vec<Doubt> {
        let mut found = Vec::new();
        let workload = || self.name.clone();
        let all = self.counted().count() as f64;
        let around = || self.counted().map(|cycle| &cycle.surroundings);
        let busy = around().filter_map(|around| around.others_busy);
        let busy: Vec<f64> = busy.filter(|share| *share > BUSY).collect();
        if busy.len() as f64 > all * BUSY_CYCLES {
            found.push(Doubt::OthersBusy {
                workload: workload(),
                most: busy.iter().copied().fold(0.0, f64::max),
                cycles: busy.len(),
            });
        }
        let others = around().filter_map(|around| around.others_on_gpu);
        let others: Vec<u32> = others.filter(|others| *others > 0).collect();
        if let Some(most) = others.iter().max() {
            found.push(Doubt::OthersOnGpu {
                workload: workload(),
                most: *most,
                cycles: others.len(),
            });
        }
        let highest: Vec<u32> = around().filter_map(|around| Some(around.mhz?.1)).collect();
        if let Some((&low, &high)) = highest.iter().min().zip(highest.iter().max()) {
            if f64::from(high - low) > f64::from(high) * FREQUENCY {
                found.push(Doubt::Frequency {
                    workload: workload(),
                    low,
                    high,
                });
            }
        }
        found
    }

    fn no_limit(&self) -> Option<Doubt> {
        if self.workload.limit.is_some() || self.counted().next().is_none() {
            return None;
        }
        let why = self.workload.no_limit.as_deref();
        Some(Doubt::NoLimit {
            workload: self.name.clone(),
            why: printable(why.unwrap_or("nobody asked for it")),
        })
    }
}

/// Whether the contents were wrong after some cycle.
pub fn is_wrong(measured: &Measured) -> bool {
    measured.workloads.iter().any(is_wrong_in)
}

/// The same of one program.
pub fn is_wrong_in(workload: &Workload) -> bool {
    let mut cycles = workload.cycles.iter();
    cycles.any(|cycle| cycle.verified == Some(false))
}

/// Whether some cycle failed.
pub fn has_failed(measured: &Measured) -> bool {
    let cycles = measured
        .workloads
        .iter()
        .flat_map(|workload| &workload.cycles);
    cycles.into_iter().any(|cycle| cycle.error.is_some())
}

#[cfg(test)]
mod tests;
