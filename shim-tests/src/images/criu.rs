//! CRIU's dump and restore, and the image between them.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::LIMIT;
use crate::folder::Folder;
use crate::simdriver::repository;

/// The CRIU that `scripts/criu-env` fetched.
///
/// # Panics
/// With the script's words when it cannot be had.
#[must_use]
pub fn criu() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let script = "eval \"$(scripts/criu-env)\" && printf %s \"$CRIU\"";
        let output = Command::new("sh")
            .args(["-c", script])
            .current_dir(repository())
            .output()
            .expect("sh starts");
        assert!(
            output.status.success(),
            "scripts/criu-env: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        PathBuf::from(String::from_utf8_lossy(&output.stdout).into_owned())
    })
}

/// The image of a process that was.
#[derive(Debug)]
pub struct Image {
    folder: PathBuf,
    pid: u32,
    /// The process's ends of the pipes on its descriptors 0 and 1, and their names for CRIU.
    ends: Vec<(File, String)>,
}

impl Image {
    /// Dumps a child of ours. It is gone afterwards, but for its image in the folder.
    ///
    /// # Panics
    /// With CRIU's words when it refuses.
    #[must_use]
    pub fn take(pid: u32, folder: &Folder) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let image = Image {
            folder: folder.file(&format!("image-{number}")),
            pid,
            ends: [0, 1].map(|number| pipe_end(pid, number)).into(),
        };
        std::fs::create_dir(&image.folder).expect("a folder");
        let mut command = image.criu("dump");
        command.args(["-t", &pid.to_string()]);
        let status = run(command);
        assert!(status.success(), "{}", image.complaints("dump"));
        let mut status = 0;
        // SAFETY: `status` is valid for the call. Whoever holds the process as a child has not waited for it, and may do so when it
        // is back.
        let waited = unsafe { libc::waitpid(pid as i32, &mut status, 0) };
        assert_eq!(waited, pid as i32, "the process has ended");
        image
    }

    /// Bytes of all its files.
    ///
    /// # Panics
    /// When they cannot be looked at.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let files = std::fs::read_dir(&self.folder).expect("the image");
        let sizes = files.map(|file| file.and_then(|file| file.metadata()).expect("a file").len());
        sizes.sum()
    }

    /// Brings the process back, with more options for CRIU.
    ///
    /// # Panics
    /// With CRIU's words when it cannot.
    pub fn bring_back(&self, options: &[&str]) {
        let refused = self.try_bring_back(&[], options);
        assert_eq!(refused, None);
    }

    /// The same by a CRIU that another program starts, as `taskset` does. CRIU's complaints when it cannot.
    ///
    /// # Panics
    /// When CRIU cannot be started or hangs.
    #[must_use]
    pub fn try_bring_back(&self, starter: &[&str], options: &[&str]) -> Option<String> {
        let mut command = match starter {
            [] => self.criu("restore"),
            [program, arguments @ ..] => {
                let criu = self.criu("restore");
                let mut command = Command::new(program);
                command.args(arguments).arg(criu.get_program());
                command.args(criu.get_args());
                command
            }
        };
        command.arg("--restore-detached").args(options);
        // Numbers that nothing else in CRIU has.
        let numbers: Vec<i32> = (0..).map(|n| 100 + n).take(self.ends.len()).collect();
        let mut moves = Vec::new();
        for ((end, name), number) in self.ends.iter().zip(numbers) {
            command.args(["--inherit-fd", &format!("fd[{number}]:{name}")]);
            moves.push((end.as_raw_fd(), number));
        }
        // SAFETY: system calls on descriptors that are open in the child too.
        unsafe {
            command.pre_exec(move || {
                for &(from, to) in &moves {
                    if libc::dup2(from, to) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            })
        };
        let status = run(command);
        if status.success() {
            return None;
        }
        // What it had begun to bring back is a child of ours, under the number that the next try needs.
        // SAFETY: numbers only; killed is a child of ours that nobody else waits for.
        unsafe {
            if libc::waitpid(self.pid as i32, std::ptr::null_mut(), libc::WNOHANG) == 0 {
                libc::kill(self.pid as i32, libc::SIGKILL);
                libc::waitpid(self.pid as i32, std::ptr::null_mut(), 0);
            }
        }
        Some(self.complaints("restore"))
    }

    /// Where its files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn criu(&self, action: &str) -> Command {
        let mut command = Command::new(criu());
        command.arg(action).arg("-D").arg(&self.folder);
        command.args(["-o", &format!("{action}.log"), "-v4"]);
        command
    }

    /// What CRIU's log has to complain of.
    fn complaints(&self, action: &str) -> String {
        let log = std::fs::read_to_string(self.folder.join(format!("{action}.log")));
        let text = log.unwrap_or_else(|error| format!("no log: {error}"));
        let lines = text.lines().filter(|line| line.contains("Error"));
        let complaints: Vec<&str> = lines.collect();
        format!("criu {action}: {}", complaints.join("\n"))
    }
}

/// An end of a pipe that a process has, and what CRIU calls it.
fn pipe_end(pid: u32, number: i32) -> (File, String) {
    let path = format!("/proc/{pid}/fd/{number}");
    let name = std::fs::read_link(&path).expect("a descriptor");
    let mut options = File::options();
    options.read(number == 0).write(number != 0);
    let end = options.open(&path).expect("a pipe");
    (end, name.to_string_lossy().into_owned())
}

/// Runs CRIU to its end, which must come in time.
fn run(mut command: Command) -> std::process::ExitStatus {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("CRIU starts");
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("its status") {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("CRIU hangs");
}
