//! CUDA processes below another one. A launcher's id is what people have at hand, and it often uses no CUDA itself: then they are told
//! whom they may have meant.

use super::cuda::CudaUse;
use super::identity::Identity;
use super::target::MemoryError;
use super::tree;

/// Processes that a sentence names.
const NAMED: usize = 3;

/// What was found in the tree of a process, itself included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Below {
    /// Those that have initialised CUDA.
    pub with_cuda: Vec<Identity>,
    /// Processes in the tree.
    pub looked: usize,
    /// Those of them that may not be looked into.
    pub denied: usize,
}

impl Below {
    /// Looks into the tree of this process.
    pub fn of(pid: i32, processes: &[Identity]) -> Self {
        let mut found = Below::default();
        for identity in tree::below(pid, processes) {
            found.looked += 1;
            match CudaUse::of(identity.target()) {
                Ok(CudaUse::Initialised { .. }) => found.with_cuda.push(identity),
                Err(MemoryError::Denied) => found.denied += 1,
                // Without CUDA, or ended by now.
                Ok(CudaUse::None | CudaUse::Loaded) | Err(_) => {}
            }
        }
        found
    }
}

/// Of a process that was named and uses no CUDA: who below it does, as the end of a sentence. `None`: nobody.
pub fn hint(pid: i32) -> Option<String> {
    told(&Below::of(pid, &tree::all()).with_cuda)
}

fn told(with_cuda: &[Identity]) -> Option<String> {
    let named = with_cuda.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|identity| format!("{} ({})", identity.pid, identity.shown_name()))
        .collect();
    let named = named.join(", ");
    match with_cuda.len() {
        0 => None,
        1 => Some(format!("{named} below it does")),
        count if count <= NAMED => Some(format!("{named} below it do")),
        count => Some(format!("{named} and {} more below it do", count - NAMED)),
    }
}

/// The same as a sentence of its own, for commands that work on a process without CUDA too, to no effect. `None`: it uses CUDA itself,
/// or nobody below it does.
pub fn remark(identity: &Identity) -> Option<String> {
    if matches!(
        CudaUse::of(identity.target()),
        Ok(CudaUse::Initialised { .. }) | Err(_)
    ) {
        return None;
    }
    let hint = hint(identity.pid)?;
    let (pid, name) = (identity.pid, identity.shown_name());
    Some(format!("process {pid} ({name}) does not use CUDA; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes(count: i32) -> Vec<Identity> {
        let one = |pid| Identity {
            pid,
            parent: 1,
            started: 1,
            uid: 0,
            name: "python3".into(),
            namespace_pids: vec![pid],
        };
        (1..=count).map(one).collect()
    }

    #[test]
    fn those_below_are_named_but_not_all_of_many() {
        for (count, text) in [
            (0, None),
            (1, Some("1 (python3) below it does")),
            (2, Some("1 (python3), 2 (python3) below it do")),
            (
                5,
                Some("1 (python3), 2 (python3), 3 (python3) and 2 more below it do"),
            ),
        ] {
            assert_eq!(told(&processes(count)).as_deref(), text);
        }
    }

    #[test]
    fn a_process_alone_has_nobody_below() {
        let own = Identity::of(std::process::id() as i32).unwrap();
        let found = Below::of(own.pid, std::slice::from_ref(&own));
        assert_eq!((found.looked, found.denied), (1, 0));
        assert_eq!(found.with_cuda, []);
    }
}
