//! What is known of a fleet, made line by line: its size depends on how many groups there are, not on how many lines. `read` reads the files.

mod read;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::phase::Phase;
use super::steps::Steps;
use super::tally::{rate, Tally};
use super::timeline::Timeline;
use super::troubles::{Trouble, Troubles};
use super::words::{shown, Words};

/// Most groups; phases of further ones are counted and left out.
const GROUPS: usize = 10_000;
/// Most hosts, times their modes, of which the rate over time is kept.
const HOSTS_OVER_TIME: usize = 4096;
/// A moment before this (2020) is a clock that was not set.
const FIRST_SECOND: u64 = 1_577_836_800;

/// What phases have in common that are counted together. The order is that of the tables.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct Group {
    /// Host.
    pub host: String,
    /// `checkpoint` or `restore`.
    pub direction: String,
    /// Mode.
    pub mode: String,
    /// Kind of page.
    pub pages: String,
    /// Whether the buffer was kept from the cycle before.
    pub kept: bool,
    /// Strategy of the copies.
    pub strategy: String,
    /// Threads that copied.
    pub threads: u32,
}

/// The same as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    host: u32,
    direction: u32,
    mode: u32,
    pages: u32,
    kept: bool,
    strategy: u32,
    threads: u32,
}

/// An option that was not understood.
#[derive(Debug, Clone, Default)]
pub struct Misread {
    /// Phases whose lines say so.
    pub phases: u64,
    hosts: BTreeSet<u32>,
}

/// A fleet.
#[derive(Debug)]
pub struct Fleet {
    now: u64,
    words: Words,
    tallies: HashMap<Key, Tally>,
    steps: Steps,
    troubles: Troubles,
    misread: BTreeMap<String, Misread>,
    /// By host, mode and direction.
    by_host: HashMap<(u32, u32, u32), Timeline>,
    /// By mode and direction.
    by_mode: HashMap<(u32, u32), Timeline>,
    /// Files that were named more than once: by which other name, and the one under which they were read.
    pub read_once: Vec<(String, String)>,
    /// Files that were read.
    pub files: u64,
    /// Lines in them.
    pub lines: u64,
    /// Lines that are phases.
    pub phases: u64,
    /// Phases whose groups are left out, since there are too many.
    pub ungrouped: u64,
    /// Phases whose clock cannot be right, which are in no plot over time.
    pub untimed: u64,
    /// First and last moment, in seconds since 1970.
    pub span: Option<(u64, u64)>,
}

impl Fleet {
    /// Without a line. `now` is in seconds since 1970.
    pub fn new(now: u64) -> Self {
        Fleet {
            now,
            words: Words::default(),
            tallies: HashMap::new(),
            steps: Steps::default(),
            troubles: Troubles::default(),
            misread: BTreeMap::new(),
            by_host: HashMap::new(),
            by_mode: HashMap::new(),
            read_once: Vec::new(),
            files: 0,
            lines: 0,
            phases: 0,
            ungrouped: 0,
            untimed: 0,
            span: None,
        }
    }

    /// Notes a file that is not read again, by its name and the first one.
    pub fn note_read_once(&mut self, file: &str, first: &str) {
        self.read_once.push((file.into(), first.into()));
    }

    /// Takes a phase of a host.
    pub fn add(&mut self, host: &str, phase: &Phase<'_>) {
        let key = Key {
            host: self.words.number(host),
            direction: self.words.number(&phase.phase),
            mode: self.words.number(&phase.mode),
            pages: self.words.number(&phase.pages),
            kept: phase.kept,
            strategy: self.words.number(&phase.strategy),
            threads: phase.threads,
        };
        self.phases += 1;
        let steps = self
            .steps
            .new_in(key.host, phase.pid, &phase.steps_down, shown);
        self.note_misread(key.host, phase);
        self.note_time(key, phase);
        if self.tallies.len() >= GROUPS && !self.tallies.contains_key(&key) {
            self.ungrouped += 1;
            return;
        }
        self.tallies.entry(key).or_default().add(phase, &steps);
    }

