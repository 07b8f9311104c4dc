//! The order of preloaded libraries. The loader binds a call to the first image that defines it: an image that defines `mmap`
//! and stands before cudasnap's library keeps the driver's request from being recognised.

use std::collections::HashMap;

use serde::Serialize;

use crate::process::target::{Mapping, Target};
use crate::record::elf::defines_function;
use crate::shim_library;

/// Bytes of an environment that are looked at: the kernel starts no program with more.
const ENVIRONMENT: u64 = 8 << 20;
/// Preloaded libraries that are looked at.
const ENTRIES: usize = 256;

/// What is preloaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Preload {
    /// Entries of `LD_PRELOAD`, as the process was started with.
    pub entries: Vec<String>,
    /// The library's place among them, counted from 1.
    pub position: Option<usize>,
    /// Those of them that are mapped, in the order in which the loader mapped them.
    pub mapped: Vec<String>,
    /// Images before the library that define `mmap`.
    pub rivals: Vec<String>,
    /// Whether an entry names the library.
    pub names_library: bool,
}

/// Looks at environment and mappings. `library` is the library's path as mapped. `None` when the environment may not be read, or
/// the process has ended.
pub fn look(target: Target, mappings: &[Mapping], library: Option<&str>) -> Option<Preload> {
    let environment = target.proc_file_within("environ", ENVIRONMENT).ok()?;
    let entries = entries_of(&environment);
    let images = Images::of(mappings);
    let position = library.and_then(|library| position_of(&entries, library));
    let rivals = match library {
        // Whoever is not in LD_PRELOAD is loaded after all that are (/etc/ld.so.preload, a dependency).
        Some(_) => rivals(
            target,
            &images,
            &entries[..position.map_or(entries.len(), |at| at - 1)],
        ),
        None => Vec::new(),
    };
    Some(Preload {
        mapped: in_memory(&entries, &images),
        names_library: entries.iter().any(|entry| is_library(file_name(entry))),
        position,
        rivals,
        entries,
    })
}

/// The entries of `LD_PRELOAD` in an environment block; blanks and colons separate them. Of two such variables the loader takes the
/// last.
fn entries_of(environment: &str) -> Vec<String> {
    let mut variables = environment.rsplit('\0');
    let value = variables.find_map(|variable| variable.strip_prefix("LD_PRELOAD="));
    let entries = value.unwrap_or_default().split([' ', ':']);
    entries
        .filter(|entry| !entry.is_empty())
        .take(ENTRIES)
        .map(str::to_owned)
        .collect()
}

/// Place of the library among the entries, counted from 1. An entry may be a link to the file that is mapped: then its name says
/// so.
fn position_of(entries: &[String], library: &str) -> Option<usize> {
    let library = library.strip_suffix(" (deleted)").unwrap_or(library);
    let same = |entry: &&String| entry.as_str() == library;
    let named = |entry: &&String| {
        let name = file_name(entry);
        name == file_name(library) || is_library(name)
    };
    let at = |found: &dyn Fn(&&String) -> bool| entries.iter().position(|entry| found(&entry));
    Some(at(&same).or_else(|| at(&named))? + 1)
}

fn is_library(name: &str) -> bool {
    name.starts_with(shim_library::FILE)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Where the images of a process begin.
struct Images<'a> {
    by_path: HashMap<&'a str, u64>,
    by_name: HashMap<&'a str, u64>,
}

impl<'a> Images<'a> {
    fn of(mappings: &'a [Mapping]) -> Self {
        let mut images = Images {
            by_path: HashMap::new(),
            by_name: HashMap::new(),
        };
        for mapping in mappings.iter().filter(|mapping| mapping.is_image()) {
            let path = mapping.path.trim_end_matches(" (deleted)");
            images.by_path.entry(path).or_insert(mapping.start);
            let name = file_name(path);
            images.by_name.entry(name).or_insert(mapping.start);
        }
        images
    }

    /// The image of a preloaded file: first by path, then by its file's name.
    fn start_of(&self, entry: &str) -> Option<u64> {
        let by_path = self.by_path.get(entry);
        by_path
            .or_else(|| self.by_name.get(file_name(entry)))
            .copied()
    }
}

/// The entries that are mapped, as the loader mapped them: the kernel gives addresses from the top down.
fn in_memory(entries: &[String], images: &Images) -> Vec<String> {
    let mut found: Vec<(u64, &String)> = entries
        .iter()
        .filter_map(|entry| Some((images.start_of(entry)?, entry)))
        .collect();
    found.sort_by_key(|(start, _)| std::cmp::Reverse(*start));
    found.into_iter().map(|(_, entry)| entry.clone()).collect()
}

/// The program itself and the entries before the library, as far as they define `mmap`.
fn rivals(target: Target, images: &Images, before: &[String]) -> Vec<String> {
    let program = std::fs::read_link(format!("/proc/{}/exe", target.pid())).ok();
    let program = program.map(|path| path.to_string_lossy().into_owned());
    let candidates = program.iter().chain(before);
    let has_mmap = |path: &&String| {
        let start = images.start_of(path);
        start.is_some_and(|start| defines_mmap(target, start))
    };
    candidates.filter(has_mmap).cloned().collect()
}

fn defines_mmap(target: Target, base: u64) -> bool {
    let defines = |name| defines_function(&target, base, name).unwrap_or(false);
    defines("mmap") || defines("mmap64")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn both_separators_are_understood() {
        let environment = "A=1\0LD_PRELOAD=/a/x.so /b/y.so::z.so\0LD_PRELOADED=no\0";
        assert_eq!(entries_of(environment), ["/a/x.so", "/b/y.so", "z.so"]);
        assert!(entries_of("PATH=/bin\0").is_empty());
        assert!(entries_of("LD_PRELOAD=\0").is_empty());
        assert_eq!(
            entries_of("LD_PRELOAD=/a.so\0LD_PRELOAD=/b.so\0"),
            ["/b.so"]
        );
        let many = format!("LD_PRELOAD={}", "a:".repeat(1 << 20));
        assert_eq!(entries_of(&many).len(), ENTRIES);
    }

    #[test]
    fn the_library_is_found_by_path_link_and_name() {
        let list = entries(&["/a/other.so", "/opt/libcudasnap.so"]);
        assert_eq!(position_of(&list, "/opt/libcudasnap.so"), Some(2));
        assert_eq!(position_of(&list, "/opt/libcudasnap.so (deleted)"), Some(2));
        assert_eq!(position_of(&list, "/store/libcudasnap.so.0.1.0"), Some(2));
        assert_eq!(position_of(&list[..1], "/opt/libcudasnap.so"), None);
    }

    #[test]
    fn the_order_in_memory_is_from_the_top_down() {
        let line = |start: u64, path: &str| {
            let line = format!("{start:x}-{:x} r--p 00000000 fe:00 42 {path}", start + 4096);
            Mapping::parse(&line).unwrap()
        };
        let mappings = [
            line(0x1000, "/a/late.so"),
            line(0x9000, "/a/early.so (deleted)"),
        ];
        let list = entries(&["/a/late.so", "early.so", "/a/none.so"]);
        assert_eq!(
            in_memory(&list, &Images::of(&mappings)),
            ["early.so", "/a/late.so"]
        );
    }

    #[test]
    fn this_program_defines_no_mmap_and_libc_does() {
        let own = Target::new(std::process::id() as i32);
        let mappings = own.mappings().unwrap();
        assert!(rivals(own, &Images::of(&mappings), &[]).is_empty());
        assert_eq!(
            rivals(own, &Images::of(&mappings), &entries(&["libc.so.6"])),
            ["libc.so.6"]
        );
    }
}
