//! Whole cycles against the simulated driver, with and without the shim, at settable rates of its DMA.
//!
//! `CUDASNAP_BENCH_GBPS` takes the rates (GB/s, commas between, 0: as fast as this machine copies), `CUDASNAP_BENCH_MIB` the device
//! memory of the host program.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput};
use cudasnap_cli::driver::Driver;
use cudasnap_cli::process::target::Target;
use cudasnap_cli::record::Located;
use cudasnap_shim_tests::cycle::{Cycle, Outcome};
use cudasnap_shim_tests::host::{Host, HostSpec};
use cudasnap_shim_tests::shimmed::library;
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::split::Split;

const PATIENCE: Duration = Duration::from_secs(60);

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.into())
}

/// A host program of one arm.
struct Arm {
    name: &'static str,
    host: Host,
    record: Option<Located>,
}

impl Arm {
    fn start(name: &'static str, sim: &SimDriver, mib: &str) -> Self {
        let mut spec = HostSpec::new(sim.programs.join("simapp"), [mib]);
        if name != "stock" {
            spec = spec.with_shim(library());
        }
        match name {
            "observe" => spec = spec.with_env("CUDASNAP", "observe"),
            "keep" => spec = spec.with_env("CUDASNAP_BUFFER", "keep"),
            _ => {}
        }
        let host = Host::start(&spec, PATIENCE).expect("the host program starts");
        let record = (name != "stock")
            .then(|| Located::find(Target::new(host.pid())).expect("the shim is loaded"));
        Arm { name, host, record }
    }

    fn cycle(&self, driver: &Driver) -> Outcome {
        let cycle = Cycle {
            driver,
            pid: self.host.pid(),
            record: self.record.as_ref(),
            frozen: false,
            limit: PATIENCE,
        };
        cycle.run().expect("the cycle goes on")
    }

    /// Contents after all cycles: a fast cycle that lost a byte is no result.
    fn finish(mut self) {
        let wrong = self.host.wrong_words(PATIENCE).expect("an answer");
        assert_eq!(wrong, 0, "{}: contents are wrong", self.name);
    }
}

/// Seconds of the copy loop; none in a cycle without a record.
fn copy_loop(outcome: &Outcome) -> f64 {
    let phase = outcome.checkpoint.as_ref().expect("a recorded phase");
    Split::new(outcome.times.checkpoint, phase).copy_loop
}

/// What is measured: its name, the arms that have it, and how it is read.
type Measure = (&'static str, &'static [&'static str], fn(&Outcome) -> f64);

const MEASURES: [Measure; 3] = [
    ("checkpoint", &["stock", "shim", "keep"], |outcome| {
        outcome.times.checkpoint
    }),
    ("restore", &["stock", "shim", "keep"], |outcome| {
        outcome.times.restore
    }),
    ("copy-loop", &["observe", "shim", "keep"], copy_loop),
];

fn cycles(criterion: &mut Criterion, sim: &SimDriver) {
    let driver = Driver::load().expect("the simulated driver");
    let mib = setting("CUDASNAP_BENCH_MIB", "128");
    for rate in setting("CUDASNAP_BENCH_GBPS", "0,6").split(',') {
        // The rate is read in the calling process, for each transfer.
        std::env::set_var("CUDASIM_DMA_GBPS", rate);
        std::env::set_var("CUDASIM_NOISE", "0");
        let mut group = criterion.benchmark_group(format!("cycles/{mib}MiB/{rate}GBps"));
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
        group.warm_up_time(Duration::from_millis(500));
        group.measurement_time(Duration::from_secs(3));
        for name in ["stock", "observe", "shim", "keep"] {
            let arm = Arm::start(name, sim, &mib);
            // The first cycle makes what the option keeps, and says how long the buffer is.
            let bytes = arm.cycle(&driver).mapped_bytes;
            group.throughput(Throughput::Bytes(bytes));
            for (what, arms, read) in MEASURES {
                if !arms.contains(&name) {
                    continue;
                }
                group.bench_function(format!("{what}/{name}"), |bencher| {
                    bencher.iter_custom(|count| {
                        let seconds: f64 = (0..count).map(|_| read(&arm.cycle(&driver))).sum();
                        Duration::from_secs_f64(seconds)
                    });
                });
            }
            arm.finish();
        }
        group.finish();
    }
}

fn main() {
    // Without this cargo's own look at the benches (`cargo test --benches`) would build a driver and run cycles.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let sim = SimDriver::build(false);
    // The loader looks at the path when a process starts.
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder == sim.library) {
        let mut again = Command::new(std::env::current_exe().expect("this program's path"));
        again
            .args(std::env::args_os().skip(1))
            .env("LD_LIBRARY_PATH", &sim.library);
        panic!("cannot start again: {}", again.exec());
    }
    let mut criterion = Criterion::default().configure_from_args();
    cycles(&mut criterion, &sim);
    criterion.final_summary();
}
