//! Which processes a command is about: the numbers on its command line, resolved once, before anything is touched.

use std::fmt;

use crate::process::below::Below;
use crate::process::identity::{Identity, IdentityError};
use crate::process::tree;
use crate::values;

/// Processes, as given on the command line.
#[derive(Debug, Clone, clap::Args)]
pub struct Selection {
    /// Process ids
    #[arg(required = true, value_name = "PID", value_parser = values::pid())]
    pub pids: Vec<i32>,
    /// Every CUDA process below each PID, itself included (a container's first process stands for all of it)
    #[arg(long)]
    pub tree: bool,
    /// The PIDs are those that a container sees, not this machine's
    #[arg(long)]
    pub ns_pid: bool,
}

/// Why a number names no process to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectionError {
    /// The number is not that of a process that can be worked on.
    Identity(IdentityError),
    /// No process in a container has this id.
    NotInContainer(i32),
    /// Several containers have a process with this id; with all of them.
    Ambiguous(i32, Vec<Identity>),
    /// No process below this one uses CUDA; with the number of processes that were looked at, and of those that may not be.
    NoCudaBelow {
        /// The process whose tree was looked at.
        pid: i32,
        /// Processes in its tree.
        looked: usize,
        /// Those of them that may not be looked into.
        denied: usize,
    },
}

impl fmt::Display for SelectionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SelectionError::Identity(error) => write!(out, "{error}"),
            SelectionError::NotInContainer(pid) => write!(
                out,
                "no process in a container below this pid namespace has the id {pid}; without --ns-pid it is this namespace's own"
            ),
            SelectionError::Ambiguous(pid, found) => {
                write!(out, "{} processes have the id {pid} in their containers:", found.len())?;
                for identity in found {
                    write!(out, " {} ({})", identity.pid, identity.shown_name())?;
                }
                write!(out, "; give one of these ids, without --ns-pid")
            }
            SelectionError::NoCudaBelow { pid, looked, denied } => {
                write!(out, "no CUDA process among the {looked} in the tree of {pid}")?;
                if *denied > 0 {
                    write!(out, "; {denied} of them may not be looked into: run as root or as their user")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for SelectionError {}

impl From<IdentityError> for SelectionError {
    fn from(error: IdentityError) -> Self {
        SelectionError::Identity(error)
    }
}

impl Selection {
    /// One for each number, so that one that is wrong does not hide the others.
    pub fn of_each(pids: &[i32], tree: bool, ns_pid: bool) -> Vec<Self> {
        let one = |pid: &i32| Selection {
            pids: vec![*pid],
            tree,
            ns_pid,
        };
        pids.iter().map(one).collect()
    }

    /// The processes, each once, in the order given; in a tree parents before children.
    ///
    /// # Errors
    /// Everything that is wrong with the numbers, not only the first.
    pub fn resolve(&self) -> Result<Vec<Identity>, Vec<SelectionError>> {
        let processes = if self.tree || self.ns_pid {
            tree::all()
        } else {
            Vec::new()
        };
        let mut found: Vec<Identity> = Vec::new();
        let mut errors = Vec::new();
        for pid in &self.pids {
            match self.resolve_one(*pid, &processes) {
                Ok(some) => {
                    for identity in some {
                        if !found.contains(&identity) {
                            found.push(identity);
                        }
                    }
                }
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            Ok(found)
        } else {
            Err(errors)
        }
    }

    fn resolve_one(
        &self,
        pid: i32,
        processes: &[Identity],
    ) -> Result<Vec<Identity>, SelectionError> {
        let identity = if self.ns_pid {
            in_container(pid, processes)?
        } else {
            Identity::of(pid)?
        };
        if self.tree {
            cuda_below(&identity, processes)
        } else {
            Ok(vec![identity])
        }
    }
}

fn in_container(pid: i32, processes: &[Identity]) -> Result<Identity, SelectionError> {
    let mut found = tree::by_namespace_pid(pid, processes);
    match found.len() {
        0 => Err(SelectionError::NotInContainer(pid)),
        1 => Ok(found.remove(0)),
        _ => Err(SelectionError::Ambiguous(pid, found)),
    }
}

fn cuda_below(root: &Identity, processes: &[Identity]) -> Result<Vec<Identity>, SelectionError> {
    let Below {
        with_cuda,
        looked,
        denied,
    } = Below::of(root.pid, processes);
    if with_cuda.is_empty() {
        return Err(SelectionError::NoCudaBelow {
            pid: root.pid,
            looked,
            denied,
        });
    }
    Ok(with_cuda)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(pids: &[i32], tree: bool, ns_pid: bool) -> Selection {
        Selection {
            pids: pids.to_vec(),
            tree,
            ns_pid,
        }
    }

    #[test]
    fn a_process_given_twice_is_taken_once() {
        let own = std::process::id() as i32;
        let found = selection(&[own, own], false, false).resolve().unwrap();
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn every_wrong_number_is_told() {
        let errors = selection(&[i32::MAX, i32::MAX - 1], false, false)
            .resolve()
            .unwrap_err();
        assert_eq!(errors.len(), 2);
        let errors = selection(&[i32::MAX], false, true).resolve().unwrap_err();
        assert_eq!(errors, [SelectionError::NotInContainer(i32::MAX)]);
    }

    #[test]
    fn a_tree_without_cuda_is_told_as_such() {
        let own = std::process::id() as i32;
        let errors = selection(&[own], true, false).resolve().unwrap_err();
        assert!(
            errors[0]
                .to_string()
                .starts_with("no CUDA process among the"),
            "{errors:?}"
        );
    }

    #[test]
    fn an_ambiguous_container_pid_is_refused_with_the_candidates() {
        let process = |pid| Identity {
            pid,
            parent: 1,
            started: 1,
            uid: 0,
            name: "python3".into(),
            namespace_pids: vec![pid, 7],
        };
        let error = in_container(7, &[process(20), process(30)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "2 processes have the id 7 in their containers: 20 (python3) 30 (python3); give one of these ids, without --ns-pid"
        );
    }
}
