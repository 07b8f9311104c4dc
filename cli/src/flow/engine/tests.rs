use super::*;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use crossbeam_channel::{unbounded, Sender};

use crate::driver::{DriverError, GpuPair, State};
use crate::flow::calls::Calls;
use crate::flow::crew::Subject;
use crate::flow::life::Life;
use crate::flow::plan::{plan, Plan, Verb};
use crate::process::ending::Ending;
use crate::process::identity::{Identity, IdentityError};

/// What a call does in place of its work.
#[derive(Debug, Clone, Copy)]
enum Odd {
    /// Returns this error, changes nothing.
    Fail(u32),
    /// Another caller makes the step just before.
    Overtaken,
    /// Makes the step and returns this error.
    Late(u32),
    /// Returns success, changes nothing.
    Lie,
    /// Waits until the test's channel says so, then works.
    Wait,
}

/// A driver of numbers: states follow the real one's rule.
#[derive(Default)]
struct Mock {
    states: Mutex<HashMap<i32, State>>,
    odd: Mutex<HashMap<(i32, Step), VecDeque<Odd>>>,
    log: Mutex<Vec<(i32, Step)>>,
    timeouts: Mutex<Vec<Duration>>,
    go: Mutex<HashMap<i32, Receiver<()>>>,
    /// Told when a call waits.
    waits: Mutex<Option<Sender<(i32, Step)>>>,
}

fn refused(code: u32) -> DriverError {
    DriverError::Refused {
        call: "mock",
        code,
        name: String::new(),
        text: String::new(),
    }
}

impl Mock {
    fn with(states: &[(i32, State)]) -> Arc<Self> {
        let mock = Mock::default();
        mock.states.lock().unwrap().extend(states.iter().copied());
        Arc::new(mock)
    }

    fn odd(&self, pid: i32, step: Step, odd: Odd) {
        let mut all = self.odd.lock().unwrap();
        all.entry((pid, step)).or_default().push_back(odd);
    }

    fn of(&self, pid: i32) -> State {
        self.states.lock().unwrap()[&pid]
    }

    fn log(&self) -> Vec<(i32, Step)> {
        self.log.lock().unwrap().clone()
    }

    /// Makes this call wait; returns what lets it go.
    fn gate(&self, pid: i32, step: Step) -> Sender<()> {
        let (go, gone) = unbounded();
        self.odd(pid, step, Odd::Wait);
        self.go.lock().unwrap().insert(pid, gone);
        go
    }

    /// Tells when a call waits.
    fn waits(&self) -> Receiver<(i32, Step)> {
        let (wait, waits) = unbounded();
        *self.waits.lock().unwrap() = Some(wait);
        waits
    }
}

impl Calls for Mock {
    fn step(
        &self,
        pid: i32,
        step: Step,
        timeout: Duration,
        _map: &[GpuPair],
    ) -> Result<(), DriverError> {
        self.log.lock().unwrap().push((pid, step));
        self.timeouts.lock().unwrap().push(timeout);
        let odd = {
            let mut all = self.odd.lock().unwrap();
            all.get_mut(&(pid, step)).and_then(VecDeque::pop_front)
        };
        match odd {
            Some(Odd::Overtaken) => {
                self.states.lock().unwrap().insert(pid, step.leads_to());
            }
            Some(Odd::Late(code)) => {
                self.states.lock().unwrap().insert(pid, step.leads_to());
                return Err(refused(code));
            }
            Some(Odd::Fail(code)) => return Err(refused(code)),
            Some(Odd::Lie) => return Ok(()),
            Some(Odd::Wait) => {
                let go = self.go.lock().unwrap()[&pid].clone();
                if let Some(waits) = &*self.waits.lock().unwrap() {
                    waits.send((pid, step)).unwrap();
                }
                let _ = go.recv();
            }
            None => {}
        }
        let mut states = self.states.lock().unwrap();
        let legal = match step {
            Step::Lock => State::Running,
            Step::Checkpoint | Step::Unlock => State::Locked,
            Step::Restore => State::Checkpointed,
        };
        if states[&pid] != legal {
            return Err(refused(401));
        }
        states.insert(pid, step.leads_to());
        Ok(())
    }