    fn note_misread(&mut self, host: u32, phase: &Phase<'_>) {
        for option in &phase.not_understood {
            let name = shown(option);
            // The library has few options; a file can say anything.
            if self.misread.len() >= 64 && !self.misread.contains_key(&name) {
                continue;
            }
            let misread = self.misread.entry(name).or_default();
            misread.phases += 1;
            misread.hosts.insert(host);
        }
    }

    fn note_time(&mut self, key: Key, phase: &Phase<'_>) {
        const DAY: u64 = 86_400;
        let second = phase.unix_ns / 1_000_000_000;
        if !(FIRST_SECOND..=self.now.saturating_add(DAY)).contains(&second) {
            self.untimed += 1;
            return;
        }
        let (first, last) = self.span.unwrap_or((second, second));
        self.span = Some((first.min(second), last.max(second)));
        if phase.total_ns == 0 || phase.copied == 0 {
            return;
        }
        let place = (key.host, key.mode, key.direction);
        if self.by_host.len() < HOSTS_OVER_TIME || self.by_host.contains_key(&place) {
            self.by_host
                .entry(place)
                .or_default()
                .add(second, rate(phase));
        }
        let by_mode = self.by_mode.entry((key.mode, key.direction));
        by_mode.or_default().add(second, rate(phase));
    }

    /// The groups, in the order of the tables.
    pub fn groups(&self) -> Vec<(Group, &Tally)> {
        let word = |number| self.words.word(number).to_owned();
        let group = |key: &Key| Group {
            host: word(key.host),
            direction: word(key.direction),
            mode: word(key.mode),
            pages: word(key.pages),
            kept: key.kept,
            strategy: word(key.strategy),
            threads: key.threads,
        };
        let groups = self.tallies.iter();
        let mut groups: Vec<_> = groups.map(|(key, tally)| (group(key), tally)).collect();
        groups.sort_by(|one, other| one.0.cmp(&other.0));
        groups
    }

    /// Groups put together by what they have in common, in its order.
    pub fn merged<K: Ord>(&self, common: impl Fn(&Group) -> K) -> BTreeMap<K, Tally> {
        let mut merged: BTreeMap<K, Tally> = BTreeMap::new();
        for (group, tally) in self.groups() {
            merged.entry(common(&group)).or_default().merge(tally);
        }
        merged
    }

    /// Hosts of which there are phases.
    pub fn hosts(&self) -> BTreeSet<&str> {
        self.tallies
            .keys()
            .map(|key| self.words.word(key.host))
            .collect()
    }

    /// Options that were not understood: name, phases, hosts.
    pub fn misread(&self) -> Vec<(&str, u64, Vec<&str>)> {
        let all = self.misread.iter();
        all.map(|(name, misread)| {
            let hosts = misread.hosts.iter();
            let hosts = hosts.map(|host| self.words.word(*host)).collect();
            (name.as_str(), misread.phases, hosts)
        })
        .collect()
    }

    /// Rates over time in a direction, by host and mode.
    pub fn over_time(&self, direction: &str) -> BTreeMap<(&str, &str), &Timeline> {
        let lines = self.by_host.iter();
        let lines = lines.filter(|((_, _, of), _)| self.words.word(*of) == direction);
        lines
            .map(|((host, mode, _), line)| ((self.words.word(*host), self.words.word(*mode)), line))
            .collect()
    }

    /// The same of all hosts together, by mode.
    pub fn over_time_by_mode(&self, direction: &str) -> BTreeMap<&str, &Timeline> {
        let lines = self.by_mode.iter();
        let lines = lines.filter(|((_, of), _)| self.words.word(*of) == direction);
        lines
            .map(|((mode, _), line)| (self.words.word(*mode), line))
            .collect()
    }

