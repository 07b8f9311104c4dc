//! The copy loops of every instruction set that this CPU has, with and without the flush of the source's lines: 2 MiB chunks in
//! parts, source and target out of the caches, as they are when a GPU has written the source.

mod common;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use cudasnap::bench::kernel::{Copy, Cpu, Isa, Kernel};
use cudasnap::bench::Memory;

const CHUNK: usize = 2 << 20;
/// Source and target rings: longer than the caches, so that a chunk's lines are gone when its turn comes again.
const RING: usize = 128 << 20;
const PARTS: [usize; 3] = [32 << 10, 64 << 10, 128 << 10];

/// What this CPU can run, best first, and libc's as a reference.
fn loops() -> Vec<(String, Copy)> {
    let cpu = Cpu::detect();
    let order = [Isa::Avx512, Isa::Avx2, Isa::Sse2];
    let mut all: Vec<(String, Copy)> = Vec::new();
    for isa in order.into_iter().skip_while(|isa| *isa != cpu.isa) {
        let kernel = Kernel::of(Cpu { isa, ..cpu });
        all.push((format!("{isa:?}").to_lowercase(), kernel.keep));
        if cpu.clflushopt {
            all.push((format!("{isa:?}-flush").to_lowercase(), kernel.flush));
        }
    }
    let best = Kernel::of(cpu);
    all.push(("ahead".into(), best.ahead));
    all.push(("fetch".into(), best.fetch));
    all.push(("demote-source".into(), best.demote_source));
    all.push(("demote-target".into(), best.demote_target));
    all.push(("plain".into(), best.plain));
    all.push(("libc".into(), Kernel::PORTABLE.keep));
    all
}

fn kernels(criterion: &mut Criterion) {
    let (source, target) = (Memory::new(RING, true), Memory::new(RING, true));
    for memory in [&source, &target] {
        // SAFETY: the whole of a writable mapping.
        unsafe { std::ptr::write_bytes(memory.start() as *mut u8, 1, RING) };
    }
    let mut group = criterion.benchmark_group("kernels");
    group.throughput(Throughput::Bytes(CHUNK as u64));
    for (name, copy) in loops() {
        for part in PARTS {
            let mut chunk = 0;
            group.bench_function(format!("{name}/{}KiB", part >> 10), |bencher| {
                bencher.iter(|| {
                    chunk = (chunk + CHUNK) % RING;
                    for at in (chunk..chunk + CHUNK).step_by(part) {
                        let (to, from) = (target.start() + at, source.start() + at);
                        // SAFETY: inside the rings, which do not overlap; the loop is one that this CPU has.
                        unsafe { copy(to as *mut u8, from as *const u8, part) };
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = common::brief();
    targets = kernels
}
criterion_main!(benches);
