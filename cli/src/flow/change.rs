//! The plans of a call, the last looks before the first step, and the work.

use crossbeam_channel::Receiver;

use super::args::Request;
use super::call::Ready;
use super::caps::Caps;
use super::crew::Crew;
use super::engine::{self, Rules};
use super::failure::{Cause, Failure, ILLEGAL_STATE};
use super::looks::{self, Need};
use super::member::Member;
use super::outcome::Outcome;
use super::plan::{leads_away, plan, Plan, Step, Verb};
use super::progress::Watcher;
use super::report;
use super::shim::Shim;
use super::targets::{Stop, Targets};
use crate::driver::State;
use crate::gpus::Asked;

/// A process that a thread stands for: what is to be done with it, and the library's record in it.
struct Planned {
    at: usize,
    pid: i32,
    /// Empty for one that is not worked on, and is marked with the reason.
    steps: Vec<Step>,
    record: Shim,
}

/// What is to be done, after every look.
pub struct Change(Vec<Planned>);

impl Change {
    /// Plans, and looks at the room, if NVML was asked. `None`: there is nothing to do, or something is wrong already.
    ///
    /// # Errors
    /// [`Stop::Refused`]
    pub fn prepare(
        request: &Request<'_>,
        targets: &mut Targets,
        ready: &Ready,
        asked: Option<Asked>,
    ) -> Result<Option<Self>, Stop> {
        let mut all = Vec::new();
        for at in &ready.live {
            let steps = steps_of(request, targets, *at, &ready.crew);
            all.push((*at, steps));
        }
        refuse_what_has_no_meaning(request, &all)?;
        let idle = all.iter().all(|(_, steps)| steps.is_empty());
        // What is on its way home is not held up by another one's trouble.
        let away = all.iter().any(|(_, steps)| leads_away(steps));
        let held_up = away && targets.has_failed() && !request.keep_going;
        if idle || held_up {
            targets.held_up = (held_up && !idle)
                .then_some("nothing was done to the others: --keep-going would leave out those that cannot be worked on");
            return Ok(None);
        }
        let planned = all.into_iter().map(|(at, steps)| {
            let identity = targets.identity(at);
            Planned {
                at,
                pid: identity.pid,
                steps,
                record: Shim::find(identity.target()),
            }
        });
        let change = Change(planned.collect());
        if let Some(asked) = asked {
            change.look_at_room(targets, asked)?;
        }
        Ok(Some(change))
    }

    fn with(&self, step: Step) -> impl Iterator<Item = &Planned> {
        let planned = self.0.iter();
        planned.filter(move |planned| planned.steps.contains(&step))
    }

    fn look_at_room(&self, targets: &mut Targets, asked: Asked) -> Result<(), Stop> {
        let (away, back) = (self.with(Step::Checkpoint), self.with(Step::Restore));
        if away.chain(back).next().is_none() {
            return Ok(());
        }
        let gpus = asked.answer();
        let known = gpus.as_ref().ok();
        let needs: Vec<Need> = self
            .with(Step::Checkpoint)
            .map(|planned| Need::of(planned.pid, known, planned.record.read().as_ref()))
            .collect();
        let buffers: Vec<(i32, Option<u64>)> = self
            .with(Step::Restore)
            .map(|planned| {
                let length = looks::buffer_length(planned.record.read().as_ref());
                (planned.pid, length)
            })
            .collect();
        let notes = looks::notes(&needs, &buffers, gpus.as_ref().err());
        targets.notes.extend(notes);
        let mut short = looks::short_of_room(&needs);
        short.extend(known.and_then(|gpus| looks::short_of_gpu(&buffers, gpus)));
        if short.is_empty() {
            Ok(())
        } else {
            Err(Stop::Refused(short))
        }
    }

    /// Does it. Returns the first signal that came.
    pub fn work(
        self,
        request: &Request<'_>,
        targets: &mut Targets,
        ready: &Ready,
        signals: &Receiver<i32>,
    ) -> Option<i32> {
        let caps = self.write_caps(targets);
        if request.common.verbose {
            report::complain(targets.new_notes());
        }
        let mut members: Vec<Member> = self
            .0
            .iter()
            .map(|planned| {
                let before = targets.rows[planned.at].state;
                let before = before.unwrap_or(State::Unknown(u32::MAX));
                Member::new(planned.pid, before, planned.steps.clone())
            })
            .collect();
        let shown = self.0.into_iter().map(|planned| {
            let name = targets.rows[planned.at].name.clone();
            (planned.pid, name, planned.record)
        });
        let mut watcher = Watcher::new(shown, request.common.verbose);
        let rules = Rules {
            keep_going: request.keep_going,
            lock_timeout: request.lock_timeout,
            patience: request.common.patience,
        };
        let signal = engine::run(&mut members, &ready.crew, rules, signals, &mut watcher);
        drop(caps);
        note(&members, watcher, targets, ready);
        // One that came between the last step and now has nothing to stop any more.
        signal.or(signals.try_recv().ok())
    }

    fn write_caps(&self, targets: &mut Targets) -> Caps {
        let copying = self.0.iter().filter_map(|planned| {
            let copies = planned.steps.iter().any(|step| step.copies());
            let target = targets.identity(planned.at).target();
            copies.then(|| (target, planned.record.located()))
        });
        let caps = Caps::write(&copying.collect::<Vec<_>>());
        let values: Vec<String> = caps.values().map(|cap| cap.to_string()).collect();
        if !values.is_empty() {
            let note = format!("threads per process: {}", values.join(", "));
            targets.notes.push(note);
        }
        caps
    }
}

/// Takes over what became of the processes.
fn note(members: &[Member], watcher: Watcher, targets: &mut Targets, ready: &Ready) {
    let parts = watcher.into_parts();
    for ((at, member), parts) in ready.live.iter().zip(members).zip(parts) {
        let row = &mut targets.rows[*at];
        if row.outcome == Outcome::Untouched {
            row.take(member, &parts);
        }
    }
}

/// The steps of a process; none for one that is not worked on, which is marked with the reason.
fn steps_of(request: &Request<'_>, targets: &mut Targets, at: usize, crew: &Crew) -> Vec<Step> {
    let row = &mut targets.rows[at];
    let (Some(state), Outcome::Untouched) = (row.state, row.outcome) else {
        return Vec::new();
    };
    match plan(request.verb, state) {
        Plan::Steps(steps) => return steps,
        Plan::Already if request.already_ok => row.outcome = Outcome::Already,
        Plan::Already | Plan::Impossible => {
            let cause = Cause::WrongState {
                verb: request.verb,
                state,
                words: crew.words(ILLEGAL_STATE),
            };
            targets.fail(at, Failure { step: None, cause });
        }
    }
    Vec::new()
}

fn refuse_what_has_no_meaning(
    request: &Request<'_>,
    plans: &[(usize, Vec<Step>)],
) -> Result<(), Stop> {
    if request.verb != Verb::Toggle {
        return Ok(());
    }
    let starts_with = |step: Step| {
        let mut plans = plans.iter();
        plans.any(|(_, steps)| steps.first() == Some(&step))
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
