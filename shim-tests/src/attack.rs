//! Attacks on the shim: hostile C programs on a libcuda that does what its program says, one attack in one process, which is
//! killed when it takes too long.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cudasnap_cli::process::target::Target;
use cudasnap_cli::record::view::RecordView;
use cudasnap_cli::record::Located;
use cudasnap_wire::{Record, Step};

use crate::shimmed::{compile_hostile, library};
use crate::simdriver::repository;
use crate::steps;
use crate::watchdog::Watchdog;

/// An attack that takes longer hangs. The longest takes 7 s on two idle CPUs; builds may run beside it.
const LIMIT: Duration = Duration::from_secs(150);

/// A folder with the programs and their libcuda, removed with its last user.
#[derive(Debug)]
struct Grounds {
    folder: PathBuf,
    built: Mutex<HashSet<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a test that failed has left is a name that is there or not.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Grounds {
    /// Those of the tests that run now, or new ones.
    fn shared() -> Arc<Self> {
        static NOW: Mutex<Weak<Grounds>> = Mutex::new(Weak::new());
        let mut now = lock(&NOW);
        now.upgrade().unwrap_or_else(|| {
            let grounds = Arc::new(Self::build());
            *now = Arc::downgrade(&grounds);
            grounds
        })
    }

    fn build() -> Self {
        // A folder may still be in the middle of its removal when the next is made.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| repository().join("target"), PathBuf::from);
        let folder = target.join(format!("sim/hostile-{}-{number}", std::process::id()));
        for name in ["relro", "second"] {
            std::fs::create_dir_all(folder.join(name)).expect("a folder");
        }
        Self::build_libcuda(&folder.join("libcuda.so.1"), "lazy");
        Self::build_libcuda(&folder.join("second/libcuda.so.1"), "lazy");
        Self::build_libcuda(&folder.join("relro/libcuda.so.1"), "now");
        Grounds {
            folder,
            built: Mutex::default(),
        }
    }

    fn build_libcuda(to: &Path, binding: &str) {
        let binding = format!("-Wl,-z,relro,-z,{binding}");
        let flags = [
            "-shared",
            "-fPIC",
            // Copies stay calls, and libcuda is their caller: no jump in place of the last call.
            "-fno-builtin",
            "-fno-optimize-sibling-calls",
            "-Wl,-soname,libcuda.so.1,-Bsymbolic",
            &binding,
        ];
        compile_hostile("fakecuda.c", &flags, to);
    }

    fn program(&self, name: &str) -> PathBuf {
        let words = [
            ("DROP", offset_of!(Record, drop)),
            ("MODE", offset_of!(Record, mode)),
            ("THREAD_CAP", offset_of!(Record, thread_cap)),
            ("PID", offset_of!(Record, pid)),
            ("REQUESTS", offset_of!(Record, counters.requests)),
            ("ANSWERED", offset_of!(Record, counters.answered)),
        ];
        let words = words.map(|(name, offset)| format!("-D{name}_OFFSET={offset}"));
        let mut flags: Vec<&str> = words.iter().map(String::as_str).collect();
        flags.push("-ldl");
        self.built(name, name, &flags)
    }

    fn preload(&self, name: &str) -> PathBuf {
        self.built(name, &format!("{name}.so"), &["-shared", "-fPIC"])
    }

    /// What a source becomes, compiled by the first who wants it.
    fn built(&self, source: &str, file: &str, flags: &[&str]) -> PathBuf {
        let path = self.folder.join(file);
        let mut built = lock(&self.built);
        if built.insert(file.to_string()) {
            compile_hostile(&format!("{source}.c"), flags, &path);
        }
        path
    }
}

impl Drop for Grounds {
    fn drop(&mut self) {
        // Nothing depends on it: the next run makes its own.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// One attack, to be run.
#[derive(Debug)]
pub struct Attack {
    grounds: Arc<Grounds>,
    words: String,
    command: Command,
    preloads: Vec<PathBuf>,
    limit: Duration,
}

impl Attack {
    /// An attack of a program in `shim-tests/hostile`, under the shim with default options: `"copies odd 17"`.
    ///
    /// # Panics
    /// When the program does not compile.
    #[must_use]
    pub fn new(words: &str) -> Self {
        let grounds = Grounds::shared();
        let mut parts = words.split(' ');
        let program = grounds.program(parts.next().unwrap_or_default());
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CUDASNAP")) {
            command.env_remove(name);
        }
        command
            .args(parts)
            .env("LD_LIBRARY_PATH", &grounds.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Attack {
            grounds,
            words: words.to_string(),
            command,
            limit: LIMIT,
            preloads: vec![library()],
        }
    }

    /// The same program without the shim: what its driver gets from the kernel alone.
    #[must_use]
    pub fn without_shim(mut self) -> Self {
        self.preloads.remove(0);
        self
    }

    /// With a library from `shim-tests/hostile` preloaded behind the shim.
    ///
    /// # Panics
    /// When it does not compile.
    #[must_use]
    pub fn preload(mut self, name: &str) -> Self {
        self.preloads.push(self.grounds.preload(name));
        self
    }

    /// Its command, for what has to be done before it starts.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Started by another program, which becomes it in the same process: `unshare`, `chrt`, `valgrind`.
    #[must_use]
    pub fn through(mut self, starter: &[&str]) -> Self {
        let mut command = Command::new(starter.first().unwrap_or(&"env"));
        command
            .args(starter.iter().skip(1))
            .arg(self.command.get_program())
            .args(self.command.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        self.command = command;
        self
    }

    /// With a time limit of its own.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// On a libcuda whose slots are bound at once and then read-only.
    #[must_use]
    pub fn relro(mut self) -> Self {
        let folder = self.grounds.folder.join("relro");
        self.command.env("LD_LIBRARY_PATH", folder);
        self
    }

    /// With an option set.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// With libraries preloaded in front of the shim, and behind it.
    #[must_use]
    pub fn between(mut self, front: &[&Path], behind: &[&Path]) -> Self {
        let owned = |paths: &[&Path]| paths.iter().map(|path| path.to_path_buf()).collect();
        let mut list: Vec<PathBuf> = owned(front);
        list.append(&mut self.preloads);
        list.extend::<Vec<PathBuf>>(owned(behind));
        self.preloads = list;
        self
    }

    /// With this as its stderr.
    #[must_use]
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.command.stderr(stderr);
        self
    }

    /// Runs it to its end, which must be a good one, in time.
    ///
    /// # Panics
    /// When it hangs, dies, or says that something is wrong.
    pub fn run(self) -> Outcome {
        let (words, end) = self.finish(true);
        match (end.detail(), end.record) {
            (Some(detail), Some(record)) => Outcome { detail, record },
            _ => panic!("{words}: {}, said '{}'", end.status, end.line),
        }
    }

    /// Runs a program that has no shim to a good end in time: what it said besides `ok`.
    ///
    /// # Panics
    /// As [`Attack::run`].
    #[must_use]
    pub fn run_stock(self) -> String {
        let (words, end) = self.finish(false);
        let detail = end.detail();
        detail.unwrap_or_else(|| panic!("{words}, stock: {}, said '{}'", end.status, end.line))
    }

    /// Runs it to its death, in time: how it died under the shim, and how without.
    ///
    /// # Panics
    /// When it hangs.
    #[must_use]
    pub fn deaths(words: &str) -> [ExitStatus; 2] {
        let both = [Attack::new(words), Attack::new(words).without_shim()];
        both.map(|attack| attack.finish(false).1.status)
    }

    fn finish(mut self, has_record: bool) -> (String, End) {
        let words = &self.words;
        let preloads: Vec<_> = self.preloads.iter().map(|path| path.as_os_str()).collect();
        self.command
            .env("LD_PRELOAD", preloads.join(std::ffi::OsStr::new(":")));
        let mut child = self.command.spawn().expect("the program starts");
        let pid = child.id() as i32;
        let watchdog = Watchdog::new("an attack", pid, self.limit);
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the result");
        // It waits for the end of its stdin now.
        let record = (has_record && line.starts_with("ok")).then(|| {
            let record = Located::find(Target::new(pid)).and_then(|place| place.read());
            record.unwrap_or_else(|error| panic!("{words}: the record: {error:?}"))
        });
        drop(child.stdin.take());
        // Ends with the process; until then the watchdog may need its id.
        stdout.read_to_string(&mut String::new()).expect("its end");
        drop(watchdog);
        let status = child.wait().expect("its status");
        let line = line.trim().to_string();
        let end = End {
            line,
            record,
            status,
        };
        (self.words, end)
    }
}

/// How a program ended.
struct End {
    line: String,
    record: Option<RecordView>,
    status: ExitStatus,
}

impl End {
    fn detail(&self) -> Option<String> {
        let detail = self.line.strip_prefix("ok").map(str::trim)?;
        self.status.success().then(|| detail.to_string())
    }
}

/// What an attack that did no harm has left.
#[derive(Debug)]
pub struct Outcome {
    /// What the program said besides `ok`.
    pub detail: String,
    /// The shim's record at its end.
    pub record: RecordView,
}

impl Outcome {
    /// The detail, where it is a number.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn number(&self) -> f64 {
        self.detail.parse().expect("a number")
    }

    /// How often a step down was taken.
    #[must_use]
    pub fn steps(&self, step: Step) -> u32 {
        self.record.steps(step)
    }

    /// Requests that reached the shim, and those of them that it answered.
    #[must_use]
    pub fn requests(&self) -> (u64, u64) {
        let counters = &self.record.counters;
        (counters.requests, counters.answered)
    }

    /// All steps down that were taken, but for those named, as [`steps::taken`] counts them.
    #[must_use]
    pub fn steps_but(&self, expected: &[Step]) -> Vec<(&'static str, u32)> {
        steps::taken(&self.record, expected)
    }

    /// Whether the last phase in this direction took the whole buffer through the shim, in one phase.
    #[must_use]
    pub fn is_covered(&self, direction: &str) -> bool {
        let phase = self.record.last(direction);
        phase.is_some_and(|phase| phase.end.is("covered") && phase.copied == phase.expected)
    }
}
