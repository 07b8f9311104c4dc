//! A value that one thread at a time may use, and that nobody ever waits for: every other thread of the process may have
//! been stopped for good while it held the value.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use crate::sync::{constructor, AtomicU32, Ordering};

/// A value behind a word that names the thread that uses it; 0 = nobody.
pub struct Exclusive<T> {
    user: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a `Guard`, of which one exists at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    constructor! {
        /// Unused.
        pub fn new(value: T) -> Self {
            Exclusive {
                user: AtomicU32::new(0),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// The value for thread `tid`, unless another uses it. From a user of which `is_gone` says that it does not exist, the
    /// value is taken over: a thread that died in the middle, or one that fork did not bring along. The same thread is
    /// refused too: it is in a signal handler, in the middle of its own use.
    pub fn try_use(&self, tid: u32, is_gone: impl FnOnce(u32) -> bool) -> Option<Guard<'_, T>> {
        let user = self.user.load(Ordering::Relaxed);
        if user != 0 && (user == tid || !is_gone(user)) {
            return None;
        }
        self.user
            .compare_exchange(user, tid, Ordering::Acquire, Ordering::Relaxed)
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
    fn a_second_user_is_refused_and_a_gone_one_taken_over() {
        let value = Exclusive::new(7);
        let first = value.try_use(10, |_| false).unwrap();
        assert!(value.try_use(11, |_| false).is_none());
        assert!(value.try_use(10, |_| true).is_none());
        let second = value.try_use(11, |gone| gone == 10);
        assert_eq!(second.as_deref(), Some(&7));
        drop(second);
        core::mem::forget(first);
        assert!(value.try_use(10, |_| false).is_some());
    }
}
