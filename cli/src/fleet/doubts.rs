//! What the numbers of a fleet should not be trusted for, and what to do about it.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::Doubt as Told;
use crate::status::text::count;

use super::collect::Fleet;
use super::troubles::{Kind, Trouble};

/// Hosts that are named.
const NAMED: usize = 5;

/// Something not to trust a number for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// There is no phase at all.
    Nothing,
    /// The library was to make the copies and did not.
    Ineffective {
        /// Phases.
        phases: u64,
        /// Of so many.
        of: u64,
        /// Hosts.
        hosts: Vec<String>,
    },
    /// Steps down were taken.
    StepsDown {
        /// Reason and how often, the most frequent first.
        reasons: Vec<(String, u64)>,
        /// Hosts.
        hosts: Vec<String>,
    },
    /// Phases of one direction ran on several kinds of pages.
    MixedPages {
        /// Kinds, with their phases.
        kinds: Vec<(String, u64)>,
        /// Hosts with more than one kind.
        hosts: Vec<String>,
    },
    /// Options that the library did not understand.
    Misread {
        /// Their names.
        options: Vec<String>,
        /// Hosts.
        hosts: Vec<String>,
    },
    /// Files that were named more than once: the further name, and the first.
    ReadOnce(Vec<(String, String)>),
    /// Lines that were left out.
    LeftOut(Trouble),
    /// Phases without a sound clock.
    Untimed(u64),
    /// Phases of too many groups.
    Ungrouped(u64),
    /// Processes whose steps down may be counted twice.
    Forgotten(u64),
}

/// All doubts about a fleet, the gravest first.
pub fn of(fleet: &Fleet) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    if fleet.phases == 0 {
        doubts.push(Doubt::Nothing);
    }
    doubts.extend(ineffective(fleet));
    doubts.extend(steps_down(fleet));
    doubts.extend(mixed_pages(fleet));
    doubts.extend(misread(fleet));
    if !fleet.read_once.is_empty() {
        doubts.push(Doubt::ReadOnce(fleet.read_once.clone()));
    }
    doubts.extend(fleet.troubles().into_iter().map(Doubt::LeftOut));
    let counted = [
        (fleet.untimed, Doubt::Untimed as fn(u64) -> Doubt),
        (fleet.ungrouped, Doubt::Ungrouped),
        (fleet.forgotten(), Doubt::Forgotten),
    ];
    let counted = counted.into_iter().filter(|(count, _)| *count > 0);
    doubts.extend(counted.map(|(count, doubt)| doubt(count)));
    doubts
}

fn ineffective(fleet: &Fleet) -> Option<Doubt> {
    let (mut phases, mut of, mut hosts) = (0, 0, BTreeSet::new());
    for (group, tally) in fleet.groups() {
        if group.mode == "on" {
            of += tally.phases;
        }
        if tally.ineffective > 0 {
            phases += tally.ineffective;
            hosts.insert(group.host);
        }
    }
    (phases > 0).then(|| Doubt::Ineffective {
        phases,
        of,
        hosts: hosts.into_iter().collect(),
    })
}

