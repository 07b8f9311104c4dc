//! The counter by which a reader in another process knows that a block did not change while it was copied.

use crate::sync::{constructor, fence, AtomicU32, Ordering};

/// Sequence counter of a block: odd while the block is being written. One writer at a time.
#[repr(transparent)]
#[derive(Debug)]
pub struct Seq(AtomicU32);

impl Seq {
    constructor! {
        /// A counter at rest.
        pub fn new() -> Self {
            Seq(AtomicU32::new(0))
        }
    }

    /// Marks the block as being written, runs `body`, marks it as consistent again.
    pub fn write(&self, body: impl FnOnce()) {
        // Odd whatever it was: a writer that was lost in the middle (fork at that instant) must not turn the meaning round.
        let odd = self.0.load(Ordering::Relaxed) | 1;
        self.0.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        body();
        self.0.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// The counter now. A copy of the block is consistent when two readings around it are equal and even.
    pub fn read(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

impl Default for Seq {
    fn default() -> Self {
        Self::new()
    }
}
