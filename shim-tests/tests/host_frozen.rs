//! The shim in a world that is stopped around it: every thread frozen but the driver's, at any moment of a busy server; its own
//! helpers stopped or killed from outside at any place; a driver that fails at every copy. `CUDASNAP_FROZEN_SEED=N` repeats the
//! moments of one seed.

use std::time::Duration;

use cudasnap_shim_tests::busy::{Busy, CALLS, WORKERS};
use cudasnap_shim_tests::freeze::Freeze;
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::watchdog::Watchdog;
use cudasnap_wire::Step;

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(400);
/// How punctual helpers leave depends on the machine; that they leave does not.
const SOON: Duration = Duration::from_secs(5);

/// The driver's own work that shows nothing here is left out.
const FAST: [(&str, &str); 2] = [("CUDASIM_NOISE", "0"), ("CUDASIM_DMA_GBPS", "0")];

fn restore_thread(host: &Shimmed) -> i32 {
    host.control("tid").stdout.parse().expect("a thread id")
}

/// A step that must succeed, and in time.
fn must(host: &Shimmed, action: &str) {
    let done = host.driver.begin(action, host.app.pid(), &FAST).finish();
    assert_eq!(done.code, 0, "{action}: {} {}", done.stdout, done.stderr);
}

/// All bytes of the last phase went through the shim, and its helpers are gone.
fn expect_covered(host: &Shimmed, direction: &str) {
    let phase = host.last(direction);
    assert!(
        phase.end.is("covered") && phase.copied == phase.expected && phase.copied > 0,
        "{phase:?}"
    );
    assert_eq!(host.helpers(), [""; 0]);
}

/// Numbers of a seed, the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What the frozen threads were doing, over all moments.
#[derive(Debug, Default)]
struct Found {
    moments: u32,
    inside: [u32; WORKERS.len()],
    hangs: [u32; CALLS.len()],
    forks: u32,
}

impl Found {
    fn look(&mut self, busy: &Busy, freeze: &mut Freeze) {
        self.moments += 1;
        self.forks += u32::from(busy.forks());
        for (count, is) in self.inside.iter_mut().zip(busy.inside()) {
            *count += u32::from(is);
        }
        for (count, is) in self.hangs.iter_mut().zip(busy.hangs(freeze)) {
            *count += u32::from(is);
        }
    }

    fn tell(&self) {
        println!("{} moments", self.moments);
        for (name, count) in WORKERS.iter().zip(self.inside) {
            println!("  {count} times a thread inside {name}");
        }
        println!("  {} times with fork's locks", self.forks);
        for (name, count) in CALLS.iter().zip(self.hangs) {
            println!("  {count} times {name} would have hung");
        }
    }
}

/// Freezes the busy server, makes these steps of the driver with the restore thread alone, and releases it.
fn frozen_steps(busy: &Busy, restore_thread: i32, steps: &[&str], found: &mut Found) {
    let host = &busy.host;
    let mut freeze = Freeze::new(host.app.pid() as i32, restore_thread).expect("a frozen world");
    found.look(busy, &mut freeze);
    for step in steps {
        freeze
            .with_restore_thread(|| must(host, step))
            .expect("the restore thread runs");
        if *step == "checkpoint" || *step == "restore" {
            expect_covered(host, step);
        }
    }
}

/// About so many moments at which the server is frozen, chosen by the seed.
fn random_moments(seed: u64, moments: u32, found: &mut Found) {
    println!("CUDASNAP_FROZEN_SEED={seed}");
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut busy = Busy::start(&SimDriver::build(false), &[]);
    let _watchdog = Watchdog::new("frozen moments", busy.host.app.pid() as i32, LIMIT);
    let tid = restore_thread(&busy.host);
    busy.work();
    let mut cycles = 0;
    let until = found.moments + moments;
    while found.moments < until {
        let mut moment = |steps: &[&str]| {
            std::thread::sleep(Duration::from_micros(dice.below(4000)));
            frozen_steps(&busy, tid, steps, found);
        };
        must(&busy.host, "lock");
        if cycles % 4 == 0 {
            moment(&["checkpoint", "restore"]);
        } else {
            moment(&["checkpoint"]);
            moment(&["restore"]);
        }
        must(&busy.host, "unlock");
        assert_eq!(busy.host.app.wrong_words(), 0, "cycle {cycles}");
        cycles += 1;
    }
    expect_healthy(&busy, cycles);
}

/// The server works on, has lost nothing, and all its cycles went through the shim.
fn expect_healthy(busy: &Busy, cycles: u64) {
    let record = busy.host.record();
    assert_eq!(record.counters.answered, cycles);
    assert_eq!(busy.host.steps_but(&[Step::SlowHugePages]), []);
    if busy.host.last("checkpoint").threads > 1 {
        assert!(record.counters.helpers_started >= cycles);
    }
    busy.rest();
    busy.host.expect_no_helper_after(SOON);
    let growth = busy.growth();
    assert_eq!(growth.leaks(None, None), [""; 0], "{growth:?}");
}

#[test]
fn a_busy_server_is_frozen_at_two_hundred_random_moments() {
    let mut found = Found::default();
    match std::env::var("CUDASNAP_FROZEN_SEED") {
        Ok(seed) => random_moments(seed.parse().expect("a number"), 50, &mut found),
        Err(_) => (1..=4).for_each(|seed| random_moments(seed, 50, &mut found)),
    }
    found.tell();
    // Without these the moments would prove nothing.
    for (name, count) in WORKERS.iter().zip(found.inside) {
        assert!(count > 0, "no thread was stopped inside {name}");
    }
    assert!(found.forks > 0, "no thread was stopped inside fork");
    for (name, count) in CALLS.iter().zip(found.hangs) {
        assert!(count > 0, "{name} would never have hung");
    }
}

#[test]
fn a_busy_server_makes_three_cycles_in_one_frozen_world() {
    for threads in ["0", "1"] {
        let mut found = Found::default();
        let mut busy = Busy::start(&SimDriver::build(false), &[("CUDASNAP_THREADS", threads)]);
        let _watchdog = Watchdog::new("frozen cycles", busy.host.app.pid() as i32, LIMIT);
        let tid = restore_thread(&busy.host);
        busy.work();
        let cycle = ["lock", "checkpoint", "restore", "unlock"];
        frozen_steps(&busy, tid, &[cycle, cycle, cycle].concat(), &mut found);
        assert_eq!(busy.host.app.wrong_words(), 0);
        assert_eq!(busy.host.record().counters.answered, 3);
        if threads == "1" {
            assert_eq!(busy.host.record().counters.helpers_started, 0);
        }
        busy.host.cycle();
        expect_covered(&busy.host, "restore");
        busy.rest();
        let growth = busy.growth();
        assert_eq!(growth.leaks(None, None), [""; 0], "{growth:?}");
    }
}
