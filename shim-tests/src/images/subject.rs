//! The process that is dumped and brought back: `simapp` in a session of its own.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cudasnap_cli::process::observe::Holdings;
use cudasnap_cli::process::target::Target;

use super::criu::Image;
use super::LIMIT;
use crate::folder::Folder;
use crate::leaks::Growth;
use crate::shimmed::Shimmed;
use crate::simdriver::{App, Control, SimDriver};
use crate::watchdog::Watchdog;

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
