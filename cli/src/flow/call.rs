//! A call of a verb from its command line to its exit status. Nothing is touched before everything was looked at.

use crossbeam_channel::Receiver;

use super::args::{Common, Request, StateArgs};
use super::caps::Caps;
use super::crew::Crew;
use super::engine::{self, Rules};
use super::failure::{Cause, Failure, ILLEGAL_STATE};
use super::looks::{self, Need};
use super::member::Member;
use super::outcome::{self, Outcome, Row};
use super::plan::{plan, Plan, Step, Verb};
use super::progress::Watcher;
use super::report::{self, Report};
use super::shim::Shim;
use super::signals;
use super::targets::{crew, Stop, Targets};
use crate::driver::State;
use crate::exit::Exit;
use crate::gpus::Gpus;

/// Carries a verb out and tells about it.
pub fn perform(request: &Request<'_>) -> Exit {
    let mut ending = Ending::default();
    let mut targets = Targets::default();
    let stopped = changed(request, &mut targets, &mut ending);
    let exit = ending.tell(&request.verb.to_string(), request.common, &targets, stopped);
    ending.leave(exit)
}

/// Prints states.
pub fn state(args: &StateArgs) -> Exit {
    let mut ending = Ending {
        is_question: true,
        ..Ending::default()
    };
    let mut targets = Targets::default();
    let stopped = asked(&args.common, &mut targets, &mut ending);
    let exit = ending.tell("state", &args.common, &targets, stopped);
    ending.leave(exit)
}

/// How a call ends.
#[derive(Debug, Default)]
struct Ending {
    signal: Option<i32>,
    /// A call of the driver is still out, and will never come back perhaps.
    hangs: bool,
    is_question: bool,
}

fn listen() -> Result<Receiver<i32>, Stop> {
    signals::listen()
        .map_err(|error| Stop::Failed(vec![format!("signals cannot be caught: {error}")]))
}

fn asked(common: &Common, targets: &mut Targets, ending: &mut Ending) -> Result<(), Stop> {
    let signals = listen()?;
    *targets = Targets::select(common)?;
    targets.look(common.force)?;
    survey(common, &[], targets, &signals, ending)?;
    for row in &mut targets.rows {
        if row.outcome == Outcome::Untouched {
            row.outcome = Outcome::Done;
        }
    }
    Ok(())
}

/// Loads the driver and reads the states; `None`: nobody is left to work on.
fn survey(
    common: &Common,
    map: &[crate::driver::GpuPair],
    targets: &mut Targets,
    signals: &Receiver<i32>,
    ending: &mut Ending,
) -> Result<Option<(Crew, Vec<usize>)>, Stop> {
    let live = targets.live();
    if live.is_empty() {
        return Ok(None);
    }
    // Until every state has come, a call may hang.
    ending.hangs = true;
    let crew = crew(targets, &live, map, signals)?;
    targets.survey(&live, &crew, common.patience, signals)?;
    ending.hangs = targets.rows.iter().any(Row::has_hung);
    Ok(Some((crew, live)))
}

fn changed(request: &Request<'_>, targets: &mut Targets, ending: &mut Ending) -> Result<(), Stop> {
    let common = request.common;
    let signals = listen()?;
    *targets = Targets::select(common)?;
    targets.look(common.force)?;
    let Some((crew, live)) = survey(common, request.device_map, targets, &signals, ending)? else {
        return Ok(());
    };
    let plans = plans(request, targets, &live, &crew)?;
    if plans.iter().all(Option::is_none) || (targets.has_failed() && !request.keep_going) {
        return Ok(());
    }
    let records = live
        .iter()
        .map(|at| Shim::find(targets.identity(*at).target()));
    let records: Vec<Shim> = records.collect();
    look_at_room(request, targets, &live, &plans, &records)?;
    work(
        request, targets, &live, plans, records, &crew, &signals, ending,
    );
    Ok(())
}

