//! The order of the cycles: pure, and the same for the same seed.
//!
//! Every round has each variant once. A variant's cycle may suffer from what the one before it left behind (caches, pages that are given
//! back late), so over the rounds each variant follows each other one equally often, and stands at each place equally often: the rounds
//! are the rows of Williams squares (E. J. Williams, "Experimental designs balanced for the estimation of residual effects of
//! treatments", 1949), each square with its variants and its rows shuffled.

use std::ops::Range;

use rand::seq::SliceRandom;
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// A stay at one process: from its start (or the first look at it) to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// Which group of variants the process serves.
    pub group: usize,
    /// The cycles, in their order.
    pub turns: Vec<Turn>,
}

/// A cycle to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The variant.
    pub variant: usize,
    /// Round, from 1; 0 for a warm-up.
    pub round: u32,
}

impl Turn {
    /// Whether it is left out of all statistics.
    pub fn is_warm_up(&self) -> bool {
        self.round == 0
    }
}

/// How much is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounds {
    /// Rounds that count.
    pub cycles: u32,
    /// Warm-up rounds of each process.
    pub warm_up: u32,
    /// Rounds that a process serves where several take turns, before it is ended and the next one is started.
    pub per_visit: u32,
}

/// The plan for variants in these groups, each of which has a process of its own.
pub fn plan(groups: &[Vec<usize>], rounds: Rounds, seed: u64) -> Vec<Visit> {
    let mut random = Pcg64::seed_from_u64(seed);
    let count = rounds.cycles as usize;
    let within: Vec<Vec<Vec<usize>>> = groups
        .iter()
        .map(|group| balanced(group.len(), count, &mut random))
        .collect();
    let per_visit = match groups.len() {
        // One process serves all rounds.
        1 => count.max(1),
        _ => rounds.per_visit.max(1) as usize,
    };
    let turns_of_groups = balanced(groups.len(), count.div_ceil(per_visit), &mut random);
    let mut visits = Vec::new();
    for (number, order) in turns_of_groups.iter().enumerate() {
        let first = number * per_visit;
        let served = first..count.min(first + per_visit);
        for group in order {
            let variants = &groups[*group];
            visits.push(Visit {
                group: *group,
                turns: turns(variants, &within[*group], served.clone(), rounds.warm_up),
            });
        }
    }
    visits
}

fn turns(
    variants: &[usize],
    orders: &[Vec<usize>],
    rounds: Range<usize>,
    warm_up: u32,
) -> Vec<Turn> {
    let warm_ups = (0..warm_up).flat_map(|_| variants.iter().map(|variant| (*variant, 0)));
    let counted = rounds.flat_map(|round| {
        let order = orders[round].iter();
        order.map(move |place| (variants[*place], round as u32 + 1))
    });
    warm_ups
        .chain(counted)
        .map(|(variant, round)| Turn { variant, round })
        .collect()
}

/// So many rounds, each a permutation of `0..items`.
pub fn balanced(items: usize, rounds: usize, random: &mut Pcg64) -> Vec<Vec<usize>> {
    let mut all = Vec::with_capacity(rounds);
    while all.len() < rounds {
        let mut names: Vec<usize> = (0..items).collect();
        names.shuffle(random);
        let mut rows = square(items);
        rows.shuffle(random);
        let rows = rows
            .into_iter()
            .map(|row| row.into_iter().map(|item| names[item]).collect());
        all.extend(rows.take(rounds - all.len()));
    }
    all
}

