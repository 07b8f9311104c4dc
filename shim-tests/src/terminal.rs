//! A terminal for programs that behave otherwise on one.

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};

/// A terminal: the side that a person looks at, and the side for programs.
///
/// # Panics
/// When there is none to be had.
#[must_use]
pub fn terminal(rows: u16, columns: u16) -> (File, OwnedFd) {
    let (mut person, mut program) = (0, 0);
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: both numbers are written to, the size is read; no name and no settings are asked for.
    let done = unsafe {
        libc::openpty(
            &mut person,
            &mut program,
            std::ptr::null_mut(),
            std::ptr::null(),
            &size,
        )
    };
    assert_eq!(done, 0);
    // SAFETY: two new descriptors that nobody else owns.
    unsafe { (File::from_raw_fd(person), OwnedFd::from_raw_fd(program)) }
}
