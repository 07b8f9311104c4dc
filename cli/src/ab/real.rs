//! The real bench: cycles of a process through the driver, by the same crew and engine as the verbs.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use indicatif::{ProgressBar, ProgressStyle};

use super::args::{Order, Subject};
use super::bench::{Bench, Made, Trouble};
use super::data::{Cycle, Variant};
use super::limit::Link;
use super::place::Place;
use super::surroundings::Before;
use super::target::{self, Started};
use super::watch::Watch;
use super::work::{ended, left, way_back, why, Work};
use super::{variant, verify};
use crate::document::terminal::is_unicode;
use crate::driver::State;
use crate::flow::calls::Calls;
use crate::flow::engine::{self, Rules};
use crate::flow::member::Member;
use crate::flow::plan::Step;
use crate::output;
use crate::process::identity::is_stopped;
use crate::signals::Unsuspended;

/// How long the driver may take for what takes it no time.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses before a process that could not be brought back is tried again: what was in the way may go.
const AGAIN: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];

/// Done, under way and left, where the locale is not one of UTF-8.
const ASCII: &str = "#>-";

/// See the module.
pub struct Real<'a> {
    order: &'a Order<'a>,
    subject: &'a Subject,
    calls: Arc<dyn Calls>,
    signals: Receiver<i32>,
    signal: Option<i32>,
    origin: Instant,
    bar: ProgressBar,
    what: String,
    place: Option<Place>,
    started: Option<Started>,
    link: Option<Link>,
}

