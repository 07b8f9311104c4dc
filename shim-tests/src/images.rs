//! Processes that real CRIU dumps, and brings back from the image under their old id. CRIU is the one of `scripts/criu-env`.
//!
//! Between the two nobody of the process exists. What talks to it goes on: the ends of its pipes are kept open here and handed to
//! the process that comes back.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cudasnap_cli::process::observe::Holdings;
use cudasnap_cli::process::target::Target;

use crate::leaks::Growth;
use crate::shimmed::Shimmed;
use crate::simdriver::{repository, App, Control, SimDriver};
use crate::watchdog::Watchdog;

/// A dump, a restore or a step of the driver that takes longer hangs. Each takes less than a second on two idle CPUs.
const LIMIT: Duration = Duration::from_secs(60);

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

/// A folder of a test, removed when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one, empty.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| repository().join("target"), PathBuf::from);
        let folder = target.join(format!("tmp/images-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    /// A file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing depends on it: the next test makes its own.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `simapp` without the shim.
#[derive(Debug)]
pub struct Stock {
    driver: SimDriver,
    app: App,
    before: Holdings,
}

/// `simapp` in a session of its own, which CRIU can dump; with the shim or without.
#[derive(Debug)]
pub enum Subject {
    /// Without.
    Stock(Box<Stock>),
    /// With.
    Shimmed(Box<Shimmed>),
}

impl Subject {
    /// Starts it without the shim, with these arguments and environment.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn stock(driver: &SimDriver, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = driver.command("simapp");
        command.args(arguments).envs(environment.iter().copied());
        make_dumpable(&mut command);
        let app = App::start(&mut command);
        let before = Holdings::of(Target::new(app.pid() as i32)).expect("its holdings");
        Subject::Stock(Box::new(Stock {
            driver: driver.clone(),
            app,
            before,
        }))
    }

    /// Starts it under a shim, with these arguments and environment.
    ///
    /// # Panics
    /// When it does not start, or the shim is not in it.
    #[must_use]
    pub fn shimmed(
        driver: &SimDriver,
        library: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = driver.command("simapp");
        command.args(arguments).envs(environment.iter().copied());
        make_dumpable(&mut command);
        Subject::Shimmed(Box::new(Shimmed::start_library(driver, command, library)))
    }

    /// The program.
    pub fn app(&mut self) -> &mut App {
        match self {
            Subject::Stock(stock) => &mut stock.app,
            Subject::Shimmed(host) => &mut host.app,
        }
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match self {
            Subject::Stock(stock) => stock.app.pid(),
            Subject::Shimmed(host) => host.app.pid(),
        }
    }

    /// It under the shim, where it is.
    #[must_use]
    pub fn shim(&self) -> Option<&Shimmed> {
        match self {
            Subject::Stock(_) => None,
            Subject::Shimmed(host) => Some(host),
        }
    }

    fn driver(&self) -> &SimDriver {
        match self {
            Subject::Stock(stock) => &stock.driver,
            Subject::Shimmed(host) => &host.driver,
        }
    }

    /// A step of the driver, by a caller with this environment. When it hangs, the process is killed.
    #[must_use]
    pub fn control(&self, action: &str, environment: &[(&str, &str)]) -> Control {
        let _limit = Watchdog::new("a step", self.pid() as i32, LIMIT);
        self.driver().control(action, self.pid(), environment)
    }

    /// A step of the driver that must succeed; how long it took.
    ///
    /// # Panics
    /// With the driver's words when it does not.
    pub fn must(&self, action: &str) -> Duration {
        let began = Instant::now();
        let done = self.control(action, &[]);
        assert_eq!(done.code, 0, "{action}: {} {}", done.stdout, done.stderr);
        began.elapsed()
    }

    /// Begins a step of the driver, and does not wait for its end.
    ///
    /// # Panics
    /// When its caller does not start.
    #[must_use]
    pub fn begin(&self, action: &str, environment: &[(&str, &str)]) -> Child {
        let mut command = self.driver().command("simctl");
        command.args([action, &self.pid().to_string()]);
        command.envs(environment.iter().copied());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("simctl starts")
    }

    /// Stops all its threads, wherever they are.
    ///
    /// # Panics
    /// When they do not stop.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let deadline = Instant::now() + LIMIT;
        let all_stopped = || {
            let states = self.thread_files("stat");
            // The name in brackets may hold anything.
            let state = |stat: &String| stat.rsplit(") ").next()?.chars().next();
            states.iter().all(|(_, stat)| state(stat) == Some('T'))
        };
        while !all_stopped() {
            assert!(Instant::now() < deadline, "it does not stop");
        }
    }

    /// Allows all its threads these processors alone.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn allow_processors(&self, numbers: &[usize]) {
        // SAFETY: a set of bits.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for &number in numbers {
            // SAFETY: sets a bit within the set.
            unsafe { libc::CPU_SET(number, &mut set) };
        }
        for (tid, _) in self.thread_files("comm") {
            // SAFETY: the set is valid for the call.
            let done = unsafe { libc::sched_setaffinity(tid, size_of_val(&set), &set) };
            assert_eq!(done, 0, "thread {tid}");
        }
    }

    /// Lets it go on.
    pub fn release(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        // SAFETY: kill takes two numbers; the process is a child that nobody has waited for.
        let sent = unsafe { libc::kill(self.pid() as i32, signal) };
        assert_eq!(sent, 0, "signal {signal}");
    }

    /// Numbers of its threads whose names begin so.
    #[must_use]
    pub fn threads_named(&self, start: &str) -> Vec<i32> {
        let names = self.thread_files("comm").into_iter();
        names
            .filter(|(_, name)| name.starts_with(start))
            .map(|(tid, _)| tid)
            .collect()
    }

    /// A file of each of its threads.
    fn thread_files(&self, file: &str) -> Vec<(i32, String)> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("its threads");
        let tids = tasks.flatten().filter_map(|task| {
            let tid = task.file_name().to_str()?.parse().ok()?;
            Some((tid, std::fs::read_to_string(task.path().join(file)).ok()?))
        });
        tids.collect()
    }

    /// Wrong words in its memory. When it does not answer, it is killed.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn wrong_words(&mut self) -> u64 {
        let _limit = Watchdog::new("a sum", self.pid() as i32, LIMIT);
        self.app().wrong_words()
    }

    /// How its holdings changed since its start.
    ///
    /// # Panics
    /// When they cannot be read.
    #[must_use]
    pub fn growth(&self) -> Growth {
        match self {
            Subject::Stock(stock) => {
                let after = Holdings::of(Target::new(self.pid() as i32));
                Growth::between(&stock.before, &after.expect("its holdings"))
            }
            Subject::Shimmed(host) => host.growth(),
        }
    }

    /// Dumps it: its image is what is left of it.
    ///
    /// # Panics
    /// When CRIU refuses.
    #[must_use]
    pub fn dump(&self, folder: &Folder) -> Image {
        Image::take(self.pid(), folder)
    }

    /// After it came back: the shim is where it was, its record too.
    ///
    /// # Panics
    /// When it is not.
    pub fn found_again(&mut self) {
        if let Subject::Shimmed(host) = self {
            host.find_record_again();
        }
    }
}

