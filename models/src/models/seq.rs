//! The record's counter: equal and even around a copy means that nobody wrote meanwhile.

use loom::sync::Arc;
use loom::thread;

use super::{every, Model};
use crate::seq::Seq;
use crate::sync::{fence, AtomicU64, Ordering};

pub const LIST: fn() -> Vec<Model> = || {
    let model = |name, shows, reader, broken| Model {
        name,
        shows,
        run: reader,
        broken,
        weaken: !broken,
    };
    vec![
        model(
            "seq",
            "a block that was read between two equal, even counters is whole",
            || blocks(true),
            false,
        ),
        model(
            "seq-unordered-reader",
            "broken: the second counter is not read after the block",
            || blocks(false),
            true,
        ),
    ]
};

fn blocks(ordered: bool) {
    every(3, move || {
        let block = Arc::new((Seq::new(), AtomicU64::new(0), AtomicU64::new(0)));
        let writer = {
            let block = block.clone();
            thread::spawn(move || {
                for number in 1..=2 {
                    block.0.write(|| {
                        block.1.store(number, Ordering::Relaxed);
                        block.2.store(number, Ordering::Relaxed);
                    });
                }
            })
        };
        let before = block.0.read();
        let (first, second) = (
            block.1.load(Ordering::Relaxed),
            block.2.load(Ordering::Relaxed),
        );
        if ordered {
            // The tool's copy is a system call.
            fence(Ordering::Acquire);
        }
        let after = block.0.read();
        if before == after && before % 2 == 0 {
            assert_eq!(first, second);
            assert_eq!(first, u64::from(before) / 2, "older than its counter says");
        }
        writer.join().unwrap();
        assert_eq!((block.0.read(), block.1.load(Ordering::Relaxed)), (4, 2));
    });
}
