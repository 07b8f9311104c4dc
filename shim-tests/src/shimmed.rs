//! Programs under the shim on the simulated driver, with the record at hand: what the tests of the shim are written with.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cudasnap_cli::process::observe::{threads, Holdings};
use cudasnap_cli::process::target::Target;
use cudasnap_cli::record::view::{PhaseView, RecordView};
use cudasnap_cli::record::Located;
use cudasnap_wire::Step;

use crate::leaks::{Growth, HELPER};
use crate::simdriver::{repository, App, Control, SimDriver};
use crate::steps;

/// The library that the tests are about: built by `cargo build --release` before them, or named by `CUDASNAP_LIB`.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn library() -> PathBuf {
    if let Some(path) = std::env::var_os("CUDASNAP_LIB") {
        return path.into();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository().join("target"), PathBuf::from);
    let path = target.join("release/libcudasnap.so");
    assert!(
        path.exists(),
        "{} is missing: cargo build --release -p cudasnap",
        path.display()
    );
    path
}

/// Compiles a program or, with `-shared` among the flags, a library from `shim-tests/hostile` beside the simulated driver's.
///
/// # Panics
/// With the compiler's words when it does not compile.
#[must_use]
pub fn hostile(driver: &SimDriver, source: &str, flags: &[&str]) -> PathBuf {
    let name = source.trim_end_matches(".c");
    // Tests run side by side: each builds its own.
    let to = driver
        .programs
        .join(format!("{name}-{}", std::process::id()));
    compile_hostile(source, flags, &to);
    to
}

