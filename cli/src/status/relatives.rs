//! Processes above and below: where the library is handed down by the environment, and where it was dropped.

use std::collections::HashMap;

use crate::process::cuda::CudaUse;
use crate::process::identity::Identity;
use crate::process::target::Target;
use crate::process::tree;
use crate::record::{Located, RecordError};

use super::facts::Relative;

/// How far up the library is looked for above a process that lacks it.
const GENERATIONS: usize = 32;

/// The nearest process from this one upwards that has the library. `known` remembers who has it, for the next call.
pub fn library_above(mut pid: i32, known: &mut HashMap<i32, bool>) -> Option<Relative> {
    for _ in 0..GENERATIONS {
        if pid <= 0 {
            return None;
        }
        let has = *known
            .entry(pid)
            .or_insert_with(|| Located::find(Target::new(pid)).is_ok());
        let identity = Identity::of(pid).ok()?;
        if has {
            return Some(Relative {
                pid,
                name: identity.name,
                library: Some(true),
            });
        }
        pid = identity.parent;
    }
    None
}

/// The processes below that have initialised CUDA.
pub fn cuda_below(pid: i32, everybody: &[Identity]) -> Vec<Relative> {
    let below = tree::below(pid, everybody);
    let others = below.into_iter().filter(|identity| identity.pid != pid);
    others
        .filter_map(|identity| {
            let target = identity.target();
            let mappings = target.mappings().ok()?;
            let used = CudaUse::with(target, &mappings).ok()?;
            matches!(used, CudaUse::Initialised { .. }).then(|| Relative {
                pid: identity.pid,
                name: identity.name,
                library: match Located::find_in(target, &mappings) {
                    Ok(_) => Some(true),
                    Err(RecordError::NotLoaded) => Some(false),
                    Err(_) => None,
                },
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_looked_for_upwards_and_the_search_ends() {
        let mut known = HashMap::from([(std::process::id() as i32, false), (1, true)]);
        let parent = Identity::of(std::process::id() as i32).unwrap().parent;
        known.insert(parent, true);
        let found = library_above(std::process::id() as i32, &mut known).unwrap();
        assert_eq!((found.pid, found.library), (parent, Some(true)));
        assert_eq!(library_above(0, &mut known), None);
        assert_eq!(library_above(i32::MAX, &mut known), None);
    }
}