    fn state(&self, pid: i32) -> Result<State, DriverError> {
        Ok(self.of(pid))
    }

    fn words(&self, code: u32) -> String {
        format!("error {code}")
    }
}

#[derive(Default)]
struct FakeLife(Mutex<Option<Ending>>);

impl Life for FakeLife {
    fn check(&self) -> Result<(), IdentityError> {
        Ok(())
    }

    fn ended_within(&self, _limit: Duration) -> Option<Ending> {
        *self.0.lock().unwrap()
    }
}

/// Life by the identity alone.
struct ById(Identity);

impl Life for ById {
    fn check(&self) -> Result<(), IdentityError> {
        self.0.check()
    }

    fn ended_within(&self, _limit: Duration) -> Option<Ending> {
        None
    }
}

#[derive(Default)]
struct Quiet(Vec<String>);

impl Show for Quiet {
    fn began(&mut self, _who: usize, _step: Step, _undoing: bool) {}
    fn tick(&mut self) {}
    fn ended(&mut self, _who: usize) {}
    fn say(&mut self, text: &str) {
        self.0.push(text.into());
    }
}

const RULES: Rules = Rules {
    keep_going: false,
    lock_timeout: Some(Duration::from_secs(10)),
    patience: Duration::from_secs(10),
};

struct Bench {
    mock: Arc<Mock>,
    lives: Vec<Arc<FakeLife>>,
    members: Vec<Member>,
    signals: (Sender<i32>, Receiver<i32>),
    said: Quiet,
}

impl Bench {
    fn new(verb: Verb, states: &[(i32, State)]) -> Self {
        let members = states.iter().map(|(pid, state)| {
            let Plan::Steps(steps) = plan(verb, *state) else {
                panic!("{verb} from {state}");
            };
            Member::new(*pid, *state, steps)
        });
        Bench {
            mock: Mock::with(states),
            lives: states
                .iter()
                .map(|_| Arc::new(FakeLife::default()))
                .collect(),
            members: members.collect(),
            signals: unbounded(),
            said: Quiet::default(),
        }
    }

    fn run(&mut self, rules: Rules) -> Option<i32> {
        let pids = self.members.iter().map(|member| member.pid);
        let subjects = pids.zip(&self.lives).map(|(pid, life)| Subject {
            pid,
            life: Arc::clone(life) as Arc<dyn Life>,
        });
        let calls = Arc::clone(&self.mock) as Arc<dyn Calls>;
        let crew = Crew::start(&calls, subjects.collect(), &[]).unwrap();
        run(
            &mut self.members,
            &crew,
            rules,
            &self.signals.1,
            &mut self.said,
        )
    }

    fn states(&self) -> Vec<Option<State>> {
        self.members.iter().map(|member| member.now).collect()
    }
}

const RUNNING: Option<State> = Some(State::Running);
const LOCKED: Option<State> = Some(State::Locked);
const CHECKPOINTED: Option<State> = Some(State::Checkpointed);

#[test]
fn all_are_locked_before_the_first_is_checkpointed() {
    let mut bench = Bench::new(
        Verb::Checkpoint,
        &[(1, State::Running), (2, State::Locked), (3, State::Running)],
    );
    assert_eq!(bench.run(RULES), None);
    let log = bench.mock.log();
    let last_lock = log.iter().rposition(|(_, step)| *step == Step::Lock);
    let first_checkpoint = log.iter().position(|(_, step)| *step == Step::Checkpoint);
    assert!(last_lock < first_checkpoint, "{log:?}");
    assert!(bench.members.iter().all(Member::is_done));
    assert_eq!(bench.states(), [CHECKPOINTED; 3]);
}

