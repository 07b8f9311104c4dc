//! `thread_cap` in the records of several processes that copy at once: written before, cleared after, whatever happened.

use super::share::{shares, Cpus};
use crate::process::target::Target;
use crate::record::{Control, Located};

/// Caps that were written. Dropping clears them.
#[derive(Debug, Default)]
pub struct Caps(Vec<(Located, u32)>);

impl Caps {
    /// Divides the CPUs among the processes. Nothing is written for fewer than two, into a record whose cap somebody has set, or
    /// where there is no record; a record that cannot be written only leaves its process as eager as it was.
    pub fn write(processes: &[(Target, Option<&Located>)]) -> Self {
        let mut caps = Caps::default();
        if processes.len() < 2 {
            return caps;
        }
        let looked: Vec<(Cpus, Option<&Located>)> = processes
            .iter()
            .filter_map(|(target, record)| Some((Cpus::of(*target).ok()?, *record)))
            .collect();
        let cpus: Vec<Cpus> = looked.iter().map(|(cpus, _)| cpus.clone()).collect();
        for (share, (_, record)) in shares(&cpus).into_iter().zip(&looked) {
            let Some(record) = record else { continue };
            let free = record.read().is_ok_and(|view| view.thread_cap == 0);
            if free && record.write(Control::ThreadCap(share)).is_ok() {
                caps.0.push(((*record).clone(), share));
            }
        }
        caps
    }

    /// The caps, for showing.
    pub fn values(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(|(_, share)| *share)
    }
}

impl Drop for Caps {
    fn drop(&mut self) {
        for (record, share) in &self.0 {
            // Somebody may have set another one meanwhile; a process that has ended needs none.
            let ours = record.read().is_ok_and(|view| view.thread_cap == *share);
            if ours {
                let _ = record.write(Control::ThreadCap(0));
            }
        }
    }
}
