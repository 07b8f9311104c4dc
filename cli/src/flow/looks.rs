//! What is looked at before anything is touched: rights, room in main memory for a checkpoint, room on the GPUs for a restore.

use crate::gpus::Gpus;
use crate::process::observe::resident_bytes;
use crate::process::rights;
use crate::process::target::Target;
use crate::record::view::RecordView;
use crate::room::{self, Room};
use crate::units::bytes;

/// What a checkpoint of a process brings into main memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The process.
    pub pid: i32,
    /// Bytes; `None`: nobody says.
    pub bytes: Option<u64>,
    /// The limits that hold for it.
    pub limits: Vec<Room>,
}

impl Need {
    /// The process's device memory as NVML tells it, less what a kept or reserved buffer holds already.
    pub fn of(pid: i32, gpus: Option<&Gpus>, record: Option<&RecordView>) -> Self {
        let target = Target::new(pid);
        let used = gpus.and_then(|gpus| gpus.used_by(pid));
        Need {
            pid,
            bytes: used.map(|used| used.saturating_sub(held(target, record))),
            limits: room::limits(target).unwrap_or_default(),
        }
    }
}

fn held(target: Target, record: Option<&RecordView>) -> u64 {
    let kept = record
        .map(|record| &record.buffer)
        .filter(|buffer| buffer.is_waiting());
    kept.and_then(|buffer| {
        let end = buffer.address.checked_add(buffer.mapped)?;
        Some(
            resident_bytes(target, buffer.address, end)
                .ok()?
                .min(buffer.length),
        )
    })
    .unwrap_or(0)
}

/// The limits that do not hold what the checkpoints need, each as a sentence. Processes that share a limit need it together.
pub fn short_of_room(needs: &[Need]) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for limit in needs.iter().flat_map(|need| &need.limits) {
        if !names.contains(&limit.limit.as_str()) {
            names.push(&limit.limit);
        }
    }
    names
        .into_iter()
        .filter_map(|name| short_of(name, needs))
        .collect()
}

fn short_of(name: &str, needs: &[Need]) -> Option<String> {
    let mut least = u64::MAX;
    let mut sum = 0u64;
    let mut pids = Vec::new();
    for need in needs {
        let Some(limit) = need.limits.iter().find(|limit| limit.limit == name) else {
            continue;
        };
        let Some(more) = need.bytes else { continue };
        least = least.min(limit.bytes);
        sum = sum.saturating_add(more);
        pids.push(need.pid.to_string());
    }
    (sum > least).then(|| {
        format!(
            "the checkpoint of {} brings {} into main memory, and {name} leaves room for {}: the process could be killed. Make room, \
             or go on with --force",
            pids.join(", "),
            bytes(sum),
            bytes(least)
        )
    })
}

/// Why the GPUs cannot hold what a restore brings back to them; `buffers` are those of the processes, in bytes. That
/// the free memory of all GPUs is enough does not prove that each has enough.
pub fn short_of_gpu(buffers: &[(i32, Option<u64>)], gpus: &Gpus) -> Option<String> {
    let sum = buffers
        .iter()
        .filter_map(|(_, length)| *length)
        .fold(0u64, u64::saturating_add);
    let free = gpus
        .gpus
        .iter()
        .fold(0u64, |sum, gpu| sum.saturating_add(gpu.free));
    let pids: Vec<String> = buffers.iter().map(|(pid, _)| pid.to_string()).collect();
    (!gpus.gpus.is_empty() && sum > free).then(|| {
        format!(
            "the restore of {} needs {} on the GPUs, and {} are free on all {} together. A restore that fails for lack of GPU \
             memory cannot always be repeated: make room (nvidia-smi shows who uses it), or go on with --force",
            pids.join(", "),
            bytes(sum),
            bytes(free),
            gpus.gpus.len()
        )
    })
}

