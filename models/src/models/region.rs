//! The table of buffers: whoever looks up an address gets a buffer as it was entered, or none.

use loom::sync::Arc;
use loom::thread;

use super::{every, Model};
use crate::region::{Origin, Region, Table};

pub const LIST: fn() -> Vec<Model> = || {
    vec![Model {
        name: "region",
        shows:
            "a look-up while buffers come and go, also at the same address: a whole buffer or none",
        run: look_up,
        broken: false,
        weaken: true,
    }]
};

const fn region(start: usize, number: usize) -> Region {
    Region {
        start,
        len: number * 0x1000,
        mapped: number * 0x1000 + 0x10_0000,
        origin: Origin::WithTail,
        pid: number as u32,
    }
}

/// The second lies where the first lay: the kernel gives addresses out again.
const BUFFERS: [Region; 2] = [region(0x7000_0000, 1), region(0x7000_0000, 2)];

fn look_up() {
    every(2, || {
        let table = Arc::new(Table::new());
        let reader = {
            let table = table.clone();
            thread::spawn(move || {
                if let Some(found) = table.containing(0x7000_0000, 1) {
                    assert!(BUFFERS.contains(&found), "{found:?}");
                }
            })
        };
        assert!(table.insert(&BUFFERS[0]));
        table.remove(BUFFERS[0].start);
        assert!(table.insert(&BUFFERS[1]));
        assert_eq!(table.containing(0x7000_0000, 0x2000), Some(BUFFERS[1]));
        reader.join().unwrap();
        table.remove(BUFFERS[1].start);
        assert!(!table.any());
    });
}