fn steps_down(fleet: &Fleet) -> Option<Doubt> {
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let mut hosts = BTreeSet::new();
    for (group, tally) in fleet.groups() {
        for (reason, count) in &tally.steps {
            *reasons.entry(reason.clone()).or_default() += count;
            hosts.insert(group.host.clone());
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    (!reasons.is_empty()).then(|| Doubt::StepsDown {
        reasons,
        hosts: hosts.into_iter().collect(),
    })
}

fn mixed_pages(fleet: &Fleet) -> Option<Doubt> {
    let mut of_host: BTreeMap<(String, String), BTreeMap<String, u64>> = BTreeMap::new();
    for (group, tally) in fleet.groups() {
        if group.mode == "on" {
            let kinds = of_host.entry((group.host, group.direction)).or_default();
            *kinds.entry(group.pages).or_default() += tally.phases;
        }
    }
    of_host.retain(|_, kinds| kinds.len() > 1);
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for (kind, phases) in of_host.values().flatten() {
        *all.entry(kind.clone()).or_default() += phases;
    }
    let hosts: BTreeSet<String> = of_host.into_keys().map(|(host, _)| host).collect();
    (!hosts.is_empty()).then(|| Doubt::MixedPages {
        kinds: all.into_iter().collect(),
        hosts: hosts.into_iter().collect(),
    })
}

fn misread(fleet: &Fleet) -> Option<Doubt> {
    let misread = fleet.misread();
    let hosts: BTreeSet<&str> = misread
        .iter()
        .flat_map(|(_, _, hosts)| hosts.clone())
        .collect();
    (!misread.is_empty()).then(|| Doubt::Misread {
        options: misread
            .iter()
            .map(|(name, ..)| (*name).to_owned())
            .collect(),
        hosts: hosts.into_iter().map(str::to_owned).collect(),
    })
}

impl Doubt {
    /// For people.
    pub fn told(&self) -> Told {
        Told {
            what: self.what(),
            advice: self.advice().into(),
        }
    }

    fn what(&self) -> String {
        match self {
            Doubt::Nothing => "there is no phase in these files".into(),
            Doubt::Ineffective { phases, of, hosts } => format!(
                "in {phases} of {} the library was to make the copies and did not: {}",
                count(*of as usize, "phase", "phases"),
                named(hosts)
            ),
            Doubt::StepsDown { reasons, hosts } => {
                format!("steps down were taken ({}): {}", counted(reasons), named(hosts))
            }
            Doubt::MixedPages { kinds, hosts } => format!(
                "phases of the same host ran on several kinds of pages ({}): {}",
                counted(kinds),
                named(hosts)
            ),
            Doubt::Misread { options, hosts } => format!(
                "options were not understood, and their defaults were in force ({}): {}",
                options.join(", "),
                named(hosts)
            ),
            Doubt::ReadOnce(files) => {
                let told = |(file, first): &(String, String)| format!("{file} is the same file as {first}");
                let told: Vec<String> = files.iter().map(told).collect();
                format!("{}: it was read once", named(&told))
            }
            Doubt::LeftOut(trouble) => format!("{}: left out", trouble.told()),
            Doubt::Untimed(phases) => {
                match phases {
                1 => "1 phase has a time before 2020 or in the future: it is in no plot over time".into(),
                phases => format!("{phases} phases have a time before 2020 or in the future: they are in no plot over time"),
            }
            }
            Doubt::Ungrouped(phases) => {
                match phases {
                1 => "there are too many groups: 1 phase is in no table".into(),
                phases => format!("there are too many groups: {phases} phases are in no table"),
            }
            }
            Doubt::Forgotten(processes) => format!(
                "there are too many processes with steps down: those of {processes} may be counted twice"
            ),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Doubt::Nothing => {
                "set CUDASNAP_REPORT to an absolute path in the programs' environment; a line comes when a buffer is unmapped"
            }
            Doubt::Ineffective { .. } => {
                "`cudasnap status PID` says why on such a host; a driver that the library does not know copies by itself"
            }
            Doubt::StepsDown { .. } => "`cudasnap doctor` and docs/status.md say what each reason needs",
            Doubt::MixedPages { .. } => {
                "compare rows of one kind only; `cudasnap doctor` says what keeps huge pages away"
            }
            Doubt::Misread { .. } => "`cudasnap run` refuses such values before the program starts",
            Doubt::ReadOnce(_) => "name each file once; lines of several hosts need a file of each host",
            Doubt::LeftOut(trouble) => match trouble.kind {
                Kind::Newer => "use a cudasnap as new as the newest library in the fleet",
                Kind::Half => "it is counted in the next report, when it has its end",
                Kind::Foreign => "name the files of CUDASNAP_REPORT only, and let nothing else write to them",
                Kind::Broken => {
                    "a disk that was full, a machine that crashed, or a file on a network file system with several writers"
                }
            },
            Doubt::Untimed(_) => "set the clocks of these hosts",
            Doubt::Ungrouped(_) | Doubt::Forgotten(_) => "report on fewer hosts at a time",
        }
    }
}

fn named(hosts: &[String]) -> String {
    let shown: Vec<&str> = hosts.iter().take(NAMED).map(String::as_str).collect();
    match hosts.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn counted(reasons: &[(String, u64)]) -> String {
    let words: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::collect::tests::{fleet, line};
    use super::*;

    #[test]
    fn a_sound_fleet_raises_none() {
        let text = [line(&[]), line(&[("phase", "restore".into())])].join("\n");
        assert_eq!(of(&fleet(&[("a", &text), ("b", &text)])), []);
        assert_eq!(of(&fleet(&[])), [Doubt::Nothing]);
    }

    #[test]
    fn each_doubt_has_its_cause() {
        let text = [
            line(&[("effective", false.into()), ("pages", "driver".into())]),
            line(&[(
                "steps_down",
                serde_json::json!({"low-memory": 2, "no-thread": 3}),
            )]),
            line(&[("not_understood", serde_json::json!(["CUDASNAP_LOG"]))]),
            line(&[("unix_ns", 0.into())]),
        ]
        .join("\n");
        let fleet = fleet(&[
            ("a", &text),
            ("b", &line(&[("pages", "4k".into())])),
            ("c", "{"),
        ]);
        let host = || vec!["a".to_owned()];
        let doubts = of(&fleet);
        let count = |word: &str, number| (word.to_owned(), number);
        assert_eq!(
            doubts[..4],
            [
                Doubt::Ineffective {
                    phases: 1,
                    of: 5,
                    hosts: host()
                },
                Doubt::StepsDown {
                    reasons: vec![count("no-thread", 3), count("low-memory", 2)],
                    hosts: host()
                },
                Doubt::MixedPages {
                    kinds: vec![count("driver", 1), count("thp", 3)],
                    hosts: host()
                },
                Doubt::Misread {
                    options: vec!["CUDASNAP_LOG".into()],
                    hosts: host()
                },
            ]
        );
        assert!(matches!(&doubts[4], Doubt::LeftOut(trouble) if trouble.kind == Kind::Half));
        assert_eq!(doubts[5..], [Doubt::Untimed(1)]);
        for doubt in doubts {
            let told = doubt.told();
            assert!(!told.what.is_empty() && !told.advice.is_empty());
        }
    }

    #[test]
    fn many_hosts_are_not_all_named() {
        let hosts: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
        assert_eq!(named(&hosts), "n0, n1, n2, n3, n4 and 3 more");
        assert_eq!(named(&hosts[..2]), "n0, n1");
    }
}
