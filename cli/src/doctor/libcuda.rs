//! The driver's library: which file the loader takes, what it can do, and whether its copies can be made by cudasnap.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::doctor::elf_file::{Library, Slot};
use crate::doctor::finding::{Finding, Group};
use crate::doctor::loader;
use crate::driver::{self, Driver, DriverError};
use crate::units;

const CALLS: [&str; 6] = [
    "cuCheckpointProcessLock",
    "cuCheckpointProcessCheckpoint",
    "cuCheckpointProcessRestore",
    "cuCheckpointProcessUnlock",
    "cuCheckpointProcessGetState",
    "cuCheckpointProcessGetRestoreThreadId",
];
/// The slots that the library holds while a buffer lives.
const SLOTS: [&str; 6] = [
    "memcpy", "memmove", "munmap", "mremap", "mprotect", "madvise",
];

/// What kind of library a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// NVIDIA's driver.
    Driver,
    /// The simulated one of cudasnap's tests.
    Simulated,
    /// A library to link programs with, that does nothing.
    Stub,
}

/// The library as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Libcuda {
    /// The path that the loader takes, links followed.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Version in the file's name.
    pub version: Option<String>,
    missing_calls: Vec<&'static str>,
    slots: Vec<Slot>,
}

impl Libcuda {
    /// Finds the file that the loader would take, and looks into it.
    ///
    /// # Errors
    /// What is wrong with the file. `Ok(None)`: there is none.
    pub fn find() -> Result<Option<Self>, String> {
        let Some(found) = loader::file_of(driver::LIBRARY) else {
            return Ok(None);
        };
        let path = std::fs::canonicalize(&found).unwrap_or(found);
        let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let library =
            Library::parse(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        let exports = |name: &&str| library.exports(name);
        Ok(Some(Libcuda {
            kind: kind(&path, library.holds("CUDASIM_DMA_GBPS"), bytes.len()),
            version: version_in(&path),
            missing_calls: CALLS.into_iter().filter(|name| !exports(name)).collect(),
            slots: library.slots(&SLOTS),
            path,
        }))
    }
}

fn kind(path: &Path, simulated: bool, bytes: usize) -> Kind {
    let in_stubs = path.components().any(|part| part.as_os_str() == "stubs");
    match simulated {
        true => Kind::Simulated,
        // Drivers have 20 MB and more, the stubs of CUDA packages about 100 kB.
        false if in_stubs || bytes < 1 << 20 => Kind::Stub,
        false => Kind::Driver,
    }
}

/// `580.159.04` of `libcuda.so.580.159.04`.
fn version_in(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let version = name.strip_prefix("libcuda.so.")?;
    version.contains('.').then(|| version.to_owned())
}

/// Looks at the library; `initialise`: also loads it and calls cuInit.
pub fn look(
    libcuda: &Result<Option<Libcuda>, String>,
    kernel: Option<&str>,
    initialise: bool,
) -> Group {
    let mut findings = vec![file(libcuda, kernel)];
    if let Ok(Some(libcuda)) = libcuda {
        findings.push(calls(&libcuda.missing_calls));
        findings.push(slots(&libcuda.slots));
    }
    if initialise {
        let start = Instant::now();
        let said = Driver::load().and_then(|driver| devices(&driver));
        findings.push(initialised(said, start.elapsed()));
    }
    Group {
        name: "libcuda",
        findings,
    }
}

fn file(libcuda: &Result<Option<Libcuda>, String>, kernel: Option<&str>) -> Finding {
    const CHECK: &str = "file";
    let libcuda = match libcuda {
        Ok(Some(libcuda)) => libcuda,
        Ok(None) => {
            return Finding::failed(
                CHECK,
                "the loader finds no libcuda.so.1",
                "install the driver's libraries (libcuda1), or start the container with its GPUs (--gpus all)",
            )
        }
        Err(error) => {
            return Finding::failed(CHECK, error.as_str(), "install the driver's libraries anew")
        }
    };
    let path = libcuda.path.display();
    match (libcuda.kind, libcuda.version.as_deref(), kernel) {
        (Kind::Simulated, _, _) => Finding::ok(CHECK, format!("{path}: the simulated driver")),
        (Kind::Stub, _, _) => Finding::failed(
            CHECK,
            format!("{path}: a stub to link with, no driver"),
            "take its folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d",
        ),
        (Kind::Driver, Some(own), Some(kernel)) if own != kernel && !is_compat(&libcuda.path) => {
            Finding::failed(
                CHECK,
                format!("{path} does not fit the kernel driver {kernel}"),
                "restart the machine, or reload the nvidia modules, after an update of the driver",
            )
        }
        (Kind::Driver, Some(own), Some(kernel)) if own != kernel => Finding::ok(
            CHECK,
            format!("{path} (forward compatibility) on the kernel driver {kernel}"),
        ),
        (Kind::Driver, _, _) => Finding::ok(CHECK, path.to_string()),
    }
}

/// NVIDIA's forward compatibility packages put a newer libcuda onto an older kernel driver.
fn is_compat(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "compat")
}

fn calls(missing: &[&str]) -> Finding {
    const CHECK: &str = "checkpoint calls";
    match missing.first() {
        None => Finding::ok(CHECK, "all there"),
        Some(first) => Finding::failed(
            CHECK,
            format!("{first} and {} more are missing", missing.len() - 1),
            "install driver 570 or newer",
        ),
    }
}