/// The steps of each process; `None` for one that is not worked on, and is marked with the reason.
fn plans(
    request: &Request<'_>,
    targets: &mut Targets,
    live: &[usize],
    crew: &Crew,
) -> Result<Vec<Option<Vec<Step>>>, Stop> {
    let mut plans = Vec::new();
    for at in live {
        let steps = match targets.rows[*at].state {
            Some(state) if targets.rows[*at].outcome == Outcome::Untouched => {
                steps_of(request, targets, *at, state, crew)
            }
            _ => None,
        };
        plans.push(steps);
    }
    refuse_what_has_no_meaning(request, &plans)?;
    Ok(plans)
}

fn steps_of(
    request: &Request<'_>,
    targets: &mut Targets,
    at: usize,
    state: State,
    crew: &Crew,
) -> Option<Vec<Step>> {
    match plan(request.verb, state) {
        Plan::Steps(steps) => return Some(steps),
        Plan::Already if request.already_ok => targets.rows[at].outcome = Outcome::Already,
        Plan::Already | Plan::Impossible => {
            let cause = Cause::WrongState {
                verb: request.verb,
                state,
                words: crew.words(ILLEGAL_STATE),
            };
            targets.fail(at, Failure { step: None, cause });
        }
    }
    None
}

fn refuse_what_has_no_meaning(
    request: &Request<'_>,
    plans: &[Option<Vec<Step>>],
) -> Result<(), Stop> {
    if request.verb != Verb::Toggle {
        return Ok(());
    }
    let starts_with = |step: Step| {
        let mut steps = plans.iter().flatten();
        steps.any(|steps| steps.first() == Some(&step))
    };
    let (some_run, some_are_away) = (starts_with(Step::Lock), starts_with(Step::Restore));
    if some_run && some_are_away && !request.keep_going {
        return Err(Stop::Refused(vec![
            "some of the processes run and some are checkpointed: \"all or nothing\" has no meaning for a toggle of both. Use \
             checkpoint or restore with --already-ok, or toggle with --keep-going"
                .into(),
        ]));
    }
    if some_run && !request.device_map.is_empty() {
        return Err(Stop::Refused(vec![
            "a process runs, and --device-map goes with the toggle that restores it".into(),
        ]));
    }
    Ok(())
}

fn look_at_room(
    request: &Request<'_>,
    targets: &mut Targets,
    live: &[usize],
    plans: &[Option<Vec<Step>>],
    records: &[Shim],
) -> Result<(), Stop> {
    let with = |step: Step| {
        let planned = plans.iter().zip(live).zip(records);
        let these = planned.filter(move |((steps, _), _)| {
            steps.as_ref().is_some_and(|steps| steps.contains(&step))
        });
        these.map(|((_, at), record)| (targets.identity(*at).pid, record))
    };
    if request.common.force
        || with(Step::Checkpoint)
            .chain(with(Step::Restore))
            .next()
            .is_none()
    {
        return Ok(());
    }
    let gpus = Gpus::look();
    let needs: Vec<Need> = with(Step::Checkpoint)
        .map(|(pid, record)| Need::of(pid, gpus.as_ref().ok(), record.read().as_ref()))
        .collect();
    let buffers: Vec<(i32, Option<u64>)> = with(Step::Restore)
        .map(|(pid, record)| (pid, looks::buffer_length(record.read().as_ref())))
        .collect();
    let mut short = looks::short_of_room(&needs);
    short.extend(
        gpus.as_ref()
            .ok()
            .and_then(|gpus| looks::short_of_gpu(&buffers, gpus)),
    );
    targets
        .notes
        .extend(looks::notes(&needs, &buffers, gpus.as_ref().err()));
    if short.is_empty() {
        Ok(())
    } else {
        Err(Stop::Refused(short))
    }
}

