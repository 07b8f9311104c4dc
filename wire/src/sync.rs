//! The words of [`crate::Seq`]: core's own here, a model's where `models/` compiles the same source file.

pub use core::sync::atomic::{fence, AtomicU32, Ordering};

/// A constructor that statics can use; a model's words have none.
macro_rules! constructor {
    ($(#[$meta:meta])* pub fn $name:ident() -> Self $body:block) => {
        $(#[$meta])*
        pub const fn $name() -> Self $body
    };
}
pub(crate) use constructor;