/// Bytes of the buffer of a checkpointed process; `None`: nobody says.
pub fn buffer_length(record: Option<&RecordView>) -> Option<u64> {
    let buffer = &record?.buffer;
    let held = buffer.state.is("live") || buffer.state.is("observed");
    held.then_some(buffer.length)
}

/// What the looks found, for those who want to know.
pub fn notes(
    needs: &[Need],
    buffers: &[(i32, Option<u64>)],
    no_gpus: Option<&String>,
) -> Vec<String> {
    let mut notes: Vec<String> = no_gpus
        .map(|error| format!("GPU memory is not known: {error}"))
        .into_iter()
        .collect();
    notes.extend(needs.iter().map(|need| {
        let least = need.limits.iter().min_by_key(|limit| limit.bytes);
        let room = least.map_or_else(
            || "an unknown room".into(),
            |room| format!("room for {} ({})", bytes(room.bytes), room.limit),
        );
        match need.bytes {
            Some(more) => format!("{}: {} into main memory, {room}", need.pid, bytes(more)),
            None => format!("{}: an unknown size into main memory, {room}", need.pid),
        }
    }));
    notes.extend(buffers.iter().map(|(pid, length)| match length {
        Some(length) => format!("{pid}: {} back to the GPUs", bytes(*length)),
        None => format!("{pid}: an unknown size back to the GPUs (no record of the library)"),
    }));
    notes
}

/// The rights that are missing for these processes, each as a sentence.
pub fn missing_rights(pids: impl Iterator<Item = i32>) -> Vec<String> {
    pids.filter_map(|pid| Some(rights::to_look_into(pid).err()?.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::Gpu;

    fn room(limit: &str, bytes: u64) -> Room {
        Room {
            bytes,
            limit: limit.into(),
        }
    }

    fn need(pid: i32, bytes: impl Into<Option<u64>>, limits: &[Room]) -> Need {
        Need {
            pid,
            bytes: bytes.into(),
            limits: limits.to_vec(),
        }
    }

    #[test]
    fn a_shared_limit_is_needed_together() {
        let machine = room("MemAvailable", 100);
        let (a, b) = (room("/a", 70), room("/b", 70));
        // Each fits its own group, both together do not fit the machine.
        let needs = [
            need(1, 60, &[a.clone(), machine.clone()]),
            need(2, 60, &[b, machine.clone()]),
        ];
        let short = short_of_room(&needs);
        assert_eq!(short.len(), 1, "{short:?}");
        assert!(short[0].starts_with(
            "the checkpoint of 1, 2 brings 120 B into main memory, and MemAvailable leaves room for 100 B"
        ));
        assert!(short_of_room(&needs[..1]).is_empty());
        let both = short_of_room(&[need(1, 101, &[a, machine])]);
        assert_eq!(both.len(), 2);
    }

    #[test]
    fn what_nobody_knows_is_no_reason_to_refuse() {
        let machine = room("MemAvailable", 100);
        assert!(short_of_room(&[need(1, None, &[machine]), need(2, 5, &[])]).is_empty());
        assert!(short_of_room(&[]).is_empty());
    }

    #[test]
    fn gpus_are_counted_together() {
        let gpu = |free| Gpu {
            index: 0,
            uuid: String::new(),
            name: String::new(),
            total: 100,
            free,
            persistence: None,
            mig: None,
            processes: Vec::new(),
        };
        let gpus = Gpus {
            driver: String::new(),
            gpus: vec![gpu(30), gpu(20)],
        };
        let told = short_of_gpu(&[(1, Some(30)), (2, Some(21)), (3, None)], &gpus);
        assert!(told.is_some_and(|text| text.contains("needs 51 B on the GPUs, and 50 B are free")));
        assert_eq!(short_of_gpu(&[(1, Some(50))], &gpus), None);
        let none = Gpus {
            driver: String::new(),
            gpus: Vec::new(),
        };
        assert_eq!(short_of_gpu(&[(1, Some(50))], &none), None);
    }
}
