//! The words of the models. They are loom's, which tries every value that the C11 memory model lets a load return and every
//! order of steps up to a number of preemptions; with `random`, shuttle's, which tries random orders of many threads.
//!
//! Each access knows its place in the source, and one place can be made weaker (`mutate`): so a model shows that it can fail.

use std::panic::Location;

#[cfg(not(feature = "random"))]
use loom::sync::atomic as base;
#[cfg(feature = "random")]
use shuttle::sync::atomic as base;

pub use std::sync::atomic::Ordering;

use crate::mutate::{self, Kind};

macro_rules! word {
    ($name:ident, $type:ty) => {
        /// A word.
        #[derive(Debug)]
        pub struct $name(base::$name);

        impl $name {
            pub fn new(value: $type) -> Self {
                Self(base::$name::new(value))
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $type {
                crate::sys::stop_point();
                self.0.load(mutate::load(Location::caller(), order))
            }

            #[track_caller]
            pub fn store(&self, value: $type, order: Ordering) {
                self.0
                    .store(value, mutate::store(Location::caller(), order));
            }

            #[track_caller]
            pub fn fetch_add(&self, more: $type, order: Ordering) -> $type {
                crate::sys::stop_point();
                let at = Location::caller();
                let order = mutate::exchange(at, order);
                if mutate::is(at, Kind::Torn) {
                    let before = self.0.load(Ordering::Acquire);
                    self.0.store(before.wrapping_add(more), Ordering::Release);
                    return before;
                }
                self.0.fetch_add(more, order)
            }

            #[track_caller]
            pub fn fetch_sub(&self, less: $type, order: Ordering) -> $type {
                let at = Location::caller();
                let order = mutate::exchange(at, order);
                if mutate::is(at, Kind::Torn) {
                    let before = self.0.load(Ordering::Acquire);
                    self.0.store(before.wrapping_sub(less), Ordering::Release);
                    return before;
                }
                self.0.fetch_sub(less, order)
            }

            #[track_caller]
            pub fn fetch_or(&self, bits: $type, order: Ordering) -> $type {
                let at = Location::caller();
                let order = mutate::exchange(at, order);
                if mutate::is(at, Kind::Torn) {
                    let before = self.0.load(Ordering::Acquire);
                    self.0.store(before | bits, Ordering::Release);
                    return before;
                }
                self.0.fetch_or(bits, order)
            }

            #[track_caller]
            pub fn fetch_and(&self, bits: $type, order: Ordering) -> $type {
                let at = Location::caller();
                let order = mutate::exchange(at, order);
                if mutate::is(at, Kind::Torn) {
                    let before = self.0.load(Ordering::Acquire);
                    self.0.store(before & bits, Ordering::Release);
                    return before;
                }
                self.0.fetch_and(bits, order)
            }

            #[track_caller]
            pub fn fetch_max(&self, other: $type, order: Ordering) -> $type {
                let at = Location::caller();
                let order = mutate::exchange(at, order);
                if mutate::is(at, Kind::Torn) {
                    let before = self.0.load(Ordering::Acquire);
                    self.0.store(before.max(other), Ordering::Release);
                    return before;
                }
                self.0.fetch_max(other, order)
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $type,
                new: $type,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$type, $type> {
                crate::sys::stop_point();
                let at = Location::caller();
                let success = mutate::exchange(at, success);
                mutate::note(at, Kind::Blind);
                if mutate::is(at, Kind::Blind) {
                    return Ok(self.0.swap(new, success));
                }
                if mutate::is(at, Kind::Torn) {
                    let before = self.0.load(Ordering::Acquire);
                    if before != current {
                        return Err(before);
                    }
                    self.0.store(new, Ordering::Release);
                    return Ok(before);
                }
                self.0.compare_exchange(current, new, success, failure)
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);
word!(AtomicUsize, usize);

/// A pointer that threads share.
#[derive(Debug)]
pub struct AtomicPtr<T>(base::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    pub fn new(value: *mut T) -> Self {
        Self(base::AtomicPtr::new(value))
    }

    pub fn load(&self, order: Ordering) -> *mut T {
        self.0.load(order)
    }

    pub fn store(&self, value: *mut T, order: Ordering) {
        self.0.store(value, order);
    }
}

/// A fence.
#[track_caller]
pub fn fence(order: Ordering) {
    let at = Location::caller();
    mutate::note(at, Kind::Weak);
    if !mutate::is(at, Kind::Weak) {
        base::fence(order);
    }
}

/// A look that found nothing: others should run.
pub fn spin_loop() {
    yield_now();
}

#[cfg(not(feature = "random"))]
pub use loom::thread::{current, spawn, yield_now, ThreadId};
#[cfg(feature = "random")]
pub use shuttle::thread::{current, spawn, yield_now, ThreadId};

/// A constructor; the words of a model have no `const` one.
macro_rules! constructor {
    ($(#[$meta:meta])* pub fn $name:ident($($argument:ident: $type:ty),*) -> Self $body:block) => {
        $(#[$meta])*
        pub fn $name($($argument: $type),*) -> Self $body
    };
}
pub(crate) use constructor;

/// An array of equal words.
macro_rules! words {
    ($word:expr; $count:expr) => {
        core::array::from_fn::<_, { $count }, _>(|_| $word)
    };
}
pub(crate) use words;

/// A static that is made anew for each execution.
macro_rules! shared {
    ($(#[$meta:meta])* pub static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(feature = "random"))]
        loom::lazy_static! { $(#[$meta])* pub static ref $name: $type = $value; }
        #[cfg(feature = "random")]
        shuttle::lazy_static! { $(#[$meta])* pub static ref $name: $type = $value; }
    };
    ($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(feature = "random"))]
        loom::lazy_static! { $(#[$meta])* static ref $name: $type = $value; }
        #[cfg(feature = "random")]
        shuttle::lazy_static! { $(#[$meta])* static ref $name: $type = $value; }
    };
}
pub(crate) use shared;
