//! Everything that a soak does to its hosts, by name. Each must have happened, or the soak fails.

macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident => $word:literal,)*) => {
        /// What can be done to a cycle, or is special about its host.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$meta])* $kind,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            /// Its word.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Kind::$kind => $word,)* }
            }
        }
    };
}

kinds! {
    /// No fault.
    Calm => "calm",
    /// The driver fails in mid-checkpoint and unmaps its buffer.
    CheckpointFailsUnmaps => "checkpoint-fails-unmaps",
    /// The driver fails in mid-checkpoint and forgets its buffer.
    CheckpointFailsForgets => "checkpoint-fails-forgets",
    /// The driver fails in mid-restore, and tries again.
    RestoreFailsKeeps => "restore-fails-keeps",
    /// The driver fails in mid-restore and unmaps its buffer: the process is lost, with the shim or without.
    RestoreFailsUnmaps => "restore-fails-unmaps",
    /// The kernel refuses the driver's buffer.
    MmapRefused => "mmap-refused",
    /// Some bytes are copied by the driver itself.
    Withheld => "withheld",
    /// A pause in the loop that sends the crew away.
    Pause => "pause",
    /// A pause between two devices.
    DevicePause => "device-pause",
    /// The driver never unmaps its buffer.
    NeverUnmapped => "never-unmapped",
    /// A tracer stops helpers and soon lets them go.
    HelperStopped => "helper-stopped",
    /// A tracer holds helpers for longer than the end of a phase waits.
    HelperHeld => "helper-held",
    /// A tracer makes a helper exit.
    HelperKilled => "helper-killed",
    /// The kernel refuses threads.
    NoThreads => "no-threads",
    /// The CPUs that the restore thread may use change.
    Affinity => "affinity",
    /// The CPU quota of the control group changes.
    Quota => "quota",
    /// All threads but the restore thread are stopped.
    Frozen => "frozen",
    /// Another thread forks without pause.
    Forks => "forks",
    /// Another thread allocates, loads libraries and starts threads without pause.
    Allocations => "allocations",
    /// The shim only watches.
    Observe => "mode-observe",
    /// The shim does nothing.
    Off => "mode-off",
    /// The mode changes while the process is checkpointed.
    ModeSwitched => "mode-switched",
    /// The record caps the threads.
    ThreadCap => "thread-cap",
    /// The program's contents were written anew before.
    Rewritten => "rewritten",
    /// The program holds more or less memory than before.
    Resized => "resized",
    /// The DMA is as fast as this machine copies.
    FastDma => "dma-fast",
    /// The DMA is slower than the copies.
    SlowDma => "dma-slow",
    /// Huge pages are switched off for the process.
    NoHugePages => "no-huge-pages",
    /// The buffer asks for base pages.
    SmallPages => "pages-4k",
    /// The buffer asks for the hugetlb pool.
    Hugetlb => "pages-hugetlb",
    /// Two devices.
    TwoDevices => "two-devices",
    /// Pinned host memory.
    Pinned => "pinned",
    /// `CUDASNAP_THREADS` asks for a number of threads.
    ThreadsOption => "threads-option",
    /// The buffer is one that was kept.
    Kept => "buffer-kept",
    /// Of a kept buffer only a part is held.
    KeepMax => "keep-max",
    /// A kept buffer was dropped through the record.
    Dropped => "buffer-dropped",
    /// A kept buffer did not fit.
    KeptUnfit => "kept-unfit",
}
