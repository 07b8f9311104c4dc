//! What was measured where: the head of the report.

use std::time::{Duration, UNIX_EPOCH};

use crate::ab::data::{Measured, Workload};
use crate::ab::variant::settings;
use crate::foreign_text::printable;
use crate::status::text::count;
use crate::units;

/// Name and value; what is not known is left out.
pub type Facts = Vec<(String, String)>;

fn add(facts: &mut Facts, name: &str, value: String) {
    if !value.is_empty() {
        facts.push((printable(name), printable(&value)));
    }
}

/// All of them.
pub fn facts(measured: &Measured) -> Facts {
    let mut facts = Facts::new();
    let started = UNIX_EPOCH.checked_add(Duration::from_secs(measured.started_unix));
    let started = started.map(humantime::format_rfc3339_seconds);
    let started = started.map_or(String::new(), |time| time.to_string());
    add(&mut facts, "Started", started);
    of_machine(measured, &mut facts);
    for workload in &measured.workloads {
        let name = match measured.workloads.len() {
            1 => String::new(),
            _ => format!(" of {}", workload.name),
        };
        of_workload(workload, &name, &mut facts);
    }
    let variants = measured.workloads.first();
    let variants = variants.map_or(String::new(), of_variants);
    add(&mut facts, "Variants", variants);
    add(&mut facts, "Contents", contents(&measured.workloads));
    add(&mut facts, "Seed", measured.seed.to_string());
    add(&mut facts, "cudasnap", measured.tool.clone());
    facts
}

/// What verification said of these programs.
pub fn contents(workloads: &[Workload]) -> String {
    let cycles = workloads.iter().flat_map(|workload| &workload.cycles);
    let answers: Vec<bool> = cycles.filter_map(|cycle| cycle.verified).collect();
    let asked = count(answers.len(), "cycle", "cycles");
    match answers.iter().filter(|right| !**right).count() {
        _ if answers.is_empty() => "not asked for".into(),
        0 => format!("right after {asked}"),
        wrong => format!("wrong after {wrong} of {asked}"),
    }
}

fn of_machine(measured: &Measured, facts: &mut Facts) {
    if let Some(gpu) = &measured.gpu {
        let link = gpu.link.as_ref();
        let link = link.map_or(String::new(), |link| format!(", PCIe {link}"));
        let number = gpu
            .number
            .map_or(String::new(), |number| format!(", number {number}"));
        add(facts, "GPU", format!("{}{number}{link}", gpu.name));
        add(facts, "Driver", gpu.driver.clone());
    }
    let host = &measured.host;
    add(facts, "CPU", format!("{} of {}", host.cpus, host.cpu));
    add(facts, "Main memory", units::bytes(host.memory));
    add(facts, "Kernel", host.kernel.clone());
    add(facts, "Transparent huge pages", host.thp.clone());
}

fn of_workload(workload: &Workload, name: &str, facts: &mut Facts) {
    add(facts, &format!("Command{name}"), workload.command.join(" "));
    if let Some(limit) = &workload.limit {
        add(
            facts,
            &format!("Pinned copies{name}"),
            format!(
                "{:.1} GB/s to main memory, {:.1} GB/s to the GPU ({} times {})",
                limit.to_host,
                limit.to_device,
                limit.repeats,
                units::bytes(limit.bytes)
            ),
        );
    }
}

fn of_variants(workload: &Workload) -> String {
    let variants = workload.variants.iter().map(|variant| {
        let settings = settings(variant);
        let comma = if settings.is_empty() { "" } else { "," };
        format!("{} (mode={}{comma}{settings})", variant.name, variant.mode)
    });
    variants.collect::<Vec<_>>().join("; ")
}
