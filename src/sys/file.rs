//! Files, pipes and own memory, by descriptors that live for one call.

use core::ffi::c_void;

use super::{block_signals, call6, getpid, restore_signals, SysResult};

/// Opens a file; `path` ends with a zero byte.
pub fn open(path: &[u8], flags: i32, mode: u32) -> SysResult {
    if path.last() != Some(&0) {
        return Err(libc::EINVAL);
    }
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path is terminated, checked above.
    unsafe {
        call6(
            libc::SYS_openat,
            libc::AT_FDCWD as isize as usize,
            path.as_ptr() as usize,
            flags as usize,
            mode as usize,
            0,
            0,
        )
    }
}

/// Reads into `out` from a place in the file; 0 at its end. Not from where the last read ended: a signal handler may fork between
/// two reads, and the child, which goes on here too, would move that for both.
pub fn read_at(fd: usize, out: &mut [u8], offset: usize) -> SysResult {
    // SAFETY: the kernel writes at most `out.len()` bytes.
    unsafe {
        call6(
            libc::SYS_pread64,
            fd,
            out.as_mut_ptr() as usize,
            out.len(),
            offset,
            0,
            0,
        )
    }
}

/// Writes from `data`; may write less.
pub fn write(fd: usize, data: &[u8]) -> SysResult {
    // SAFETY: the kernel only reads `data`.
    unsafe {
        call6(
            libc::SYS_write,
            fd,
            data.as_ptr() as usize,
            data.len(),
            0,
            0,
            0,
        )
    }
}

/// Copies bytes of this process that may not be there: then it is EFAULT. Other errors are those of a kernel that forbids the
/// question.
pub fn read_own(address: usize, out: &mut [u8]) -> Result<(), i32> {
    let to = libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: out.len(),
    };
    let from = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: out.len(),
    };
    // SAFETY: the kernel reads two iovecs and writes to `out`; an address that is not mapped is an error to it.
    let got = unsafe {
        call6(
            libc::SYS_process_vm_readv,
            getpid() as usize,
            &raw const to as usize,
            1,
            &raw const from as usize,
            1,
            0,
        )
    };
    match got {
        Ok(count) if count == out.len() => Ok(()),
        Ok(_) => Err(libc::EFAULT),
        Err(errno) => Err(errno),
    }
}

/// Writes a message if it can be taken at once: a program must not hang, or die of SIGPIPE, because nobody reads what it did
/// not write itself.
pub fn write_if_wanted(fd: usize, data: &[u8]) {
    let mut poll = libc::pollfd {
        fd: fd as i32,
        events: libc::POLLOUT,
        revents: 0,
    };
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel reads and writes one pollfd and reads one timespec.
    let ready = unsafe {
        call6(
            libc::SYS_ppoll,
            &raw mut poll as usize,
            1,
            &raw const at_once as usize,
            0,
            8,
            0,
        )
    };
    if ready != Ok(1) || poll.revents & libc::POLLOUT == 0 || poll.revents & libc::POLLERR != 0 {
        return;
    }
    let Ok(mask) = block_signals() else {
        return;
    };
    if write(fd, data) == Err(libc::EPIPE) {
        let pipe = 1u64 << (libc::SIGPIPE - 1);
        // SAFETY: the kernel reads one 8-byte mask and one timespec. Takes the signal that the write has raised.
        let _ = unsafe {
            call6(
                libc::SYS_rt_sigtimedwait,
                &raw const pipe as usize,
                0,
                &raw const at_once as usize,
                8,
                0,
                0,
            )
        };
    }
    restore_signals(mask);
}

/// Closes a descriptor that this module opened.
pub fn close(fd: usize) {
    // SAFETY: callers pass descriptors they opened here.
    let _ = unsafe { call6(libc::SYS_close, fd, 0, 0, 0, 0, 0) };
}
