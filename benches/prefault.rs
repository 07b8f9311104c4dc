//! Prefault of fresh memory: by touch and by population, huge and base pages, one thread and two.

mod common;

use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main, Criterion, SamplingMode, Throughput};
use cudasnap::bench::{How, Memory, Pages};

const LEN: usize = 256 << 20;

/// Time to populate new memory of `LEN` bytes; mapping and unmapping it is not counted.
fn populate(how: How, huge: bool, threads: usize) -> Duration {
    let memory = Memory::new(LEN, huge);
    let prefault = Pages::new();
    prefault.arm(memory.start(), LEN, LEN, how, u32::MAX);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| while prefault.step(false) {});
        }
        while prefault.step(false) {}
    });
    let took = start.elapsed();
    assert!(prefault.is_done() && prefault.refusal().is_none());
    took
}

fn prefault(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("prefault");
    group.throughput(Throughput::Bytes(LEN as u64));
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    let ways = [
        ("touch-huge", How::TouchHuge, true),
        ("touch-base", How::TouchSmall, false),
        ("populate-huge", How::Populate, true),
        ("populate-base", How::Populate, false),
    ];
    for (name, how, huge) in ways {
        for threads in [1, 2] {
            group.bench_function(format!("{name}/{threads}-threads"), |bencher| {
                bencher.iter_custom(|count| (0..count).map(|_| populate(how, huge, threads)).sum());
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = common::brief();
    targets = prefault
}
criterion_main!(benches);