#[test]
fn one_failure_brings_all_back_to_where_they_were() {
    let mut bench = Bench::new(
        Verb::Checkpoint,
        &[(1, State::Running), (2, State::Locked), (3, State::Running)],
    );
    bench.mock.odd(3, Step::Checkpoint, Odd::Fail(304));
    bench.run(RULES);
    assert_eq!(bench.states(), [RUNNING, LOCKED, RUNNING]);
    let failed: Vec<bool> = bench
        .members
        .iter()
        .map(|member| member.failure.is_some())
        .collect();
    assert_eq!(failed, [false, false, true]);
    assert!(bench.members.iter().all(|member| member.turned));
    // The lock that was there before is not ours.
    assert!(!bench.mock.log().contains(&(2, Step::Unlock)));
}

#[test]
fn a_lock_that_fails_leaves_nobody_locked_and_nobody_checkpointed() {
    let mut bench = Bench::new(
        Verb::Checkpoint,
        &[(1, State::Running), (2, State::Running)],
    );
    bench.mock.odd(1, Step::Lock, Odd::Fail(600));
    bench.run(RULES);
    assert_eq!(bench.states(), [RUNNING; 2]);
    let log = bench.mock.log();
    assert!(
        !log.iter().any(|(_, step)| *step == Step::Checkpoint),
        "{log:?}"
    );
}

#[test]
fn keep_going_brings_back_the_failed_one_alone() {
    let mut bench = Bench::new(
        Verb::Checkpoint,
        &[(1, State::Running), (2, State::Running)],
    );
    bench.mock.odd(1, Step::Checkpoint, Odd::Fail(2));
    bench.run(Rules {
        keep_going: true,
        ..RULES
    });
    assert_eq!(bench.states(), [RUNNING, CHECKPOINTED]);
    assert!(!bench.members[0].is_done() && bench.members[1].is_done());
}

#[test]
fn a_restore_is_not_held_up_by_another_ones_failure() {
    let mut bench = Bench::new(
        Verb::Restore,
        &[(1, State::Checkpointed), (2, State::Checkpointed)],
    );
    bench.mock.odd(1, Step::Restore, Odd::Fail(2));
    bench.run(RULES);
    assert_eq!(bench.states(), [CHECKPOINTED, RUNNING]);
    assert!(!bench.mock.log().contains(&(2, Step::Checkpoint)));
}

#[test]
fn an_unlock_that_fails_after_a_restore_is_told_with_the_state() {
    let mut bench = Bench::new(Verb::Restore, &[(1, State::Checkpointed)]);
    bench.mock.odd(1, Step::Unlock, Odd::Fail(304));
    bench.run(RULES);
    assert_eq!(bench.states(), [LOCKED]);
    let failure = bench.members[0].failure.clone().unwrap();
    assert_eq!(failure.step, Some(Step::Unlock));
}

#[test]
fn success_that_changed_nothing_is_a_failure() {
    let mut bench = Bench::new(Verb::Checkpoint, &[(1, State::Running)]);
    bench.mock.odd(1, Step::Checkpoint, Odd::Lie);
    bench.run(RULES);
    let failure = bench.members[0].failure.clone().unwrap();
    assert_eq!(failure.cause, Cause::OtherState(State::Locked));
    assert_eq!(bench.states(), [RUNNING]);
}

#[test]
fn a_lock_that_somebody_else_took_meanwhile_is_not_undone() {
    let mut bench = Bench::new(Verb::Checkpoint, &[(1, State::Running)]);
    bench.mock.states.lock().unwrap().insert(1, State::Locked);
    bench.run(RULES);
    assert_eq!(bench.states(), [LOCKED]);
    assert_eq!(bench.mock.log(), [(1, Step::Lock)]);
}

