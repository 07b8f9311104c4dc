//! Devices and other things that a process holds and that matter for a checkpoint or a process dump, by the names under which
//! its descriptors and mappings show them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::foreign_text::printable;
use crate::process::observe::Descriptor;
use crate::process::target::Mapping;

use super::text::count;

/// What kind of thing it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// NVIDIA's device files. A checkpointed process has none.
    Nvidia,
    /// GPUDirect RDMA copies.
    Gdrdrv,
    /// InfiniBand verbs.
    Infiniband,
    /// Rendering devices.
    Dri,
    /// io_uring.
    IoUring,
    /// userfaultfd.
    Userfaultfd,
    /// Memory with a descriptor: CRIU dumps it, other checkpointers may not.
    Memfd,
}

impl Kind {
    /// The kind of what a descriptor or a mapping names; `None` for everything else.
    pub fn of(name: &str) -> Option<Self> {
        const BEGINNINGS: [(&str, Kind); 7] = [
            ("/dev/nvidia", Kind::Nvidia),
            ("/dev/gdrdrv", Kind::Gdrdrv),
            ("/dev/infiniband/", Kind::Infiniband),
            ("/dev/dri/", Kind::Dri),
            ("anon_inode:[io_uring]", Kind::IoUring),
            ("anon_inode:[userfaultfd]", Kind::Userfaultfd),
            ("/memfd:", Kind::Memfd),
        ];
        BEGINNINGS
            .iter()
            .find(|(beginning, _)| name.starts_with(beginning))
            .map(|(_, kind)| *kind)
    }

    /// Whether it keeps CRIU from dumping a process, after the driver has let go of it.
    pub fn stops_a_dump(self) -> bool {
        self != Kind::Memfd
    }
}

/// A thing that is held, with everything that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Descriptors that refer to it.
    pub descriptors: Vec<i32>,
    /// Mappings of it.
    pub mappings: usize,
}

impl Held {
    /// `/dev/nvidia0 (descriptors 4, 5; 2 mappings)`
    pub fn described(&self) -> String {
        let mut parts = Vec::new();
        if !self.descriptors.is_empty() {
            let numbers: Vec<String> = self
                .descriptors
                .iter()
                .take(8)
                .map(ToString::to_string)
                .collect();
            let more = self.descriptors.len().saturating_sub(8);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            let word = if self.descriptors.len() == 1 {
                "descriptor"
            } else {
                "descriptors"
            };
            parts.push(format!("{word} {}{more}", numbers.join(", ")));
        }
        if self.mappings > 0 {
            parts.push(count(self.mappings, "mapping", "mappings"));
        }
        format!("{} ({})", printable(&self.name), parts.join("; "))
    }
}

/// Finds them among all descriptors and mappings.
pub fn among(descriptors: &[Descriptor], mappings: &[Mapping]) -> Vec<Held> {
    let mut found: BTreeMap<(Kind, String), (Vec<i32>, usize)> = BTreeMap::new();
    for descriptor in descriptors {
        if let Some((kind, name)) = known(&descriptor.refers_to) {
            found
                .entry((kind, name))
                .or_default()
                .0
                .push(descriptor.number);
        }
    }
    for mapping in mappings {
        if let Some((kind, name)) = known(&mapping.path) {
            found.entry((kind, name)).or_default().1 += 1;
        }
    }
    let held = found.into_iter();
    held.map(|((kind, name), (descriptors, mappings))| Held {
        kind,
        name,
        descriptors,
        mappings,
    })
    .collect()
}

/// Kind, and the name without what the kernel adds for files that have no link.
fn known(name: &str) -> Option<(Kind, String)> {
    let kind = Kind::of(name)?;
    let plain = name.strip_suffix(" (deleted)").unwrap_or(name);
    Some((kind, plain.to_owned()))
}

/// Descriptors and mappings of NVIDIA's device files.
pub fn of_nvidia(held: &[Held]) -> (usize, usize) {
    let nvidia = || held.iter().filter(|held| held.kind == Kind::Nvidia);
    (
        nvidia().map(|held| held.descriptors.len()).sum(),
        nvidia().map(|held| held.mappings).sum(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_grouped_by_name() {
        let descriptor = |number, refers_to: &str| Descriptor {
            number,
            refers_to: refers_to.into(),
        };
        let descriptors = [
            descriptor(3, "/dev/nvidiactl"),
            descriptor(4, "/dev/nvidia0"),
            descriptor(5, "/dev/nvidia0"),
            descriptor(6, "anon_inode:[io_uring]"),
            descriptor(7, "/memfd:x (deleted)"),
            descriptor(8, "/dev/null"),
            descriptor(9, "socket:[77]"),
        ];
        let line = "1000-2000 rw-s 00000000 00:05 42 /dev/nvidia0";
        let ring = "3000-4000 rw-s 00000000 00:05 43 anon_inode:[io_uring]";
        let mappings = [line, ring].map(|line| Mapping::parse(line).unwrap());
        let held = among(&descriptors, &mappings);
        let names: Vec<&str> = held.iter().map(|held| held.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "/dev/nvidia0",
                "/dev/nvidiactl",
                "anon_inode:[io_uring]",
                "/memfd:x"
            ]
        );
        assert_eq!(held[0].descriptors, [4, 5]);
        assert_eq!((held[0].mappings, held[2].mappings), (1, 1));
        assert_eq!(of_nvidia(&held), (3, 1));
        assert!(held[2].kind.stops_a_dump() && !held[3].kind.stops_a_dump());
    }

    #[test]
    fn ordinary_files_are_of_no_kind() {
        for name in [
            "/dev/null",
            "/tmp/dev/nvidia0",
            "pipe:[1]",
            "anon_inode:[eventpoll]",
            "",
        ] {
            assert_eq!(Kind::of(name), None, "{name}");
        }
        assert_eq!(Kind::of("/dev/infiniband/uverbs0"), Some(Kind::Infiniband));
        assert_eq!(Kind::of("/dev/nvidia-uvm"), Some(Kind::Nvidia));
    }
}
