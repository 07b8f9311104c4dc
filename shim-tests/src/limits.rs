//! Limits and surroundings of one program, private to it: control groups (the first hierarchy, whose controllers a test can
//! use by making a folder), resource limits, files of the kernel that say something else.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A control group that is removed when dropped, which must be after its processes have ended.
#[derive(Debug)]
pub struct Group {
    folder: PathBuf,
}

impl Group {
    /// A new group of this controller below the root.
    ///
    /// # Panics
    /// When the controller's hierarchy is not mounted or may not be written.
    #[must_use]
    pub fn new(controller: &str) -> Self {
        Self::below(&Path::new("/sys/fs/cgroup").join(controller))
    }

    /// A new group below this one.
    ///
    /// # Panics
    /// As [`Group::new`].
    #[must_use]
    pub fn child(&self) -> Self {
        Self::below(&self.folder)
    }

    /// A new group below this folder.
    ///
    /// # Panics
    /// As [`Group::new`].
    #[must_use]
    pub fn below(parent: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("cudasnap-test-{}-{number}", std::process::id()));
        assert!(
            parent.join("cgroup.procs").exists(),
            "{} is no control group: this test needs the first hierarchy and root",
            parent.display()
        );
        fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        Group { folder }
    }

    /// Writes one of its files.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn set(&self, file: &str, value: impl ToString) {
        let path = self.folder.join(file);
        fs::write(&path, value.to_string())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Reads one of its files, which holds a number.
    ///
    /// # Panics
    /// When it holds none.
    #[must_use]
    pub fn number(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.folder.join(file)).expect("the group's file");
        text.trim().parse().expect("a number")
    }

    /// Moves a process into it.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn take(&self, pid: u32) {
        self.set("cgroup.procs", pid);
    }

    /// Lets a command begin in it.
    ///
    /// # Panics
    /// When the group's file cannot be opened.
    pub fn holds(&self, command: &mut Command) {
        let path = self.folder.join("cgroup.procs");
        let procs: File = OpenOptions::new().write(true).open(path).expect("procs");
        // SAFETY: between fork and exec it makes one write to a descriptor that was opened before.
        unsafe { command.pre_exec(move || (&procs).write_all(b"0")) };
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was waited for may take a moment to leave its groups.
        let deadline = Instant::now() + Duration::from_secs(5);
        while let Err(error) = fs::remove_dir(&self.folder) {
            if Instant::now() > deadline {
                eprintln!("{}: {error}", self.folder.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Sets a resource limit (`RLIMIT_AS`, ...) of a running process, soft and hard.
///
/// # Panics
/// When the kernel refuses.
pub fn set_limit(pid: u32, resource: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: the kernel reads one rlimit.
    let status = unsafe { libc::prlimit(pid as i32, resource, &limit, std::ptr::null_mut()) };
    assert_eq!(status, 0, "{}", io::Error::last_os_error());
}

/// A line of `/proc/PID/status` in bytes (`VmSize`, `VmData`, `VmLck`).
///
/// # Panics
/// When there is no such line.
#[must_use]
pub fn status_bytes(pid: u32, key: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kib = value.and_then(|value| value.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.expect("a line in kB") * 1024
}

/// Lets a command see other files in place of the kernel's: pairs of the place and what lies there instead, file or folder.
/// The mounts are its own and end with it; what is written to such a file later is seen.
///
/// # Panics
/// When a path has a zero byte.
pub fn fake(command: &mut Command, files: &[(&str, &Path)]) {
    let text = |path: &[u8]| CString::new(path).expect("a path");
    let files: Vec<(CString, CString)> = files
        .iter()
        .map(|(place, file)| (text(place.as_bytes()), text(file.as_os_str().as_bytes())))
        .collect();
    // SAFETY: between fork and exec it makes system calls with strings that were made before.
    unsafe { command.pre_exec(move || mount_privately(&files)) };
}

fn mount_privately(files: &[(CString, CString)]) -> io::Result<()> {
    let check = |status: i32| match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: no memory is passed.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    let mount = |from: &CString, to: &CString, flags| {
        // SAFETY: terminated strings; no data.
        check(unsafe {
            libc::mount(
                from.as_ptr(),
                to.as_ptr(),
                std::ptr::null(),
                flags,
                std::ptr::null(),
            )
        })
    };
    mount(
        &c"none".into(),
        &c"/".into(),
        libc::MS_REC | libc::MS_PRIVATE,
    )?;
    for (place, file) in files {
        mount(file, place, libc::MS_BIND)?;
    }
    Ok(())
}

/// `/proc/meminfo` with some lines changed: pairs of key and KiB.
///
/// # Panics
/// When the kernel's cannot be read.
#[must_use]
pub fn meminfo(changes: &[(&str, u64)]) -> String {
    let text = fs::read_to_string("/proc/meminfo").expect("meminfo");
    let changed = text.lines().map(|line| {
        let key = line.split(':').next().unwrap_or_default();
        match changes.iter().find(|(changed, _)| *changed == key) {
            Some((key, kib)) => format!("{key}: {kib} kB\n"),
            None => format!("{line}\n"),
        }
    });
    changed.collect()
}