/// The same rule by which the library takes slots: copies are its own only when the end of the buffer comes to it too.
fn slots(slots: &[Slot]) -> Finding {
    const CHECK: &str = "slots";
    let of = |name: &str| slots.iter().find(|slot| slot.name == name);
    let free = |name: &str| of(name).is_some_and(|slot| !slot.read_only);
    let unmaps = free("munmap") && (of("mremap").is_none() || free("mremap"));
    if unmaps && (free("memcpy") || free("memmove")) {
        let mut names: Vec<&str> = slots.iter().map(|slot| slot.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        return Finding::ok(CHECK, format!("{}: can be taken", names.join(", ")));
    }
    let why = if slots.iter().any(|slot| slot.read_only) {
        "read-only (full RELRO)"
    } else {
        "not there"
    };
    Finding::warning(
        CHECK,
        format!("those for memcpy and munmap are {why}: the driver copies by itself, only its buffer is made faster"),
        concat!("no command mends it: report this version of the driver at ", env!("CARGO_PKG_REPOSITORY")),
    )
}

/// Version of CUDA and the names of the devices.
fn devices(driver: &Driver) -> Result<(u32, Vec<String>), DriverError> {
    let names = (0..driver.device_count()?).map(|number| driver.device_name(number));
    Ok((driver.cuda_version()?, names.collect::<Result<_, _>>()?))
}

fn initialised(said: Result<(u32, Vec<String>), DriverError>, took: Duration) -> Finding {
    const CHECK: &str = "cuInit";
    match said {
        Ok((_, names)) if names.is_empty() => Finding::failed(
            CHECK,
            "no device may be used",
            "look at CUDA_VISIBLE_DEVICES and at the container's GPUs",
        ),
        Ok((version, names)) => Finding::ok(
            CHECK,
            format!(
                "{}, CUDA {}.{}: {}",
                units::duration(took),
                version / 1000,
                version % 1000 / 10,
                names.join(", ")
            ),
        ),
        Err(error) => Finding::failed(
            CHECK,
            error.to_string(),
            "look at the checks of the driver above, and at dmesg | grep -i nvrm",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict::{Failed, Ok as Fine, Warning};

    fn libcuda(path: &str, kind: Kind) -> Result<Option<Libcuda>, String> {
        Ok(Some(Libcuda {
            path: path.into(),
            kind,
            version: version_in(Path::new(path)),
            missing_calls: Vec::new(),
            slots: Vec::new(),
        }))
    }

    #[test]
    fn the_kind_of_a_library_is_told() {
        let kind = |path: &str, simulated, bytes| super::kind(Path::new(path), simulated, bytes);
        assert_eq!(
            kind("/usr/lib/libcuda.so.580.1", false, 90 << 20),
            Kind::Driver
        );
        assert_eq!(
            kind("/usr/local/cuda/lib64/stubs/libcuda.so", false, 90 << 20),
            Kind::Stub
        );
        assert_eq!(kind("/x/libcuda.so.1", false, 100 << 10), Kind::Stub);
        assert_eq!(kind("/x/libcuda.so.1", true, 200 << 10), Kind::Simulated);
    }

    #[test]
    fn the_file_must_fit_the_kernel_driver() {
        let verdict = |path: &str, kind, kernel| file(&libcuda(path, kind), kernel).verdict;
        let new = "/usr/lib/libcuda.so.580.159.04";
        assert_eq!(verdict(new, Kind::Driver, Some("580.159.04")), Fine);
        assert_eq!(verdict(new, Kind::Driver, Some("570.1.2")), Failed);
        assert_eq!(
            verdict(
                "/usr/local/cuda/compat/libcuda.so.580.1",
                Kind::Driver,
                Some("535.1")
            ),
            Fine
        );
        assert_eq!(
            verdict("/x/libcuda.so.1", Kind::Driver, Some("580.1")),
            Fine
        );
        assert_eq!(verdict("/x/libcuda.so.1", Kind::Simulated, None), Fine);
        assert_eq!(
            verdict("/x/libcuda.so.1", Kind::Stub, Some("580.1")),
            Failed
        );
        assert_eq!(file(&Ok(None), None).verdict, Failed);
        assert_eq!(file(&Err("torn".into()), None).verdict, Failed);
    }

    #[test]
    fn calls_and_slots_decide_what_works() {
        assert_eq!(calls(&[]).verdict, Fine);
        assert_eq!(calls(&CALLS).verdict, Failed);
        let slot = |name: &str, read_only| Slot {
            name: name.into(),
            read_only,
        };
        let both = [slot("munmap", false), slot("memcpy", false)];
        assert_eq!(slots(&both).found, "memcpy, munmap: can be taken");
        assert_eq!(
            slots(&[slot("memcpy", true), slot("munmap", true)]).verdict,
            Warning
        );
        assert_eq!(slots(&[slot("memcpy", false)]).verdict, Warning);
        assert_eq!(
            slots(&[slot("memmove", false), slot("munmap", false)]).verdict,
            Fine
        );
        let moved = [both[0].clone(), both[1].clone(), slot("mremap", true)];
        assert_eq!(slots(&moved).verdict, Warning);
    }

    #[test]
    fn what_cuinit_said_is_told() {
        let took = Duration::from_millis(310);
        let fine = initialised(Ok((13000, vec!["NVIDIA H200".into()])), took);
        assert_eq!(fine.found, "310 ms, CUDA 13.0: NVIDIA H200");
        assert_eq!(initialised(Ok((13000, Vec::new())), took).verdict, Failed);
        let none = DriverError::NoLibrary("none".into());
        assert_eq!(initialised(Err(none), took).verdict, Failed);
    }
}
