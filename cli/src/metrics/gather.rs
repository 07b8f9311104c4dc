//! Which processes, and their records. One that ends in between is counted and left out.

use rayon::prelude::*;

use crate::exit::Exit;
use crate::process::cuda::{is_libcuda, CudaUse};
use crate::process::identity::{Identity, IdentityError};
use crate::process::target::MemoryError;
use crate::process::tree;
use crate::record::view::RecordView;
use crate::record::{Located, RecordError};
use crate::refusal::{not_selected, refusal, Refusal};
use crate::selection::{Selection, SelectionError};

/// A process whose record was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its id.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Whether it holds a CUDA context's thread: it has called `cuInit`.
    pub initialised: bool,
    /// Its record.
    pub record: RecordView,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Harvest {
    /// By id.
    pub seen: Vec<Seen>,
    /// Processes that ended before they were read.
    pub ended: usize,
    /// Why others were not read.
    pub refusals: Vec<Refusal>,
}

enum Look {
    Seen(Box<Seen>),
    /// Without the library, or without libcuda.
    Other,
    Ended,
    Refused(Refusal),
}

impl Harvest {
    /// The processes that were named.
    pub fn of(selections: &[Selection]) -> Self {
        let mut harvest = Harvest::default();
        for selection in selections {
            match selection.resolve() {
                Ok(found) => found
                    .iter()
                    .for_each(|identity| harvest.take(named(identity))),
                Err(errors) => errors.iter().for_each(|error| harvest.take(unknown(error))),
            }
        }
        harvest.complete()
    }

    /// Every process with the library and libcuda.
    pub fn of_all() -> Self {
        let own = std::process::id() as i32;
        let mut processes = tree::all();
        processes.retain(|identity| identity.pid != own);
        let looks: Vec<Look> = processes.par_iter().map(any).collect();
        let mut harvest = Harvest::default();
        looks.into_iter().for_each(|look| harvest.take(look));
        harvest.complete()
    }

    fn take(&mut self, look: Look) {
        match look {
            Look::Seen(seen) => self.seen.push(*seen),
            Look::Other => {}
            Look::Ended => self.ended += 1,
            Look::Refused(refusal) => self.refusals.push(refusal),
        }
    }

    fn complete(mut self) -> Self {
        self.seen.sort_by_key(|seen| seen.pid);
        self.seen.dedup_by_key(|seen| seen.pid);
        self
    }
}

fn unknown(error: &SelectionError) -> Look {
    match error {
        SelectionError::Identity(
            IdentityError::NoSuchProcess(_) | IdentityError::Zombie(_) | IdentityError::Reused(_),
        ) => Look::Ended,
        error => Look::Refused(not_selected(error)),
    }
}

fn named(identity: &Identity) -> Look {
    let found = Located::find(identity.target()).and_then(|place| place.read());
    let initialised = matches!(
        CudaUse::of(identity.target()),
        Ok(CudaUse::Initialised { .. })
    );
    judged(identity, found, initialised)
}

/// Of those without libcuda, which are most, only the mappings are looked at. What may not be looked into is no trouble here: nobody
/// has asked for it.
fn any(identity: &Identity) -> Look {
    let Ok(mappings) = identity.target().mappings() else {
        return Look::Other;
    };
    if !mappings.iter().any(is_libcuda) {
        return Look::Other;
    }
    let found = Located::find_in(identity.target(), &mappings).and_then(|place| place.read());
    if found == Err(RecordError::NotLoaded) {
        return Look::Other;
    }
    let initialised = matches!(
        CudaUse::with(identity.target(), &mappings),
        Ok(CudaUse::Initialised { .. })
    );
    match judged(identity, found, initialised) {
        Look::Refused(refusal) if refusal.exit == Exit::Refused => Look::Other,
        look => look,
    }
}

fn judged(identity: &Identity, found: Result<RecordView, RecordError>, initialised: bool) -> Look {
    match found {
        // Read, and by now its id may be another's.
        _ if identity.check().is_err() => Look::Ended,
        Ok(record) => Look::Seen(Box::new(Seen {
            pid: identity.pid,
            name: identity.name.clone(),
            initialised,
            record,
        })),
        Err(RecordError::Memory(MemoryError::Gone)) => Look::Ended,
        Err(error) => Look::Refused(refusal(identity.pid, &error)),
    }
}
