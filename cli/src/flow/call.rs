//! A call of a verb from its command line to its exit status. Nothing is touched before everything was looked at.

use std::io::Write;

use crossbeam_channel::Receiver;

use super::args::{Common, Request, StateArgs};
use super::change::Change;
use super::crew::Crew;
use super::finish::Finish;
use super::outcome::{Outcome, Row};
use super::report;
use super::targets::{crew, Stop, Targets};
use crate::driver::GpuPair;
use crate::exit::Exit;
use crate::gpus::{Asked, Depth};
use crate::signals;

/// Carries a verb out and tells about it.
pub fn perform(request: &Request<'_>) -> Exit {
    let mut call = Call::new(request.common);
    let stopped = call.change(request);
    call.end(&request.verb.to_string(), stopped, &report::lines)
}

/// Prints states.
pub fn state(args: &StateArgs) -> Exit {
    let mut call = Call::new(&args.common);
    let stopped = call.ask();
    let selection = &args.common.selection;
    let one = selection.pids.len() == 1 && !selection.tree;
    call.end("state", stopped, &|rows| report::states(rows, one))
}

struct Call<'a> {
    common: &'a Common,
    targets: Targets,
    signal: Option<i32>,
}

/// Processes whose states are read, with a thread for each.
pub struct Ready {
    /// The threads.
    pub crew: Crew,
    /// Position of the process of each thread.
    pub live: Vec<usize>,
}

impl<'a> Call<'a> {
    fn new(common: &'a Common) -> Self {
        Call {
            common,
            targets: Targets::default(),
            signal: None,
        }
    }

    fn ask(&mut self) -> Result<(), Stop> {
        let signals = listen()?;
        self.survey(&[], &signals)?;
        for row in &mut self.targets.rows {
            if row.outcome == Outcome::Untouched {
                row.outcome = Outcome::Done;
            }
        }
        Ok(())
    }

    fn change(&mut self, request: &Request<'_>) -> Result<(), Stop> {
        let signals = listen()?;
        // NVML answers while the driver is being loaded: each takes some 50 ms where a step takes 150.
        let looks = request.verb.copies() && !self.common.force;
        let asked = looks.then(|| Asked::now(Depth::Memory));
        let Some(ready) = self.survey(request.device_map, &signals)? else {
            return Ok(());
        };
        let Some(change) = Change::prepare(request, &mut self.targets, &ready, asked)? else {
            return Ok(());
        };
        self.signal = change.work(request, &mut self.targets, &ready, &signals);
        Ok(())
    }

    /// Selects the processes, looks at them, loads the driver and reads their states; `None`: nobody is left to work on.
    fn survey(&mut self, map: &[GpuPair], signals: &Receiver<i32>) -> Result<Option<Ready>, Stop> {
        self.targets.select(self.common)?;
        self.targets.look(self.common.force)?;
        let live = self.targets.live();
        if live.is_empty() {
            return Ok(None);
        }
        let crew = crew(&self.targets, &live, map, signals)?;
        let patience = self.common.patience;
        self.targets.survey(&live, &crew, patience, signals)?;
        Ok(Some(Ready { crew, live }))
    }

    fn end(
        self,
        command: &str,
        stopped: Result<(), Stop>,
        lines: &dyn Fn(&[Row]) -> Vec<String>,
    ) -> Exit {
        let finish = Finish::new(command, self.common, &self.targets, stopped, self.signal);
        leave(finish.tell(lines))
    }
}

fn listen() -> Result<Receiver<i32>, Stop> {
    signals::listen(&signals::ENDING)
        .map_err(|error| Stop::Failed(vec![format!("signals cannot be caught: {error}")]))
}

/// Ends the process at once, without what libraries do at a normal end: that of a driver in trouble could wait for ever, and
/// that of a sound one takes 10 to 15 ms (H200, 580.159.04) in which the caller waits for nothing.
pub(crate) fn leave(exit: Exit) -> ! {
    let _ = std::io::stdout().flush();
    // SAFETY: takes a number only, and does not come back.
    unsafe { libc::_exit(i32::from(exit.status())) }
}
