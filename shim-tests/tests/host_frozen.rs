//! The shim in a world that is stopped around it: every thread frozen but the driver's, at any moment of a busy server; its own
//! helpers stopped or killed from outside at any place; a driver that fails at every copy. `CUDASNAP_FROZEN_SEED=N` repeats the
//! moments of one seed.

use std::time::Duration;

use cudasnap_cli::process::observe::{threads, Holdings};
use cudasnap_cli::process::target::Target;
use cudasnap_shim_tests::attack::Attack;
use cudasnap_shim_tests::busy::{Busy, CALLS, WORKERS};
use cudasnap_shim_tests::captor::{self, Caught, Fate, Order, Place};
use cudasnap_shim_tests::freeze::Freeze;
use cudasnap_shim_tests::leaks::Growth;
use cudasnap_shim_tests::shimmed::{compile_hostile, Shimmed};
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::tool::{send_signal, until};
use cudasnap_shim_tests::tracee::{Seen, Tracee};
use cudasnap_shim_tests::watchdog::Watchdog;
use cudasnap_wire::Step;

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(400);
/// How punctual helpers leave depends on the machine; that they leave does not.
const SOON: Duration = Duration::from_secs(5);
/// Steps down that a machine busy with other things brings about.
const OVERLOAD: [Step; 1] = [Step::HelperLate];

/// The driver's own work that shows nothing here is left out.
const FAST: [(&str, &str); 2] = [("CUDASIM_NOISE", "0"), ("CUDASIM_DMA_GBPS", "0")];

/// What the simulated driver fails with (304), as an exit code.
const OPERATING_SYSTEM: i32 = 255;

fn restore_thread(host: &Shimmed) -> i32 {
    host.control("tid").stdout.parse().expect("a thread id")
}

/// A step that must succeed, and in time.
fn must(host: &Shimmed, action: &str) {
    let done = host.driver.begin(action, host.app.pid(), &FAST).finish();
    assert_eq!(done.code, 0, "{action}: {} {}", done.stdout, done.stderr);
}

/// A step in which the driver is to fail.
fn must_fail(host: &Shimmed, action: &str, fault: &str) {
    let environment = [&FAST[..], &[("CUDASIM_FAULT", fault)]].concat();
    let pid = host.app.pid();
    let done = host.driver.begin(action, pid, &environment).finish();
    assert_eq!(done.code, OPERATING_SYSTEM, "{fault}: {done:?}");
}

/// All bytes of the last phase went through the shim, and its helpers are gone.
fn expect_covered(host: &Shimmed, direction: &str) {
    let phase = host.last(direction);
    assert!(
        phase.end.is("covered") && phase.copied == phase.expected && phase.copied > 0,
        "{phase:?}"
    );
    host.expect_no_helper_after(SOON);
}

/// A helper that got no CPU for 200 ms, on a machine that is busy with other things, keeps its addresses until a later call
/// finds it gone: what a few more cycles do not bring back is lost.
fn expect_no_leak<T>(
    it: &mut T,
    host: fn(&mut T) -> &mut Shimmed,
    leaks: impl Fn(&T) -> Vec<String>,
) {
    let mut found = leaks(it);
    for _ in 0..3 {
        if found.is_empty() {
            return;
        }
        let host = host(it);
        host.cycle();
        host.expect_no_helper_after(SOON);
        found = leaks(it);
    }
    assert_eq!(found, [""; 0]);
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
    expect_healthy(&mut busy, cycles);
}

/// The server works on, has lost nothing, and all its cycles went through the shim.
fn expect_healthy(busy: &mut Busy, cycles: u64) {
    let record = busy.host.record();
    assert_eq!(record.counters.answered, cycles);
    assert_eq!(busy.host.steps_but(&OVERLOAD), []);
    if busy.host.last("checkpoint").threads > 1 {
        assert!(record.counters.helpers_started >= cycles);
    }
    busy.rest();
    busy.host.expect_no_helper_after(SOON);
    expect_no_leak(
        busy,
        |busy| &mut busy.host,
        |busy| busy.growth().leaks(None, None),
    );
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
        expect_no_leak(
            &mut busy,
            |busy| &mut busy.host,
            |busy| busy.growth().leaks(None, None),
        );
    }
}

