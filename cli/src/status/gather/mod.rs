//! Looks at processes, all of them or those that were named: `look` looks at one. A process that ends meanwhile is left out, or is an error
//! where it was asked for.

mod look;

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use rayon::prelude::*;
use uzers::{Users, UsersCache};

use crate::gpus::Gpus;
use crate::process::below;
use crate::process::identity::Identity;
use crate::process::rights;
use crate::process::tree;
use crate::selection::{Selection, SelectionError};
use crate::workload;

use super::facts::{Library, Plain, Process, Round, SeenByNvml};
use super::library_file::Files;
use super::own_program;
use super::relatives::{cuda_below, library_above};

use look::{closed, look, Look};

/// More threads than this do not help: the kernel's work is short.
const THREADS: usize = 16;

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What the table shows.
    Overview,
    /// Everything, which makes the kernel walk the pages of buffers.
    Everything,
}

/// Every CUDA process that can be seen, but those that run this very program: they attach to the driver for other processes.
pub fn all(depth: Depth) -> Round {
    let files = Files::default();
    let looked = side_by_side(|| {
        rayon::join(Gpus::look, || {
            let pids = numbers();
            pids.par_iter()
                .map(|pid| look(*pid, depth, &files))
                .collect::<Vec<Look>>()
        })
    });
    let (nvml, looks) = looked;
    let mut round = round(nvml, false);
    let own = own_program::Program::of("self");
    for found in looks {
        match found {
            Look::Cuda(process) if is_a_caller(own, &process.identity) => {}
            Look::Cuda(process) => round.processes.push(*process),
            Look::Denied(identity) => round.take_denied(identity),
            Look::NoCuda | Look::Gone(_) => {}
        }
    }
    complete(round)
}

/// Whether the process runs this very program, and holds nothing on a GPU for itself.
fn is_a_caller(own: Option<own_program::Program>, identity: &Identity) -> bool {
    identity.name != workload::NAME && own_program::runs(own, identity.pid)
}

/// The processes that were named.
pub fn these(selections: &[Selection], depth: Depth) -> Round {
    let files = Files::default();
    let mut round = round(Gpus::look(), true);
    for selection in selections {
        match selection.resolve() {
            Ok(found) => {
                for identity in found {
                    take_named(&mut round, identity, depth, &files);
                }
            }
            Err(errors) => round.errors.extend(errors),
        }
    }
    let everybody = tree::all();
    for process in &mut round.processes {
        process.cuda_below = cuda_below(process.identity.pid, &everybody);
    }
    complete(round)
}

fn take_named(round: &mut Round, identity: Identity, depth: Depth, files: &Files) {
    let known = |process: &Process| process.identity == identity;
    let is_plain = |plain: &Plain| plain.identity == identity;
    if round.processes.iter().any(known) || round.without_cuda.iter().any(is_plain) {
        return;
    }
    match look(identity.pid, depth, files) {
        Look::Cuda(process) => round.processes.push(*process),
        Look::Denied(identity) => {
            let missing = rights::missing(identity.pid).to_string();
            round.processes.push(closed(identity, Some(missing)));
        }
        Look::NoCuda => round.without_cuda.push(Plain {
            below: below::hint(identity.pid),
            identity,
        }),
        Look::Gone(error) => round.errors.push(SelectionError::Identity(error)),
    }
}

impl Round {
    /// A process that may not be looked into is worth a line when NVML says that it uses CUDA.
    fn take_denied(&mut self, identity: Identity) {
        let listed = |gpus: &Gpus| gpus.contexts_of(identity.pid).next().is_some();
        if self.nvml.as_ref().is_ok_and(listed) {
            let missing = rights::missing(identity.pid).to_string();
            self.processes.push(closed(identity, Some(missing)));
        } else {
            self.unreadable.push(identity.pid);
        }
    }
}

fn side_by_side<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(cpus.clamp(2, THREADS));
    match pool.build() {
        Ok(pool) => pool.install(work),
        // No more threads to be had: the global pool, or this thread alone.
        Err(_) => work(),
    }
}

fn round(nvml: Result<Gpus, String>, named: bool) -> Round {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Round {
        unix_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
        nvml,
        processes: Vec::new(),
        without_cuda: Vec::new(),
        errors: Vec::new(),
        unreadable: Vec::new(),
        privileged: rights::has_ptrace_capability(),
        named,
    }
}

/// Adds what is known only when all have been looked at.
fn complete(mut round: Round) -> Round {
    let users = UsersCache::new();
    let mut libraries = HashMap::new();
    for process in &round.processes {
        libraries.insert(process.identity.pid, process.library.record().is_some());
    }
    for process in &mut round.processes {
        process.user = name_of(&users, process.identity.uid);
        let gpus = round.nvml.as_ref().ok();
        process.nvml = gpus.map(|gpus| SeenByNvml::of(process.identity.pid, gpus));
        if matches!(process.library, Library::Absent) {
            process.library_above = library_above(process.identity.parent, &mut libraries);
        }
    }
    round.processes.sort_by_key(|process| process.identity.pid);
    round.unreadable.sort_unstable();
    round
}

fn name_of(users: &UsersCache, uid: u32) -> String {
    let user = users.get_user_by_uid(uid);
    user.map_or_else(
        || uid.to_string(),
        |user| user.name().to_string_lossy().into_owned(),
    )
}

/// Ids of all processes but this one.
fn numbers() -> Vec<i32> {
    let own = std::process::id() as i32;
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own)
        .collect()
}