#[allow(
    clippy::too_many_arguments,
    reason = "the parts of one call, each used once"
)]
fn work(
    request: &Request<'_>,
    targets: &mut Targets,
    live: &[usize],
    plans: Vec<Option<Vec<Step>>>,
    records: Vec<Shim>,
    crew: &Crew,
    signals: &Receiver<i32>,
    ending: &mut Ending,
) {
    let mut members: Vec<Member> = live
        .iter()
        .zip(plans)
        .map(|(at, steps)| {
            let row = &targets.rows[*at];
            let before = row.state.unwrap_or(State::Unknown(u32::MAX));
            Member::new(row.pid, before, steps.unwrap_or_default())
        })
        .collect();
    let shown = live.iter().zip(records).map(|(at, record)| {
        let row = &targets.rows[*at];
        (row.pid, row.name.clone(), record)
    });
    let mut watcher = Watcher::new(shown, request.common.verbose);
    if request.common.verbose {
        report::complain(&std::mem::take(&mut targets.notes));
    }
    let caps = write_caps(&members, targets, live, &watcher, request.common.verbose);
    let rules = Rules {
        keep_going: request.keep_going,
        lock_timeout: request.lock_timeout,
        patience: request.common.patience,
    };
    ending.signal = engine::run(&mut members, crew, rules, signals, &mut watcher);
    drop(caps);
    // One that came between the last step and now has nothing to stop any more.
    ending.signal = ending.signal.or(signals.try_recv().ok());
    ending.hangs |= members.iter().any(|member| member.hung);
    for ((at, member), parts) in live.iter().zip(&members).zip(watcher.into_parts()) {
        let row = &mut targets.rows[*at];
        if row.outcome == Outcome::Untouched {
            row.take(member, &parts);
        }
    }
}

fn write_caps(
    members: &[Member],
    targets: &Targets,
    live: &[usize],
    watcher: &Watcher,
    verbose: bool,
) -> Caps {
    let copying = members.iter().enumerate().filter_map(|(who, member)| {
        let copies = member.todo.iter().any(|step| step.copies());
        let target = targets.identity(live[who]).target();
        copies.then(|| (target, watcher.shim(who).located()))
    });
    let caps = Caps::write(&copying.collect::<Vec<_>>());
    if verbose {
        let values: Vec<String> = caps.values().map(|cap| cap.to_string()).collect();
        if !values.is_empty() {
            report::complain(&[format!("threads per process: {}", values.join(", "))]);
        }
    }
    caps
}

impl Ending {
    /// Tells what became of the call.
    fn tell(
        &mut self,
        command: &str,
        common: &Common,
        targets: &Targets,
        stopped: Result<(), Stop>,
    ) -> Exit {
        let (exit, mut errors) = match stopped {
            Ok(()) => (None, Vec::new()),
            Err(Stop::Refused(errors)) => (Some(Exit::Refused), errors),
            Err(Stop::Failed(errors)) => (Some(Exit::Failed), errors),
            Err(Stop::Signal(signal)) => {
                self.signal = Some(signal);
                (None, vec![format!("signal {signal}: nothing was done")])
            }
        };
        errors.extend(targets.unnamed.iter().cloned());
        let exit = exit
            .unwrap_or_else(|| outcome::exit(&targets.rows, targets.unnamed.len(), self.signal));
        if targets.rows.is_empty() || common.verbose {
            report::complain(&targets.notes);
        }
        report::complain(&errors);
        report::complain(&report::remarks(&targets.rows, self.signal));
        let written = if common.json {
            let report = Report {
                schema: 1,
                command: command.into(),
                status: exit.status(),
                signal: self.signal,
                errors: &errors,
                processes: &targets.rows,
            };
            report.print()
        } else if self.is_question {
            let one = common.selection.pids.len() == 1 && !common.selection.tree;
            report::print_lines(&report::states(&targets.rows, one))
        } else {
            report::print_lines(&report::lines(&targets.rows))
        };
        report::after_writing(written, exit)
    }

    /// Ends at once when a call of the driver hangs: the library's own clean-up at a normal end could wait for it.
    fn leave(&self, exit: Exit) -> Exit {
        if self.hangs {
            // SAFETY: takes a number only, and does not come back; all output was flushed.
            unsafe { libc::_exit(i32::from(exit.status())) }
        }
        exit
    }
}