/// Two calls for one process at once: the one that comes second must not undo what the first has done.
#[test]
fn a_checkpoint_that_somebody_else_made_meanwhile_is_not_undone() {
    for before in [State::Running, State::Locked] {
        let mut bench = Bench::new(Verb::Checkpoint, &[(1, before)]);
        bench.mock.odd(1, Step::Checkpoint, Odd::Overtaken);
        bench.run(RULES);
        assert_eq!(bench.states(), [CHECKPOINTED], "from {before}");
        let failure = bench.members[0].failure.clone().unwrap();
        assert_eq!(
            (failure.step, failure.cause.code()),
            (Some(Step::Checkpoint), 401)
        );
        assert_eq!(bench.mock.log().last(), Some(&(1, Step::Checkpoint)));
    }
}

/// One that was made half-way is ours: it is brought back.
#[test]
fn a_checkpoint_that_failed_and_was_made_all_the_same_is_undone() {
    let mut bench = Bench::new(Verb::Checkpoint, &[(1, State::Running)]);
    bench.mock.odd(1, Step::Checkpoint, Odd::Late(304));
    bench.run(RULES);
    assert_eq!(bench.states(), [RUNNING]);
}

#[test]
fn what_cannot_be_undone_is_told_too() {
    let mut bench = Bench::new(
        Verb::Checkpoint,
        &[(1, State::Running), (2, State::Running)],
    );
    bench.mock.odd(1, Step::Checkpoint, Odd::Fail(304));
    bench.mock.odd(2, Step::Restore, Odd::Fail(2));
    bench.run(RULES);
    assert_eq!(bench.states(), [RUNNING, CHECKPOINTED]);
    let member = &bench.members[1];
    assert!(member.failure.is_none());
    assert_eq!(
        member.undo_failure.clone().unwrap().step,
        Some(Step::Restore)
    );
}

#[test]
fn a_lock_for_ever_tries_longer_each_time() {
    let mut bench = Bench::new(Verb::Lock, &[(1, State::Running)]);
    for _ in 0..7 {
        bench.mock.odd(1, Step::Lock, Odd::Fail(NOT_READY));
    }
    bench.run(Rules {
        lock_timeout: None,
        ..RULES
    });
    assert_eq!(bench.states(), [LOCKED]);
    assert!(bench.members[0].is_done() && bench.members[0].made.len() == 1);
    let seconds: Vec<u64> = bench
        .mock
        .timeouts
        .lock()
        .unwrap()
        .iter()
        .map(Duration::as_secs)
        .collect();
    assert_eq!(seconds, [10, 20, 40, 80, 160, 320, 320, 320]);
}

/// Runs the bench in a thread, so that the test can act while a call waits.
fn meanwhile(bench: &mut Bench, rules: Rules, act: impl FnOnce(&Bench2)) -> Option<i32> {
    let other = Bench2 {
        lives: bench.lives.clone(),
        signals: bench.signals.0.clone(),
    };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| bench.run(rules));
        act(&other);
        running.join().unwrap()
    })
}

struct Bench2 {
    lives: Vec<Arc<FakeLife>>,
    signals: Sender<i32>,
}

#[test]
fn a_signal_while_locking_undoes_the_locks() {
    for verb in [Verb::Lock, Verb::Checkpoint, Verb::Toggle] {
        let mut bench = Bench::new(verb, &[(1, State::Running), (2, State::Running)]);
        let go = bench.mock.gate(2, Step::Lock);
        let waits = bench.mock.waits();
        let signal = meanwhile(&mut bench, RULES, |other| {
            waits.recv().unwrap();
            other.signals.send(15).unwrap();
            other.signals.send(2).unwrap();
            while !other.signals.is_empty() {
                std::thread::yield_now();
            }
            go.send(()).unwrap();
        });
        assert_eq!(signal, Some(15));
        assert_eq!(bench.states(), [RUNNING; 2], "{verb}");
        assert!(
            bench.said.0[1].contains("still waiting for"),
            "{:?}",
            bench.said.0
        );
    }
}

