//! The crew with many threads, in random orders: helpers that are born, refused, stopped for as long as anybody likes, killed in
//! the middle of a part, left behind by a process checkpointer, or late for the end of a phase.

use std::sync::atomic::{AtomicBool, AtomicU32 as Count, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use shuttle::rand::{thread_rng, Rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};

use super::Model;
use crate::crew::{First, CREW};
use crate::sync::{yield_now, AtomicU32};
use crate::sys::{self, Kernel};
use crate::world::{self, World, PART};

pub const LIST: fn() -> Vec<Model> = || {
    let model = |name: &'static str, shows, run, broken| Model {
        name,
        shows,
        run,
        broken,
        weaken: name == "crew-shares",
    };
    vec![
        model(
            "crew-shares",
            "three helpers share four copies: each part once, nobody left",
            || random(shares),
            false,
        ),
        model(
            "crew-refused",
            "the kernel refuses some threads: the copies are right with who is there",
            || random(refused),
            false,
        ),
        model(
            "crew-stopped-between",
            "a helper that is stopped between parts is not waited for, and late it does nothing",
            || random(stopped_between),
            false,
        ),
        model(
            "crew-stopped-inside",
            "a helper that is stopped inside a part is waited for",
            || random(stopped_inside),
            false,
        ),
        model(
            "crew-killed",
            "a helper is killed inside a part: the part is done again",
            || random(|| killed(true)),
            false,
        ),
        model(
            "crew-left-behind",
            "a helper is gone and its id was not cleared: the part is done again",
            || random_some(|| killed(false), 20),
            false,
        ),
        model(
            "crew-leaves",
            "helpers that have nothing to do leave by themselves, and the next copy has a new crew",
            || random(leaves),
            false,
        ),
        model(
            "crew-wrong-proof",
            "broken: the kernel says of a living helper that it is gone",
            || random_some(wrong_proof, 100),
            true,
        ),
    ]
};

