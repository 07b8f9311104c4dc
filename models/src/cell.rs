//! A plain value that threads share: two accesses that no order holds apart are a fault (loom sees it).

#[cfg(not(feature = "random"))]
pub struct Tracked(loom::cell::UnsafeCell<u64>);

#[cfg(not(feature = "random"))]
impl Tracked {
    pub fn new(value: u64) -> Self {
        Tracked(loom::cell::UnsafeCell::new(value))
    }

    pub fn get(&self) -> u64 {
        // SAFETY: loom fails where another thread may write meanwhile.
        self.0.with(|value| unsafe { *value })
    }

    pub fn set(&self, new: u64) {
        // SAFETY: loom fails where another thread may look or write meanwhile.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}

/// In random orders a write takes two steps, and who looks between them sees it.
#[cfg(feature = "random")]
pub struct Tracked {
    value: std::sync::atomic::AtomicU64,
    writing: std::sync::atomic::AtomicBool,
}

#[cfg(feature = "random")]
impl Tracked {
    pub fn new(value: u64) -> Self {
        Tracked {
            value: value.into(),
            writing: false.into(),
        }
    }

    pub fn get(&self) -> u64 {
        assert!(
            !self.writing.load(std::sync::atomic::Ordering::Relaxed),
            "read in mid-write"
        );
        self.value.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub fn set(&self, new: u64) {
        use std::sync::atomic::Ordering::Relaxed;
        assert!(!self.writing.swap(true, Relaxed), "two write at once");
        crate::sync::yield_now();
        self.value.store(new, Relaxed);
        self.writing.store(false, Relaxed);
    }
}

// SAFETY: that is what is checked.
unsafe impl Sync for Tracked {}
// SAFETY: a number.
unsafe impl Send for Tracked {}
