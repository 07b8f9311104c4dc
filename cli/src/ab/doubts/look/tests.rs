//! Each doubt is raised by what it is about, and by nothing else.

use super::*;
use crate::ab::made_up;
use crate::ab::variant;

fn quiet() -> Measured {
    made_up::run(12, 3.0)
}

fn cycles(run: &mut Measured) -> &mut Vec<Cycle> {
    &mut run.workloads[0].cycles
}

fn of<'a>(run: &'a mut Measured, name: &'a str) -> impl Iterator<Item = &'a mut Cycle> + 'a {
    cycles(run)
        .iter_mut()
        .filter(move |cycle| cycle.variant == name)
}

fn seen(cycle: &mut Cycle) -> &mut Seen {
    let phase = cycle.checkpoint.as_mut().unwrap();
    phase.seen.as_mut().unwrap()
}

/// Changes a run without doubts; returns the doubts that it has then.
fn after(change: impl FnOnce(&mut Measured)) -> Vec<Doubt> {
    let mut run = quiet();
    change(&mut run);
    let found = look(&run);
    for doubt in &found {
        assert!(
            doubt.what().len() > 20 && doubt.advice().len() > 20,
            "{doubt:?}"
        );
    }
    found
}

/// The same, for a change that raises one.
fn one(change: impl FnOnce(&mut Measured)) -> Doubt {
    let mut found = after(change);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_quiet_run_has_none() {
    assert_eq!(after(|_| {}), []);
}

#[test]
fn wrong_contents_come_first() {
    let found = after(|run| {
        run.host.thp = "never".into();
        cycles(run)[3].verified = Some(false);
    });
    assert_eq!(found[0].what(), "verification said no after cycle 4");
    assert_eq!(found[1], Doubt::ThpOff);
}

#[test]
fn early_ends_and_failures_are_told() {
    let doubt = one(|run| run.stopped = Some("the process \u{1b}ended".into()));
    assert!(doubt.what().contains("\\u{1b}ended"), "{}", doubt.what());
    let doubt = one(|run| {
        for cycle in &mut cycles(run)[4..6] {
            cycle.error = Some("no room".into());
        }
    });
    assert_eq!(
        doubt.what(),
        "cycles 5, 6 failed and were left out: no room"
    );
}

#[test]
fn a_library_that_did_not_work_is_told() {
    let doubt = one(|run| {
        for cycle in of(run, "on").skip(1).take(2) {
            seen(cycle).effective = false;
        }
    });
    assert_eq!(
        doubt.what(),
        "the library made less than 99 % of the copies in 2 of 24 phases of on"
    );
    let doubt = one(|run| {
        for cycle in of(run, "on") {
            cycle.restore.as_mut().unwrap().seen = None;
        }
    });
    assert!(matches!(doubt, Doubt::NotEffective { cycles: 12, .. }));
    let doubt = one(|run| seen(of(run, "observe").nth(3).unwrap()).mode = "on".into());
    assert!(matches!(doubt, Doubt::OtherMode { cycles: 1, .. }));
    let doubt = one(|run| {
        let steps = &mut seen(of(run, "on").nth(3).unwrap()).steps_down;
        steps.insert("no-thread".into(), 3);
    });
    assert_eq!(doubt.what(), "on took steps down: no-thread 3");
}

#[test]
fn kept_buffers_are_told_where_they_were_not_meant() {
    let doubt = one(|run| {
        for cycle in of(run, "on").skip(3).take(2) {
            seen(cycle).kept = true;
        }
    });
    assert_eq!(
        doubt.what(),
        "a kept buffer was found by on, and none by observe, on"
    );
    let keep = |run: &mut Measured| {
        run.workloads[0].variants[1] = variant::parse("on:buffer=keep").unwrap();
    };
    assert_eq!(
        after(|run| {
            keep(run);
            of(run, "on").for_each(|cycle| seen(cycle).kept = true);
        }),
        []
    );
    let doubt = one(|run| {
        keep(run);
        of(run, "on")
            .skip(2)
            .for_each(|cycle| seen(cycle).kept = true);
    });
    assert!(matches!(
        doubt,
        Doubt::NotKept {
            cycles: 1,
            of: 12,
            ..
        }
    ));
    let doubt = one(|run| {
        of(run, "on").for_each(|cycle| cycle.dropped = Some(true));
    });
    assert!(matches!(
        doubt,
        Doubt::Dropped {
            cycles: 12,
            late: 0,
            ..
        }
    ));
}

#[test]
fn a_first_cycle_that_counts_is_told() {
    let doubt = one(|run| {
        cycles(run).drain(..2);
    });
    assert_eq!(
        doubt.what(),
        "cycle 3 is the first of a process: pages that it had never touched count in them"
    );
}

#[test]
fn few_pairs_are_told_with_how_many_it_takes() {
    let run = made_up::run(5, 3.0);
    let found = look(&run);
    assert!(
        found.contains(&Doubt::FewPairs {
            workload: String::new(),
            variant: "on".into(),
            pairs: 5,
            fewest: 6
        }),
        "{found:?}"
    );
}

#[test]
fn processes_that_serve_several_rounds_are_told() {
    let found = after(|run| of(run, "on").for_each(|cycle| cycle.pid = 4712));
    assert!(found.contains(&Doubt::SharedProcesses {
        workload: String::new(),
        rounds: 12
    }));
    // A pair of processes for each round.
    let found = after(|run| {
        for cycle in cycles(run).iter_mut() {
            cycle.pid = 100 + 2 * cycle.round as i32 + i32::from(cycle.variant == "on");
        }
    });
    assert!(!found
        .iter()
        .any(|doubt| matches!(doubt, Doubt::SharedProcesses { .. })));
}

fn stretch(run: &mut Measured, by: impl Fn(&Cycle) -> f64) {
    for cycle in cycles(run) {
        let factor = by(cycle);
        cycle.checkpoint.as_mut().unwrap().seconds *= factor;
    }
}

#[test]
fn noise_outliers_drift_and_order_are_told_apart() {
    let doubt = one(|run| {
        stretch(run, |cycle| match cycle.number {
            9 => 2.0,
            _ => 1.0,
        });
    });
    assert!(matches!(doubt, Doubt::Outliers { ref cycles, .. } if *cycles == [9]));
    let found = after(|run| {
        stretch(run, |cycle| 1.0 + f64::from(cycle.number * 31 % 17) / 40.0);
    });
    assert!(found
        .iter()
        .any(|doubt| matches!(doubt, Doubt::Noisy { .. })));
    assert!(!found
        .iter()
        .any(|doubt| matches!(doubt, Doubt::Drift { .. })));
    let doubt = one(|run| stretch(run, |cycle| 1.0 + f64::from(cycle.number) / 300.0));
    let Doubt::Drift { change, .. } = doubt else {
        panic!("{doubt:?}");
    };
    assert!((0.05..0.10).contains(&change), "{change}");
    let doubt = one(|run| {
        stretch(run, |cycle| if cycle.number % 2 == 1 { 1.05 } else { 1.0 });
    });
    assert!(matches!(doubt, Doubt::FirstOfRound { .. }), "{doubt:?}");
}

#[test]
fn unequal_bytes_are_told() {
    let doubt = one(|run| {
        cycles(run)[5].restore.as_mut().unwrap().bytes += 50_000_000;
    });
    assert!(matches!(
        doubt,
        Doubt::UnequalBytes {
            direction: Direction::Restore,
            ..
        }
    ));
    assert_eq!(
        after(|run| cycles(run)[5].restore.as_mut().unwrap().bytes += 1_000_000),
        []
    );
}

#[test]
fn the_machine_is_told() {
    let doubt = one(|run| {
        for cycle in cycles(run).iter_mut().skip(6) {
            cycle.surroundings.others_busy = Some(0.4);
        }
    });
    assert!(
        doubt.what().contains("40 % of all CPUs"),
        "{}",
        doubt.what()
    );
    assert_eq!(
        after(|run| cycles(run)[6].surroundings.others_busy = Some(0.9)),
        []
    );
    let doubt = one(|run| cycles(run)[6].surroundings.others_on_gpu = Some(2));
    assert!(matches!(
        doubt,
        Doubt::OthersOnGpu {
            most: 2,
            cycles: 1,
            ..
        }
    ));
    let doubt = one(|run| cycles(run)[6].surroundings.mhz = Some((800, 2000)));
    assert!(matches!(
        doubt,
        Doubt::Frequency {
            low: 2000,
            high: 3100,
            ..
        }
    ));
}

#[test]
fn a_limit_that_is_missing_or_passed_is_told() {
    let doubt = one(|run| {
        run.workloads[0].limit = None;
        run.workloads[0].no_limit = Some("no room".into());
    });
    assert!(doubt.what().ends_with("not measured: no room"));
    let found = after(|run| run.workloads[0].limit.as_mut().unwrap().to_host = 0.5);
    assert!(
        matches!(&found[..], [Doubt::AboveLimit { direction: Direction::Checkpoint, variant, .. }] if variant == "on"),
        "{found:?}"
    );
}

#[test]
fn of_several_workloads_each_doubt_names_its_own() {
    let found = after(|run| {
        let mut other = run.workloads[0].clone();
        other.name = "24 GiB".into();
        other.limit = None;
        run.workloads.push(other);
    });
    assert_eq!(found.len(), 1);
    assert!(found[0].what().starts_with("24 GiB: the limit"));
}
