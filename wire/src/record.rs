//! The record itself.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicU8};

use crate::{Options, Seq, Slot, Step, OPTIONS};

/// First eight bytes of a record: `CUDASNAP` in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"CUDASNAP");
/// Version of the layout; see the crate's documentation for when it is raised.
pub const VERSION: u32 = 2;
/// Name under which the shim exports its record.
pub const SYMBOL: &str = "cudasnap_record";
/// Room for the build id of the library, in bytes (SHA-1 takes 20, the rest is zero).
pub const BUILD_ID_BYTES: usize = 32;
/// Number of past phases that the record remembers.
pub const HISTORY: usize = 8;
/// Number of complaints about option values that the record can hold. These three have room to spare, so that a new option,
/// step or slot moves nothing.
pub const COMPLAINTS: usize = 16;
const STEPS: usize = 48;
const SLOTS: usize = 15;
const _: () =
    assert!(OPTIONS.len() <= COMPLAINTS && Step::ALL.len() <= STEPS && Slot::ALL.len() <= SLOTS);

/// One phase: a checkpoint or a restore, from its first call to its end. Times are nanoseconds of `CLOCK_MONOTONIC`
/// differences taken inside this phase; none spans two phases.
#[repr(C)]
#[derive(Debug)]
pub struct Phase {
    /// Consistency counter of this block. `copied`, `copies`, `prefaulted` grow without touching it.
    pub seq: Seq,
    /// [`crate::Direction`].
    pub direction: AtomicU32,
    /// [`crate::End`].
    pub end: AtomicU32,
    /// [`crate::Mode`] that was latched when the buffer was requested.
    pub mode: AtomicU32,
    /// [`crate::PageKind`] that the buffer was mapped with.
    pub pages: AtomicU32,
    /// Threads that copied, the caller included.
    pub threads: AtomicU32,
    /// Which buffer of this process the phase belongs to, counted from 1.
    pub buffer: AtomicU32,
    /// 1 when the buffer was one kept from the cycle before, or a reserved one that was found full.
    pub kept: AtomicU32,
    /// [`crate::Strategy`] of the copies; while several are tried, the one whose turn it is.
    pub strategy: AtomicU32,
    /// Strategies, and numbers of threads, that were tried in this phase before one was chosen; 0 = none: it was fixed.
    pub tried: AtomicU32,
    /// Bytes that the driver asked for: the copies of a whole phase cover exactly this.
    pub expected: AtomicU64,
    /// Bytes of the buffer that were copied through the shim, each counted once.
    pub copied: AtomicU64,
    /// Number of copies.
    pub copies: AtomicU64,
    /// Bytes that were populated ahead of the copies.
    pub prefaulted: AtomicU64,
    /// Bytes of `copied` that were zero, as what lay there, and were left out (`CUDASNAP_SPARSE`).
    pub zeros: AtomicU64,
    /// Wall-clock time of the start, nanoseconds since 1970.
    pub started_unix_ns: AtomicU64,
    /// Time inside the buffer's mmap (checkpoint).
    pub mmap_ns: AtomicU64,
    /// Start of the phase to the end of prefault.
    pub prefault_ns: AtomicU64,
    /// Start of the phase to the start of its first copy.
    pub first_copy_ns: AtomicU64,
    /// Sum of the times inside copies.
    pub copying_ns: AtomicU64,
    /// Sum of the times between copies: waiting for the driver.
    pub waiting_ns: AtomicU64,
    /// Largest time between two copies.
    pub longest_wait_ns: AtomicU64,
    /// First copy's start to last copy's end.
    pub loop_ns: AtomicU64,
    /// Start of the phase to its end.
    pub total_ns: AtomicU64,
    /// Time inside the buffer's munmap (restore).
    pub munmap_ns: AtomicU64,
}

impl Phase {
    /// An empty phase.
    pub const fn new() -> Self {
        const fn zero() -> AtomicU64 {
            AtomicU64::new(0)
        }
        Phase {
            seq: Seq::new(),
            direction: AtomicU32::new(0),
            end: AtomicU32::new(0),
            mode: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            threads: AtomicU32::new(0),
            buffer: AtomicU32::new(0),
            kept: AtomicU32::new(0),
            strategy: AtomicU32::new(0),
            tried: AtomicU32::new(0),
            expected: zero(),
            copied: zero(),
            copies: zero(),
            prefaulted: zero(),
            zeros: zero(),
            started_unix_ns: zero(),
            mmap_ns: zero(),
            prefault_ns: zero(),
            first_copy_ns: zero(),
            copying_ns: zero(),
            waiting_ns: zero(),
            longest_wait_ns: zero(),
            loop_ns: zero(),
            total_ns: zero(),
            munmap_ns: zero(),
        }
    }
}

impl Default for Phase {
    fn default() -> Self {
        Self::new()
    }
}

/// The buffer that lives now, or is kept or reserved.
#[repr(C)]
#[derive(Debug)]
pub struct Buffer {
    /// Consistency counter of this block.
    pub seq: Seq,
    /// 0 none, 1 live (the driver holds it), 2 kept (the driver has unmapped it), 3 observed (the driver's own mapping),
    /// 4 reserved (the driver has unmapped it, and nothing of its contents is left: what is resident was populated since).
    pub state: AtomicU32,
    /// Address of the first byte.
    pub address: AtomicU64,
    /// Bytes that the driver asked for.
    pub length: AtomicU64,
    /// Bytes that are mapped: `length`, rounded up, and the tail in which helpers' stacks lie.
    pub mapped: AtomicU64,
}