#[test]
fn a_signal_in_a_checkpoint_changes_nothing() {
    let mut bench = Bench::new(
        Verb::Checkpoint,
        &[(1, State::Running), (2, State::Running)],
    );
    let go = bench.mock.gate(2, Step::Checkpoint);
    let waits = bench.mock.waits();
    let signal = meanwhile(&mut bench, RULES, |other| {
        waits.recv().unwrap();
        other.signals.send(2).unwrap();
        while !other.signals.is_empty() {
            std::thread::yield_now();
        }
        go.send(()).unwrap();
    });
    assert_eq!((signal, bench.states()), (Some(2), vec![CHECKPOINTED; 2]));
}

#[test]
fn a_signal_in_a_restore_still_unlocks() {
    let mut bench = Bench::new(Verb::Restore, &[(1, State::Checkpointed)]);
    let go = bench.mock.gate(1, Step::Restore);
    let waits = bench.mock.waits();
    let signal = meanwhile(&mut bench, RULES, |other| {
        waits.recv().unwrap();
        other.signals.send(1).unwrap();
        while !other.signals.is_empty() {
            std::thread::yield_now();
        }
        go.send(()).unwrap();
    });
    assert_eq!((signal, bench.states()), (Some(1), vec![RUNNING]));
}

#[test]
fn a_signal_before_the_first_step_touches_nothing() {
    let mut bench = Bench::new(Verb::Checkpoint, &[(1, State::Running), (2, State::Locked)]);
    bench.signals.0.send(15).unwrap();
    assert_eq!(bench.run(RULES), Some(15));
    assert!(bench.mock.log().is_empty());
    let mut bench = Bench::new(Verb::Restore, &[(1, State::Checkpointed)]);
    bench.signals.0.send(15).unwrap();
    assert_eq!(bench.run(RULES), Some(15));
    assert_eq!(bench.states(), [RUNNING]);
}

#[test]
fn a_process_that_ends_in_mid_call_is_noticed_though_the_call_hangs() {
    let mut bench = Bench::new(Verb::Restore, &[(1, State::Checkpointed)]);
    let go = bench.mock.gate(1, Step::Restore);
    let waits = bench.mock.waits();
    meanwhile(&mut bench, RULES, |other| {
        waits.recv().unwrap();
        *other.lives[0].0.lock().unwrap() = Some(Ending::Signal(9));
    });
    let failure = bench.members[0].failure.clone().unwrap();
    assert_eq!(failure.to_string(), "ended by signal 9 during restore");
    assert_eq!(bench.states(), [None]);
    drop(go);
}

#[test]
fn a_rank_that_ends_while_another_is_waited_for_brings_that_one_back() {
    let mut bench = Bench::new(
        Verb::Checkpoint,
        &[(1, State::Running), (2, State::Running)],
    );
    let go = bench.mock.gate(2, Step::Lock);
    let waits = bench.mock.waits();
    meanwhile(&mut bench, RULES, |other| {
        waits.recv().unwrap();
        *other.lives[0].0.lock().unwrap() = Some(Ending::Signal(11));
        std::thread::sleep(3 * TICK);
        go.send(()).unwrap();
    });
    assert_eq!(bench.states(), [None, RUNNING]);
    assert!(bench.members[1].failure.is_none() && bench.members[1].turned);
}

#[test]
fn a_call_that_hangs_is_given_up_and_the_others_are_brought_back() {
    let mut bench = Bench::new(
        Verb::Checkpoint,
        &[(1, State::Running), (2, State::Running)],
    );
    let go = bench.mock.gate(2, Step::Lock);
    bench.run(Rules {
        lock_timeout: Some(Duration::from_millis(50)),
        patience: Duration::from_millis(100),
        ..RULES
    });
    assert_eq!(bench.states(), [RUNNING, None]);
    let failure = bench.members[1].failure.clone().unwrap();
    assert!(
        matches!(failure.cause, Cause::Hung(_)) && bench.members[1].hung,
        "{failure}"
    );
    drop(go);
}

