//! Who called the exported `mmap`? Asked once per matching request, without locks: frame pointers through our own frames
//! (the workspace is built with them), then the object that the first foreign return address lies in.

use crate::{maps, sys};

/// Most frames of ours between the exported symbol and here.
const FRAMES: usize = 16;
/// Our frames lie within this many bytes above the innermost one; nothing beyond is ever read.
const REACH: usize = 2048;

/// What is known about the caller.
#[derive(Clone, Copy, Debug)]
pub enum Caller {
    /// Return address and load address of the object that the call came from.
    Object(maps::Object),
    /// The stack could not be walked, or the calling object is no file.
    Unknown,
}

/// Finds the object that called into this library. Must be called from within the exported function, on its thread.
#[inline(never)]
pub fn find() -> Caller {
    let addresses = return_addresses();
    let objects = maps::objects_of(&addresses);
    let own = find as fn() -> Caller as usize;
    let [own] = maps::objects_of(&[own]);
    let Some(own) = own else {
        return Caller::Unknown;
    };
    for (address, object) in addresses.iter().zip(objects) {
        match object {
            _ if *address == 0 => break,
            Some(object) if object.base == own.base => {}
            Some(object) if object.hit.executable => return Caller::Object(object),
            _ => break,
        }
    }
    Caller::Unknown
}

/// Return addresses of the innermost frames; zeros where the chain of frame pointers ends or makes no sense.
#[inline(never)]
fn return_addresses() -> [usize; FRAMES] {
    let mut found = [0usize; FRAMES];
    let mut frame: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        frame = 0;
    }
    let lowest = &raw const found as usize;
    for slot in &mut found {
        let in_reach =
            frame >= lowest.saturating_sub(REACH) && frame < lowest.saturating_add(REACH);
        if frame % core::mem::align_of::<usize>() != 0 || !in_reach {
            break;
        }
        // SAFETY: the two words at a frame pointer within our own frames, which lie within REACH of a local of the
        // innermost one; the frames of the program above are larger than that (thread start, or main and its arguments).
        let [next, back] = unsafe { *(frame as *const [usize; 2]) };
        *slot = back;
        if next <= frame {
            break;
        }
        frame = next;
    }
    found
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
    fn return_addresses_lie_in_executable_mappings() {
        let addresses = return_addresses();
        assert_ne!(addresses[0], 0);
        let objects = maps::objects_of(&addresses);
        assert!(objects[0].unwrap().hit.executable);
    }
}
