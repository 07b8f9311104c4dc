//! The options: one table for the shim that reads them, the tools that show them and the documentation.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::Seq;

/// An option as people set it, in the environment of the program.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Name of the environment variable.
    pub name: &'static str,
    /// Values that are understood.
    pub values: &'static str,
    /// Value when the variable is absent or not understood.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// All options. The position is the number of the option in a [`crate::Complaint`].
pub const OPTIONS: [OptionSpec; 9] = [
    OptionSpec {
        name: "CUDASNAP",
        values: "on, observe, off",
        default: "on",
        meaning: "answer the driver's buffer request; only time it; do nothing",
    },
    OptionSpec {
        name: "CUDASNAP_THREADS",
        values: "0 to 32",
        default: "0",
        meaning: "threads that copy at most, the caller included; 1 = caller alone; 0 = automatic",
    },
    OptionSpec {
        name: "CUDASNAP_PAGES",
        values: "thp, 4k, hugetlb",
        default: "thp",
        meaning: "kind of page that the buffer asks for",
    },
    OptionSpec {
        name: "CUDASNAP_BUFFER",
        values: "fresh, keep, reserve",
        default: "fresh",
        meaning: "give the buffer back after a restore; keep it for the next checkpoint; keep its addresses, for `cudasnap reserve` to fill",
    },
    OptionSpec {
        name: "CUDASNAP_KEEP_MAX",
        values: "bytes, with K, M, G or T; 0 = as long as the last buffer",
        default: "0",
        meaning: "how much memory a kept or reserved buffer holds at most",
    },
    OptionSpec {
        name: "CUDASNAP_REPORT",
        values: "an absolute path, up to 511 bytes",
        default: "",
        meaning: "file to which one JSON line per phase is appended when the buffer is unmapped",
    },
    OptionSpec {
        name: "CUDASNAP_LOG",
        values: "off, warn, info, debug",
        default: "off",
        meaning: "what is written to stderr",
    },
    OptionSpec {
        name: "CUDASNAP_STRATEGY",
        values: "fixed, tune, flush-late, flush-within, no-flush, flush-late-ahead, non-temporal, plain, demote",
        default: "fixed",
        meaning: "how copies are made: as measured best on one machine; the best of several tried in each phase; one of them",
    },
    OptionSpec {
        name: "CUDASNAP_SPARSE",
        values: "off, on",
        default: "off",
        meaning: "on: what is zero on the GPU takes no memory in the buffer; little is prefaulted",
    },
];

/// The options in force, as numbers. Written once by the constructor.
#[repr(C)]
#[derive(Debug)]
pub struct Options {
    /// Consistency counter of this block.
    pub seq: Seq,
    /// [`crate::Mode`] that the environment asked for; the mode in force is [`crate::Record::mode`].
    pub mode: AtomicU32,
    /// Threads, 0 = automatic.
    pub threads: AtomicU32,
    /// [`crate::PageKind`] asked for.
    pub pages: AtomicU32,
    /// [`crate::Rest`].
    pub keep: AtomicU32,
    /// 0 off, 1 warn, 2 info, 3 debug.
    pub log: AtomicU32,
    /// Bytes a kept or reserved buffer holds at most, 0 = as long as the last buffer.
    pub keep_max: AtomicU64,
    /// Length of the report path; 0 = no report.
    pub report_len: AtomicU32,
    /// [`crate::Choice`].
    pub strategy: AtomicU32,
    /// 1 when zeros are left out.
    pub sparse: AtomicU32,
    /// Keeps the layout free of padding.
    pub reserved: AtomicU32,
}

impl Options {
    /// The defaults.
    pub const fn new() -> Self {
        Options {
            seq: Seq::new(),
            mode: AtomicU32::new(0),
            threads: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            keep: AtomicU32::new(0),
            log: AtomicU32::new(0),
            keep_max: AtomicU64::new(0),
            report_len: AtomicU32::new(0),
            strategy: AtomicU32::new(0),
            sparse: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}
