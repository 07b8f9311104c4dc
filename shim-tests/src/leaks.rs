//! What a cycle left behind in a process.

use std::collections::BTreeMap;

use cudasnap_cli::process::observe::{Holdings, Thread};
use serde::Serialize;

/// First letters of the names of the shim's helper threads.
pub const HELPER: &str = "csnap-";
/// Growth of resident private memory that is not counted as a leak.
pub const MEMORY_SLACK: i64 = 8 << 20;

/// How a process's holdings changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// Names of threads that were not there before.
    pub new_threads: Vec<String>,
    /// Change of the number of threads.
    pub threads: i64,
    /// Change of the number of descriptors.
    pub descriptors: i64,
    /// Change of the number of mappings.
    pub mappings: i64,
    /// Change of resident private memory, in bytes.
    pub anonymous: i64,
}

impl Growth {
    /// The change from `before` to `after`.
    pub fn between(before: &Holdings, after: &Holdings) -> Self {
        let change = |before: usize, after: usize| after as i64 - before as i64;
        Growth {
            new_threads: new_names(&before.threads, &after.threads),
            threads: change(before.threads.len(), after.threads.len()),
            descriptors: change(before.descriptors.len(), after.descriptors.len()),
            mappings: change(before.mappings, after.mappings),
            anonymous: after.anonymous as i64 - before.anonymous as i64,
        }
    }

    /// What of it is a leak, given how the same program changes without the shim. `kept` is what an option makes the shim keep:
    /// one mapping, with so many bytes in memory.
    pub fn leaks(&self, stock: Option<&Growth>, kept: Option<u64>) -> Vec<String> {
        let allowed = |part: fn(&Growth) -> i64, extra: i64| {
            stock.map_or(0, part).max(0).saturating_add(extra)
        };
        let kept_bytes = i64::try_from(kept.unwrap_or(0)).unwrap_or(i64::MAX);
        let kept_mappings = i64::from(kept.is_some());
        let mut found: Vec<String> = helpers(&self.new_threads);
        let mut check = |what: &str, value: i64, allowed: i64| {
            if value > allowed {
                found.push(format!("{what} {value:+}, allowed {allowed:+}"));
            }
        };
        check("threads", self.threads, allowed(|stock| stock.threads, 0));
        check(
            "descriptors",
            self.descriptors,
            allowed(|stock| stock.descriptors, 0),
        );
        check(
            "mappings",
            self.mappings,
            allowed(|stock| stock.mappings, kept_mappings),
        );
        check(
            "private resident bytes",
            self.anonymous,
            allowed(
                |stock| stock.anonymous,
                MEMORY_SLACK.saturating_add(kept_bytes),
            ),
        );
        found
    }
}

impl Growth {
    /// What of it is a leak of the shim's in a program whose own threads map memory and come and go: descriptors and helpers.
    pub fn leaks_of_busy(&self, stock: Option<&Growth>) -> Vec<String> {
        let own = Growth {
            threads: 0,
            mappings: 0,
            anonymous: 0,
            ..self.clone()
        };
        own.leaks(stock, None)
    }
}

fn helpers(names: &[String]) -> Vec<String> {
    let helpers = names.iter().filter(|name| name.starts_with(HELPER));
    helpers
        .map(|name| format!("helper thread {name} is left"))
        .collect()
}

/// Names in `after` that occur more often than in `before`. Ids do not count: the driver may replace its own threads.
fn new_names(before: &[Thread], after: &[Thread]) -> Vec<String> {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for thread in before {
        *known.entry(&thread.name).or_default() += 1;
    }
    let mut new = Vec::new();
    for thread in after {
        match known.get_mut(thread.name.as_str()) {
            Some(count @ 1..) => *count -= 1,
            _ => new.push(thread.name.clone()),
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holdings(names: &[&str], mappings: usize, anonymous: u64) -> Holdings {
        let thread = |(tid, name): (usize, &&str)| Thread {
            tid: tid as i32,
            name: (*name).into(),
        };
        Holdings {
            threads: names.iter().enumerate().map(thread).collect(),
            descriptors: Vec::new(),
            mappings,
            address_space: 0,
            anonymous,
            resident: anonymous,
        }
    }

    #[test]
    fn a_helper_is_a_leak_even_when_the_number_of_threads_is_the_same() {
        let before = holdings(&["main", "other"], 10, 0);
        let after = holdings(&["main", "csnap-3"], 10, 0);
        let leaks = Growth::between(&before, &after).leaks(None, None);
        assert_eq!(leaks, ["helper thread csnap-3 is left"]);
    }

    #[test]
    fn in_a_busy_program_only_helpers_and_descriptors_are_leaks() {
        let before = holdings(&["main"], 10, 0);
        let mut after = holdings(&["main", "worker"], 20, 1 << 30);
        let growth = Growth::between(&before, &after);
        assert_eq!(growth.leaks(None, None).len(), 3);
        assert_eq!(growth.leaks_of_busy(None), Vec::<String>::new());
        after.threads[1].name = "csnap-3".into();
        let growth = Growth {
            descriptors: 1,
            ..Growth::between(&before, &after)
        };
        assert_eq!(
            growth.leaks_of_busy(None),
            [
                "helper thread csnap-3 is left",
                "descriptors +1, allowed +0"
            ]
        );
    }

    #[test]
    fn what_stock_grows_by_is_no_leak() {
        let before = holdings(&["main"], 10, 0);
        let stock = Growth::between(&before, &holdings(&["main"], 14, 20 << 20));
        let shim = Growth::between(&before, &holdings(&["main"], 14, 27 << 20));
        assert_eq!(shim.leaks(Some(&stock), None), Vec::<String>::new());
        assert_eq!(shim.leaks(None, None).len(), 2);
    }

    #[test]
    fn a_kept_buffer_is_no_leak_but_more_than_it_is() {
        let before = holdings(&["main"], 10, 0);
        let kept = Growth::between(&before, &holdings(&["main"], 11, 100 << 20));
        assert_eq!(kept.leaks(None, Some(100 << 20)), Vec::<String>::new());
        assert_eq!(kept.leaks(None, Some(80 << 20)).len(), 1);
    }
}