impl<'a> Real<'a> {
    /// For one subject; times are counted from `origin` on.
    pub fn new(
        order: &'a Order<'a>,
        subject: &'a Subject,
        calls: Arc<dyn Calls>,
        signals: Receiver<i32>,
        origin: Instant,
    ) -> Self {
        let bar = ProgressBar::no_length();
        let style = ProgressStyle::with_template("{prefix} {bar:20} {pos}/{len} {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(match is_unicode() {
            true => style,
            false => style.progress_chars(ASCII),
        });
        Real {
            order,
            subject,
            calls,
            signals,
            signal: None,
            origin,
            bar,
            what: String::new(),
            place: None,
            started: None,
            link: None,
        }
    }

    /// The GPU of the process, and the limit of its link; `None`: there was no process.
    pub fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Starts the program for a group: with the library under the first variant's mode, or without it.
    fn start(&mut self, name: &str, command: &[OsString], group: usize) -> Result<i32, Trouble> {
        let variant = &self.order.variants[self.order.groups[group][0]];
        let environment = variant::environment(variant);
        self.bar.set_message(format!("{name}: starting"));
        let signals = &self.signals;
        let for_workload = self.order.start.for_workload();
        let options = match self.subject.is_built_in() {
            true => &for_workload,
            false => self.order.start,
        };
        let started = if variant.mode == variant::STOCK {
            Started::start_stock(command, &environment, options, signals)
        } else {
            let mode = ("CUDASNAP".into(), OsString::from(&variant.mode));
            let environment: Vec<_> = std::iter::once(mode).chain(environment).collect();
            Started::start(command, &environment, options, signals)
        };
        let started = started.map_err(|error| match error {
            target::Error::Signal(number) => Trouble::signal(number),
            error => Trouble {
                text: format!("{name} was not started: {error}"),
                exit: error.exit(),
            },
        })?;
        let pid = started.pid();
        self.started = Some(started);
        Ok(pid)
    }

    /// In a thread of its own, so that a signal is heard at once; the measuring process ends with that thread, at the latest.
    fn measure_link(&self, pid: i32) -> Result<Link, Trouble> {
        let (send, measured) = crossbeam_channel::bounded(1);
        let wanted = self.order.limit;
        let thread = std::thread::Builder::new().name("limit".into());
        let started = thread.spawn(move || send.send(Link::of(pid, wanted)));
        started.map_err(|error| Trouble::failed(format!("no thread for the limit: {error}")))?;
        crossbeam_channel::select! {
            recv(measured) -> link => link.map_err(|_| Trouble::failed("the limit was not measured")),
            recv(self.signals) -> number => Err(number.map_or_else(|_| Trouble::failed("no signals"), Trouble::signal)),
        }
    }

    /// What the program itself said of its end, where it was started by us.
    fn with_last_words(&mut self, trouble: Trouble) -> Trouble {
        let ending = self.started.as_mut().and_then(Started::ending);
        match ending {
            Some(ending) => Trouble {
                text: format!("{}; {ending}", trouble.text),
                exit: trouble.exit,
            },
            None => trouble,
        }
    }

    /// Lets the engine make these steps.
    fn work(&mut self, steps: Vec<Step>, undo_on_signal: bool) -> Option<Work> {
        let place = self.place.as_mut()?;
        let mut members = [Member::new(place.pid(), place.state, steps)];
        let (forward, heard) = crossbeam_channel::unbounded();
        let mut watch = Watch {
            record: place.record.as_ref(),
            signals: &self.signals,
            forward,
            signal: &mut self.signal,
            bar: &self.bar,
            what: &self.what,
            before: None,
            step: None,
            is_away: !undo_on_signal,
            suspension_said: false,
            parts: Vec::new(),
        };
        let rules = Rules {
            keep_going: false,
            lock_timeout: self.order.lock_timeout,
            patience: PATIENCE,
        };
        engine::run(&mut members, &place.crew, rules, &heard, &mut watch);
        let (checkpoint, restore) = (watch.part(Step::Checkpoint), watch.part(Step::Restore));
        let [member] = members;
        place.state = member.now.unwrap_or(place.state);
        Some(Work {
            member,
            checkpoint,
            restore,
        })
    }

    fn replaced(&self) -> Option<Trouble> {
        self.place.as_ref().and_then(Place::replaced)
    }

    /// Brings the process back that a cycle left locked or checkpointed, if that is this cycle's doing.
    fn bring_back(&mut self, member: &Member) -> Option<Trouble> {
        let pid = member.pid;
        let mut last = member.clone();
        for pause in AGAIN {
            if let Some(why) = ended(&last) {
                return Some(Trouble::failed(format!("process {pid} {why}")));
            }
            if last.hung {
                break;
            }
            if last.now == Some(State::Running) {
                return None;
            }
            let steps = way_back(&last)?;
            self.bar.suspend(|| {
                output::complain(format_args!(
                    "process {pid} is not back yet: {}; tried again in {} s",
                    why(&last),
                    pause.as_secs()
                ));
            });
            std::thread::sleep(pause);
            let work = self.work(steps, false)?;
            last = Member {
                ours: member.ours,
                ..work.member
            };
        }
        if last.now == Some(State::Running) {
            return None;
        }
        Some(Trouble::failed(left(
            &last,
            is_stopped(pid),
            self.started.is_some(),
        )))
    }
}

