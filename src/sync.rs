//! The words that threads share, for the modules whose protocols are model-checked. Here they are core's own. `models/`
//! compiles the same source files with another `sync`, whose words try every order that the memory model allows; that is why
//! constructors and arrays of words go through macros: there they cannot be `const`.

pub use core::hint::spin_loop;
pub use core::sync::atomic::{fence, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// A constructor that statics can use.
macro_rules! constructor {
    ($(#[$meta:meta])* pub fn $name:ident($($argument:ident: $type:ty),*) -> Self $body:block) => {
        $(#[$meta])*
        pub const fn $name($($argument: $type),*) -> Self $body
    };
}
pub(crate) use constructor;

/// An array of equal words.
macro_rules! words {
    ($word:expr; $count:expr) => {
        [const { $word }; $count]
    };
}
pub(crate) use words;

/// A static that all threads share.
macro_rules! shared {
    ($(#[$meta:meta])* $visibility:vis static $name:ident: $type:ty = $value:expr;) => {
        $(#[$meta])*
        $visibility static $name: $type = $value;
    };
}
pub(crate) use shared;