/// A copy of the driver's and the parts that the shim cuts it into.
const CHUNK: u64 = 2 << 20;
const PART: u64 = 128 << 10;
/// How often a helper may escape: which thread takes a part is chance, and on a busy machine a helper may not run at all. Where copies are cut
/// into 64 parts (CPUs with `cldemote`), three helpers are taken in one cycle of thirteen on a quiet machine of two CPUs.
const TRIES: u32 = 200;

/// `simapp` with the smallest buffer of the simulated driver, whose helpers are taken by an outside tracer.
struct Ward {
    host: Shimmed,
    restore_thread: i32,
    driver: SimDriver,
    cycles: u64,
    _watchdog: Watchdog,
}

impl Ward {
    fn start() -> Self {
        Self::on(&SimDriver::build(false))
    }

    /// The kernel answers so to whoever names a thread, and does not, from now on. The driver has named its own.
    fn without_names(answer: &str) -> Self {
        let driver = SimDriver::build(false);
        let refuse = driver.library.join("refuse.so");
        compile_hostile("refuse.c", &["-shared", "-fPIC"], &refuse);
        let pr_set_name = format!("prctl@{}={answer}", libc::PR_SET_NAME);
        let refused = [
            ("LD_PRELOAD", refuse.to_str().unwrap()),
            ("REFUSE", &pr_set_name),
        ];
        let ward = Self::with(&driver, &refused);
        send_signal(ward.host.app.pid(), libc::SIGUSR2);
        // It is put before all threads at once.
        until("the filter", || {
            let status = format!("/proc/{}/status", ward.host.app.pid());
            let status = std::fs::read_to_string(status).unwrap();
            status.contains("\nSeccomp:\t2\n")
        });
        ward
    }

    fn on(driver: &SimDriver) -> Self {
        Self::with(driver, &[])
    }

    fn with(driver: &SimDriver, environment: &[(&str, &str)]) -> Self {
        let environment = [&[("CUDASIM_CONTEXT_MIB", "46")], environment].concat();
        let host = Shimmed::start(driver, &["1"], &environment);
        let pid = host.app.pid() as i32;
        Ward {
            restore_thread: restore_thread(&host),
            driver: driver.clone(),
            cycles: 0,
            _watchdog: Watchdog::new("a ward's cycles", pid, LIMIT),
            host,
        }
    }

    /// A cycle in which helpers are to be taken in one step; again until some are.
    fn cycle(&mut self, step: &str, order: &Order) -> Caught {
        for _ in 0..TRIES {
            must(&self.host, "lock");
            let mut caught = None;
            for action in ["checkpoint", "restore"] {
                if action == step {
                    let taken = captor::step(&self.host, self.restore_thread, step, order);
                    caught = Some(taken.expect("a traced process"));
                } else {
                    must(&self.host, action);
                }
                self.host.expect_no_helper_after(SOON);
            }
            must(&self.host, "unlock");
            self.cycles += 1;
            let caught = caught.expect("a step of the two");
            println!(
                "{step} {} of {} taken, {:?}",
                caught.taken, caught.born, order.place
            );
            assert_eq!(caught.control.code, 0, "{order:?}: {caught:?}");
            assert_eq!(self.host.app.wrong_words(), 0, "{order:?}: {caught:?}");
            assert_eq!(self.host.record().counters.answered, self.cycles);
            for direction in ["checkpoint", "restore"] {
                expect_covered(&self.host, direction);
            }
            if caught.taken > 0 {
                return caught;
            }
        }
        panic!("no helper was taken: {step}, {order:?}");
    }

    /// The same until `helpers` are taken together.
    fn cycle_with(&mut self, step: &str, order: &Order) -> Caught {
        for _ in 0..TRIES {
            let caught = self.cycle(step, order);
            if caught.taken == order.helpers {
                return caught;
            }
        }
        panic!("never were {} helpers taken: {order:?}", order.helpers);
    }

