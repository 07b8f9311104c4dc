//! The crew, with one helper: born, fed, sent away. What needs more threads, or threads that are stopped or killed, is in
//! `random.rs`.

use super::{every, Model};
use crate::crew::{First, Recruited, CREW};
use crate::sync::AtomicU32;
use crate::sys;
use crate::world::{self, World, PART};

pub const LIST: fn() -> Vec<Model> = || {
    vec![Model {
        name: "crew",
        shows: "a helper is born, shares a copy and is sent away: right bytes, nobody left",
        run: || phase(3),
        broken: false,
        weaken: true,
    }]
};

fn phase(preemptions: usize) {
    every(preemptions, || {
        let world = World::new(1, 2);
        let left: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        CREW.begin(1, First::Copy, left);
        // SAFETY: the stacks of a model are not used.
        let recruited = unsafe { CREW.recruit(1, 0) };
        assert_eq!(recruited, Recruited { started: 1, refused: false });
        let (dst, src) = world.prepare(0);
        // SAFETY: the addresses of a model are not followed.
        let redone = unsafe { CREW.copy(dst, src, 2 * PART, 2, world::copy) };
        assert_eq!(redone, 0);
        world.check(0);
        assert_eq!(CREW.dismiss(), 0);
        assert!(sys::alive().is_empty());
        world.untouched();
    });
}
