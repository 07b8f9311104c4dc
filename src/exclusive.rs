//! A value that one thread at a time may use, and that nobody ever waits for: every other thread of the process may have
//! been stopped for good while it held the value.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use crate::sync::{constructor, AtomicU32, AtomicU64, AtomicUsize, Ordering};

const RELAXED: core::sync::atomic::Ordering = core::sync::atomic::Ordering::Relaxed;

/// A value behind a word that names the thread that uses it; 0 = nobody.
pub struct Exclusive<T> {
    user: AtomicU32,
    /// Address of the mark of the user's [`Place`]; 0 = not known.
    place: AtomicUsize,
    /// The user's signal stack. Here and not in its frame, which is not there any more after a jump. Only the user's own thread has a use for
    /// it, in a handler: no order between threads matters, and models leave it out.
    signal_stack: [core::sync::atomic::AtomicUsize; 2],
    value: UnsafeCell<T>,
}

/// Who uses a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Its thread.
    pub tid: u32,
    /// Address of the mark of its [`Place`]; 0 = not known.
    pub place: usize,
    /// The signal stack that a handler which interrupts it would run on.
    pub signal_stack: (usize, usize),
}

/// A place in the stack frame of a user, marked for as long as the value is used.
pub struct Place {
    mark: AtomicU64,
    signal_stack: (usize, usize),
}

impl Place {
    constructor! {
        /// Not marked, in a thread with this signal stack.
        pub fn new(signal_stack: (usize, usize)) -> Self {
            Place {
                mark: AtomicU64::new(0),
                signal_stack,
            }
        }
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(&self.mark) as usize
    }
}

/// What a marked place at this address holds.
pub const fn mark_at(address: usize) -> u64 {
    // Any word that a frame will hardly hold by chance.
    address as u64 ^ 0xc5da_0f93_6b71_2ee5
}

// SAFETY: the value is reached only through a `Guard`, of which one exists at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    constructor! {
        /// Unused.
        pub fn new(value: T) -> Self {
            Exclusive {
                user: AtomicU32::new(0),
                place: AtomicUsize::new(0),
                signal_stack: [const { core::sync::atomic::AtomicUsize::new(0) }; 2],
                value: UnsafeCell::new(value),
            }
        }
    }

    /// The value for thread `tid`, unless it is in use. From a user of which `is_gone` says that
    /// it does not go on, the value is taken over: a thread that died in the middle or jumped out of it, or one that fork
    /// did not bring along. The same thread may as well be in a signal handler, in the middle of its own use.
    pub fn try_use<'a>(
        &'a self,
        tid: u32,
        place: &'a Place,
        is_gone: impl FnOnce(User) -> bool,
    ) -> Option<Guard<'a, T>> {
        let user = self.user.load(Ordering::Relaxed);
        if user != 0 && !is_gone(self.described(user)) {
            return None;
        }
        // Unknown from now on until it is right: a signal handler may ask in between.
        if user != 0 {
            self.place.store(0, Ordering::Release);
        }
        self.user
            .compare_exchange(user, tid, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let [from, to] = &self.signal_stack;
        from.store(place.signal_stack.0, RELAXED);
        to.store(place.signal_stack.1, RELAXED);
        place
            .mark
            .store(mark_at(place.address()), Ordering::Relaxed);
        // A signal handler that finds it finds the mark and the stack too.
        self.place.store(place.address(), Ordering::Release);
        Some(Guard {
            owner: self,
            place,
            was_left: user != 0,
        })
    }

    fn described(&self, tid: u32) -> User {
        let place = self.place.load(Ordering::Acquire);
        let [from, to] = &self.signal_stack;
        User {
            tid,
            place,
            signal_stack: (from.load(RELAXED), to.load(RELAXED)),
        }
    }
}

/// The right to use the value; given back when dropped.
pub struct Guard<'a, T> {
    owner: &'a Exclusive<T>,
    place: &'a Place,
    was_left: bool,
}

impl<T> Guard<'_, T> {
    /// Whether the user before left in the middle.
    pub const fn was_left(&self) -> bool {
        self.was_left
    }
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
        // In this order: a place that is found without its mark is one that was jumped out of.
        self.owner.place.store(0, Ordering::Relaxed);
        self.place.mark.store(0, Ordering::Release);
        self.owner.user.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_user_is_refused_and_a_gone_one_taken_over() {
        let value = Exclusive::new(7);
        let places = [Place::new((1, 2)), Place::new((3, 4))];
        let address = places[0].address();
        let first = value.try_use(10, &places[0], |_| false).unwrap();
        assert!(!first.was_left());
        assert_eq!(places[0].mark.load(Ordering::Relaxed), mark_at(address));
        assert!(value.try_use(11, &places[1], |_| false).is_none());
        let is_first = |user| {
            user == User {
                tid: 10,
                place: address,
                signal_stack: (1, 2),
            }
        };
        let second = value.try_use(11, &places[1], is_first).unwrap();
        assert!(*second == 7 && second.was_left());
        drop(second);
        assert_eq!(places[1].mark.load(Ordering::Relaxed), 0);
        core::mem::forget(first);
        let third = value.try_use(10, &places[1], |_| false);
        assert!(third.is_some_and(|third| !third.was_left()));
    }
}
