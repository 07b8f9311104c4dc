//! Numbered names that appear in the record, each with the word a person reads.

/// Defines a `u32` enum whose numbers are part of the record's layout, with its words.
macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $number:literal => $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum $name { $($(#[$vmeta])* $variant = $number,)* }

        impl $name {
            /// Every value, in the order of the numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The value with this number; `None` when a newer shim wrote a number that this build does not know.
            pub const fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some($name::$variant),)* _ => None }
            }

            /// The number in the record.
            pub const fn number(self) -> u32 { self as u32 }

            /// The word for people, reports and option values.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }
    };
}

numbered! {
    /// What the shim does with the next buffer request of the driver (`CUDASNAP`).
    Mode {
        /// Answers the request and makes the copies.
        On = 0 => "on",
        /// Leaves the request untouched and only times the copies.
        Observe = 1 => "observe",
        /// Passes everything on.
        Off = 2 => "off",
    }
}

numbered! {
    /// Kind of page asked for or granted (`CUDASNAP_PAGES`).
    PageKind {
        /// Transparent huge pages.
        Thp = 0 => "thp",
        /// Base pages.
        Small = 1 => "4k",
        /// Pages of the hugetlb pool.
        Hugetlb = 2 => "hugetlb",
        /// The driver's own request, passed on unchanged.
        Driver = 3 => "driver",
    }
}

numbered! {
    /// What becomes of the buffer after a restore (`CUDASNAP_BUFFER`).
    Rest {
        /// All of it is given back.
        Fresh = 0 => "fresh",
        /// It is kept, contents included, for the next checkpoint.
        Keep = 1 => "keep",
        /// Its memory is given back, its addresses stay: `cudasnap reserve` fills them again.
        Reserve = 2 => "reserve",
    }
}

numbered! {
    /// Which way a phase copies.
    Direction {
        /// No phase.
        None = 0 => "none",
        /// Device to buffer.
        Checkpoint = 1 => "checkpoint",
        /// Buffer to device.
        Restore = 2 => "restore",
    }
}

numbered! {
    /// How the copies of a phase were made. What each does for which direction is in the shim's `copy/strategy.rs`.
    Strategy {
        /// By the driver's own copy function.
        Driver = 0 => "driver",
        /// Checkpoint: non-temporal stores; each helper flushes its source lines after it has reported its part.
        FlushLate = 1 => "flush-late",
        /// Checkpoint: non-temporal stores; the source lines are flushed within the copy.
        FlushWithin = 2 => "flush-within",
        /// Checkpoint: non-temporal stores; nothing is flushed.
        NoFlush = 3 => "no-flush",
        /// Checkpoint: as `flush-late`; the source is prefetched past the second-level cache.
        FlushLateAhead = 4 => "flush-late-ahead",
        /// Restore: non-temporal stores; the source is prefetched.
        NonTemporal = 5 => "non-temporal",
        /// Either: ordinary stores, which leave the lines in the caches; nothing is flushed.
        Plain = 6 => "plain",
        /// Checkpoint: non-temporal stores; each line of the source is sent to the shared cache once it is read. Restore: ordinary stores;
        /// each line of the target is sent there once it is written.
        Demote = 7 => "demote",
    }
}

/// Which strategy is asked for (`CUDASNAP_STRATEGY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The one that measured best, for each kind of phase.
    Fixed,
    /// Several take turns over the first copies of a phase, the best goes on.
    Tune,
    /// This one, in phases of its direction.
    Only(Strategy),
}

impl Choice {
    /// All that can be asked for.
    pub fn all() -> impl Iterator<Item = Choice> {
        let fixed = Strategy::ALL
            .iter()
            .copied()
            .filter(|&strategy| strategy != Strategy::Driver);
        [Choice::Fixed, Choice::Tune]
            .into_iter()
            .chain(fixed.map(Choice::Only))
    }

    /// The number in the record.
    pub const fn number(self) -> u32 {
        match self {
            Choice::Fixed => 0,
            Choice::Tune => 1,
            Choice::Only(strategy) => strategy.number() + 1,
        }
    }

    /// The value with this number; `None` when a newer shim wrote it.
    pub fn from_number(number: u32) -> Option<Self> {
        Choice::all().find(|choice| choice.number() == number)
    }

    /// The option's value.
    pub const fn word(self) -> &'static str {
        match self {
            Choice::Fixed => "fixed",
            Choice::Tune => "tune",
            Choice::Only(strategy) => strategy.word(),
        }
    }
}

