//! Other processes of this very program: `checkpoint` and the like initialise CUDA for themselves, and have nothing to save.

use std::os::unix::fs::MetadataExt as _;

/// A program's file, by device and inode: its name does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    device: u64,
    inode: u64,
}

impl Program {
    /// The file that a process executes: `self`, or its id. `None` when it has ended or may not be looked into.
    pub fn of(process: &str) -> Option<Self> {
        let file = std::fs::metadata(format!("/proc/{process}/exe")).ok()?;
        Some(Program {
            device: file.dev(),
            inode: file.ino(),
        })
    }
}

/// Whether the process executes the same file. When nothing tells it does not.
pub fn runs(program: Option<Program>, pid: i32) -> bool {
    program.is_some() && Program::of(&pid.to_string()) == program
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_same_file_is_known_and_another_is_not() {
        let own = Program::of("self");
        assert!(runs(own, std::process::id() as i32));
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = other.id() as i32;
        assert!(!runs(own, pid));
        assert!(runs(Program::of(&pid.to_string()), pid));
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(!runs(own, i32::MAX));
        assert!(!runs(None, i32::MAX), "neither can be told");
    }
}
