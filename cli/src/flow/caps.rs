//! `thread_cap` in the records of several processes that copy at once: written before, cleared after, whatever happened.

use super::share::{shares, Cpus};
use crate::process::target::Target;
use crate::record::{Control, Located};

/// Caps that were written. Dropping clears them.
#[derive(Debug, Default)]
pub struct Caps(Vec<(Located, u32)>);

impl Caps {
    /// Divides the CPUs among the processes. One alone gets no cap, and loses one that is there: it was left behind by a call
    /// that was killed, since nothing else writes this word. A record that is missing or cannot be written only leaves its
    /// process as it was.
    pub fn write(processes: &[(Target, Option<&Located>)]) -> Self {
        if let [(_, Some(record))] = processes {
            clear(record);
        }
        if processes.len() < 2 {
            return Caps::default();
        }
        let looked: Vec<(Cpus, Option<&Located>)> = processes
            .iter()
            .filter_map(|(target, record)| Some((Cpus::of(*target).ok()?, *record)))
            .collect();
        let cpus: Vec<Cpus> = looked.iter().map(|(cpus, _)| cpus.clone()).collect();
        let written = shares(&cpus)
            .into_iter()
            .zip(&looked)
            .filter_map(|(share, (_, record))| {
                let record = (*record)?;
                record.write(Control::ThreadCap(share)).ok()?;
                Some((record.clone(), share))
            });
        Caps(written.collect())
    }

    /// The caps, for showing.
    pub fn values(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(|(_, share)| *share)
    }
}

impl Drop for Caps {
    fn drop(&mut self) {
        self.0.iter().for_each(|(record, _)| clear(record));
    }
}

fn clear(record: &Located) {
    // A process that has ended needs none.
    if record.read().is_ok_and(|view| view.thread_cap != 0) {
        let _ = record.write(Control::ThreadCap(0));
    }
}
