//! What the record must show after each step of a cycle. Pure: plan and records in, complaints out.
//!
//! - [`request`]: what becomes of a driver's request for a buffer, and of the buffer when it is given back.
//! - [`phase`]: what the phase of a checkpoint or a restore must look like.
//! - [`ledger`]: which steps down must have been counted.

pub mod ledger;
pub mod phase;
pub mod request;

use super::hosts::HostPlan;
use super::plan::CyclePlan;

/// What is wrong, in words.
pub type Problems = Vec<String>;

/// What a cycle meets.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    /// The host.
    pub host: &'a HostPlan,
    /// The cycle.
    pub plan: &'a CyclePlan,
    /// CPUs that checkpoint and restore may use.
    pub cpus: [u32; 2],
    /// Whether the kernel grants huge pages to who asks for them; `None` when somebody changed that meanwhile.
    pub huge_pages: Option<bool>,
}

fn expect_equal<T: PartialEq + std::fmt::Debug>(
    problems: &mut Problems,
    what: &str,
    found: T,
    expected: T,
) {
    if found != expected {
        problems.push(format!("{what}: {found:?}, should be {expected:?}"));
    }
}

#[cfg(test)]
mod tests {
    use cudasnap_cli::record::view::RecordView;
    use cudasnap_wire::Record;

    /// A record with some words of its own, as a tool sees it.
    pub fn view(change: impl Fn(&Record)) -> RecordView {
        let record = Record::new(0);
        change(&record);
        RecordView::new(&record)
    }
}
