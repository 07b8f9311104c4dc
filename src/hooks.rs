//! Every function of ours that the program or libcuda calls: the exported `mmap` and `mmap64`, and what libcuda's slots
//! point to while a buffer lives. Each decides whether the call is ours and hands it over, or passes it on.
//!
//! The path of a call that is not ours allocates nothing, takes no lock, logs nothing and touches nothing thread-local: it
//! may come from inside an allocator's initialisation, before any constructor, or from a signal handler.

use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::Slot;
use libc::{c_int, c_void, off_t, size_t};

use crate::config::Config;
use crate::cycle::release::Fate;
use crate::cycle::{copies, disturb, release, request, slots};
use crate::request::MapArgs;
use crate::{got, guard, record, region, startup, sys};

/// Which of the two names the program called: another preload may stand behind one of them only.
#[derive(Clone, Copy)]
pub(crate) enum Name {
    Mmap,
    Mmap64,
}

/// An `mmap` call of the program; the body of both exported names.
///
/// # Safety
/// It is the program's own call, with its arguments.
#[inline(always)]
pub(crate) unsafe fn on_mmap(args: MapArgs, name: Name) -> *mut c_void {
    let Some(started) = startup::get() else {
        // SAFETY: the program's own call.
        return unsafe { pass_mmap(None, &args) };
    };
    let next = match name {
        Name::Mmap => started.next_mmap,
        Name::Mmap64 => started.next_mmap64,
    };
    let wanted = args.looks_like_buffer();
    let attention = wanted
        || region::any()
        || record::get().drop.load(Relaxed) != 0
        || (args.is_fixed() && disturb::holds(args.addr, args.len));
    if !attention || guard::is_off() {
        if attention && args.is_fixed() {
            guard::barrier(|| disturb::disturb_when_off(args.addr, args.len));
        }
        // SAFETY: the program's own call.
        return unsafe { pass_mmap(next, &args) };
    }
    // SAFETY: the program's own call.
    unsafe { attend_mmap(&started.config, next, &args, wanted) }
}

#[inline(never)]
unsafe fn attend_mmap(
    config: &Config,
    next: Option<NextMmap>,
    args: &MapArgs,
    wanted: bool,
) -> *mut c_void {
    let answered = guard::barrier(|| {
        if record::get().drop.load(Relaxed) != 0 {
            release::drop_kept();
        }
        if wanted {
            // SAFETY: the program's own call.
            return unsafe { request_mmap(config, next, args) };
        }
        if args.is_fixed() {
            disturb::disturb(args.addr, args.len);
        }
        slots::look_after();
        None
    });
    if let Some(result) = answered.flatten() {
        // SAFETY: called from the program's thread.
        return unsafe { sys::to_libc_pointer(result) };
    }
    // SAFETY: the program's own call.
    let address = unsafe { pass_mmap(next, args) };
    if address != libc::MAP_FAILED && region::any() {
        guard::barrier(|| disturb::given_anew(address as usize, args.len));
    }
    address
}

/// A call that looks like the driver's request; `None` when it is somebody else's. Apart from the rest, whose stack it would
/// make some kilobytes deeper for every `mmap` of the program while a buffer lives.
#[inline(never)]
unsafe fn request_mmap(
    config: &Config,
    next: Option<NextMmap>,
    args: &MapArgs,
) -> Option<sys::SysResult> {
    let libcuda = request::find_libcuda()?;
    // SAFETY: the program's own call.
    let pass = || unsafe { raw_or_next_mmap(next, args) };
    Some(request::answer(args, config, &libcuda, pass))
}

/// The address of the function behind ours: another preload's, or libc's.
pub type NextMmap =
    unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;

unsafe fn pass_mmap(next: Option<NextMmap>, args: &MapArgs) -> *mut c_void {
    let MapArgs {
        addr,
        len,
        prot,
        flags,
        fd,
        offset,
    } = *args;
    match next {
        // SAFETY: the program's own call.
        Some(next) => unsafe { next(addr as *mut c_void, len, prot, flags, fd, offset) },
        // SAFETY: the program's own call, before the constructor has found the function behind ours.
        None => unsafe { sys::to_libc_pointer(sys::mmap(addr, len, prot, flags, fd, offset)) },
    }
}

unsafe fn raw_or_next_mmap(next: Option<NextMmap>, args: &MapArgs) -> sys::SysResult {
    // SAFETY: the program's own call.
    let address = unsafe { pass_mmap(next, args) };
    if address == libc::MAP_FAILED {
        // SAFETY: this thread's errno, just set.
        return Err(unsafe { *libc::__errno_location() });
    }
    Ok(address as usize)
}

#[cfg(all(feature = "preload", not(test)))]
mod exported {
    // The macro's functions call each other without naming what they promise.
    #![allow(unsafe_op_in_unsafe_fn, missing_docs, clippy::missing_safety_doc)]
    use super::{c_int, c_void, off_t, on_mmap, size_t, MapArgs, Name};

    // redhook exports the name and catches panics. Its `real!` stays unused: it does `dlsym` inside a `Once`.
    redhook::hook! {
        unsafe fn mmap(addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t)
            -> *mut c_void => our_mmap {
            on_mmap(MapArgs { addr: addr as usize, len, prot, flags, fd, offset }, Name::Mmap)
        }
    }

    redhook::hook! {
        unsafe fn mmap64(addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t)
            -> *mut c_void => our_mmap64 {
            on_mmap(MapArgs { addr: addr as usize, len, prot, flags, fd, offset }, Name::Mmap64)
        }
    }
}