/// A session of its own, and no terminal or file of the test's that would not be there later.
fn make_dumpable(command: &mut Command) {
    become_subreaper();
    // CRIU looks at every page of a device's memory, also at those that do not exist.
    command.env("CUDASIM_DEVICE_MIB", "1024");
    command.env("CUDASIM_CONTEXT_MIB", "46");
    command.stderr(Stdio::null());
    // SAFETY: one system call without memory effects.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        })
    };
}

/// What CRIU brings back is a child of CRIU's, which ends; then of the nearest subreaper. So the process stays a child of ours under its
/// old id, and whoever held it as a child can kill it and wait for it.
fn become_subreaper() {
    // SAFETY: prctl with two numbers is a plain system call.
    let done = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    assert_eq!(done, 0, "a subreaper");
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

/// Puts another build of a library in its place: as long as it was, with code at the same addresses, but another build id.
///
/// # Panics
/// When it has none.
pub fn replace_by_other_build(library: &Path) {
    // A note's head: the lengths of name and id, the kind, the name.
    const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let mut bytes = std::fs::read(library).expect("the library");
    let found = bytes.windows(NOTE.len()).position(|part| part == NOTE);
    let id = found.expect("a build id") + NOTE.len();
    for byte in &mut bytes[id..id + 20] {
        *byte = !*byte;
    }
    // Not written over: whoever has it mapped keeps what it has.
    let other = library.with_extension("new");
    // With its mode, which CRIU compares too.
    std::fs::copy(library, &other).expect("a library");
    std::fs::write(&other, bytes).expect("a library");
    std::fs::rename(&other, library).expect("a library");
}

/// Processors that this thread may use.
#[must_use]
pub fn allowed_processors() -> Vec<usize> {
    // SAFETY: a set of bits.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid for the call.
    let done = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
    assert_eq!(done, 0, "the kernel's answer");
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: reads a bit within the set.
    all.filter(|&number| unsafe { libc::CPU_ISSET(number, &set) })
        .collect()
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

/// Takes threads out of an image, as if they had been unknown to whoever made it: a thread born after CRIU's CUDA plugin has stopped
/// the world is.
///
/// # Panics
/// When the image has another form.
pub fn remove_threads(image: &Image, numbers: &[i32]) {
    let path = image.folder().join("pstree.img");
    let bytes = std::fs::read(&path).expect("the image");
    let changed = without_threads(&bytes, numbers);
    std::fs::write(&path, changed).expect("the image");
}

/// The list of processes, of which there is one: two numbers, the length of a message, and the message, whose fields are numbers.
fn without_threads(image: &[u8], numbers: &[i32]) -> Vec<u8> {
    const THREADS: u64 = 5 << 3;
    let (head, message) = image.split_at(12);
    let mut rest = message;
    let mut kept = Vec::new();
    while !rest.is_empty() {
        let field = rest;
        let key = take_number(&mut rest);
        let value = take_number(&mut rest);
        let removed = key == THREADS && numbers.contains(&(value as i32));
        if !removed {
            kept.extend_from_slice(&field[..field.len() - rest.len()]);
        }
    }
    let length = u32::try_from(kept.len()).expect("shorter than it was");
    [&head[..8], &length.to_le_bytes(), &kept].concat()
}

/// A number in seven bits a byte, the lowest first.
fn take_number(bytes: &mut &[u8]) -> u64 {
    let length = bytes
        .iter()
        .position(|byte| byte & 0x80 == 0)
        .expect("its end")
        + 1;
    let (number, rest) = bytes.split_at(length);
    *bytes = rest;
    let parts = number.iter().rev().map(|byte| u64::from(byte & 0x7f));
    parts.fold(0, |value, part| value << 7 | part)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_leaves_the_list_of_processes() {
        // Process 16354 with threads 16354 and 16355, as CRIU 4.1.1 wrote it.
        let head = [0x19, 0x43, 0x56, 0x54, 0x30, 0x30, 0x27, 0x50];
        let process = [
            8, 0xe2, 0x7f, 16, 0, 24, 0xe2, 0x7f, 32, 0xe2, 0x7f, 40, 0xe2, 0x7f,
        ];
        let thread = [40, 0xe3, 0x7f];
        let image = [&head[..], &[17, 0, 0, 0], &process, &thread].concat();
        assert_eq!(without_threads(&image, &[1]), image);
        let expected = [&head[..], &[14, 0, 0, 0], &process].concat();
        assert_eq!(without_threads(&image, &[16355]), expected);
    }
}