    /// Lines that were left out.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.troubles.all()
    }

    /// Processes whose counts of steps down were forgotten.
    pub fn forgotten(&self) -> u64 {
        self.steps.forgotten
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A line of the library's, with these fields changed.
    pub fn line(change: &[(&str, serde_json::Value)]) -> String {
        let mut line = serde_json::json!({
            "schema": 1, "pid": 42, "unix_ns": 1_764_500_000_000_000_000u64, "buffer": 1, "phase": "checkpoint",
            "end": "covered", "mode": "on", "pages": "thp", "kept": false, "threads": 16, "strategy": "demote",
            "tried": 0, "bytes": 20_000_000_000u64, "copied": 20_000_000_000u64, "copies": 3, "prefaulted": 0,
            "zeros": 0, "effective": true, "mmap_ns": 10_000_000u64, "prefault_ns": 0, "first_copy_ns": 10_000_000u64,
            "copying_ns": 900_000_000u64, "waiting_ns": 90_000_000u64, "longest_wait_ns": 0, "loop_ns": 990_000_000u64,
            "total_ns": 1_000_000_000u64, "munmap_ns": 0, "not_understood": [], "steps_down": {}
        });
        for (name, value) in change {
            line[*name] = value.clone();
        }
        line.to_string()
    }

    /// A fleet of these files, by host.
    pub fn fleet(files: &[(&str, &str)]) -> Fleet {
        let mut fleet = Fleet::new(1_764_600_000);
        for (host, text) in files {
            fleet.read(host, host, text.as_bytes()).unwrap();
        }
        fleet
    }

    #[test]
    fn phases_are_counted_in_their_groups() {
        let text = [
            line(&[]),
            line(&[("total_ns", 2_000_000_000u64.into())]),
            line(&[("mode", "observe".into()), ("effective", false.into())]),
            line(&[("effective", false.into()), ("pages", "driver".into())]),
        ]
        .join("\n");
        let fleet = fleet(&[("a", &(text.clone() + "\n")), ("b", &text)]);
        let groups = fleet.groups();
        assert_eq!((groups.len(), fleet.phases, fleet.files), (6, 8, 2));
        let (group, tally) = &groups[2];
        assert_eq!(
            (&*group.host, &*group.mode, &*group.pages),
            ("a", "on", "thp")
        );
        assert!(!group.kept && group.threads == 16 && group.strategy == "demote");
        assert_eq!(
            (tally.phases, tally.bytes, tally.ineffective),
            (2, 40_000_000_000, 0)
        );
        let rates = tally.rates.spread().unwrap();
        for (found, right) in [(rates.low, 10.5), (rates.median, 15.0), (rates.high, 19.5)] {
            assert!((found - right).abs() < 1e-9, "{rates:?}");
        }
        assert_eq!(groups[0].1.ineffective, 0, "observing is no failure");
        assert_eq!(groups[1].1.ineffective, 1);
        let all = fleet.merged(|group| group.mode.clone());
        assert_eq!((all["on"].phases, all["observe"].phases), (6, 2));
    }

    #[test]
    fn memory_does_not_grow_with_groups_without_end() {
        let mut fleet = Fleet::new(0);
        for threads in 0..GROUPS as u32 + 5 {
            let text = line(&[("threads", threads.into())]);
            fleet.add("a", &Phase::read(text.as_bytes()).unwrap());
        }
        assert_eq!((fleet.groups().len(), fleet.ungrouped), (GROUPS, 5));
        assert_eq!(fleet.untimed, fleet.phases, "all of them in the future");
    }

    #[test]
    fn rates_over_time_are_by_host_and_by_mode() {
        let fleet = fleet(&[
            ("a", &line(&[("unix_ns", 5.into())])),
            ("b", &line(&[])),
            ("b", &line(&[("phase", "restore".into())])),
        ]);
        assert_eq!(fleet.untimed, 1);
        let by_host: Vec<_> = fleet.over_time("checkpoint").into_keys().collect();
        let by_mode: Vec<_> = fleet.over_time_by_mode("checkpoint").into_keys().collect();
        assert_eq!((by_host, by_mode), (vec![("b", "on")], vec!["on"]));
        assert_eq!(fleet.span, Some((1_764_500_000, 1_764_500_000)));
    }

    #[test]
    fn options_that_were_not_understood_are_told_with_their_hosts() {
        let bad = line(&[("not_understood", serde_json::json!(["CUDASNAP_PAGES"]))]);
        let fleet = fleet(&[("a", &bad), ("b", &bad), ("c", &line(&[]))]);
        assert_eq!(fleet.misread(), [("CUDASNAP_PAGES", 2, vec!["a", "b"])]);
    }
}