/// The function of ours for a slot.
pub fn replacement(slot: Slot) -> usize {
    match slot {
        Slot::Memcpy => slot_memcpy as *const () as usize,
        Slot::Memmove => slot_memmove as *const () as usize,
        Slot::Munmap => slot_munmap as *const () as usize,
        Slot::Mremap => slot_mremap as *const () as usize,
        Slot::Mprotect => slot_mprotect as *const () as usize,
        Slot::Madvise => slot_madvise as *const () as usize,
        Slot::Mmap | Slot::Mmap64 => 0,
    }
}

/// The copy function behind a slot. `memcpy@GLIBC_2.2.5`, which libcuda imports, tolerates overlap: where the slot was not
/// resolved yet, calls go to `memmove`.
fn next_copy(slot: Slot) -> copies::Next {
    match got::next(slot) {
        // SAFETY: what libcuda's own slot for this symbol held.
        Some(address) => unsafe { core::mem::transmute::<usize, copies::Next>(address) },
        None => libc::memmove,
    }
}

unsafe fn on_copy(slot: Slot, dst: *mut c_void, src: *const c_void, len: size_t) -> *mut c_void {
    let next = next_copy(slot);
    if let (Some(started), false) = (startup::get(), guard::is_off()) {
        // SAFETY: libcuda's own copy.
        let done = guard::barrier(|| unsafe {
            copies::copy(
                dst.cast(),
                src.cast(),
                len,
                &started.config,
                next,
                &raw const next as usize,
            )
        });
        if done == Some(true) {
            return dst;
        }
    }
    // SAFETY: libcuda's own copy.
    unsafe { next(dst, src, len) }
}

unsafe extern "C" fn slot_memcpy(dst: *mut c_void, src: *const c_void, len: size_t) -> *mut c_void {
    // SAFETY: libcuda's own copy.
    unsafe { on_copy(Slot::Memcpy, dst, src, len) }
}

unsafe extern "C" fn slot_memmove(
    dst: *mut c_void,
    src: *const c_void,
    len: size_t,
) -> *mut c_void {
    // SAFETY: libcuda's own copy.
    unsafe { on_copy(Slot::Memmove, dst, src, len) }
}

type Munmap = unsafe extern "C" fn(*mut c_void, size_t) -> c_int;

unsafe extern "C" fn slot_munmap(addr: *mut c_void, len: size_t) -> c_int {
    // Read before the region goes: with it goes the slot, and what was behind it.
    let next = match got::next(Slot::Munmap) {
        // SAFETY: what libcuda's own slot for this symbol held.
        Some(address) => unsafe { core::mem::transmute::<usize, Munmap>(address) },
        None => libc::munmap,
    };
    let Some(started) = startup::get() else {
        // SAFETY: libcuda's own call.
        return unsafe { next(addr, len) };
    };
    let began_ns = sys::now_ns();
    let unmap = || match guard::is_off() {
        true => release::unmap_when_off(addr as usize, len),
        false => release::unmap(
            addr as usize,
            len,
            &started.config,
            &raw const began_ns as usize,
        ),
    };
    match guard::barrier(unmap) {
        // SAFETY: libcuda calls on a thread of libc.
        Some(Fate::Done(result)) => unsafe { sys::to_libc_status(result) },
        Some(Fate::PassAndTell(region)) => {
            // SAFETY: libcuda's own call.
            let status = unsafe { next(addr, len) };
            if status == 0 {
                guard::barrier(|| release::unmapped_by_driver(&region, began_ns, &started.config));
            }
            status
        }
        // SAFETY: libcuda's own call.
        Some(Fate::Pass) | None => unsafe { next(addr, len) },
    }
}

type Mremap = unsafe extern "C" fn(*mut c_void, size_t, size_t, c_int, *mut c_void) -> *mut c_void;

unsafe extern "C" fn slot_mremap(
    addr: *mut c_void,
    old: size_t,
    new: size_t,
    flags: c_int,
    target: *mut c_void,
) -> *mut c_void {
    guard::barrier(|| {
        disturb::disturb(addr as usize, old.max(1));
        if flags & libc::MREMAP_FIXED != 0 {
            disturb::disturb(target as usize, new);
        }
    });
    match got::next(Slot::Mremap) {
        Some(address) => {
            // SAFETY: what libcuda's own slot for this symbol held. libc's is variadic in C; passing the fifth argument in
            // its register is what a caller of it does.
            let next = unsafe { core::mem::transmute::<usize, Mremap>(address) };
            // SAFETY: libcuda's own call.
            unsafe { next(addr, old, new, flags, target) }
        }
        // SAFETY: libcuda's own call, on a thread of libc.
        None => unsafe {
            sys::to_libc_pointer(sys::mremap(addr as usize, old, new, flags, target as usize))
        },
    }
}

type Mprotect = unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int;

unsafe extern "C" fn slot_mprotect(addr: *mut c_void, len: size_t, prot: c_int) -> c_int {
    guard::barrier(|| disturb::disturb(addr as usize, len));
    let next = match got::next(Slot::Mprotect) {
        // SAFETY: what libcuda's own slot for this symbol held.
        Some(address) => unsafe { core::mem::transmute::<usize, Mprotect>(address) },
        None => libc::mprotect,
    };
    // SAFETY: libcuda's own call.
    unsafe { next(addr, len, prot) }
}

type Madvise = unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int;

unsafe extern "C" fn slot_madvise(addr: *mut c_void, len: size_t, advice: c_int) -> c_int {
    guard::barrier(|| disturb::advise(addr as usize, len, advice));
    let next = match got::next(Slot::Madvise) {
        // SAFETY: what libcuda's own slot for this symbol held.
        Some(address) => unsafe { core::mem::transmute::<usize, Madvise>(address) },
        None => libc::madvise,
    };
    // SAFETY: libcuda's own call.
    unsafe { next(addr, len, advice) }
}
