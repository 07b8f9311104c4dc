//! The board: every part is copied once, by whoever claimed it; the caller sees all bytes; nobody copies for a job that is over.

use loom::sync::Arc;
use loom::thread;

use super::{every, Model};
use crate::board::{Board, Part, CALLER};
use crate::sync::{yield_now, AtomicU32, Ordering};
use crate::world::{self, World};

pub const LIST: fn() -> Vec<Model> = || {
    vec![
        Model {
            name: "board",
            shows: "a job shared with a helper: each part once, right bytes, no late reader or writer",
            run: || share(3, 1, 1, 2),
            broken: false,
            weaken: true,
        },
        Model {
            name: "board-next-job",
            shows: "a helper that is late for a job copies nothing of it, and nothing of the next with its addresses",
            run: || share(2, 1, 2, 1),
            broken: false,
            weaken: true,
        },
        Model {
            name: "board-two-helpers",
            shows: "the same with two helpers that compete",
            run: || share(2, 2, 1, 2),
            broken: false,
            weaken: false,
        },
        Model {
            name: "board-dead",
            shows: "the part of a helper that died is done again, by the caller alone",
            run: || dead(true),
            broken: false,
            weaken: true,
        },
        Model {
            name: "board-dead-unproved",
            shows: "broken: the caller takes over from a helper of which nobody proved that it is dead",
            run: || dead(false),
            broken: true,
            weaken: false,
        },
    ]
};

/// Claims parts of the newest job and copies them.
fn help(board: &Board, me: u8) {
    let generation = board.generation();
    if generation == 0 {
        return;
    }
    while let Some(claim) = board.claim(generation, me) {
        // SAFETY: the addresses of a model are not followed.
        unsafe { claim.copy() };
        board.finish(&claim);
    }
}

/// What the crew's caller does with one job.
fn finish(board: &Board, generation: u64, parts: usize, take: impl Fn(usize, u8) -> bool) {
    while let Some(claim) = board.claim(generation, CALLER) {
        // SAFETY: the addresses of a model are not followed.
        unsafe { claim.copy() };
        board.finish(&claim);
    }
    for index in 0..parts {
        loop {
            let claim = match board.look(index) {
                Part::Done => break,
                Part::Free => board.claim_free(index, generation, CALLER),
                Part::Begun(who) if take(index, who) => {
                    board.take_over(index, generation, who, CALLER)
                }
                Part::Begun(_) => None,
            };
            match claim {
                Some(claim) => {
                    // SAFETY: the addresses of a model are not followed.
                    unsafe { claim.copy() };
                    board.finish(&claim);
                }
                None => yield_now(),
            }
        }
    }
}

fn share(preemptions: usize, helpers: u8, jobs: usize, parts: usize) {
    every(preemptions, move || {
        let world = World::new(jobs, parts);
        let board = Arc::new(Board::new());
        let threads: Vec<_> = (1..=helpers)
            .map(|me| {
                let board = board.clone();
                thread::spawn(move || (0..jobs).for_each(|_| help(&board, me)))
            })
            .collect();
        for job in 0..jobs {
            let (dst, src) = world.prepare(job);
            let generation = board.publish(dst, src, &world.job(), world::copy, None);
            finish(&board, generation, parts, |_, _| false);
            world.check(job);
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        world.untouched();
        for times in world.times.iter().flatten() {
            assert_eq!(times.load(std::sync::atomic::Ordering::Relaxed), 1);
        }
    });
}

fn dead(proof: bool) {
    every(2, move || {
        let world = World::new(1, 2);
        let board = Arc::new(Board::new());
        let gone = Arc::new(AtomicU32::new(0));
        let thread = {
            let (board, gone) = (board.clone(), gone.clone());
            thread::spawn(move || {
                let generation = board.generation();
                if generation != 0 {
                    if let Some(claim) = board.claim(generation, 1) {
                        // SAFETY: the addresses of a model are not followed.
                        unsafe { claim.copy() };
                    }
                }
                // The kernel, after its last instruction.
                gone.store(1, Ordering::Release);
            })
        };
        let (dst, src) = world.prepare(0);
        let generation = board.publish(dst, src, &world.job(), world::copy, None);
        let is_gone = |_: usize, _: u8| !proof || gone.load(Ordering::Acquire) == 1;
        finish(&board, generation, 2, is_gone);
        world.check(0);
        thread.join().unwrap();
        world.untouched();
    });
}
