//! Puts the program in the place of this process.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use super::image::Format;
use super::inherited;
use super::program::SHELL;

/// Executes a file with this argument vector, the program's name in front, and this process's environment. Returns only when it
/// cannot be done.
pub fn execute(file: &Path, arguments: &[OsString]) -> io::Error {
    inherited::hand_on();
    let error = exec(file, arguments.iter().map(OsString::as_os_str));
    // As execvp: the shell runs text. It would also try anything else, and complain about its bytes.
    let is_text = || matches!(Format::of(file), Ok(Format::Text));
    if error.raw_os_error() == Some(libc::ENOEXEC) && is_text() {
        let shell = [OsStr::new(SHELL), file.as_os_str()].into_iter();
        let rest = arguments.iter().skip(1).map(OsString::as_os_str);
        return exec(Path::new(SHELL), shell.chain(rest));
    }
    error
}

/// Not the standard library's `exec`: it would build a new environment, sorted and without entries that it does not
/// understand, and set SIGPIPE to its default.
fn exec<'a>(file: &Path, arguments: impl Iterator<Item = &'a OsStr>) -> io::Error {
    let text = |text: &OsStr| CString::new(text.as_bytes());
    let strings: Result<Vec<CString>, _> = arguments.map(text).collect();
    let (file, strings) = match (text(file.as_os_str()), strings) {
        (Ok(file), Ok(strings)) => (file, strings),
        (Err(error), _) | (_, Err(error)) => return error.into(),
    };
    let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
    pointers.push(ptr::null());
    // SAFETY: a terminated path and a null-terminated vector of terminated strings, all alive until the call returns.
    unsafe { libc::execv(file.as_ptr(), pointers.as_ptr()) };
    io::Error::last_os_error()
}
