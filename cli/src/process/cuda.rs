//! How far a process has come with CUDA, seen from outside and without the driver.

use serde::Serialize;

use super::observe::thread_named;
use super::target::{Mapping, MemoryError, Target};

/// How far a process has come with CUDA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CudaUse {
    /// libcuda is not mapped.
    None,
    /// libcuda is mapped, and has not been initialised.
    Loaded,
    /// libcuda has been initialised: there is a restore thread.
    Initialised {
        /// Thread that does the driver's work in a checkpoint.
        restore_thread: i32,
    },
}

impl CudaUse {
    /// Looks at the process's mappings and at the names of its threads.
    ///
    /// # Errors
    /// The process has ended, or may not be looked into.
    pub fn of(target: Target) -> Result<Self, MemoryError> {
        Self::with(target, &target.mappings()?)
    }

    /// The same, with the mappings at hand.
    ///
    /// # Errors
    /// The process has ended.
    pub fn with(target: Target, mappings: &[Mapping]) -> Result<Self, MemoryError> {
        if !mappings.iter().any(is_libcuda) {
            return Ok(CudaUse::None);
        }
        let restore = thread_named(target, is_restore_thread)?;
        Ok(
            restore.map_or(CudaUse::Loaded, |restore_thread| CudaUse::Initialised {
                restore_thread,
            }),
        )
    }
}

/// Whether the mapping is of the driver's library.
pub fn is_libcuda(mapping: &Mapping) -> bool {
    let name = mapping.path.rsplit('/').next().unwrap_or_default();
    name.starts_with("libcuda.so")
}

/// `cuda` and hexadecimal digits (driver 580).
fn is_restore_thread(name: &str) -> bool {
    let digits = name.strip_prefix("cuda");
    digits.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_restore_thread_is_known_by_its_name() {
        assert!(is_restore_thread("cuda00001400006") && is_restore_thread("cudaabc"));
        for other in ["cuda", "cuda-EvtHandlr", "cudaxyz", "python3"] {
            assert!(!is_restore_thread(other), "{other}");
        }
    }

    #[test]
    fn this_process_has_no_cuda() {
        let own = Target::new(std::process::id() as i32);
        assert_eq!(CudaUse::of(own), Ok(CudaUse::None));
    }

    #[test]
    fn the_library_is_known_by_its_files_name() {
        for (path, is) in [
            ("/usr/lib/libcuda.so.580.159.04", true),
            ("/x/libcuda.so.1 (deleted)", true),
            ("/x/libcudart.so.12", false),
            ("", false),
        ] {
            let line = format!("1000-2000 r--p 00000000 fe:00 42 {path}");
            assert_eq!(is_libcuda(&Mapping::parse(&line).unwrap()), is, "{path}");
        }
    }
}
