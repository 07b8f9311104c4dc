//! One thread per process, which makes the driver's calls one after another. The main thread never calls the driver, so
//! that a call that hangs holds up nothing but its own process.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{select, unbounded, Receiver, Sender};

use super::calls::Calls;
use super::failure::Cause;
use super::life::Life;
use super::plan::Step;
use crate::driver::{DriverError, GpuPair, State};
use crate::process::ending::Ending;

/// A call that fails because its process is dying comes back before the process is gone: so long its end is waited for.
const DYING: Duration = Duration::from_millis(300);
/// How often ends and deadlines are looked at.
pub const TICK: Duration = Duration::from_millis(100);

/// A process to work on.
#[derive(Clone)]
pub struct Subject {
    /// Its id.
    pub pid: i32,
    /// Whether it lives.
    pub life: Arc<dyn Life>,
}

/// What a thread is told to do.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    /// A step (with the time-out of a lock), then a look at the state.
    Step(Step, Duration),
    /// A look at the state.
    Look,
}

/// What a thread says.
#[derive(Debug)]
pub enum Said {
    /// The call came back. When it failed because the process is not there, nothing follows; else its state does.
    Called {
        /// The step.
        step: Step,
        /// How it went.
        result: Result<(), Cause>,
        /// Time inside the call.
        time: Duration,
    },
    /// The state, read after the step.
    State(Result<State, Cause>),
}

/// What was said, and about which process.
#[derive(Debug)]
pub struct Event {
    /// Position of the process.
    pub who: usize,
    /// What was said.
    pub said: Said,
}

/// The threads.
pub struct Crew {
    calls: Arc<dyn Calls>,
    subjects: Vec<Subject>,
    orders: Vec<Sender<Order>>,
    events: Receiver<Event>,
    // Keeps `events` connected whatever becomes of the threads.
    _to_us: Sender<Event>,
}

impl Crew {
    /// Starts a thread for each process.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(
        calls: &Arc<dyn Calls>,
        subjects: Vec<Subject>,
        map: &[GpuPair],
    ) -> io::Result<Self> {
        let (to_us, events) = unbounded();
        let mut orders = Vec::new();
        for (who, subject) in subjects.iter().enumerate() {
            let (order, ordered) = unbounded();
            let worker = Worker {
                who,
                subject: subject.clone(),
                calls: Arc::clone(calls),
                map: map.to_vec(),
                events: to_us.clone(),
            };
            // Not joined: one that hangs must not keep the tool from ending.
            std::thread::Builder::new()
                .name(format!("driver-{}", subject.pid))
                .spawn(move || worker.work(&ordered))?;
            orders.push(order);
        }
        Ok(Crew {
            calls: Arc::clone(calls),
            subjects,
            orders,
            events,
            _to_us: to_us,
        })
    }

    /// Gives an order. Orders to one process are carried out in their order.
    pub fn order(&self, who: usize, order: Order) {
        // The receiver lives as long as its thread, which ends only when this sender is gone.
        let _ = self.orders[who].send(order);
    }

    /// What the threads say.
    pub fn events(&self) -> &Receiver<Event> {
        &self.events
    }

    /// The driver's words for an error number.
    pub fn words(&self, code: u32) -> String {
        self.calls.words(code)
    }

    /// How the process ended; `None`: it lives.
    pub fn ended(&self, who: usize) -> Option<Ending> {
        self.subjects[who].life.ended_within(Duration::ZERO)
    }

    /// Reads the states of all processes side by side. One that does not come within `patience` is an error.
    ///
    /// # Errors
    /// The number of a signal that came meanwhile.
    pub fn survey(
        &self,
        patience: Duration,
        signals: &Receiver<i32>,
    ) -> Result<Vec<Result<State, Cause>>, i32> {
        let mut states: Vec<Option<Result<State, Cause>>> = vec![None; self.orders.len()];
        for who in 0..self.orders.len() {
            self.order(who, Order::Look);
        }
        let since = Instant::now();
        while states.iter().any(Option::is_none) && since.elapsed() < patience {
            select! {
                recv(self.events) -> event => if let Ok(Event { who, said: Said::State(state) }) = event {
                    states[who] = Some(state);
                },
                recv(signals) -> signal => if let Ok(signal) = signal {
                    return Err(signal);
                },
                default(TICK) => {}
            }
            for (who, state) in states.iter_mut().enumerate() {
                if state.is_none() {
                    *state = self.ended(who).map(|ending| Err(Cause::Ended(ending)));
                }
            }
        }
        let hung = || Err(Cause::Hung(patience));
        Ok(states
            .into_iter()
            .map(|state| state.unwrap_or_else(hung))
            .collect())
    }
}

struct Worker {
    who: usize,
    subject: Subject,
    calls: Arc<dyn Calls>,
    map: Vec<GpuPair>,
    events: Sender<Event>,
}

impl Worker {
    fn work(&self, orders: &Receiver<Order>) {
        for order in orders {
            let there = match order {
                Order::Step(step, timeout) => self.step(step, timeout),
                Order::Look => true,
            };
            if there {
                let state = self.guarded(|pid| self.calls.state(pid));
                self.say(Said::State(state));
            }
        }
    }

    /// Makes the step; whether the process is still there to be looked at.
    fn step(&self, step: Step, timeout: Duration) -> bool {
        let since = Instant::now();
        let result = self.guarded(|pid| self.calls.step(pid, step, timeout, &self.map));
        let there = !matches!(result, Err(Cause::Identity(_) | Cause::Ended(_)));
        self.say(Said::Called {
            step,
            result,
            time: since.elapsed(),
        });
        there
    }

    /// A call, if the id still means the process that was selected.
    fn guarded<T>(&self, call: impl FnOnce(i32) -> Result<T, DriverError>) -> Result<T, Cause> {
        self.subject.life.check().map_err(|error| {
            let ending = self.subject.life.ended_within(Duration::ZERO);
            ending.map_or(Cause::Identity(error), Cause::Ended)
        })?;
        call(self.subject.pid).map_err(|error| {
            let ending = self.subject.life.ended_within(DYING);
            ending.map_or(Cause::Driver(error), Cause::Ended)
        })
    }

    fn say(&self, said: Said) {
        let _ = self.events.send(Event {
            who: self.who,
            said,
        });
    }
}