    fn expect_nothing_lost(mut self) {
        self.host.cycle();
        expect_covered(&self.host, "restore");
        expect_no_leak(
            &mut self.host,
            |host| host,
            |host| host.growth().leaks(None, None),
        );
    }
}

/// From the plan of the process: the copies of a whole chunk, by number, and where it lies in the buffer.
fn whole_chunks(driver: &SimDriver, step: &str) -> Vec<(u64, u64)> {
    let plan = driver
        .command("simplan")
        .args([step, "46", "1"])
        .output()
        .expect("simplan starts");
    let text = String::from_utf8_lossy(&plan.stdout);
    let copies = text.lines().filter(|line| line.contains("memcpy"));
    let chunk = |(number, line): (usize, &str)| {
        let columns: Vec<&str> = line.split(',').collect();
        let is_whole = columns.get(6)?.parse() == Ok(CHUNK);
        Some((number as u64, columns[5].parse().ok()?)).filter(|_| is_whole)
    };
    let chunks: Vec<(u64, u64)> = copies.enumerate().filter_map(chunk).collect();
    assert!(chunks.len() > 12, "{text}");
    chunks
}

/// One helper, on a machine of two CPUs.
fn order(place: Place, fate: Fate) -> Order {
    Order {
        place,
        helpers: 1,
        fate,
        cpus: 2,
        held_back: Vec::new(),
    }
}

/// So many helpers of three.
fn order_many(helpers: usize, place: Place, fate: Fate) -> Order {
    Order {
        helpers,
        cpus: 4,
        ..order(place, fate)
    }
}

/// One helper in the first part of one of the first chunks, in one in the middle of the middle, in the last of one of the last;
/// two and three helpers in parts of one chunk.
fn parts(ward: &Ward, step: &str, fate: Fate) -> Vec<Order> {
    let chunks = whole_chunks(&ward.driver, step);
    let (middle, parts) = (chunks.len() / 2, CHUNK / PART);
    let inside = |chunk: u64, part: u64| (chunk + part * PART).next_multiple_of(8) + 64;
    let one = |chunks: &[(u64, u64)], part: u64| Order {
        held_back: chunks.iter().map(|(number, _)| *number).collect(),
        ..order(
            Place::Part(chunks.iter().map(|(_, at)| inside(*at, part)).collect()),
            fate,
        )
    };
    let many = |helpers: usize| {
        let (number, chunk) = chunks[middle];
        let four = (3..7).map(|part| inside(chunk, 2 * part)).collect();
        Order {
            held_back: vec![number],
            ..order_many(helpers, Place::Part(four), fate)
        }
    };
    vec![
        one(&chunks[..4], 0),
        one(&chunks[middle..middle + 4], parts / 2),
        one(&chunks[chunks.len() - 4..], parts - 1),
        many(2),
        many(3),
    ]
}

#[test]
fn helpers_stopped_between_parts_are_not_waited_for() {
    let mut ward = Ward::start();
    for step in ["checkpoint", "restore"] {
        for order in [
            order(Place::Birth, Fate::HeldToTheEnd),
            order_many(2, Place::Birth, Fate::HeldToTheEnd),
            order_many(3, Place::Birth, Fate::HeldToTheEnd),
            order(Place::After(12), Fate::HeldToTheEnd),
            order_many(3, Place::After(12), Fate::HeldToTheEnd),
        ] {
            let late = ward.host.steps(Step::HelperLate);
            let caught = ward.cycle_with(step, &order);
            // The step went to its end without them, and the record says that they stayed.
            assert!(ward.host.steps(Step::HelperLate) >= late + caught.taken as u32);
        }
    }
    assert_eq!(ward.host.steps_but(&OVERLOAD), []);
    ward.expect_nothing_lost();
}

#[test]
fn a_part_whose_helper_is_stopped_is_waited_for() {
    expect_waited_for(Ward::start());
}

