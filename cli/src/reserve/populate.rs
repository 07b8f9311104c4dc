//! Lets the kernel put pages into another process's memory, without storing a byte there.
//!
//! `process_vm_writev` first pins the target's pages for writing, which populates them as a write of the target's own would, and
//! only then copies. Here the bytes to copy lie where nothing can be read: the copy fails (`EFAULT`) with the pages in place and
//! every byte as it was. So it does not matter whose the page is by the time it is populated, nor how long this process was
//! stopped in the middle: a checkpoint that has taken the range meanwhile, or a copy that has filled it, loses nothing.
//!
//! Kernels before 4.13 or so cleared what a failed copy should have filled. So the kernel is tried first, on memory of our own.

use std::io;

use crate::process::target::{MemoryError, Target};

/// Populates ranges of other processes; made only where the kernel stores nothing.
#[derive(Debug)]
pub struct Populator {
    /// A page that nobody may read.
    source: usize,
    page: usize,
}

impl Populator {
    /// Tries the kernel.
    ///
    /// # Errors
    /// It stores something, does not populate, or refuses the call.
    pub fn new() -> Result<Self, String> {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let failed = |error: io::Error| format!("mmap: {error}");
        let source = map(page, libc::PROT_NONE).map_err(failed)?;
        let populator = Populator { source, page };
        let scratch = map(2 * page, libc::PROT_READ | libc::PROT_WRITE).map_err(failed)?;
        let tried = populator.try_on(scratch);
        // SAFETY: mapped above, used by nobody else.
        unsafe { libc::munmap(scratch as *mut _, 2 * page) };
        tried.map(|()| populator)
    }

    /// Two pages: one with bytes that must stay, one that must come.
    fn try_on(&self, scratch: usize) -> Result<(), String> {
        const BYTE: u8 = 0xa5;
        // SAFETY: the first page of a mapping of two that is ours alone.
        let first = unsafe { std::slice::from_raw_parts_mut(scratch as *mut u8, self.page) };
        first.fill(BYTE);
        let own = Target::new(i32::try_from(std::process::id()).unwrap_or(0));
        self.populate(own, scratch as u64, 2 * self.page as u64)
            .map_err(|error| format!("process_vm_writev: {error}"))?;
        let mut there = [0u8; 2];
        // SAFETY: a byte for each of two pages.
        let asked = unsafe { libc::mincore(scratch as *mut _, 2 * self.page, there.as_mut_ptr()) };
        // SAFETY: as above, read anew: the kernel may have written it.
        let kept = (0..self.page)
            .all(|at| unsafe { (scratch as *const u8).add(at).read_volatile() == BYTE });
        if !kept {
            return Err(
                "this kernel stores bytes in a write that fails (Linux before 4.13)".into(),
            );
        }
        if asked != 0 || there.iter().any(|byte| byte & 1 == 0) {
            return Err("this kernel does not populate pages for a write that fails".into());
        }
        Ok(())
    }

    /// Populates a range, no longer than 4 MiB (which the kernel pins at once). Whether the pages came is to be looked at
    /// afterwards: the kernel's answer is the same when some did not.
    ///
    /// # Errors
    /// The process has ended, or may not be written to.
    pub fn populate(&self, target: Target, address: u64, length: u64) -> Result<(), MemoryError> {
        let local = libc::iovec {
            iov_base: self.source as *mut _,
            iov_len: 1,
        };
        let remote = libc::iovec {
            iov_base: usize::try_from(address).map_err(|_| MemoryError::Unmapped(address))?
                as *mut _,
            iov_len: usize::try_from(length).map_err(|_| MemoryError::Unmapped(address))?,
        };
        // SAFETY: the kernel reads nothing of ours, since nothing can be read at `source`; the remote range is checked by it.
        let moved = unsafe { libc::process_vm_writev(target.pid(), &local, 1, &remote, 1, 0) };
        if moved >= 0 {
            return Err(MemoryError::Os(libc::EPROTO));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EFAULT) => Ok(()),
            error => Err(error.into()),
        }
    }
}

impl Drop for Populator {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, used by nobody else.
        unsafe { libc::munmap(self.source as *mut _, self.page) };
    }
}

/// New private memory, on base pages.
fn map(length: usize, protection: i32) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping anywhere.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: only advice about page sizes; a kernel without huge pages refuses, and gives none.
    unsafe { libc::madvise(start, length, libc::MADV_NOHUGEPAGE) };
    Ok(start as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_no_byte_changes() {
        let populator = Populator::new().unwrap();
        let own = Target::new(std::process::id() as i32);
        let page = populator.page;
        let length = 512 * page;
        let start = map(length, libc::PROT_READ | libc::PROT_WRITE).unwrap();
        for at in (7..length).step_by(3 * page) {
            // SAFETY: inside the mapping.
            unsafe { *((start + at) as *mut u8) = 42 };
        }
        populator
            .populate(own, start as u64, length as u64)
            .unwrap();
        let mut there = vec![0u8; 512];
        // SAFETY: a byte for each page.
        let asked = unsafe { libc::mincore(start as *mut _, length, there.as_mut_ptr()) };
        assert_eq!(asked, 0);
        assert!(there.iter().all(|byte| byte & 1 == 1));
        // SAFETY: inside the mapping.
        let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, length) };
        for (at, byte) in bytes.iter().enumerate() {
            let written = at % (3 * page) == 7;
            assert_eq!(*byte, if written { 42 } else { 0 }, "{at}");
        }
        // SAFETY: nobody uses it any more.
        unsafe { libc::munmap(start as *mut _, length) };
    }

    #[test]
    fn what_may_not_be_written_is_left_alone() {
        let populator = Populator::new().unwrap();
        let own = Target::new(std::process::id() as i32);
        let text = b"read only";
        let address = text.as_ptr() as u64;
        // Indistinguishable from success by the kernel's answer.
        populator.populate(own, address, 4).unwrap();
        assert_eq!(text, b"read only");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = Target::new(child.id() as i32);
        child.wait().unwrap();
        assert_eq!(populator.populate(gone, 1 << 20, 4), Err(MemoryError::Gone));
    }
}
