//! `simapp` as a server stands: in a session of its own, under the library by `cudasnap run`, spoken to through named pipes that do not
//! depend on whoever started it. So it can be dumped and brought back, ended and replaced, and another process can ask how it is.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::shimmed::library;
use crate::simdriver::SimDriver;
use crate::tool::{binary, until};
use crate::watchdog::Watchdog;

/// An answer that takes longer does not come.
const LIMIT: Duration = Duration::from_secs(60);

/// The two named pipes of a server, held open here.
#[derive(Debug)]
pub struct Pipes {
    folder: PathBuf,
    to: File,
    from: BufReader<File>,
}

impl Pipes {
    /// Makes them, `in` and `out` in this new folder.
    ///
    /// # Panics
    /// When they cannot be made.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        std::fs::create_dir(folder).expect("a folder");
        let open = |name: &str| {
            let path = folder.join(name);
            let made = Command::new("mkfifo").arg(&path).status();
            assert!(made.is_ok_and(|status| status.success()), "mkfifo");
            // Both directions: the open does not wait for the other end, nor does a reader see an end.
            let options = OpenOptions::new().read(true).write(true).open(path);
            options.expect("a pipe")
        };
        let (to, from) = (open("in"), open("out"));
        Pipes {
            folder: folder.to_owned(),
            to,
            from: BufReader::new(from),
        }
    }

    /// A command that becomes `simapp` between these pipes, with its own ends of them.
    #[must_use]
    pub fn simapp(&self, driver: &SimDriver, size: &str) -> Command {
        let mut command = Command::new(binary());
        command.arg("run").arg("--").env("CUDASNAP_LIB", library());
        command.arg(driver.programs.join("simapp")).arg(size);
        command.env("LD_LIBRARY_PATH", &driver.library);
        // CRIU looks at every page of a device's memory, also at those that do not exist.
        command.env("CUDASIM_DEVICE_MIB", "1024");
        command.env("CUDASIM_CONTEXT_MIB", "46");
        let end = |name: &str| {
            let options = OpenOptions::new()
                .read(true)
                .write(true)
                .open(self.folder.join(name));
            Stdio::from(options.expect("a pipe"))
        };
        command
            .stdin(end("in"))
            .stdout(end("out"))
            .stderr(Stdio::null());
        command
    }

    /// Says a line, and hears the next one. When none comes, the process with this id, a child of ours, is killed.
    ///
    /// # Panics
    /// When the pipes fail.
    pub fn ask(&mut self, line: &str, pid: u32) -> String {
        writeln!(self.to, "{line}").expect("a pipe");
        self.hear(pid)
    }

    /// Hears the next line, as [`Pipes::ask`] does.
    ///
    /// # Panics
    /// When the pipes fail.
    pub fn hear(&mut self, pid: u32) -> String {
        let _limit = Watchdog::new("an answer", pid as i32, LIMIT);
        let mut line = String::new();
        self.from.read_line(&mut line).expect("a pipe");
        line.trim().to_owned()
    }
}

/// A server that stands; killed when dropped.
#[derive(Debug)]
pub struct Standing {
    /// What it is spoken to through.
    pub pipes: Pipes,
    child: Child,
}

impl Standing {
    /// Starts it with pipes in this new folder, and changes to its command.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(driver: &SimDriver, folder: &Path, change: impl FnOnce(&mut Command)) -> Self {
        become_subreaper();
        let mut pipes = Pipes::new(folder);
        let mut command = pipes.simapp(driver, "32");
        change(&mut command);
        // SAFETY: one system call without memory effects.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            })
        };
        let child = command.spawn().expect("the tool");
        let ready = pipes.hear(child.id());
        assert_eq!(ready, format!("ready {}", child.id()));
        Standing { pipes, child }
    }

    /// Its process, also after it was away.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether all its contents are right.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn is_right(&mut self) -> bool {
        let pid = self.pid();
        self.pipes.ask("sum", pid) == "bad 0"
    }

    /// Whether it runs.
    #[must_use]
    pub fn lives(&self) -> bool {
        lives(self.pid())
    }

    /// Collects it, so that its id is free. It must have ended, or end soon; not after this call alone is it known to be gone.
    pub fn collect(&self) {
        collect(self.pid());
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        end_child(self.pid());
    }
}

/// Whether a process runs: one that has ended, and was not collected, does not.
#[must_use]
pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in brackets may hold anything.
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Waits for the end of a child, by whatever way it became one.
fn collect(pid: u32) {
    until("its end", || {
        // SAFETY: null takes no status; the number is a child's, or of nobody whom this process could wait for.
        unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), libc::WNOHANG) != 0 }
    });
}

/// Kills a child and waits for it, if it is one still.
pub fn end_child(pid: u32) {
    // SAFETY: numbers only. That it is a child, and so nobody else's, is asked for before it is killed.
    unsafe {
        if libc::waitpid(pid as i32, std::ptr::null_mut(), libc::WNOHANG) == 0 {
            libc::kill(pid as i32, libc::SIGKILL);
            libc::waitpid(pid as i32, std::ptr::null_mut(), 0);
        }
    }
}

/// What CRIU brings back, or a script leaves behind, becomes a child of ours: it can be killed and waited for.
fn become_subreaper() {
    // SAFETY: prctl with two numbers is a plain system call.
    let done = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    assert_eq!(done, 0, "a subreaper");
}