impl Bench for Real<'_> {
    fn arrive(&mut self, group: usize) -> Result<(), Trouble> {
        let pid = match self.subject {
            Subject::Process(pid) => *pid,
            Subject::Program { name, command, .. } => self.start(name, command, group)?,
        };
        self.bar.set_prefix(format!("{pid:>7}"));
        let place = Place::enter(pid, self.order, group, &self.calls, &self.signals)?;
        self.place = Some(place);
        if self.link.is_none() {
            if self.order.limit {
                self.bar.set_message("pinned copies, for the limit");
            }
            self.link = Some(self.measure_link(pid)?);
        }
        Ok(())
    }

    fn cycle(&mut self, variant: &Variant) -> Made {
        let mut cycle = Cycle {
            at: self.origin.elapsed().as_secs_f64(),
            ..Cycle::default()
        };
        let Some(place) = &mut self.place else {
            return failed(cycle, Trouble::failed("there is no process"));
        };
        cycle.pid = place.pid();
        // The time in which this process is suspended is nobody's.
        let _unsuspended = Unsuspended::begin();
        if let Err(trouble) = place.switch(variant) {
            let trouble = self.with_last_words(trouble);
            return failed(cycle, trouble);
        }
        cycle.dropped = place.drop_kept();
        let before = Before::look(cycle.pid);
        let steps = vec![Step::Lock, Step::Checkpoint, Step::Restore, Step::Unlock];
        let Some(work) = self.work(steps, true) else {
            return failed(cycle, Trouble::failed("there is no process"));
        };
        cycle.surroundings = before.until_now();
        work.fill(&mut cycle);
        let trouble = match work.member.is_done() {
            true => None,
            false => self
                .replaced()
                .or_else(|| self.bring_back(&work.member))
                .or_else(|| self.stays_away(&work.member)),
        };
        let trouble = trouble.map(|trouble| self.with_last_words(trouble));
        Made { cycle, trouble }
    }

    fn verify(&mut self, is_last: bool) -> Result<Option<bool>, Trouble> {
        let Some(place) = &self.place else {
            return Ok(None);
        };
        let pid = place.pid();
        let of_its_own = is_last && self.subject.is_built_in();
        let answer = match (self.order.verify, self.started.as_mut()) {
            (Some(command), _) => {
                self.bar.set_message(format!("{}: verification", self.what));
                verify::run(command, pid, &self.signals, &mut self.signal)
            }
            (None, Some(started)) if of_its_own => {
                self.bar.set_message("comparing contents");
                verify::ask(started, &self.signals, &mut self.signal)
            }
            _ => return Ok(None),
        };
        match (answer, self.signal) {
            (None, Some(number)) => Err(Trouble::signal(number)),
            _ => Ok(answer),
        }
    }

    fn pause(&mut self) {
        if !self.order.pause.is_zero() {
            if let Ok(number) = self.signals.recv_timeout(self.order.pause) {
                self.signal.get_or_insert(number);
            }
        }
    }

    fn leave(&mut self) -> Result<(), Trouble> {
        let back = self.place.take().map_or(Ok(()), Place::leave);
        let ended = match self.started.take() {
            Some(started) => started.end().map_err(Trouble::failed),
            None => Ok(()),
        };
        self.bar.finish_and_clear();
        back.and(ended)
    }

    fn signal(&mut self) -> Option<i32> {
        if let Ok(number) = self.signals.try_recv() {
            self.signal.get_or_insert(number);
        }
        self.signal
    }

    fn announce(&mut self, what: &str, done: usize, all: usize) {
        self.what = what.into();
        self.bar.set_length(all as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(what.to_string());
    }
}

impl Real<'_> {
    /// A process that is not running and was not left so by us.
    fn stays_away(&self, member: &Member) -> Option<Trouble> {
        let place = self.place.as_ref()?;
        if let Some(why) = ended(member) {
            return Some(Trouble::failed(format!("process {} {why}", member.pid)));
        }
        (place.state != State::Running).then(|| {
            Trouble::failed(format!(
                "process {} is {} by now, and that is somebody else's doing: {}",
                member.pid,
                place.state,
                why(member)
            ))
        })
    }
}

fn failed(cycle: Cycle, trouble: Trouble) -> Made {
    Made {
        cycle: Cycle {
            error: Some(trouble.text.clone()),
            ..cycle
        },
        trouble: Some(trouble),
    }
}

/// Whether variants of this group share their process, so that one could find another's kept buffer.
pub fn is_shared(order: &Order<'_>, group: usize) -> bool {
    order.groups[group].len() > 1
}

/// Whether the library must be in the processes of this group.
pub fn needs_library(order: &Order<'_>, group: usize) -> bool {
    order.variants[order.groups[group][0]].mode != variant::STOCK
}
