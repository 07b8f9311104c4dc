//! Work on a stopped process, done by a process of its own.
//!
//! While a thread of another process makes a call that is not its own, it depends on its tracer: if the tracer is killed then,
//! the thread goes on with a wrong result of its own call. So the tracer is not the tool, which people and scripts kill, but a
//! child of it in a session of its own. When the tool has gone the child still ends what it has begun, and begins nothing more.

use std::io::{self, Read, Write};

/// What the child says when the work is done.
const DONE: &str = "+";

/// Does the work in a child process. The work is given a question that it must ask between its parts: whether to go on.
///
/// The caller must be the only thread of this process that matters: the child has no other.
///
/// # Errors
/// What the work said, or that there is no child to do it.
pub fn run(work: impl FnOnce(&dyn Fn() -> bool) -> Result<(), String>) -> Result<(), String> {
    let no_child = |error: io::Error| format!("no process to do it: {error}");
    let (mut answer, told) = io::pipe().map_err(no_child)?;
    // SAFETY: takes nothing, cannot fail.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child does the work with the memory that it has, writes to its end of the pipe, and ends with `_exit`, so
    // that nothing of the parent's is run twice; glibc makes its allocator usable in a child of a process with threads.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(no_child(io::Error::last_os_error())),
        0 => {
            drop(answer);
            in_child(parent, told, work)
        }
        child => {
            drop(told);
            let mut text = String::new();
            let read = answer.read_to_string(&mut text);
            wait_for(child);
            match read {
                Ok(_) if text == DONE => Ok(()),
                Ok(_) if !text.is_empty() => Err(text),
                _ => Err("the process that did it was killed".into()),
            }
        }
    }
}

fn in_child(
    parent: i32,
    mut told: impl Write,
    work: impl FnOnce(&dyn Fn() -> bool) -> Result<(), String>,
) -> ! {
    // SAFETY: takes nothing, cannot fail.
    let go_on = || unsafe { libc::getppid() } == parent;
    // SAFETY: takes nothing. A session of its own: what a terminal sends to the tool is not meant for the child.
    unsafe { libc::setsid() };
    let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&go_on)));
    let text = match worked {
        Ok(Ok(())) => DONE.to_owned(),
        Ok(Err(why)) => why,
        Err(_) => String::new(),
    };
    let _ = told.write_all(text.as_bytes());
    // SAFETY: takes a number, does not come back; nothing of the parent's (buffers of stdout) is written a second time.
    unsafe { libc::_exit(0) }
}

fn wait_for(child: i32) {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_done_by_another_process() {
        // SAFETY: takes nothing, cannot fail.
        let own = unsafe { libc::getpid() };
        let elsewhere = |_: &dyn Fn() -> bool| {
            // SAFETY: as above.
            Err(format!("{}", unsafe { libc::getpid() } == own))
        };
        assert_eq!(run(elsewhere), Err("false".into()));
        assert_eq!(run(|_| Ok(())), Ok(()));
        let asked = |go_on: &dyn Fn() -> bool| Err(go_on().to_string());
        assert_eq!(run(asked), Err("true".into()));
    }

    #[test]
    fn a_child_that_is_killed_is_told() {
        let killed = run(|_| {
            // SAFETY: takes numbers; this is the child.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            Ok(())
        });
        assert_eq!(killed, Err("the process that did it was killed".into()));
    }
}