/// It bears its creator's name then, which is no proof that it is another thread.
#[test]
fn a_helper_without_a_name_is_waited_for_too() {
    for answer in ["EPERM", "DONE"] {
        expect_waited_for(Ward::without_names(answer));
    }
}

/// The mounted /proc is of an outer pid namespace: under a helper's number it tells of an idle thread.
#[test]
fn a_helper_that_another_proc_does_not_know_is_waited_for_too() {
    let namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let waited = Attack::new("numbers outer").through(&namespace).run_stock();
    assert_ne!(waited, "0");
}

fn expect_waited_for(mut ward: Ward) {
    let fate = Fate::Held(Duration::from_millis(300));
    for step in ["checkpoint", "restore"] {
        for order in parts(&ward, step, fate) {
            let caught = ward.cycle_with(step, &order);
            // Nobody else may do their parts, and nothing is done without them.
            assert!(caught.waited, "{order:?}: {caught:?}");
            assert!(caught.afterwards < SOON, "{order:?}: {caught:?}");
        }
    }
    assert_eq!(ward.host.steps_but(&OVERLOAD), []);
    ward.expect_nothing_lost();
}

#[test]
fn a_part_whose_helper_ends_is_done_again() {
    let mut ward = Ward::start();
    for step in ["checkpoint", "restore"] {
        for order in parts(&ward, step, Fate::Exit) {
            let dead = ward.host.steps(Step::HelperDead);
            let caught = ward.cycle_with(step, &order);
            let more = ward.host.steps(Step::HelperDead) - dead;
            assert!(more >= caught.taken as u32, "{order:?}: {more}");
        }
    }
    assert_eq!(
        ward.host.steps_but(&[Step::HelperDead, Step::HelperLate]),
        []
    );
    ward.expect_nothing_lost();
}

/// The first, a middle, and the last units that are touched huge page by huge page; one helper and all.
fn units(fate: Fate) -> Vec<Order> {
    let units = |first: u64| Place::Prefault((first..first + 4).map(|unit| unit * CHUNK).collect());
    // While the request is held back, helpers populate everything.
    let held_back = |order: Order| Order {
        held_back: vec![0],
        ..order
    };
    let all = [
        order(units(0), fate),
        order(units(10), fate),
        order(units(20), fate),
        order_many(3, units(4), fate),
    ];
    all.into_iter().map(held_back).collect()
}

