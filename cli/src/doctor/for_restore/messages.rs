//! Messages in CRIU's images (CRIU 4.1), cut down to the fields that are looked at. Unknown fields are skipped.

use prost::Message;

/// A file of any kind, in `files.img`.
#[derive(Clone, PartialEq, Message)]
pub struct FileEntry {
    /// Number by which mappings refer to it.
    #[prost(uint32, required, tag = "2")]
    pub id: u32,
    /// A file in a file system.
    #[prost(message, optional, tag = "3")]
    pub regular: Option<RegularFile>,
}

/// A file in a file system.
#[derive(Clone, PartialEq, Message)]
pub struct RegularFile {
    /// The same number.
    #[prost(uint32, required, tag = "1")]
    pub id: u32,
    /// Its path, as the dumped process saw it.
    #[prost(string, required, tag = "6")]
    pub name: String,
    /// Bytes.
    #[prost(uint64, optional, tag = "8")]
    pub size: Option<u64>,
    /// Build id in 32-bit words; empty when CRIU did not look or found none.
    #[prost(uint32, repeated, packed = "false", tag = "11")]
    pub build_id: Vec<u32>,
}

/// The memory of a process, `mm-PID.img`.
#[derive(Clone, PartialEq, Message)]
pub struct Memory {
    /// Its mappings.
    #[prost(message, repeated, tag = "14")]
    pub mappings: Vec<Mapping>,
}

/// A mapping.
#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    /// First address.
    #[prost(uint64, required, tag = "1")]
    pub start: u64,
    /// First address after it.
    #[prost(uint64, required, tag = "2")]
    pub end: u64,
    /// Number of the file, for a mapping of a file; of shared memory, for others.
    #[prost(uint64, required, tag = "4")]
    pub file: u64,
    /// What kind of mapping it is, as bits.
    #[prost(uint32, required, tag = "7")]
    pub status: u32,
}

/// A file that CRIU creates at the restore because it had been deleted, `remap-fpath.img`.
#[derive(Clone, PartialEq, Message)]
pub struct Remap {
    /// Number of the file.
    #[prost(uint32, required, tag = "1")]
    pub file: u32,
}

/// Bits of [`Mapping::status`] that say that a file is mapped, privately or shared.
pub const MAPS_FILE: u32 = 1 << 6 | 1 << 7;
