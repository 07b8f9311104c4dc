//! The machine that containers run on, and how one gets into them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use cudasnap_cli::process::tree;

use super::terms::Terms;
use super::Container;
use crate::folder::Folder;
use crate::shimmed::library;
use crate::simdriver::{repository, SimDriver};
use crate::tool::{binary, Said};

/// Where the simulated driver, its programs and the library's folder are in a container.
const FILES: &str = "/opt/cudasnap";

/// A machine for containers. All that runs in it ends when it is dropped.
#[derive(Debug)]
pub struct Machine {
    first: Child,
    inside: u32,
    folder: Folder,
    files: PathBuf,
    driver: SimDriver,
}

impl Machine {
    /// A new one, with the library and the tool as an image has them, on this driver.
    ///
    /// # Panics
    /// When this user may not make namespaces.
    #[must_use]
    pub fn new(driver: &SimDriver) -> Self {
        let folder = Folder::new();
        let files = folder.file("files");
        fill(&files, driver);
        let mut first = Command::new("unshare");
        first.args(["--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]);
        // It ends with its input, so also when the test is killed.
        first.args(["sh", "-c", "echo up; read line"]);
        let mut first = first
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What it has to say about being killed.
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare");
        let mut line = String::new();
        let output = first.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(
            line.trim(),
            "up",
            "no right to make namespaces: run as root"
        );
        let below = tree::below(first.id() as i32, &tree::all());
        let inside = below.last().expect("its process 1").pid as u32;
        Machine {
            first,
            inside,
            folder,
            files,
            driver: driver.clone(),
        }
    }

    /// A command on this machine, outside its containers.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.entering(self.inside, &["--pid", "--mount"]);
        command.arg(program);
        command
    }

    /// The tool on this machine, outside its containers, with these arguments, separated by blanks.
    #[must_use]
    pub fn said(&self, arguments: &str) -> Said {
        let mut command = self.command(binary());
        command.args(arguments.split_whitespace());
        Said::by(command.env("LD_LIBRARY_PATH", &self.driver.library))
    }

    /// Starts a container on these terms whose process 1 becomes this command, which says something when it is up.
    #[must_use]
    pub fn start(
        &self,
        terms: &Terms,
        environment: &[(&str, &str)],
        command: &[&str],
    ) -> Container {
        let mut entering = self.entering(self.inside, &["--pid", "--mount"]);
        entering.args([
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount",
            "--ipc",
            "--uts",
        ]);
        if terms.user_namespace {
            entering.args(["--user", "--map-root-user"]);
        }
        self.become_contained(&mut entering, terms, command);
        Container::start(entering.envs(environment.iter().copied()))
    }

    /// A command in a container of its own that shares the pid namespace of the container with this process 1, as a sidecar does.
    #[must_use]
    pub fn beside(&self, first: u32, terms: &Terms, command: &[&str]) -> Command {
        let mut entering = self.entering(first, terms.namespaces(&["--user", "--pid"]));
        entering.args(["unshare", "--mount", "--ipc"]);
        self.become_contained(&mut entering, terms, command);
        entering
    }

    /// A command in the container with this process 1, as `docker exec` and `kubectl exec` start it.
    #[must_use]
    pub fn within(&self, first: u32, terms: &Terms, command: &[&str]) -> Command {
        let all = &["--user", "--pid", "--mount", "--ipc", "--uts"];
        let mut entering = self.entering(first, terms.namespaces(all));
        confined(&mut entering, terms, command);
        entering
    }

    fn entering(&self, pid: u32, namespaces: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &pid.to_string()])
            .args(namespaces);
        command.arg("--").current_dir("/");
        for (name, _) in std::env::vars() {
            if name.starts_with("CUDASNAP") || name.starts_with("CUDASIM") || name == "LD_PRELOAD" {
                command.env_remove(name);
            }
        }
        command
    }

    fn become_contained(&self, entering: &mut Command, terms: &Terms, command: &[&str]) {
        let root = self.folder.file("root");
        std::fs::create_dir_all(&root).expect("a folder");
        entering.arg(repository().join("shim-tests/container/enter"));
        entering.args([&root, &self.files]);
        confined(entering, terms, command);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The kernel ends all that is in the namespace. Nothing depends on how.
        // SAFETY: kill takes two numbers; the process is one of ours, below a child that nobody has waited for.
        unsafe { libc::kill(self.inside as i32, libc::SIGKILL) };
        let _ = self.first.wait();
    }
}

/// The last step into a container, at the paths that the container has.
fn confined(entering: &mut Command, terms: &Terms, command: &[&str]) {
    entering.args(["env", &format!("LD_LIBRARY_PATH={FILES}")]);
    entering.env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    entering
        .arg(format!("{FILES}/confine"))
        .args(&terms.arguments);
    entering.args(command);
}

/// What an image has: library and tool where `examples/container/Dockerfile` puts them, and the simulated driver.
fn fill(files: &Path, driver: &SimDriver) {
    let copy = |from: &Path, to: &str| {
        let to = files.join(to);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        std::fs::copy(from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    };
    let version = env!("CARGO_PKG_VERSION");
    copy(&library(), &format!("opt/{version}/libcudasnap.so"));
    copy(&binary(), "bin/cudasnap");
    let entrypoint = repository().join("examples/container/entrypoint");
    copy(&entrypoint, "bin/cudasnap-entrypoint");
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        copy(&driver.library.join(name), &format!("opt/{name}"));
    }
    copy(&driver.programs.join("simapp"), "opt/simapp");
    copy(confine(driver), "opt/confine");
}

/// Compiled once for all tests of a program.
fn confine(driver: &SimDriver) -> &'static Path {
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let name = format!("confine-{}", std::process::id());
        let to = driver.programs.join(name);
        let from = repository().join("shim-tests/container/confine.c");
        let output = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&to, &from])
            .output()
            .expect("a C compiler");
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{why}");
        to
    })
}
