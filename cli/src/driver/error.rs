//! What goes wrong in a driver call.

use std::fmt;

use super::LIBRARY;

/// Why a driver call gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverError {
    /// The library cannot be loaded; with the loader's words.
    NoLibrary(String),
    /// The library does not export this call: a driver before 570 has no checkpoint calls.
    NoCall(&'static str),
    /// The call returned an error.
    Refused {
        /// Name of the call.
        call: &'static str,
        /// Number (`CUresult`).
        code: u32,
        /// Its name, such as `CUDA_ERROR_NOT_SUPPORTED`; empty when the driver has none.
        name: String,
        /// The driver's text for it.
        text: String,
    },
}

/// `CUDA_ERROR_OUT_OF_MEMORY`
const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_NO_DEVICE`
const NO_DEVICE: u32 = 100;

impl DriverError {
    /// Whether the GPU, or the machine, has no memory left for it.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, DriverError::Refused { code, .. } if *code == OUT_OF_MEMORY)
    }

    /// Why there is no GPU to work on, for people who have not asked for the driver: no driver, or no GPU. `None`: something else.
    pub fn no_gpu(&self) -> Option<String> {
        match self {
            DriverError::NoLibrary(text) => Some(format!(
                "there is no NVIDIA driver here: {LIBRARY} cannot be loaded ({text})"
            )),
            DriverError::Refused { code, .. } if *code == NO_DEVICE => Some(format!(
                "there is no GPU here, or CUDA_VISIBLE_DEVICES hides it ({self})"
            )),
            _ => None,
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverError::NoLibrary(text) => write!(out, "cannot load {LIBRARY}: {text}"),
            DriverError::NoCall(call) => write!(out, "{LIBRARY} has no {call}"),
            DriverError::Refused {
                call,
                code,
                name,
                text,
            } => write!(out, "{call}: error {code} {name} \"{text}\""),
        }
    }
}

impl std::error::Error for DriverError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_gpu_is_told_as_such() {
        let refused = |code| DriverError::Refused {
            call: "cuInit",
            code,
            name: String::new(),
            text: String::new(),
        };
        assert!(refused(100)
            .no_gpu()
            .unwrap()
            .starts_with("there is no GPU here"));
        assert!(DriverError::NoLibrary("gone".into())
            .no_gpu()
            .unwrap()
            .contains("no NVIDIA driver"));
        assert_eq!(refused(999).no_gpu(), None);
        assert!(refused(2).is_out_of_memory() && !refused(3).is_out_of_memory());
    }

    #[test]
    fn errors_name_call_number_and_text() {
        let error = DriverError::Refused {
            call: "cuInit",
            code: 100,
            name: "CUDA_ERROR_NO_DEVICE".into(),
            text: "no device".into(),
        };
        assert_eq!(
            error.to_string(),
            "cuInit: error 100 CUDA_ERROR_NO_DEVICE \"no device\""
        );
    }
}
