//! The machine and its GPU, as far as they explain numbers.

use super::data::{Gpu, Host};
use super::surroundings::memory;
use crate::gpus::{self, Gpus};

/// Looks at the machine.
pub fn host() -> Host {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    Host {
        cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
        cpu: model(&read("/proc/cpuinfo")),
        memory: memory("MemTotal").unwrap_or(0),
        kernel: read("/proc/sys/kernel/osrelease").trim().into(),
        thp: word_in_force(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
    }
}

/// The GPU with this number, as NVML counts.
pub fn gpu(all: &Gpus, index: u32) -> Option<Gpu> {
    let found = all.gpus.iter().find(|gpu| gpu.index == index)?;
    let is_simulated = found.name.starts_with("cudasim");
    Some(Gpu {
        name: found.name.clone(),
        driver: if is_simulated {
            "simulated".into()
        } else {
            all.driver.clone()
        },
        link: gpus::link(index),
        number: Some(index),
    })
}

fn model(cpuinfo: &str) -> String {
    let value = cpuinfo.lines().find_map(|line| {
        let (_, value) = line.strip_prefix("model name")?.split_once(':')?;
        Some(value.trim().to_string())
    });
    value.unwrap_or_default()
}

fn word_in_force(text: &str) -> String {
    let word = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    word.map_or(String::new(), |(word, _)| word.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_the_kernels_files() {
        assert_eq!(word_in_force("always [madvise] never\n"), "madvise");
        assert_eq!(word_in_force(""), "");
        assert_eq!(
            model("processor: 0\nmodel name\t: A B @ 2 GHz\n"),
            "A B @ 2 GHz"
        );
        assert!(host().memory > 0 && !host().kernel.is_empty());
    }
}
