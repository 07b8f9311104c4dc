//! The crew, with one helper: born, fed, sent away; killed in the middle of a part; gone by itself, so that its stack is free. What
//! needs more threads is in `random.rs`.

use super::{every, Model};
use crate::crew::{First, Recruited, CREW};
use crate::sync::{yield_now, AtomicU32, Ordering};
use crate::sys;
use crate::world::{self, World, PART};

pub const LIST: fn() -> Vec<Model> = || {
    let model = |name, shows, run| Model {
        name,
        shows,
        run,
        broken: false,
        weaken: true,
    };
    vec![
        model(
            "crew",
            "a helper is born, shares a copy and is sent away: right bytes, nobody left",
            || phase(3),
        ),
        model(
            "crew-flush",
            "a flush outlives its copy: whoever takes the source away and waits finds it over",
            || flush(2),
        ),
        model(
            "crew-killed",
            "a helper is killed inside a part: the part is done again, by the caller",
            || killed(2),
        ),
        model(
            "crew-again",
            "a helper that left by itself has left its stack: the next one may have it",
            || again(2),
        ),
    ]
};

fn begin(first: First) {
    let left: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
    CREW.begin(1, first, left);
}

fn recruit() -> Recruited {
    // SAFETY: the stacks of a model are cells.
    unsafe { CREW.recruit(1, 0) }
}

fn copy(world: &World) -> u32 {
    let (dst, src) = world.prepare(0);
    // SAFETY: the addresses of a model are not followed.
    let redone = unsafe { CREW.copy(dst, src, 2 * PART, &world::manner(2, false)) };
    world.check(0);
    redone
}

fn phase(preemptions: usize) {
    every(preemptions, || {
        let world = World::new(1, 2);
        begin(First::Copy);
        assert_eq!(
            recruit(),
            Recruited {
                started: 1,
                refused: false
            }
        );
        assert_eq!(copy(&world), 0);
        assert_eq!(CREW.dismiss(), 0);
        sys::stacks_are_unmapped();
        assert!(sys::alive().is_empty());
        world.untouched();
    });
}

fn flush(preemptions: usize) {
    every(preemptions, || {
        let world = World::new(1, 2);
        begin(First::Copy);
        recruit();
        let (dst, src) = world.prepare(0);
        // SAFETY: the addresses of a model are not followed.
        unsafe { CREW.copy(dst, src, 2 * PART, &world::manner(2, true)) };
        CREW.wait_for_flushes(src as usize, 2 * PART);
        // Both ranges are somebody else's from here on.
        world.check(0);
        assert_eq!(CREW.dismiss(), 0);
        world.untouched();
    });
}

fn killed(preemptions: usize) {
    every(preemptions, || {
        let over = std::sync::Arc::new(AtomicU32::new(0));
        let dead = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let world = {
            let (over, dead) = (over.clone(), dead.clone());
            World::with(1, 2, move |_, _| {
                if sys::helper().is_some() && dead.fetch_add(1, Ordering::Relaxed) == 0 {
                    sys::end(101, true);
                    // It never comes back: what follows in the model is no part of the execution.
                    while over.load(Ordering::Acquire) == 0 {
                        yield_now();
                    }
                }
            })
        };
        begin(First::Copy);
        recruit();
        let redone = copy(&world);
        assert_eq!(redone, dead.load(Ordering::Relaxed));
        assert_eq!(CREW.dismiss(), 0);
        world.untouched();
        over.store(1, Ordering::Release);
        sys::all_returned();
    });
}

fn again(preemptions: usize) {
    every(preemptions, || {
        // Nothing to populate and no copy: each helper leaves when it first looks at the clock.
        begin(First::Request);
        assert_eq!(recruit().started, 1);
        while recruit().started == 0 {
            yield_now();
        }
        while CREW.alive() > 0 {
            yield_now();
        }
        sys::stacks_are_unmapped();
    });
}
