//! Which program a process runs: the same until it calls exec, which keeps its id and its start.

use std::os::unix::fs::MetadataExt;

use super::target::Target;

/// A program in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Device and inode of its file: its name changes when the file is replaced.
    file: Option<(u64, u64)>,
    /// Addresses of its code and its stack, which are random for each exec (`/proc/PID/stat`, fields 26 to 28).
    places: [u64; 3],
}

impl Image {
    /// As it is now; `None`: nobody can look.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = Target::new(pid).proc_file("stat").ok()?;
        let file = std::fs::metadata(format!("/proc/{pid}/exe"));
        Some(Image {
            file: file.ok().map(|file| (file.dev(), file.ino())),
            places: places(&stat)?,
        })
    }

    /// Whether the process, which lives, runs another one by now.
    pub fn is_replaced(&self, pid: i32) -> bool {
        // Of one that is dying the kernel shows nothing any more.
        let now = Image::of(pid).filter(|now| now.places != [0; 3] && now.file.is_some());
        now.is_some_and(|now| now != *self)
    }
}

/// The name may hold blanks and parentheses: fields count from the last one.
fn places(stat: &str) -> Option<[u64; 3]> {
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let mut fields = rest.split_whitespace().skip(23);
    let mut next = || fields.next()?.parse().ok();
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn exec_is_noticed_also_of_the_same_file() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "echo 1; read x; exec /bin/sh -c 'echo 2; read x'"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut stdin = child.stdin.take().unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "1");
        let image = Image::of(pid).unwrap();
        assert!(!image.is_replaced(pid));
        writeln!(stdin).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "2");
        assert!(image.is_replaced(pid));
        drop(stdin);
        child.wait().unwrap();
        assert!(!image.is_replaced(pid), "one that has ended runs nothing");
        assert_eq!(Image::of(pid), None);
    }
}
