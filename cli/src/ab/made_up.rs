//! Runs that never were, for tests.

use std::collections::BTreeMap;

use super::data::{
    Cycle, Gpu, Host, Limit, Measured, Phase, Seen, Surroundings, Variant, Workload, SCHEMA,
};

/// So many rounds of `observe` and `on`, which takes `1 / speed` of the time, each with a little noise that repeats itself.
pub fn run(rounds: u32, speed: f64) -> Measured {
    let variant = |mode: &str| Variant {
        name: mode.into(),
        mode: mode.into(),
        settings: BTreeMap::new(),
    };
    let mut cycles = Vec::new();
    for round in 0..=rounds {
        let mut order = ["observe", "on"];
        if round % 2 == 1 {
            order.reverse();
        }
        for name in order {
            let number = cycles.len() as u32 + 1;
            let seconds = if name == "on" { 3.0 / speed } else { 3.0 };
            cycles.push(cycle(number, round, name, seconds * noise(number)));
        }
    }
    Measured {
        schema: SCHEMA,
        tool: "0.1.0".into(),
        started_unix: 1_800_000_000,
        seed: 1,
        host: Host {
            cpus: 16,
            cpu: "a CPU".into(),
            memory: 128 << 30,
            kernel: "6.18".into(),
            thp: "madvise".into(),
        },
        gpu: Some(Gpu {
            name: "a GPU".into(),
            driver: "580.159.04".into(),
            link: Some("Gen5 x16".into()),
            number: Some(0),
        }),
        workloads: vec![Workload {
            name: "a program".into(),
            command: Vec::new(),
            variants: vec![variant("observe"), variant("on")],
            limit: Some(Limit {
                to_host: 50.0,
                to_device: 55.0,
                bytes: 1 << 30,
                repeats: 5,
            }),
            no_limit: None,
            cycles,
        }],
        stopped: None,
        confidence: None,
    }
}

/// Between 0.99 and 1.01, without a trend.
fn noise(number: u32) -> f64 {
    0.99 + f64::from(number * 7919 % 21) / 1000.0
}

fn cycle(number: u32, round: u32, variant: &str, seconds: f64) -> Cycle {
    Cycle {
        number,
        round,
        variant: variant.into(),
        warm_up: round == 0,
        pid: 4711,
        dropped: None,
        at: f64::from(number) * 10.0,
        lock: Some(0.001),
        checkpoint: Some(phase(variant, seconds, true)),
        restore: Some(phase(variant, seconds / 2.0, false)),
        unlock: Some(0.001),
        verified: Some(true),
        error: None,
        surroundings: Surroundings {
            others_busy: Some(0.01),
            mhz: Some((3000, 3100)),
            others_on_gpu: Some(0),
            available: Some(100 << 30),
        },
    }
}

fn phase(variant: &str, seconds: f64, away: bool) -> Phase {
    let on = variant == "on";
    Phase {
        seconds,
        bytes: 1_000_000_000,
        seen: Some(Seen {
            effective: on,
            mode: variant.into(),
            pages: if on { "thp" } else { "driver" }.into(),
            kept: false,
            threads: if on { 8 } else { 1 },
            strategy: "driver".into(),
            copied: 1_000_000_000,
            zeros: 0,
            mmap: if away { seconds * 0.1 } else { 0.0 },
            prefault: if away { seconds * 0.3 } else { 0.0 },
            first_copy: seconds * 0.15,
            copying: seconds * 0.4,
            waiting: seconds * 0.2,
            copy_loop: seconds * 0.6,
            munmap: if away { 0.0 } else { seconds * 0.05 },
            total: seconds * 0.85,
            steps_down: BTreeMap::new(),
        }),
    }
}
