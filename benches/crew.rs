//! Dispatch: what it costs to publish a 2 MiB job, have its parts claimed, and see them done, with a loop that copies nothing.

mod common;

use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main, Criterion};
use cudasnap::bench::{cpus, Crew};

const CHUNK: usize = 2 << 20;
/// Jobs between two looks at the crew: helpers leave after 20 ms without a copy.
const BATCH: u64 = 1000;

unsafe fn nothing(_dst: *mut u8, _src: *const u8, _len: usize) {}

fn jobs(crew: &Crew, count: u64) -> Duration {
    let (mut target, source) = ([0u8; 1], [0u8; 1]);
    let mut took = Duration::ZERO;
    let mut left = count;
    while left > 0 {
        let now = left.min(BATCH);
        crew.again();
        let start = Instant::now();
        for _ in 0..now {
            // SAFETY: the loop touches neither range.
            unsafe { crew.copy(target.as_mut_ptr(), source.as_ptr(), CHUNK, nothing) };
        }
        took += start.elapsed();
        left -= now;
    }
    took
}

fn dispatch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crew");
    // The caller is a thread too: with more helpers than this some would share a CPU.
    let most = (cpus() - 1).clamp(1, 15);
    let mut counts = vec![1, 3, 7, most];
    counts.retain(|helpers| *helpers <= most);
    counts.dedup();
    for helpers in counts {
        let crew = Crew::begin(helpers);
        group.bench_function(format!("empty-job/{helpers}-helpers"), |bencher| {
            bencher.iter_custom(|count| jobs(&crew, count));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = common::brief();
    targets = dispatch
}
criterion_main!(benches);