/// The same, to a place of its own: a library is found by the name of its file.
///
/// # Panics
/// With the compiler's words when it does not compile.
pub fn compile_hostile(source: &str, flags: &[&str], to: &Path) {
    let from = repository().join("shim-tests/hostile").join(source);
    let output = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
        .args([
            "-std=gnu11",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
        ])
        .arg("-o")
        .args([to, &from])
        // Libraries behind the source that needs them.
        .args(flags)
        .output()
        .expect("a C compiler");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A value of `LD_PRELOAD` with the shim between others.
///
/// # Panics
/// When a path is no text.
#[must_use]
pub fn preload_list(front: &[&Path], behind: &[&Path]) -> String {
    let library = library();
    let all = front
        .iter()
        .copied()
        .chain([&*library])
        .chain(behind.iter().copied());
    let all: Vec<&str> = all
        .map(|path| path.to_str().expect("a path that is text"))
        .collect();
    all.join(":")
}

/// `simapp` under the shim, and its record.
#[derive(Debug)]
pub struct Shimmed {
    /// The simulated driver it runs on.
    pub driver: SimDriver,
    /// The program.
    pub app: App,
    record: Located,
    before: Holdings,
}

impl Shimmed {
    /// Starts `simapp` with these arguments and environment.
    ///
    /// # Panics
    /// When it does not start, or the shim is not in it.
    #[must_use]
    pub fn start(driver: &SimDriver, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = driver.command("simapp");
        command.args(arguments).envs(environment.iter().copied());
        Self::start_command(driver, command)
    }

    /// Starts a command that becomes `simapp` in the same process. A library that it preloads already goes behind the shim, as
    /// it would where a site preloads something.
    ///
    /// # Panics
    /// As [`Shimmed::start`].
    #[must_use]
    pub fn start_command(driver: &SimDriver, command: Command) -> Self {
        Self::start_library(driver, command, &library())
    }

    /// The same with a copy of the shim that lies elsewhere.
    ///
    /// # Panics
    /// As [`Shimmed::start`].
    #[must_use]
    pub fn start_library(driver: &SimDriver, mut command: Command, shim: &Path) -> Self {
        let mut preload = shim.as_os_str().to_owned();
        let behind = command
            .get_envs()
            .find(|(name, _)| *name == "LD_PRELOAD")
            .and_then(|(_, value)| value);
        if let Some(behind) = behind {
            preload.push(":");
            preload.push(behind);
        }
        command.env("LD_PRELOAD", preload);
        Self::adopt(driver, App::start(&mut command))
    }

    /// Takes a `simapp` that was started some other way, with the shim in it.
    ///
    /// # Panics
    /// When the shim is not in it.
    #[must_use]
    pub fn adopt(driver: &SimDriver, app: App) -> Self {
        let target = Target::new(app.pid() as i32);
        let record = Located::find(target).expect("the shim's record");
        let before = Holdings::of(target).expect("the program's holdings");
        Shimmed {
            driver: driver.clone(),
            app,
            record,
            before,
        }
    }

    /// Looks for the record anew, in a process that was away: it must be where it was.
    ///
    /// # Panics
    /// When it is not.
    pub fn find_record_again(&mut self) {
        let record = Located::find(self.target()).expect("the shim's record");
        assert_eq!(record, self.record);
    }

    /// The process.
    #[must_use]
    pub fn target(&self) -> Target {
        Target::new(self.app.pid() as i32)
    }

    /// The record's place, for its control words.
    #[must_use]
    pub fn located(&self) -> &Located {
        &self.record
    }

    /// The record now.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn record(&self) -> RecordView {
        self.record.read().expect("the record")
    }

    /// The last phase in this direction.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn last(&self, direction: &str) -> PhaseView {
        self.record().last(direction).expect("a phase").clone()
    }

    /// A step of the driver.
    #[must_use]
    pub fn control(&self, action: &str) -> Control {
        self.driver.control(action, self.app.pid(), &[])
    }

    /// A step of the driver that must succeed.
    ///
    /// # Panics
    /// With the driver's words when it does not.
    pub fn must(&self, action: &str) {
        let done = self.control(action);
        assert_eq!(done.code, 0, "{action}: {} {}", done.stdout, done.stderr);
    }

    /// A whole cycle, after which the contents must be right.
    ///
    /// # Panics
    /// When a step fails or a word is wrong.
    pub fn cycle(&mut self) {
        for action in ["lock", "checkpoint", "restore", "unlock"] {
            self.must(action);
        }
        assert_eq!(self.app.wrong_words(), 0);
    }

    /// How its holdings changed since its start.
    ///
    /// # Panics
    /// When they cannot be read.
    #[must_use]
    pub fn growth(&self) -> Growth {
        let after = Holdings::of(self.target()).expect("the program's holdings");
        Growth::between(&self.before, &after)
    }

    /// Names of the shim's threads that live.
    ///
    /// # Panics
    /// When the process cannot be looked into.
    #[must_use]
    pub fn helpers(&self) -> Vec<String> {
        let all = threads(self.target()).expect("its threads");
        all.into_iter()
            .map(|thread| thread.name)
            .filter(|name| name.starts_with(HELPER))
            .collect()
    }

    /// Waits until no helper lives.
    ///
    /// # Panics
    /// When one still lives after `limit`.
    pub fn expect_no_helper_after(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while !self.helpers().is_empty() {
            assert!(
                Instant::now() < deadline,
                "{:?} after {limit:?}",
                self.helpers()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How often a step down was taken.
    #[must_use]
    pub fn steps(&self, step: Step) -> u32 {
        self.record().steps(step)
    }

    /// All steps down that were taken, but for those named, as [`steps::taken`] counts them.
    #[must_use]
    pub fn steps_but(&self, expected: &[Step]) -> Vec<(&'static str, u32)> {
        steps::taken(&self.record(), expected)
    }

    /// Whether the mapping that begins at `address` asks the kernel for huge pages, or did until they came too slowly.
    ///
    /// # Panics
    /// As [`Shimmed::smaps`].
    #[must_use]
    pub fn asks_for_huge_pages(&self, address: u64) -> bool {
        let flags = self.smaps(address, "VmFlags");
        flags.contains(" hg") || self.steps(Step::SlowHugePages) > 0
    }

    /// A line of `/proc/PID/smaps` for the mapping that begins at `address`: `AnonHugePages`, `VmFlags`, ...
    ///
    /// # Panics
    /// When there is no such mapping, or no such line.
    #[must_use]
    pub fn smaps(&self, address: u64, key: &str) -> String {
        let text =
            std::fs::read_to_string(format!("/proc/{}/smaps", self.app.pid())).expect("smaps");
        let mut lines = text
            .lines()
            .skip_while(|line| !line.starts_with(&format!("{address:x}-")));
        assert!(lines.next().is_some(), "no mapping begins at {address:x}");
        let line = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.expect("the line").trim().to_string()
    }
}
