//! The end of a call: exit status, result, and what else is to be said.

use super::args::Common;
use super::outcome;
use super::outcome::Row;
use super::report::{self, Report};
use super::targets::{Stop, Targets};
use crate::exit::Exit;

/// A call that has ended.
#[derive(Debug)]
pub struct Finish<'a> {
    command: &'a str,
    common: &'a Common,
    targets: &'a Targets,
    errors: Vec<String>,
    signal: Option<i32>,
    exit: Exit,
}

impl<'a> Finish<'a> {
    /// From what became of the processes, or of the call before it came to them.
    pub fn new(
        command: &'a str,
        common: &'a Common,
        targets: &'a Targets,
        stopped: Result<(), Stop>,
        signal: Option<i32>,
    ) -> Self {
        let (exit, mut errors, signal) = match stopped {
            Ok(()) => (None, Vec::new(), signal),
            Err(Stop::Refused(errors)) => (Some(Exit::Refused), errors, signal),
            Err(Stop::Failed(errors)) => (Some(Exit::Failed), errors, signal),
            Err(Stop::Signal(number)) => {
                let nothing = format!("signal {number}: nothing was done");
                (None, vec![nothing], Some(number))
            }
        };
        errors.extend(targets.unnamed.iter().cloned());
        let counted = || outcome::exit(&targets.rows, targets.unnamed.len(), signal);
        Finish {
            command,
            common,
            targets,
            errors,
            signal,
            exit: exit.unwrap_or_else(counted),
        }
    }

    /// Tells everything; returns the exit status.
    pub fn tell(&self, lines: &dyn Fn(&[Row]) -> Vec<String>) -> Exit {
        let rows = &self.targets.rows;
        report::complain(if self.common.verbose {
            self.targets.untold()
        } else {
            &self.targets.without_cuda
        });
        report::complain(&self.errors);
        report::complain(&report::remarks(rows, self.signal));
        report::complain(self.targets.held_up.map(str::to_owned).as_slice());
        let written = if self.common.json {
            self.report().print()
        } else {
            report::print_lines(&lines(rows))
        };
        report::after_writing(written, self.exit)
    }

    fn report(&self) -> Report<'_> {
        Report {
            schema: 1,
            command: self.command,
            status: self.exit.status(),
            signal: self.signal,
            errors: &self.errors,
            notes: &self.targets.notes,
            processes: &self.targets.rows,
        }
    }
}
