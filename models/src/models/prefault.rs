//! Prefault: each unit once, "done" means populated, and once a range is given up and found idle nobody touches it any more.

use loom::sync::Arc;
use loom::thread;

use super::{every, Model};
use crate::cell::Tracked;
use crate::pages::{How, Pages};
use crate::sys::{self, Kernel};

const UNIT: usize = 2 << 20;
const START: usize = 0x4000_0000;

pub const LIST: fn() -> Vec<Model> = || {
    vec![
        Model {
            name: "prefault",
            shows:
                "two threads: each unit is populated once, and all are when it says that it is done",
            run: populate,
            broken: false,
            weaken: true,
        },
        Model {
            name: "prefault-limit",
            shows: "while copies go on no more threads populate than may",
            run: limit,
            broken: false,
            weaken: true,
        },
        Model {
            name: "prefault-given-up",
            shows: "a range that was given up and found idle is not touched again",
            run: give_up,
            broken: false,
            weaken: true,
        },
    ]
};

/// A kernel that writes to a unit's cell when it populates it.
fn kernel(units: &std::sync::Arc<Vec<Tracked>>) {
    let units = units.clone();
    sys::boot(Kernel {
        populate: Box::new(move |addr, len| {
            assert_eq!(len, UNIT);
            let cell = &units[(addr - START) / UNIT];
            cell.set(cell.get() + 1);
            true
        }),
        ..Kernel::default()
    });
}

fn units(count: usize) -> std::sync::Arc<Vec<Tracked>> {
    let units = std::sync::Arc::new((0..count).map(|_| Tracked::new(0)).collect());
    kernel(&units);
    units
}

fn populate() {
    every(3, || {
        let units = units(2);
        let prefault = Arc::new(Pages::new());
        let helper = {
            let prefault = prefault.clone();
            thread::spawn(move || while prefault.step(false) {})
        };
        prefault.arm(START, 2 * UNIT, 2 * UNIT, How::Populate, 1);
        while prefault.step(false) {}
        if prefault.is_done() {
            assert!(units.iter().all(|unit| unit.get() == 1));
            assert_eq!(prefault.bytes(), 2 * UNIT as u64);
        }
        helper.join().unwrap();
        assert!(prefault.is_done() && prefault.refusal().is_none());
        assert!(units.iter().all(|unit| unit.get() == 1));
    });
}

fn limit() {
    every(3, || {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        let inside = AtomicU32::new(0);
        sys::boot(Kernel {
            populate: Box::new(move |_, _| {
                assert_eq!(inside.fetch_add(1, Relaxed), 0, "more than the limit");
                crate::sync::yield_now();
                inside.fetch_sub(1, Relaxed);
                true
            }),
            ..Kernel::default()
        });
        let prefault = Arc::new(Pages::new());
        prefault.arm(START, 2 * UNIT, 2 * UNIT, How::Populate, 1);
        let helper = {
            let prefault = prefault.clone();
            thread::spawn(move || prefault.step(true))
        };
        let _ = prefault.step(true);
        helper.join().unwrap();
        assert!(!prefault.is_busy());
    });
}

fn give_up() {
    every(3, || {
        let units = units(1);
        let prefault = Arc::new(Pages::new());
        prefault.arm(START, UNIT, UNIT, How::Populate, 1);
        let helper = {
            let prefault = prefault.clone();
            thread::spawn(move || {
                let _ = prefault.step(false);
            })
        };
        prefault.disarm();
        while prefault.is_busy() {
            crate::sys::sched_yield();
        }
        // The range is somebody else's now, who writes to it.
        units[0].set(7);
        helper.join().unwrap();
        assert_eq!(units[0].get(), 7);
    });
}
