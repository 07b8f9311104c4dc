//! A call of a verb from its command line to its exit status. Nothing is touched before everything was looked at.

use crossbeam_channel::Receiver;

use super::args::{Common, Request, StateArgs};
use super::change::Change;
use super::crew::Crew;
use super::finish::Finish;
use super::outcome::{Outcome, Row};
use super::report;
use super::signals;
use super::targets::{crew, Stop, Targets};
use crate::driver::GpuPair;
use crate::exit::Exit;
use crate::gpus::Asked;

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
    /// A call of the driver is still out, and will never come back perhaps.
    hangs: bool,
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
            hangs: false,
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
        let asked = looks.then(Asked::now);
        let Some(ready) = self.survey(request.device_map, &signals)? else {
            return Ok(());
        };
        let Some(change) = Change::prepare(request, &mut self.targets, &ready, asked)? else {
            return Ok(());
        };
        let ended = change.work(request, &mut self.targets, &ready, &signals);
        self.signal = ended.signal;
        self.hangs |= ended.hangs;
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
        // Until the driver is loaded and every state has come, a call may hang.
        self.hangs = true;
        let crew = crew(&self.targets, &live, map, signals)?;
        let patience = self.common.patience;
        self.targets.survey(&live, &crew, patience, signals)?;
        self.hangs = self.targets.rows.iter().any(Row::has_hung);
        Ok(Some(Ready { crew, live }))
    }

    fn end(
        self,
        command: &str,
        stopped: Result<(), Stop>,
        lines: &dyn Fn(&[Row]) -> Vec<String>,
    ) -> Exit {
        let finish = Finish::new(command, self.common, &self.targets, stopped, self.signal);
        let exit = finish.tell(lines);
        if self.hangs || exit != Exit::Done {
            leave(exit)
        }
        exit
    }
}

fn listen() -> Result<Receiver<i32>, Stop> {
    signals::listen()
        .map_err(|error| Stop::Failed(vec![format!("signals cannot be caught: {error}")]))
}

/// Ends the process at once: what the libraries of a driver in trouble do at a normal end could wait for ever.
fn leave(exit: Exit) -> ! {
    // SAFETY: takes a number only, and does not come back; all output was flushed.
    unsafe { libc::_exit(i32::from(exit.status())) }
}
