//! `Exclusive`: one user at a time, nobody waits, and what a user wrote is there for the next.

use loom::sync::Arc;
use loom::thread;

use super::{every, Model};
use crate::cell::Tracked;
use crate::exclusive::{Exclusive, Place, User};
use crate::sync::{AtomicU32, Ordering};

pub const LIST: fn() -> Vec<Model> = || {
    vec![
        Model {
            name: "exclusive",
            shows: "three threads: one user at a time, and the next sees what it wrote",
            run: || compete(false),
            broken: false,
            weaken: true,
        },
        Model {
            name: "exclusive-live-user",
            shows: "broken: a user that lives is taken for gone",
            run: || compete(true),
            broken: true,
            weaken: false,
        },
        Model {
            name: "exclusive-gone",
            shows: "of two that find a dead user one takes its place",
            run: inherit,
            broken: false,
            weaken: true,
        },
    ]
};

fn compete(lie: bool) {
    every(3, move || {
        let value = Arc::new(Exclusive::new(Tracked::new(0)));
        let used = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (1..=2)
            .map(|tid| {
                let (value, used) = (value.clone(), used.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let place = Place::new((0, 0));
                        let guard = value.try_use(tid, &place, |_| lie);
                        if let Some(guard) = guard {
                            guard.set(guard.get() + 1);
                            used.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        let place = Place::new((0, 0));
        if let Some(guard) = value.try_use(9, &place, |_| lie) {
            guard.set(guard.get() + 1);
            used.fetch_add(1, Ordering::Relaxed);
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let place = Place::new((0, 0));
        let guard = value.try_use(9, &place, |_| false).expect("nobody uses it");
        assert_eq!(guard.get(), u64::from(used.load(Ordering::Relaxed)));
    });
}

fn inherit() {
    every(3, || {
        let value = Arc::new(Exclusive::new(Tracked::new(0)));
        let gone = Arc::new(AtomicU32::new(0));
        let heirs = Arc::new(AtomicU32::new(0));
        let victim = {
            let (value, gone) = (value.clone(), gone.clone());
            thread::spawn(move || {
                let place = Place::new((0, 0));
                if let Some(guard) = value.try_use(1, &place, |_| false) {
                    guard.set(5);
                    core::mem::forget(guard);
                }
                gone.store(1, Ordering::Release);
            })
        };
        let heir = |tid: u32| {
            let (value, gone, heirs) = (value.clone(), gone.clone(), heirs.clone());
            move || {
                let is_gone = |user: User| user.tid == 1 && gone.load(Ordering::Acquire) == 1;
                let place = Place::new((0, 0));
                let guard = value.try_use(tid, &place, is_gone);
                if let Some(guard) = guard {
                    guard.set(guard.get() + 1);
                    heirs.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let other = thread::spawn(heir(2));
        heir(3)();
        victim.join().unwrap();
        other.join().unwrap();
        let place = Place::new((0, 0));
        let last = value
            .try_use(9, &place, |user| user.tid == 1)
            .expect("nobody lives who uses it");
        let heirs = u64::from(heirs.load(Ordering::Relaxed));
        // In any order: the victim found it free, or in use.
        assert!(
            [heirs, heirs + 5, 5].contains(&last.get()) || last.get() >= 5,
            "{}",
            last.get()
        );
    });
}