numbered! {
    /// How a phase ended. The first that happened counts.
    End {
        /// Still going on.
        Running = 0 => "running",
        /// The copies in this direction covered the whole buffer.
        Covered = 1 => "covered",
        /// The buffer was unmapped.
        Unmapped = 2 => "unmapped",
        /// The buffer was moved or mapped over.
        Disturbed = 3 => "disturbed",
        /// A copy in the other direction came.
        Turned = 4 => "turned",
        /// A new buffer was asked for.
        NewBuffer = 5 => "new-buffer",
        /// No copy came for the idle limit.
        Idle = 6 => "idle",
        /// Prefault was done, or its time was over, and no copy came at all.
        NoCopy = 7 => "no-copy",
    }
}

numbered! {
    /// A slot of libcuda that the shim may hold.
    Slot {
        /// `memcpy`
        Memcpy = 0 => "memcpy",
        /// `memmove`
        Memmove = 1 => "memmove",
        /// `munmap`
        Munmap = 2 => "munmap",
        /// `mremap`
        Mremap = 3 => "mremap",
        /// `mmap`
        Mmap = 4 => "mmap",
        /// `mmap64`
        Mmap64 = 5 => "mmap64",
        /// `madvise`
        Madvise = 6 => "madvise",
        /// `mprotect`
        Mprotect = 7 => "mprotect",
    }
}

numbered! {
    /// What became of a slot at the last look.
    SlotState {
        /// Never looked for.
        Unknown = 0 => "unknown",
        /// Found, holds libcuda's own target.
        Free = 1 => "free",
        /// Holds the shim's function.
        Held = 2 => "held",
        /// libcuda does not import this symbol.
        Missing = 3 => "missing",
        /// Inside PT_GNU_RELRO: left as it is.
        Relro = 4 => "relro",
        /// Its page is not writable: left as it is.
        ReadOnly = 5 => "read-only",
        /// It changed under the shim's hands: left as it is.
        Changed = 6 => "changed",
    }
}

numbered! {
    /// A step down: something the shim did less well than it wished, with the reason. Counted in [`crate::Counters`].
    Step {
        /// Memory is short: the driver's request went through unchanged.
        LowMemory = 0 => "low-memory",
        /// The kernel refused the shim's mapping: the driver's request went through unchanged.
        MmapRefused = 1 => "mmap-refused",
        /// The kernel refused huge-page advice: base pages.
        NoHugePages = 2 => "no-huge-pages",
        /// The hugetlb pool did not give the pages: transparent huge pages.
        NoHugetlb = 3 => "no-hugetlb",
        /// The kernel took too long to make room for huge pages: the advice was taken back.
        SlowHugePages = 4 => "slow-huge-pages",
        /// The kernel refused a thread: fewer threads.
        NoThread = 5 => "no-thread",
        /// libcuda's copy slot could not be held: the driver copies by itself.
        NoCopySlot = 6 => "no-copy-slot",
        /// libcuda's munmap slot could not be held: no tail, prefault before the request is answered.
        NoMunmapSlot = 7 => "no-munmap-slot",
        /// A slot was overwritten while held, and taken again.
        SlotRetaken = 8 => "slot-retaken",
        /// The caller's stack could not be walked: the thread's name decided.
        CallerByName = 9 => "caller-by-name",
        /// The library's text is not of the build that its data comes from: plain copies.
        ForeignBuild = 10 => "foreign-build",
        /// A helper had not left when its phase ended: its stack stays mapped until it has.
        HelperLate = 11 => "helper-late",
        /// A helper died inside a part: the part was done again.
        HelperDead = 12 => "helper-dead",
        /// A buffer was asked for while another lives: passed on unchanged.
        SecondBuffer = 13 => "second-buffer",
        /// The buffer was unmapped in part, moved or mapped over: forgotten.
        Disturbed = 14 => "disturbed",
        /// A copy came while another thread was copying: done alone.
        CrewBusy = 15 => "crew-busy",
        /// Less than 99 % of the buffer went through the shim.
        NotEffective = 16 => "not-effective",
        /// A panic was caught at the boundary.
        Panic = 17 => "panic",
        /// A kept buffer did not fit the new request: freed.
        KeptUnfit = 18 => "kept-unfit",
        /// The report file could not be written.
        ReportFailed = 19 => "report-failed",
        /// An argument or a mapping of the driver could not be understood: passed on.
        NotUnderstood = 20 => "not-understood",
        /// The kernel refused to populate the buffer before the driver got it: the copies fault it.
        NoPopulate = 21 => "no-populate",
        /// The kernel did not free a part of a buffer that was to be kept: all of it was freed.
        NotKept = 22 => "not-kept",
    }
}
