//! `--csv FILE`: a row per cycle. Column names are stable: new columns come at the end, none changes its meaning.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::data::{Cycle, Measured, Phase, Seen, Variant, Workload};
use crate::document;
use crate::document::csv::harmless;

/// A cycle and what it belongs to.
struct Row<'a> {
    run: &'a Measured,
    workload: &'a Workload,
    variant: Option<&'a Variant>,
    cycle: &'a Cycle,
}

/// A column: its name, what is in it, and how it is made.
struct Column<Value> {
    name: &'static str,
    what: &'static str,
    value: Value,
}

type OfCycle = fn(&Row<'_>) -> String;
type OfPhase = fn(&Phase) -> String;

const fn cycle(name: &'static str, what: &'static str, value: OfCycle) -> Column<OfCycle> {
    Column { name, what, value }
}

const fn phase(name: &'static str, what: &'static str, value: OfPhase) -> Column<OfPhase> {
    Column { name, what, value }
}

const FRONT: [Column<OfCycle>; 15] = [
    cycle("tool", "version of the tool", |row| harmless(&row.run.tool)),
    cycle(
        "started_unix",
        "start of the run, seconds since 1970",
        |row| row.run.started_unix.to_string(),
    ),
    cycle("seed", "seed of the order of cycles", |row| {
        row.run.seed.to_string()
    }),
    cycle("gpu", "name of the GPU", |row| {
        row.run
            .gpu
            .as_ref()
            .map_or_else(String::new, |gpu| harmless(&gpu.name))
    }),
    cycle("driver", "version of its driver", |row| {
        row.run
            .gpu
            .as_ref()
            .map_or_else(String::new, |gpu| harmless(&gpu.driver))
    }),
    cycle("workload", "program, or size of the built-in one", |row| {
        harmless(&row.workload.name)
    }),
    cycle(
        "cycle",
        "number of the cycle in the workload, from 1",
        |row| row.cycle.number.to_string(),
    ),
    cycle(
        "round",
        "round, within which variants are compared; 0 for a warm-up",
        |row| row.cycle.round.to_string(),
    ),
    cycle("variant", "name of the variant", |row| {
        harmless(&row.cycle.variant)
    }),
    cycle("mode", "its mode: stock, observe, on or off", |row| {
        row.variant
            .map_or_else(String::new, |variant| harmless(&variant.mode))
    }),
    cycle(
        "settings",
        "what it sets beside that: NAME=VALUE, parted by blanks",
        |row| {
            row.variant
                .map_or_else(String::new, |variant| pairs(&variant.settings))
        },
    ),
    cycle("warm_up", "true: in no statistics", |row| {
        row.cycle.warm_up.to_string()
    }),
    cycle("pid", "process", |row| row.cycle.pid.to_string()),
    cycle(
        "at_s",
        "start of the cycle, seconds since the run's",
        |row| number(row.cycle.at),
    ),
    cycle("lock_s", "time inside the driver's lock call", |row| {
        optional(row.cycle.lock)
    }),
];

/// Of a checkpoint and of a restore; each name is after the direction.
const PHASE: [Column<OfPhase>; 20] = [
    phase("s", "time inside the driver's call", |phase| {
        number(phase.seconds)
    }),
    phase(
        "bytes",
        "size of the driver's buffer; empty: nobody knows",
        |phase| {
            if phase.bytes == 0 {
                String::new()
            } else {
                phase.bytes.to_string()
            }
        },
    ),
    phase("gb_per_s", "bytes over s, in 10^9 bytes a second", rate),
    phase(
        "effective",
        "whether 99 % of the bytes at least went through the library",
        |phase| seen(phase, |seen| seen.effective),
    ),
    phase("mode", "mode of the library in this phase", |phase| {
        word(phase, |seen| &seen.mode)
    }),
    phase("pages", "kind of pages of the buffer", |phase| {
        word(phase, |seen| &seen.pages)
    }),
    phase(
        "kept",
        "whether the buffer was kept from the cycle before, or reserved",
        |phase| seen(phase, |seen| seen.kept),
    ),
    phase(
        "threads",
        "threads that copied, the caller included",
        |phase| seen(phase, |seen| seen.threads),
    ),
    phase("strategy", "how it copied", |phase| {
        word(phase, |seen| &seen.strategy)
    }),
    phase(
        "copied_bytes",
        "bytes that were copied through the library, each counted once",
        |phase| seen(phase, |seen| seen.copied),
    ),
    phase(
        "zeros_bytes",
        "bytes of these that were zeros, as what lay there, and were left out",
        |phase| seen(phase, |seen| seen.zeros),
    ),
    phase(
        "mmap_s",
        "time inside mmap of the buffer (checkpoint)",
        |phase| time(phase, |seen| seen.mmap),
    ),
    phase(
        "prefault_s",
        "from the start of the phase to the end of prefault",
        |phase| time(phase, |seen| seen.prefault),
    ),
    phase(
        "first_copy_s",
        "from the start of the phase to the start of its first copy",
        |phase| time(phase, |seen| seen.first_copy),
    ),
    phase("copying_s", "sum of the times inside copies", |phase| {
        time(phase, |seen| seen.copying)
    }),
    phase(
        "waiting_s",
        "sum of the times between copies: waiting for the driver",
        |phase| time(phase, |seen| seen.waiting),
    ),
    phase(
        "copy_loop_s",
        "from the start of the first copy to the end of the last",
        |phase| time(phase, |seen| seen.copy_loop),
    ),
    phase(
        "munmap_s",
        "time inside munmap of the buffer (restore)",
        |phase| time(phase, |seen| seen.munmap),
    ),
    phase(
        "total_s",
        "from the start of the phase to its end, as the library saw it",
        |phase| time(phase, |seen| seen.total),
    ),
    phase(
        "steps_down",
        "steps down that were taken: NAME=COUNT, parted by blanks",
        |phase| {
            phase
                .seen
                .as_ref()
                .map_or_else(String::new, |seen| pairs(&seen.steps_down))
        },
    ),
];

const BACK: [Column<OfCycle>; 11] = [
    cycle("unlock_s", "time inside the driver's unlock call", |row| {
        optional(row.cycle.unlock)
    }),
    cycle(
        "verified",
        "what the verification command said, or the built-in workload; empty: not asked",
        |row| shown(row.cycle.verified),
    ),
    cycle(
        "error",
        "what went wrong; the cycle then is in no statistics",
        |row| {
            row.cycle
                .error
                .as_deref()
                .map_or_else(String::new, harmless)
        },
    ),
    cycle(
        "others_busy",
        "share of all CPUs' time that others used, 0 to 1",
        |row| optional(row.cycle.surroundings.others_busy),
    ),
    cycle(
        "mhz_low",
        "lowest CPU frequency at the end of the cycle",
        |row| shown(row.cycle.surroundings.mhz.map(|(low, _)| low)),
    ),
    cycle(
        "mhz_high",
        "highest CPU frequency at the end of the cycle",
        |row| shown(row.cycle.surroundings.mhz.map(|(_, high)| high)),
    ),
    cycle("others_on_gpu", "other processes on the GPU", |row| {
        shown(row.cycle.surroundings.others_on_gpu)
    }),
    cycle(
        "available_bytes",
        "main memory that was available before the cycle",
        |row| shown(row.cycle.surroundings.available),
    ),
    cycle(
        "limit_to_host_gb_per_s",
        "pinned copies from the device, the limit of a checkpoint",
        |row| optional(row.workload.limit.map(|limit| limit.to_host)),
    ),
    cycle(
        "limit_to_device_gb_per_s",
        "pinned copies to the device, the limit of a restore",
        |row| optional(row.workload.limit.map(|limit| limit.to_device)),
    ),
    cycle("gpu_number", "its number by PCI bus", |row| {
        shown(row.run.gpu.as_ref().and_then(|gpu| gpu.number))
    }),
];

/// All cycles as CSV.
pub fn csv(measured: &Measured) -> String {
    let rows = measured.workloads.iter().flat_map(|workload| {
        workload.cycles.iter().map(move |cycle| {
            let mut variants = workload.variants.iter();
            cells(&Row {
                run: measured,
                workload,
                variant: variants.find(|variant| variant.name == cycle.variant),
                cycle,
            })
        })
    });
    document::csv(columns().iter().map(|(name, _)| name), rows)
}

/// Names of all columns, and what is in them.
pub fn columns() -> Vec<(String, &'static str)> {
    let phase = |direction| {
        let named = move |name| format!("{direction}_{name}");
        PHASE
            .iter()
            .map(move |column| (named(column.name), column.what))
    };
    let of_cycle = |column: &Column<OfCycle>| (column.name.to_owned(), column.what);
    let front = FRONT.iter().map(of_cycle);
    let back = BACK.iter().map(of_cycle);
    front
        .chain(phase("checkpoint"))
        .chain(phase("restore"))
        .chain(back)
        .collect()
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let phase = |phase: Option<&Phase>| -> Vec<String> {
        let cell = |column: &Column<OfPhase>| {
            phase.map_or_else(String::new, |phase| (column.value)(phase))
        };
        PHASE.iter().map(cell).collect()
    };
    let mut cells: Vec<String> = FRONT.iter().map(|column| (column.value)(row)).collect();
    cells.extend(phase(row.cycle.checkpoint.as_ref()));
    cells.extend(phase(row.cycle.restore.as_ref()));
    cells.extend(BACK.iter().map(|column| (column.value)(row)));
    cells
}

fn pairs(pairs: &BTreeMap<String, impl Display>) -> String {
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    harmless(&pairs.join(" "))
}

/// A number that reads back as the same; nothing where it is none.
fn number(value: f64) -> String {
    if value.is_finite() {
        value.to_string()
    } else {
        String::new()
    }
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, number)
}

fn shown(value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn rate(phase: &Phase) -> String {
    if phase.bytes == 0 || phase.seconds <= 0.0 {
        return String::new();
    }
    number(phase.bytes as f64 / phase.seconds / 1e9)
}

fn seen<Value: Display>(phase: &Phase, value: impl Fn(&Seen) -> Value) -> String {
    phase
        .seen
        .as_ref()
        .map_or_else(String::new, |seen| value(seen).to_string())
}

fn time(phase: &Phase, value: impl Fn(&Seen) -> f64) -> String {
    phase
        .seen
        .as_ref()
        .map_or_else(String::new, |seen| number(value(seen)))
}

fn word(phase: &Phase, value: impl Fn(&Seen) -> &String) -> String {
    phase
        .seen
        .as_ref()
        .map_or_else(String::new, |seen| harmless(value(seen)))
}

#[cfg(test)]
mod tests;