/// Executions of each scheduler.
fn executions() -> usize {
    let asked = std::env::var("CUDASNAP_EXECUTIONS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(1500)
}

fn random(execution: fn()) {
    random_some(execution, 1);
}

/// The same with fewer executions, for one that takes long: its caller looks thousands of times before it asks the kernel.
fn random_some(execution: fn(), divisor: usize) {
    let mut config = Config::new();
    config.stack_size = 0x4_0000;
    config.max_steps = MaxSteps::FailAfter(2_000_000);
    let seed = std::env::var("CUDASNAP_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(4);
    let count = executions().div_ceil(divisor);
    Runner::new(RandomScheduler::new_from_seed(seed, count), config.clone()).run(execution);
    Runner::new(PctScheduler::new_from_seed(seed, 3, count), config).run(execution);
    println!("{} executions", 2 * count);
}

const PARTS: usize = 4;

fn begin(first: First) {
    let left: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
    CREW.begin(sys::now_ns(), first, left);
}

fn recruit(helpers: u32) -> crate::crew::Recruited {
    // SAFETY: the stacks of a model are not used.
    unsafe { CREW.recruit(helpers, 0) }
}

/// One copy of all parts; how many were done again.
fn copy(world: &World, job: usize) -> u32 {
    let (dst, src) = world.prepare(job);
    // SAFETY: the addresses of a model are not followed.
    let redone = unsafe { CREW.copy(dst, src, PARTS * PART, &world::manner(PARTS, false)) };
    world.check(job);
    redone
}

/// The same with flushes that may come later; then the source goes.
fn copy_and_flush(world: &World, job: usize) -> u32 {
    let (dst, src) = world.prepare(job);
    // SAFETY: the addresses of a model are not followed.
    let redone = unsafe { CREW.copy(dst, src, PARTS * PART, &world::manner(PARTS, true)) };
    CREW.wait_for_flushes(src as usize, PARTS * PART);
    world.check(job);
    redone
}

fn once(world: &World) {
    for times in world.times.iter().flatten() {
        assert_eq!(times.load(Relaxed), 1);
    }
}

fn shares() {
    sys::boot(Kernel::default());
    let world = World::new(4, PARTS);
    begin(First::Copy);
    assert_eq!(recruit(3).started, 3);
    (0..2).for_each(|job| assert_eq!(copy(&world, job), 0));
    (2..4).for_each(|job| assert_eq!(copy_and_flush(&world, job), 0));
    assert_eq!(CREW.dismiss(), 0);
    assert!(sys::alive().is_empty());
    world.untouched();
    once(&world);
}

fn refused() {
    sys::boot(Kernel {
        refused: |asked| asked % 2 == 1,
        ..Kernel::default()
    });
    let world = World::new(2, PARTS);
    begin(First::Copy);
    let recruited = recruit(3);
    assert!(recruited.refused && recruited.started == 1);
    (0..2).for_each(|job| assert_eq!(copy(&world, job), 0));
    assert_eq!(CREW.dismiss(), 0);
    world.untouched();
    once(&world);
}

/// A clock that moves at each look.
fn ticking(step_ns: u64) -> Box<dyn Fn() -> u64> {
    let now = AtomicU64::new(1);
    Box::new(move || now.fetch_add(step_ns, Relaxed))
}

fn stopped_between() {
    let released = Arc::new(AtomicBool::new(false));
    let accesses = Arc::new(Count::new(thread_rng().gen_range(0..200)));
    let stop = {
        let released = released.clone();
        Box::new(move |id: u32| {
            // The first helper runs so many accesses and no further.
            if id == 101
                && accesses
                    .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                    .is_err()
            {
                while !released.load(Relaxed) {
                    yield_now();
                }
            }
        })
    };
    sys::boot(Kernel {
        now_ns: ticking(1_000_000),
        stop: Some(stop),
        ..Kernel::default()
    });
    let world = World::new(3, PARTS);
    begin(First::Copy);
    recruit(2);
    assert_eq!(copy(&world, 0), 0);
    // It is late for the end of the phase, and still there in the next one.
    let late = CREW.dismiss();
    assert!(late <= 1);
    begin(First::Copy);
    recruit(2);
    assert_eq!(copy(&world, 1), 0);
    released.store(true, Relaxed);
    assert_eq!(copy(&world, 2), 0);
    while CREW.dismiss() > 0 {}
    sys::all_returned();
    world.untouched();
    once(&world);
}

fn stopped_inside() {
    let released = Arc::new(AtomicBool::new(false));
    let world = {
        let released = released.clone();
        World::with(2, PARTS, move |_, _| {
            while sys::helper() == Some(101) && !released.load(Relaxed) {
                yield_now();
            }
        })
    };
    sys::boot(Kernel::default());
    begin(First::Copy);
    recruit(2);
    let releaser = crate::sync::spawn(move || {
        (0..thread_rng().gen_range(0..300)).for_each(|_| yield_now());
        released.store(true, Relaxed);
    });
    (0..2).for_each(|job| assert_eq!(copy(&world, job), 0));
    releaser.join().unwrap();
    assert_eq!(CREW.dismiss(), 0);
    world.untouched();
    once(&world);
}

fn killed(clears: bool) {
    let over = Arc::new(AtomicBool::new(false));
    let deaths = Arc::new(Count::new(0));
    let world = {
        let (over, deaths) = (over.clone(), deaths.clone());
        World::with(2, PARTS, move |_, _| {
            if sys::helper() == Some(101) && !over.load(Relaxed) {
                deaths.fetch_add(1, Relaxed);
                sys::end(101, clears);
                // It never comes back: what follows in the model is no part of the execution.
                while !over.load(Relaxed) {
                    yield_now();
                }
            }
        })
    };
    sys::boot(Kernel::default());
    begin(First::Copy);
    recruit(2);
    let redone: u32 = (0..2).map(|job| copy(&world, job)).sum();
    assert_eq!(redone, deaths.load(Relaxed));
    assert_eq!(CREW.dismiss(), 0);
    world.untouched();
    over.store(true, Relaxed);
    sys::all_returned();
}

fn leaves() {
    sys::boot(Kernel {
        now_ns: ticking(6_000_000),
        ..Kernel::default()
    });
    let world = World::new(3, PARTS);
    for job in 0..3 {
        begin(First::Copy);
        recruit(2);
        assert_eq!(copy(&world, job), 0);
        // Nobody sends them away.
        sys::all_returned();
        assert_eq!(CREW.alive(), 0);
    }
    world.untouched();
    once(&world);
}

fn wrong_proof() {
    let world = World::with(1, PARTS, |_, _| {
        if sys::helper().is_some() {
            (0..60_000).for_each(|_| yield_now());
        }
    });
    sys::boot(Kernel {
        lies: true,
        ..Kernel::default()
    });
    begin(First::Copy);
    recruit(2);
    copy(&world, 0);
    CREW.dismiss();
    sys::all_returned();
    world.untouched();
}