impl Buffer {
    /// No buffer.
    pub const fn new() -> Self {
        Buffer {
            seq: Seq::new(),
            state: AtomicU32::new(0),
            address: AtomicU64::new(0),
            length: AtomicU64::new(0),
            mapped: AtomicU64::new(0),
        }
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

/// State of libcuda's slots at the last look, in the order of [`Slot`]; room for more.
#[repr(C)]
#[derive(Debug)]
pub struct Slots {
    /// Load address of the libcuda that made the last request; 0 = none yet.
    pub libcuda: AtomicU64,
    /// [`crate::SlotState`] of each slot.
    pub state: [AtomicU32; SLOTS],
    /// Keeps the layout free of padding.
    pub reserved: AtomicU32,
}

/// Counters since the library was loaded.
#[repr(C)]
#[derive(Debug)]
pub struct Counters {
    /// Buffer requests of the driver that were recognised.
    pub requests: AtomicU64,
    /// Requests that were answered with a buffer of the shim.
    pub answered: AtomicU64,
    /// Phases that ended.
    pub phases: AtomicU64,
    /// Helper threads that were started.
    pub helpers_started: AtomicU64,
    /// Calls of libcuda's copy slots that did not have the buffer, and it alone, on one side.
    pub other_copies: AtomicU64,
    /// Steps down, in the order of [`Step`].
    pub steps: [AtomicU32; STEPS],
}

/// A value of an option that was not understood; the default is in force.
#[repr(C)]
#[derive(Debug)]
pub struct Complaint {
    /// Position in [`OPTIONS`] plus 1; 0 = no complaint here.
    pub option: AtomicU32,
    /// Bytes used in `value`.
    pub length: AtomicU32,
    /// The value as it was found, cut to this length.
    pub value: [AtomicU8; 56],
}

/// The record. The shim writes it; a tool writes only `mode`, `thread_cap` and `drop`.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Record {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Bytes of this structure in the build that wrote it.
    pub size: AtomicU32,
    /// Build id of the library, as the constructor read it from the library's note. It lies in data: after a process was
    /// moved, it still names the build whose data this is.
    pub build_id: [AtomicU8; BUILD_ID_BYTES],
    /// [`crate::Mode`] of the next buffer request. Control word.
    pub mode: AtomicU32,
    /// Upper limit for threads that copy, 0 = none; read anew in each phase. Control word.
    pub thread_cap: AtomicU32,
    /// Not 0: free a kept or reserved buffer at the next mmap; the shim sets it back to 0. Control word.
    pub drop: AtomicU32,
    /// Process that ran the constructor, or a child of fork that has asked for a buffer since.
    pub pid: AtomicU32,
    /// Version of the library: major << 16 | minor << 8 | patch.
    pub library_version: AtomicU32,
    /// Number of phases written to `history` so far; the newest is at `(history_count - 1) % HISTORY`.
    pub history_count: AtomicU32,
    /// Options in force.
    pub options: Options,
    /// The buffer.
    pub buffer: Buffer,
    /// libcuda's slots.
    pub slots: Slots,
    /// Counters.
    pub counters: Counters,
    /// The phase that goes on, or the last one.
    pub current: Phase,
    /// Past phases, a ring.
    pub history: [Phase; HISTORY],
    /// Values of options that were not understood.
    pub complaints: [Complaint; COMPLAINTS],
}

impl Record {
    /// A record as it lies in the library's file, before the constructor ran.
    pub const fn new(library_version: u32) -> Self {
        Record {
            magic: AtomicU64::new(MAGIC),
            version: AtomicU32::new(VERSION),
            size: AtomicU32::new(core::mem::size_of::<Record>() as u32),
            build_id: [const { AtomicU8::new(0) }; BUILD_ID_BYTES],
            mode: AtomicU32::new(0),
            thread_cap: AtomicU32::new(0),
            drop: AtomicU32::new(0),
            pid: AtomicU32::new(0),
            library_version: AtomicU32::new(library_version),
            history_count: AtomicU32::new(0),
            options: Options::new(),
            buffer: Buffer::new(),
            slots: Slots {
                libcuda: AtomicU64::new(0),
                state: [const { AtomicU32::new(0) }; SLOTS],
                reserved: AtomicU32::new(0),
            },
            counters: Counters {
                requests: AtomicU64::new(0),
                answered: AtomicU64::new(0),
                phases: AtomicU64::new(0),
                helpers_started: AtomicU64::new(0),
                other_copies: AtomicU64::new(0),
                steps: [const { AtomicU32::new(0) }; STEPS],
            },
            current: Phase::new(),
            history: [const { Phase::new() }; HISTORY],
            complaints: [const {
                Complaint {
                    option: AtomicU32::new(0),
                    length: AtomicU32::new(0),
                    value: [const { AtomicU8::new(0) }; 56],
                }
            }; COMPLAINTS],
        }
    }
}
