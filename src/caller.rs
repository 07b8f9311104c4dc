//! Who called the exported `mmap`? Asked once per matching request, without locks: frame pointers through our own frames
//! (the workspace is built with them), then the object that the first foreign return address lies in.

use crate::{maps, own, sys};

/// Most frames of ours between the exported symbol and here.
const FRAMES: usize = 24;
/// Our frames lie within this many bytes above the innermost one (measured: 8 KiB); nothing beyond is ever read.
const REACH: usize = 32 << 10;

/// Who called into this library.
#[derive(Clone, Copy, Debug)]
pub enum Caller {
    /// A loaded object.
    Object(maps::Object),
    /// Text that belongs to no file, or none.
    NoObject,
    /// The stack cannot be followed: a build without frame pointers.
    Unknown,
    /// The kernel does not say what is mapped: no descriptor is free, or `/proc` may not be read.
    Unlisted,
}

/// Finds the caller. Must be called from within the exported function, on its thread.
#[inline(never)]
pub fn find() -> Caller {
    let own = own::memory();
    if !own.spans(own::base()) {
        return Caller::Unlisted;
    }
    match first_return_address_outside(|address| own.spans(address)) {
        None => Caller::Unknown,
        Some(address) => match maps::object_of(address).filter(|object| object.hit.executable) {
            Some(object) => Caller::Object(object),
            None => Caller::NoObject,
        },
    }
}

/// Follows frame pointers for as long as they return into this library. Each pointer that is read was stored by a frame of
/// ours; in a build without them the first one that makes no sense ends the walk.
#[inline(never)]
fn first_return_address_outside(is_own: impl Fn(usize) -> bool) -> Option<usize> {
    let mut frame = frame_pointer();
    let lowest = frame;
    let here = &raw const frame as usize;
    if lowest < here.saturating_sub(4096) || lowest > here + REACH {
        return None;
    }
    for _ in 0..FRAMES {
        if !frame.is_multiple_of(align_of::<usize>()) || frame - lowest > REACH {
            return None;
        }
        // SAFETY: the two words at a frame pointer that a frame of ours stored, within REACH of the innermost one.
        let [next, back] = unsafe { *(frame as *const [usize; 2]) };
        if !is_own(back) {
            return Some(back);
        }
        if next <= frame {
            return None;
        }
        frame = next;
    }
    None
}

#[inline(always)]
fn frame_pointer() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let frame: usize;
        // SAFETY: reads a register.
        unsafe {
            core::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags))
        };
        frame
    }
    #[cfg(target_arch = "aarch64")]
    {
        let frame: usize;
        // SAFETY: reads a register.
        unsafe {
            core::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack, preserves_flags))
        };
        frame
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        0
    }
}

/// Whether the calling thread has the name of the driver's restore thread: `cuda` and hex digits.
pub fn is_restore_thread() -> bool {
    is_restore_thread_name(&sys::thread_name())
}

fn is_restore_thread_name(name: &[u8; 16]) -> bool {
    let Some(digits) = name.strip_prefix(b"cuda") else {
        return false;
    };
    let end = digits
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(digits.len());
    let digits = digits.get(..end).unwrap_or_default();
    !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_restore_thread_is_known_by_its_name() {
        let name = |text: &str| {
            let mut bytes = [0u8; 16];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            bytes
        };
        assert!(is_restore_thread_name(&name("cuda00001400057")));
        assert!(is_restore_thread_name(&name("cuda1f")));
        for other in [
            "cuda",
            "cuda-EvtHandlr",
            "cudasnap",
            "python3",
            "",
            "xcuda12",
        ] {
            assert!(!is_restore_thread_name(&name(other)), "{other}");
        }
    }

    #[test]
    fn the_walk_ends_at_the_first_address_that_is_not_ours() {
        // In a test program everything is "ours" but what the condition says: the first caller.
        let address = first_return_address_outside(|_| false).unwrap();
        assert!(maps::object_of(address).unwrap().hit.executable);
        // Whatever the frames of the test runner hold, the walk ends.
        let _ = first_return_address_outside(|_| true);
    }
}
