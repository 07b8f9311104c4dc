//! Carries the plans out, side by side, and undoes them when one fails.
//!
//! The rules:
//!
//! * Nobody is checkpointed before everybody is locked. Ranks of one job wait for each other: a rank that is checkpointed
//!   while another still computes would keep that one from ever reaching its lock.
//! * When a process fails on its way to a lock or a checkpoint, all others that are on that way are brought back (unless
//!   [`Rules::keep_going`]); the failed one itself always is, as far as it goes. A process on its way to a restore or an
//!   unlock is never held up by another one's failure.
//! * A signal before the first checkpoint has begun brings everybody back. Later it changes nothing but the exit status.
//! * No wait is without an end but that for a checkpoint or a restore, whose time nobody knows; the process's own end ends it.

use std::time::{Duration, Instant};

use crossbeam_channel::{never, select, Receiver};

use super::crew::{Crew, Event, Order, Said, TICK};
use super::failure::{Cause, NOT_READY};
use super::member::{Busy, Member};
use super::plan::Step;

/// First time-out of a lock that is tried for ever. The driver waits for the work under way and lets new work in when it gives
/// up: short tries would never catch a process that computes for long. So each try is twice as long as the one before.
const FIRST_TRY: Duration = Duration::from_secs(10);
/// Longest try: a signal is honoured between two.
const LONGEST_TRY: Duration = Duration::from_secs(320);

/// How the plans are carried out.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// One process's failure does not bring the others back.
    pub keep_going: bool,
    /// How long a lock may take; `None`: for ever.
    pub lock_timeout: Option<Duration>,
    /// How long the driver may take for what takes it no time: a state, an unlock, the end of a lock.
    pub patience: Duration,
}

/// Somebody who is told what goes on.
pub trait Show {
    /// A step was begun.
    fn began(&mut self, who: usize, step: Step, undoing: bool);
    /// Time goes by.
    fn tick(&mut self);
    /// A step is over, or its process is.
    fn ended(&mut self, who: usize);
    /// Something to be read at once.
    fn say(&mut self, text: &str);
}

/// Carries the plans out. Returns the number of the first signal that came.
pub fn run(
    members: &mut [Member],
    crew: &Crew,
    rules: Rules,
    signals: &Receiver<i32>,
    show: &mut dyn Show,
) -> Option<i32> {
    let mut engine = Engine {
        members,
        crew,
        rules,
        show,
        back: false,
        signal: None,
    };
    engine.run(signals);
    engine.signal
}

struct Engine<'a> {
    members: &'a mut [Member],
    crew: &'a Crew,
    rules: Rules,
    show: &'a mut dyn Show,
    back: bool,
    signal: Option<i32>,
}

