//! A session: the plan carried out cycle by cycle. Whatever happens, what was measured until then is there, and the process was left as it
//! was found.

use super::bench::{Bench, Trouble};
use super::data::{Cycle, Variant};
use super::plan::{Turn, Visit};

/// So many failed cycles in a row mean that the next ones would fail too.
const GIVE_UP: u32 = 3;

/// What came of a session.
#[derive(Debug, Default)]
pub struct Session {
    /// Cycles in the order in which they were made.
    pub cycles: Vec<Cycle>,
    /// Why it ended before all were made.
    pub stopped: Option<Trouble>,
}

/// Carries the plan out.
pub fn run(bench: &mut dyn Bench, plan: &[Visit], variants: &[Variant]) -> Session {
    let all = plan.iter().map(|visit| visit.turns.len()).sum();
    let mut running = Running {
        bench,
        variants,
        all,
        failed_in_a_row: 0,
        session: Session::default(),
    };
    for visit in plan {
        if let Err(trouble) = running.visit(visit) {
            running.session.stopped = Some(trouble);
            break;
        }
    }
    running.session
}

struct Running<'a> {
    bench: &'a mut dyn Bench,
    variants: &'a [Variant],
    all: usize,
    failed_in_a_row: u32,
    session: Session,
}

impl Running<'_> {
    fn visit(&mut self, visit: &Visit) -> Result<(), Trouble> {
        self.heed_signals()?;
        let served = match self.bench.arrive(visit.group) {
            Ok(()) => self.serve(visit),
            Err(trouble) => Err(trouble),
        };
        // In every case; what came first is told first.
        match (served, self.bench.leave()) {
            (Err(first), Err(then)) => Err(Trouble {
                text: format!("{}; {}", first.text, then.text),
                exit: first.exit,
            }),
            (served, left) => served.and(left),
        }
    }

    fn serve(&mut self, visit: &Visit) -> Result<(), Trouble> {
        for (at, turn) in visit.turns.iter().enumerate() {
            self.heed_signals()?;
            if at > 0 {
                self.bench.pause();
                self.heed_signals()?;
            }
            self.turn(turn, at + 1 == visit.turns.len())?;
        }
        Ok(())
    }

    fn heed_signals(&mut self) -> Result<(), Trouble> {
        match self.bench.signal() {
            Some(number) => Err(Trouble::signal(number)),
            None => Ok(()),
        }
    }

    fn turn(&mut self, turn: &Turn, is_last: bool) -> Result<(), Trouble> {
        let variant = &self.variants[turn.variant];
        let done = self.session.cycles.len();
        let what = match turn.round {
            0 => format!("warm-up, {}", variant.name),
            round => format!("round {round}, {}", variant.name),
        };
        self.bench.announce(&what, done, self.all);
        let made = self.bench.cycle(variant);
        let mut cycle = Cycle {
            number: done as u32 + 1,
            round: turn.round,
            warm_up: turn.is_warm_up(),
            variant: variant.name.clone(),
            ..made.cycle
        };
        let mut trouble = made.trouble;
        if trouble.is_none() {
            match self.bench.verify(is_last) {
                Ok(verified) => cycle.verified = verified,
                Err(unanswered) => trouble = Some(unanswered),
            }
        }
        self.failed_in_a_row = match cycle.error {
            Some(_) => self.failed_in_a_row + 1,
            None => 0,
        };
        let why = cycle.error.clone();
        self.session.cycles.push(cycle);
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        match why {
            Some(why) if self.failed_in_a_row >= GIVE_UP => Err(Trouble::failed(format!(
                "{GIVE_UP} cycles in a row failed, the last one: {why}"
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab::bench::Made;
    use crate::ab::plan::{plan, Rounds};
    use crate::ab::variant;
    use crate::exit::Exit;

    /// A bench that notes what it is asked for, and does as it is told.
    #[derive(Default)]
    struct Mock {
        calls: Vec<String>,
        made: u32,
        /// Cycles that fail, and leave the process well.
        failing: Vec<u32>,
        /// The cycle after which the process is gone.
        dies_at: Option<u32>,
        /// The cycle during which a signal comes.
        signal_at: Option<u32>,
        /// The cycle whose verification a signal cuts short.
        unanswered_at: Option<u32>,
        /// The visit that does not begin.
        absent_at: Option<usize>,
        stuck: bool,
        visits: usize,
    }

    impl Bench for Mock {
        fn arrive(&mut self, group: usize) -> Result<(), Trouble> {
            self.calls.push(format!("arrive {group}"));
            self.visits += 1;
            match self.absent_at == Some(self.visits) {
                true => Err(Trouble::failed("not ready")),
                false => Ok(()),
            }
        }

        fn cycle(&mut self, variant: &Variant) -> Made {
            self.made += 1;
            self.calls.push(variant.name.clone());
            let gone = self.dies_at == Some(self.made);
            let failed = gone || self.failing.contains(&self.made);
            Made {
                cycle: Cycle {
                    error: failed.then(|| "why".into()),
                    ..Cycle::default()
                },
                trouble: gone.then(|| Trouble::failed("it is gone")),
            }
        }

        fn verify(&mut self, is_last: bool) -> Result<Option<bool>, Trouble> {
            self.calls
                .push(if is_last { "verify, last" } else { "verify" }.into());
            match self.unanswered_at == Some(self.made) {
                true => Err(Trouble::signal(2)),
                false => Ok(Some(self.made != 2)),
            }
        }

        fn pause(&mut self) {
            self.calls.push("pause".into());
        }

        fn leave(&mut self) -> Result<(), Trouble> {
            self.calls.push("leave".into());
            match self.stuck {
                true => Err(Trouble::failed("cannot be put back")),
                false => Ok(()),
            }
        }

        fn signal(&mut self) -> Option<i32> {
            self.signal_at.filter(|at| self.made >= *at).map(|_| 2)
        }

        fn announce(&mut self, _what: &str, _done: usize, _all: usize) {}
    }

    const ROUNDS: Rounds = Rounds {
        cycles: 3,
        warm_up: 1,
        per_visit: 1,
    };

    fn two() -> Vec<Variant> {
        variant::grid::all(&[], &[]).unwrap()
    }

    fn session(mock: &mut Mock) -> Session {
        let variants = two();
        run(mock, &plan(&[vec![0, 1]], ROUNDS, 1), &variants)
    }

    #[test]
    fn every_cycle_is_numbered_verified_and_apart() {
        let mut mock = Mock::default();
        let session = session(&mut mock);
        assert!(session.stopped.is_none());
        let numbers: Vec<u32> = session.cycles.iter().map(|cycle| cycle.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
        let rounds: Vec<u32> = session.cycles.iter().map(|cycle| cycle.round).collect();
        assert_eq!(rounds, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert!(session
            .cycles
            .iter()
            .all(|cycle| cycle.warm_up == (cycle.round == 0)));
        let verified: Vec<bool> = session
            .cycles
            .iter()
            .map(|cycle| cycle.verified.unwrap())
            .collect();
        assert_eq!(verified.iter().filter(|right| !**right).count(), 1);
        assert_eq!(
            mock.calls[..6],
            ["arrive 0", "observe", "verify", "pause", "on", "verify"]
        );
        assert_eq!(mock.calls.iter().filter(|call| *call == "leave").count(), 1);
        assert_eq!(
            mock.calls[mock.calls.len() - 2..],
            ["verify, last", "leave"]
        );
    }

    #[test]
    fn a_signal_ends_the_run_after_its_cycle() {
        for at in 1..8 {
            let mut mock = Mock {
                signal_at: Some(at),
                ..Mock::default()
            };
            let session = session(&mut mock);
            assert_eq!(session.cycles.len(), at as usize);
            assert_eq!(session.stopped.unwrap().exit, Exit::Signal(2));
            assert_eq!(mock.calls.last().unwrap(), "leave");
        }
    }

    /// Also the last one's, after which there is no other cycle.
    #[test]
    fn a_signal_during_the_verification_ends_the_run() {
        for at in [3, 8] {
            let mut mock = Mock {
                unanswered_at: Some(at),
                ..Mock::default()
            };
            let session = session(&mut mock);
            assert_eq!(session.cycles.len(), at as usize);
            let last = session.cycles.last().unwrap();
            assert!(last.error.is_none() && last.verified.is_none());
            assert_eq!(session.stopped.unwrap().exit, Exit::Signal(2));
            assert_eq!(mock.calls.last().unwrap(), "leave");
        }
    }

    #[test]
    fn a_process_that_is_gone_ends_the_run_and_is_not_asked_again() {
        let mut mock = Mock {
            dies_at: Some(4),
            ..Mock::default()
        };
        let session = session(&mut mock);
        assert_eq!(session.cycles.len(), 4);
        assert_eq!(session.stopped.unwrap().text, "it is gone");
        let end = &mock.calls[mock.calls.len() - 2..];
        assert!(end[0] != "verify" && end[1] == "leave", "{end:?}");
    }

    #[test]
    fn failures_that_pass_are_noted_and_those_that_stay_end_the_run() {
        let mut mock = Mock {
            failing: vec![2, 3, 5],
            ..Mock::default()
        };
        let passing = session(&mut mock);
        assert!(passing.stopped.is_none());
        let failed = passing.cycles.iter().filter(|cycle| cycle.error.is_some());
        assert_eq!(failed.count(), 3);
        let mut mock = Mock {
            failing: vec![2, 3, 4, 5],
            ..Mock::default()
        };
        let staying = session(&mut mock);
        assert_eq!(staying.cycles.len(), 4);
        assert!(staying.stopped.unwrap().text.contains("3 cycles in a row"));
    }

    #[test]
    fn processes_take_turns_and_each_is_left() {
        let variants = variant::grid::all(
            &[
                variant::parse("stock").unwrap(),
                variant::parse("on").unwrap(),
            ],
            &[],
        );
        let variants = variants.unwrap();
        let plan = plan(&variant::groups(&variants), ROUNDS, 1);
        let mut mock = Mock::default();
        let session = run(&mut mock, &plan, &variants);
        // A warm-up and a cycle in each of three visits to each of two.
        assert_eq!(session.cycles.len(), 12);
        let count = |word: &str| {
            let calls = mock.calls.iter();
            calls.filter(|call| call.starts_with(word)).count()
        };
        assert_eq!((count("arrive"), count("leave")), (6, 6));
    }

    #[test]
    fn one_that_does_not_come_is_left_too_and_a_bad_end_is_told() {
        let mut mock = Mock {
            absent_at: Some(1),
            ..Mock::default()
        };
        let absent = session(&mut mock);
        assert_eq!(absent.stopped.unwrap().text, "not ready");
        assert_eq!(mock.calls, ["arrive 0", "leave"]);
        let mut mock = Mock {
            stuck: true,
            ..Mock::default()
        };
        let stuck = session(&mut mock);
        assert_eq!(stuck.cycles.len(), 8);
        assert_eq!(stuck.stopped.unwrap().text, "cannot be put back");
    }
}
