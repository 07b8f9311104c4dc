//! A value that one thread at a time may use, and that nobody ever waits for: every other thread of the process may have
//! been stopped for good while it held the value.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

/// A value behind a word that names the process that uses it; 0 = nobody.
pub struct Exclusive<T> {
    user: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a `Guard`, of which one exists at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// Unused.
    pub const fn new(value: T) -> Self {
        Exclusive {
            user: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// The value for a thread of process `pid`, unless any thread uses it.
    pub fn try_use(&self, pid: u32) -> Option<Guard<'_, T>> {
        self.take(0, pid)
    }

    /// The same, also from a user of another process: a use that was copied here by fork has no user in this one. Not for a
    /// process that shares its memory with the user's (vfork).
    pub fn try_use_after_fork(&self, pid: u32) -> Option<Guard<'_, T>> {
        let user = self.user.load(Ordering::Relaxed);
        if user == pid {
            return None;
        }
        self.take(user, pid)
    }

    fn take(&self, from: u32, pid: u32) -> Option<Guard<'_, T>> {
        self.user
            .compare_exchange(from, pid, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        Some(Guard { owner: self })
    }
}

/// The right to use the value; given back when dropped.
pub struct Guard<'a, T> {
    owner: &'a Exclusive<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.owner.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one.
        unsafe { &mut *self.owner.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.owner.user.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_user_is_refused_and_a_forked_one_taken_over() {
        let value = Exclusive::new(7);
        let first = value.try_use(10).unwrap();
        assert!(value.try_use(10).is_none());
        assert!(value.try_use(11).is_none());
        assert!(value.try_use_after_fork(10).is_none());
        let child = value.try_use_after_fork(11);
        assert_eq!(child.as_deref(), Some(&7));
        drop(child);
        drop(first);
        assert!(value.try_use(10).is_some());
    }
}
