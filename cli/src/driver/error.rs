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
