//! The planner: cutting a copy into jobs and a job into parts. It runs before every copy of the driver.

mod common;

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion};
use cudasnap::bench::cut;

/// Lengths that the driver copies: a chunk, a page, the largest piece of host memory.
const LENGTHS: [(&str, usize); 3] = [
    ("chunk-2MiB", 2 << 20),
    ("page-4KiB", 4096),
    ("host-6202384B", 6_202_384),
];

fn planner(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("planner");
    for (name, len) in LENGTHS {
        for threads in [2, 16] {
            group.bench_function(format!("{name}/{threads}-threads"), |bencher| {
                bencher.iter(|| cut(black_box(len), black_box(threads)));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = common::brief();
    targets = planner
}
criterion_main!(benches);