/// A Williams square: rows in which each item follows each other one equally often. An odd number of items needs twice as many rows as
/// items: the second half are the first ones, backwards.
fn square(items: usize) -> Vec<Vec<usize>> {
    // 0, 1, n-1, 2, n-2, ...: all differences of neighbours are different.
    let start: Vec<usize> = (0..items)
        .map(|at| match at % 2 {
            1 => at / 2 + 1,
            _ => (items - at / 2) % items,
        })
        .collect();
    let mut rows: Vec<Vec<usize>> = (0..items.max(1))
        .map(|shift| start.iter().map(|item| (item + shift) % items).collect())
        .collect();
    if items % 2 == 1 && items > 1 {
        let backwards = rows.iter().map(|row| row.iter().rev().copied().collect());
        let backwards: Vec<Vec<usize>> = backwards.collect();
        rows.extend(backwards);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Least and most of all the counts that could be.
    fn span(counts: &BTreeMap<(usize, usize), usize>, possible: usize) -> (usize, usize) {
        let most = counts.values().copied().max().unwrap_or(0);
        let least = if counts.len() < possible {
            0
        } else {
            counts.values().copied().min().unwrap_or(0)
        };
        (least, most)
    }

    fn follows(rounds: &[Vec<usize>]) -> BTreeMap<(usize, usize), usize> {
        let mut counts = BTreeMap::new();
        for pair in rounds.iter().flat_map(|round| round.windows(2)) {
            *counts.entry((pair[0], pair[1])).or_default() += 1;
        }
        counts
    }

    fn places(rounds: &[Vec<usize>]) -> BTreeMap<(usize, usize), usize> {
        let mut counts = BTreeMap::new();
        for round in rounds {
            for (place, item) in round.iter().enumerate() {
                *counts.entry((place, *item)).or_default() += 1;
            }
        }
        counts
    }

    proptest! {
        #[test]
        fn every_round_has_each_once_and_orders_are_balanced(items in 1..9usize, rounds in 0..60usize, seed: u64) {
            let all = balanced(items, rounds, &mut Pcg64::seed_from_u64(seed));
            prop_assert_eq!(all.len(), rounds);
            for round in &all {
                let mut sorted = round.clone();
                sorted.sort_unstable();
                prop_assert_eq!(sorted, (0..items).collect::<Vec<_>>());
            }
            // An odd number needs two squares for its balance.
            let slack = 1 + items % 2;
            let (least, most) = span(&follows(&all), items * (items - 1));
            prop_assert!(most - least <= slack, "{least} to {most}");
            let (least, most) = span(&places(&all), items * items);
            prop_assert!(most - least <= slack, "{least} to {most}");
        }

        #[test]
        fn a_plan_has_every_cycle_once(sizes in proptest::collection::vec(1..4usize, 1..4), cycles in 1..20u32, warm_up in 0..3u32, per_visit in 1..5u32, seed: u64) {
            let mut next = 0;
            let groups: Vec<Vec<usize>> = sizes.iter().map(|size| { next += size; (next - size..next).collect() }).collect();
            let visits = plan(&groups, Rounds { cycles, warm_up, per_visit }, seed);
            let mut counted = BTreeMap::new();
            for visit in &visits {
                let (warm, rest): (Vec<&Turn>, Vec<&Turn>) = visit.turns.iter().partition(|turn| turn.is_warm_up());
                prop_assert_eq!(warm.len(), groups[visit.group].len() * warm_up as usize);
                // Warm-ups come first.
                prop_assert!(visit.turns[..warm.len()].iter().all(Turn::is_warm_up));
                for turn in rest {
                    prop_assert!(groups[visit.group].contains(&turn.variant));
                    *counted.entry((turn.round, turn.variant)).or_insert(0) += 1;
                }
            }
            prop_assert_eq!(counted.len(), next * cycles as usize);
            prop_assert!(counted.values().all(|times| *times == 1));
            if groups.len() == 1 {
                prop_assert_eq!(visits.len(), 1);
            }
            // No round of a later visit is before one of an earlier one.
            let firsts: Vec<u32> = visits.iter().filter_map(|visit| visit.turns.iter().map(|turn| turn.round).filter(|round| *round > 0).min()).collect();
            prop_assert!(firsts.is_sorted());
        }
    }

    #[test]
    fn two_variants_change_places_in_every_two_rounds() {
        for seed in 0..50 {
            let all = balanced(2, 20, &mut Pcg64::seed_from_u64(seed));
            for pair in all.chunks(2) {
                assert_ne!(pair[0], pair[1]);
            }
        }
        let orders: std::collections::BTreeSet<Vec<Vec<usize>>> = (0..50)
            .map(|seed| balanced(2, 20, &mut Pcg64::seed_from_u64(seed)))
            .collect();
        assert!(orders.len() > 40, "{}", orders.len());
    }

    /// From the literature: the square for four.
    #[test]
    fn the_square_of_four_is_williams_own() {
        assert_eq!(
            square(4),
            [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]]
        );
    }

    #[test]
    fn the_seed_decides() {
        let groups = [vec![0, 1, 2], vec![3, 4]];
        let rounds = Rounds {
            cycles: 10,
            warm_up: 1,
            per_visit: 1,
        };
        assert_eq!(plan(&groups, rounds, 7), plan(&groups, rounds, 7));
        assert_ne!(plan(&groups, rounds, 7), plan(&groups, rounds, 8));
    }
}
