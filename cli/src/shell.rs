//! Shell commands that the user gives: each in a process group of its own, so that it ends with everything that it has started, and with the
//! thread that waits for it.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A command for `/bin/sh` that reads nothing; Ctrl-C comes to it through us. Its outputs are the caller's to choose.
pub fn command(text: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", text])
        .stdin(Stdio::null())
        .process_group(0);
    // SAFETY: a system call with numbers only, between fork and exec.
    unsafe {
        shell.pre_exec(|| {
            // It ends with the thread that started it, even where nobody can end it (SIGKILL).
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    };
    shell
}

/// Ends one that has not been waited for, with everything that it has started.
pub fn end(child: &mut Child) {
    // SAFETY: takes numbers only: the group of a child that was not waited for.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    let _ = child.wait();
}
