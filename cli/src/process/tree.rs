//! Which processes there are, which lie below which, and which one a container means by a number.

use std::collections::{BTreeMap, BTreeSet};

use super::identity::Identity;

/// All processes that can be seen, by id. One that ends while they are listed is left out.
pub fn all() -> Vec<Identity> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found: Vec<Identity> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Identity::of(pid).ok())
        .collect();
    found.sort_by_key(|identity| identity.pid);
    found
}

/// The process with this id and everything below it, parents before children.
pub fn below(pid: i32, processes: &[Identity]) -> Vec<Identity> {
    let mut children: BTreeMap<i32, Vec<&Identity>> = BTreeMap::new();
    for identity in processes {
        children.entry(identity.parent).or_default().push(identity);
    }
    let mut seen = BTreeSet::new();
    let mut found: Vec<Identity> = processes
        .iter()
        .filter(|identity| identity.pid == pid)
        .cloned()
        .collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|identity| identity.pid) {
        next += 1;
        // The listing is no snapshot: a reused id could close a circle.
        if seen.insert(parent) {
            found.extend(
                children
                    .get(&parent)
                    .into_iter()
                    .flatten()
                    .copied()
                    .cloned(),
            );
        }
    }
    found
}

/// The processes whose id in their own pid namespace is this one, and that are in a namespace below ours: what somebody in a
/// container means by the number.
pub fn by_namespace_pid(pid: i32, processes: &[Identity]) -> Vec<Identity> {
    let inner = processes
        .iter()
        .filter(|identity| identity.namespace_pids.len() > 1 && identity.own_pid() == pid);
    inner.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, namespace_pids: &[i32]) -> Identity {
        Identity {
            pid,
            parent,
            started: 1,
            uid: 0,
            name: String::new(),
            namespace_pids: namespace_pids.to_vec(),
        }
    }

    fn pids(found: &[Identity]) -> Vec<i32> {
        found.iter().map(|identity| identity.pid).collect()
    }

    #[test]
    fn a_tree_is_told_parents_first() {
        let processes = [
            process(1, 0, &[1]),
            process(5, 9, &[5]),
            process(7, 1, &[7]),
            process(9, 7, &[9]),
            process(11, 1, &[11]),
        ];
        assert_eq!(pids(&below(7, &processes)), [7, 9, 5]);
        assert!(below(2, &processes).is_empty());
    }

    #[test]
    fn a_circle_ends() {
        let processes = [process(3, 4, &[3]), process(4, 3, &[4])];
        assert_eq!(below(3, &processes).len(), 3);
    }

    #[test]
    fn a_containers_pid_names_all_that_could_be_meant() {
        let processes = [
            process(20, 1, &[20, 1]),
            process(30, 1, &[30, 1]),
            process(1, 0, &[1]),
            process(31, 30, &[31, 7]),
        ];
        assert_eq!(pids(&by_namespace_pid(1, &processes)), [20, 30]);
        assert_eq!(pids(&by_namespace_pid(7, &processes)), [31]);
        assert!(by_namespace_pid(31, &processes).is_empty());
    }

    #[test]
    fn this_process_is_listed_below_its_parent() {
        let own = Identity::of(std::process::id() as i32).unwrap();
        assert!(below(own.parent, &all()).contains(&own));
    }
}