impl Engine<'_> {
    fn run(&mut self, signals: &Receiver<i32>) {
        let mut signals = signals.clone();
        while let Ok(signal) = signals.try_recv() {
            self.interrupted(signal);
        }
        loop {
            self.give_orders();
            if !self.members.iter().any(Member::is_working) {
                return;
            }
            select! {
                recv(self.crew.events()) -> event => if let Ok(event) = event {
                    self.hear(event);
                },
                recv(signals) -> signal => match signal {
                    Ok(signal) => self.interrupted(signal),
                    Err(_) => signals = never(),
                },
                default(TICK) => {}
            }
            self.look_after();
            self.show.tick();
        }
    }

    fn give_orders(&mut self) {
        for who in 0..self.members.len() {
            if !self.members[who].is_idle() {
                continue;
            }
            self.turn_if_needed(who);
            let Some(step) = self.members[who].todo.front().copied() else {
                continue;
            };
            if step == Step::Checkpoint && self.members.iter().any(Member::awaits_lock) {
                continue;
            }
            self.members[who].todo.pop_front();
            self.order(who, step, self.rules.lock_timeout.unwrap_or(FIRST_TRY));
        }
    }

    fn turn_if_needed(&mut self, who: usize) {
        let member = &mut self.members[who];
        if member.away && !member.turned && (self.back || member.failure.is_some()) {
            member.turn();
        }
    }

    fn order(&mut self, who: usize, step: Step, timeout: Duration) {
        let member = &mut self.members[who];
        member.busy = Some(Busy {
            step,
            timeout,
            since: Instant::now(),
            called: None,
        });
        self.show.began(who, step, member.turned);
        self.crew.order(who, Order::Step(step, timeout));
    }

    fn hear(&mut self, event: Event) {
        let member = &mut self.members[event.who];
        if member.gone {
            return;
        }
        match event.said {
            Said::Called { step, result, time } => {
                if self.tries_again(event.who, &result) {
                    return;
                }
                self.members[event.who].called(step, result, time);
            }
            Said::State(state) => {
                let before = member.busy;
                if member.looked(state).is_some() {
                    self.show.ended(event.who);
                }
                self.try_again(event.who, before);
            }
        }
        self.notice_failure(event.who);
    }

    /// Whether a lock that was not got is to be tried again: then its call counts neither as made nor as failed.
    fn tries_again(&self, who: usize, result: &Result<(), Cause>) -> bool {
        let timed_out = matches!(result, Err(cause) if cause.code() == NOT_READY);
        let member = &self.members[who];
        let locking = member.busy.is_some_and(|busy| busy.step == Step::Lock);
        let for_ever = self.rules.lock_timeout.is_none();
        timed_out && locking && for_ever && !member.turned && member.failure.is_none()
    }

    /// Orders a lock again whose call came back without success or failure.
    fn try_again(&mut self, who: usize, before: Option<Busy>) {
        let member = &self.members[who];
        let uncounted = before.filter(|busy| busy.step == Step::Lock && busy.called.is_none());
        let Some(busy) = uncounted else { return };
        if self.back || member.failure.is_some() || !member.is_idle() {
            return;
        }
        self.order(who, Step::Lock, (busy.timeout * 2).min(LONGEST_TRY));
    }

    fn notice_failure(&mut self, who: usize) {
        let member = &self.members[who];
        if member.away && member.failure.is_some() && !self.rules.keep_going {
            self.back = true;
        }
    }

    /// Ends of processes, and calls that take too long.
    fn look_after(&mut self) {
        for who in 0..self.members.len() {
            let member = &self.members[who];
            if !member.is_held() {
                continue;
            }
            if let Some(ending) = self.crew.ended(who) {
                let step = member.busy.map(|busy| busy.step);
                self.members[who].fail(step, Cause::Ended(ending));
                self.show.ended(who);
            } else if let Some(waited) = self.waited_too_long(who) {
                self.members[who].hang(waited);
                self.show.ended(who);
            }
            self.notice_failure(who);
        }
    }

    fn waited_too_long(&self, who: usize) -> Option<Duration> {
        let member = &self.members[who];
        let busy = member.busy.filter(|_| !member.hung)?;
        let (since, allowed) = match (busy.called, busy.step) {
            (Some((since, _)), _) => (since, self.rules.patience),
            (None, Step::Lock) => (busy.since, busy.timeout + self.rules.patience),
            (None, Step::Unlock) => (busy.since, self.rules.patience),
            (None, Step::Checkpoint | Step::Restore) => return None,
        };
        (since.elapsed() > allowed).then_some(allowed)
    }

    fn interrupted(&mut self, signal: i32) {
        if self.signal.is_some() {
            let text = format!("signal {signal}: still waiting for {}", self.waited_for());
            return self.show.say(&text);
        }
        self.signal = Some(signal);
        let away = || self.members.iter().filter(|member| member.away);
        let checkpointing = away().any(Member::has_begun_checkpoint);
        self.back |= away().next().is_some() && !checkpointing;
        let what = if self.back {
            "what is under way is finished, then undone"
        } else if checkpointing {
            "the checkpoint is finished first, and stays"
        } else {
            "what is under way is finished first, and unlocked"
        };
        self.show.say(&format!(
            "signal {signal}: {what}; waiting for {}",
            self.waited_for()
        ));
    }

    fn waited_for(&self) -> String {
        let working = self.members.iter().filter(|member| member.is_working());
        let steps: Vec<String> = working
            .filter_map(|member| Some(format!("{} of {}", member.busy?.step, member.pid)))
            .collect();
        if steps.is_empty() {
            "nothing".into()
        } else {
            steps.join(", ")
        }
    }
}

#[cfg(test)]
mod tests;