#[test]
fn a_lock_that_comes_too_late_is_undone() {
    let mut bench = Bench::new(
        Verb::Checkpoint,
        &[(1, State::Running), (2, State::Running)],
    );
    let late = bench.mock.gate(1, Step::Lock);
    // Keeps the engine at work until the late one is there.
    let other = bench.mock.gate(2, Step::Unlock);
    let (waits, mock) = (bench.mock.waits(), Arc::clone(&bench.mock));
    let rules = Rules {
        lock_timeout: Some(Duration::from_millis(50)),
        patience: Duration::from_secs(5),
        ..RULES
    };
    meanwhile(&mut bench, rules, |_| {
        assert_eq!(waits.recv().unwrap(), (1, Step::Lock));
        // The other is brought back because this one is given up.
        assert_eq!(waits.recv().unwrap(), (2, Step::Unlock));
        late.send(()).unwrap();
        while !mock.log().contains(&(1, Step::Unlock)) {
            std::thread::yield_now();
        }
        other.send(()).unwrap();
    });
    assert_eq!(bench.states(), [RUNNING; 2]);
    assert!(bench.members[0].failure.is_some() && bench.members[0].undo_failure.is_none());
}

#[test]
fn nothing_is_done_to_another_process_that_has_the_id_now() {
    let mut identity = Identity::of(std::process::id() as i32).unwrap();
    identity.started -= 1;
    let pid = identity.pid;
    let mock = Mock::with(&[(pid, State::Running)]);
    let subject = Subject {
        pid,
        life: Arc::new(ById(identity)),
    };
    let calls = Arc::clone(&mock) as Arc<dyn Calls>;
    let crew = Crew::start(&calls, vec![subject], &[]).unwrap();
    let states = crew.survey(Duration::from_secs(10), &never()).unwrap();
    assert_eq!(
        states,
        [Err(Cause::Identity(IdentityError::Reused(pid)))],
        "the look at the state"
    );
    let mut members = [Member::new(pid, State::Running, vec![Step::Lock])];
    run(&mut members, &crew, RULES, &never(), &mut Quiet::default());
    let failure = members[0].failure.clone().unwrap();
    assert!(
        failure.to_string().contains("nothing was done to that one"),
        "{failure}"
    );
    assert!(mock.log().is_empty());
}

#[test]
fn a_survey_gives_up_on_the_one_that_hangs_and_stops_at_a_signal() {
    struct Deaf(Mutex<()>);
    impl Calls for Deaf {
        fn step(
            &self,
            _pid: i32,
            _step: Step,
            _timeout: Duration,
            _map: &[GpuPair],
        ) -> Result<(), DriverError> {
            Err(refused(1))
        }
        fn state(&self, pid: i32) -> Result<State, DriverError> {
            if pid == 1 {
                drop(self.0.lock());
            }
            Ok(State::Locked)
        }
        fn words(&self, _code: u32) -> String {
            String::new()
        }
    }
    let deaf = Arc::new(Deaf(Mutex::new(())));
    let held = deaf.0.lock().unwrap();
    let calls = Arc::clone(&deaf) as Arc<dyn Calls>;
    let subjects = [1, 2].map(|pid| Subject {
        pid,
        life: Arc::new(FakeLife::default()),
    });
    let crew = Crew::start(&calls, subjects.to_vec(), &[]).unwrap();
    let patience = Duration::from_millis(200);
    let states = crew.survey(patience, &never()).unwrap();
    assert_eq!(states, [Err(Cause::Hung(patience)), Ok(State::Locked)]);
    let (send, signals) = unbounded();
    send.send(15).unwrap();
    assert_eq!(crew.survey(Duration::from_secs(60), &signals), Err(15));
    drop(held);
}