#[test]
fn prefault_goes_on_without_helpers_that_are_stopped_or_end_in_it() {
    let mut ward = Ward::start();
    for fate in [
        Fate::Held(Duration::from_millis(50)),
        Fate::HeldToTheEnd,
        Fate::Exit,
    ] {
        for order in units(fate) {
            let late = ward.host.steps(Step::HelperLate);
            let caught = ward.cycle("checkpoint", &order);
            let stays = fate == Fate::HeldToTheEnd;
            let more = ward.host.steps(Step::HelperLate) - late;
            assert!(!stays || more >= caught.taken as u32, "{order:?}: {more}");
        }
    }
    assert_eq!(ward.host.steps_but(&OVERLOAD), []);
    ward.expect_nothing_lost();
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_helper_that_ends_inside_prefault_is_waited_for_by_nobody() {
    let outcome = Attack::new("stopped killed-in-prefault")
        .env("CUDASNAP_THREADS", "2")
        .env("CUDASNAP_PAGES", "4k")
        .run();
    assert!(outcome.number() >= 1.0, "nobody was killed");
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

/// Copies of a phase of the smallest process.
fn copies(ward: &Ward) -> u64 {
    ward.host.last("checkpoint").copies
}

/// A driver that fails in one step of an otherwise good cycle, and whose process can go on.
fn fail_and_recover(host: &Shimmed, step: &str, fault: &str) {
    must(host, "lock");
    if step == "restore" {
        must(host, "checkpoint");
    }
    must_fail(host, step, fault);
    host.expect_no_helper_after(SOON);
    if step == "restore" {
        must(host, "restore");
    }
    must(host, "unlock");
}

/// How the same process without the shim changes by the same failure and a cycle.
fn stock_growth(driver: &SimDriver, step: &str, fault: &str) -> Growth {
    let mut app = driver.app(&["1"], &[("CUDASIM_CONTEXT_MIB", "46")]);
    let target = Target::new(app.pid() as i32);
    let before = Holdings::of(target).expect("its holdings");
    let steps = [
        "lock",
        step,
        "unlock",
        "lock",
        "checkpoint",
        "restore",
        "unlock",
    ];
    for (number, action) in steps.into_iter().enumerate() {
        let word = [("CUDASIM_FAULT", fault)];
        let environment = if number == 1 { &word[..] } else { &[] };
        let done = driver.begin(action, app.pid(), environment).finish();
        assert_eq!(done.code != 0, number == 1, "{action}: {done:?}");
    }
    assert_eq!(app.wrong_words(), 0);
    Growth::between(&before, &Holdings::of(target).expect("its holdings"))
}

fn expect_next_cycle(ward: &mut Ward, fault: &str, stock: Option<&Growth>) {
    assert_eq!(ward.host.app.wrong_words(), 0, "{fault}");
    for action in ["lock", "checkpoint", "restore", "unlock"] {
        must(&ward.host, action);
    }
    assert_eq!(ward.host.app.wrong_words(), 0, "{fault}");
    for direction in ["checkpoint", "restore"] {
        expect_covered(&ward.host, direction);
    }
    expect_no_leak(
        &mut ward.host,
        |host| host,
        |host| host.growth().leaks(stock, None),
    );
}

#[test]
fn the_driver_fails_at_every_copy_of_a_checkpoint() {
    let mut ward = Ward::start();
    ward.host.cycle();
    let all = copies(&ward);
    for copy in 0..all {
        let fault = format!("copy:{copy},unmap");
        fail_and_recover(&ward.host, "checkpoint", &fault);
        let failed = ward.host.last("checkpoint");
        assert_eq!(failed.copies, copy, "{failed:?}");
        expect_next_cycle(&mut ward, &fault, None);
    }
    assert!(ward.host.record().counters.answered > 2 * all);
    // The driver forgets its buffer here: each time a new process.
    let stock = stock_growth(&ward.driver, "checkpoint", "copy:1,keep");
    for copy in 0..all {
        let mut ward = Ward::on(&ward.driver);
        let fault = format!("copy:{copy},keep");
        fail_and_recover(&ward.host, "checkpoint", &fault);
        expect_next_cycle(&mut ward, &fault, Some(&stock));
        assert!(ward.host.record().counters.answered >= 2);
        assert_eq!(ward.host.steps(Step::SecondBuffer), 1, "{fault}");
    }
}

#[test]
fn the_driver_fails_at_every_copy_of_a_restore() {
    let mut ward = Ward::start();
    ward.host.cycle();
    let all = copies(&ward);
    for copy in 0..all {
        let fault = format!("copy:{copy},keep");
        fail_and_recover(&ward.host, "restore", &fault);
        expect_next_cycle(&mut ward, &fault, None);
    }
    assert!(ward.host.record().counters.answered > 2 * all);
    // The driver gives the buffer up here, and the process with it: also without the shim.
    for copy in 0..all {
        let ward = Ward::on(&ward.driver);
        let fault = format!("copy:{copy},unmap");
        must(&ward.host, "lock");
        must(&ward.host, "checkpoint");
        must_fail(&ward.host, "restore", &fault);
        ward.host.expect_no_helper_after(SOON);
        assert_eq!(ward.host.control("state").stdout, "failed");
        // It fails before the shim sees a copy, or after so many.
        let record = ward.host.record();
        let copied = record.last("restore").map_or(0, |phase| phase.copies);
        assert_eq!(copied, copy);
        assert!(ward.host.record().buffer.state.is("none"));
        // No later call will come that could find a late helper gone.
        if ward.host.steps(Step::HelperLate) == 0 {
            let growth = ward.host.growth();
            assert_eq!(growth.leaks(None, None), [""; 0], "{fault}: {growth:?}");
        }
    }
}

#[test]
fn the_driver_fails_in_a_frozen_world() {
    for step in ["checkpoint", "restore"] {
        let after = if step == "checkpoint" {
            "unmap"
        } else {
            "keep"
        };
        let mut ward = Ward::start();
        for place in ["0", "1", "middle", "last-1"] {
            let fault = format!("copy:{place},{after}");
            let pid = ward.host.app.pid() as i32;
            let mut freeze = Freeze::new(pid, ward.restore_thread).expect("a frozen world");
            freeze
                .with_restore_thread(|| fail_and_recover(&ward.host, step, &fault))
                .expect("the restore thread runs");
            drop(freeze);
            expect_next_cycle(&mut ward, &fault, None);
            // The helpers of a driver that fails leave also when nobody is left to send them.
            must(&ward.host, "lock");
            if step == "restore" {
                must(&ward.host, "checkpoint");
            }
            let mut freeze = Freeze::new(pid, ward.restore_thread).expect("a frozen world");
            freeze
                .with_restore_thread(|| must_fail(&ward.host, step, &fault))
                .expect("the restore thread runs");
            ward.host.expect_no_helper_after(SOON);
            drop(freeze);
            if step == "restore" {
                must(&ward.host, "restore");
            }
            must(&ward.host, "unlock");
            expect_next_cycle(&mut ward, &fault, None);
        }
    }
}

/// Stops helpers wherever they are, as a second freeze would, and releases them after a while; how many.
fn stop_helpers_for(pid: i32, time: Duration) -> u32 {
    let all = threads(Target::new(pid)).expect("its threads");
    let helpers = all
        .iter()
        .filter(|thread| thread.name.starts_with("csnap-"));
    let stopped: Vec<Tracee> = helpers
        .filter_map(|thread| Tracee::seize(thread.tid, 0).ok())
        .filter(|helper| {
            // One that ends now cannot be stopped, but is waited for.
            let _ = helper.interrupt();
            helper.wait().expect("its tracer is told") != Seen::Ended
        })
        .collect();
    std::thread::sleep(time);
    for helper in &stopped {
        helper.detach().expect("a stopped thread");
    }
    stopped.len() as u32
}

#[test]
fn a_second_freeze_stops_helpers_too() {
    let mut ward = Ward::start();
    let (pid, tid) = (ward.host.app.pid() as i32, ward.restore_thread);
    let mut dice = Dice(0x5eed_5eed);
    let slow = [("CUDASIM_NOISE", "0"), ("CUDASIM_DMA_GBPS", "1")];
    let mut stopped = 0;
    let mut cycles = 0;
    while stopped < 12 {
        must(&ward.host, "lock");
        let mut freeze = Freeze::new(pid, tid).expect("a frozen world");
        for step in ["checkpoint", "restore"] {
            let moment = Duration::from_micros(dice.below(40_000));
            let hold = Duration::from_millis(dice.below(150));
            let act = || {
                let begun = ward.host.driver.begin(step, ward.host.app.pid(), &slow);
                std::thread::sleep(moment);
                stopped += stop_helpers_for(pid, hold);
                begun.finish()
            };
            let done = freeze.with_restore_thread(act).expect("it runs");
            assert_eq!(done.code, 0, "{step}: {done:?}");
            let phase = ward.host.last(step);
            assert!(
                phase.end.is("covered") && phase.copied == phase.expected,
                "{phase:?}"
            );
            ward.host.expect_no_helper_after(SOON);
        }
        drop(freeze);
        must(&ward.host, "unlock");
        assert_eq!(ward.host.app.wrong_words(), 0);
        cycles += 1;
        assert!(cycles < 200, "{stopped} helpers in {cycles} cycles");
    }
    println!("{stopped} helpers were stopped in {cycles} frozen cycles");
    assert_eq!(ward.host.record().counters.answered, cycles);
    ward.expect_nothing_lost();
}
