//! Packages out of `dist/`, and folders that they are installed into.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::folder::Folder;
use crate::shimmed::Shimmed;
use crate::simdriver::{repository, App, SimDriver};
use crate::tool::Said;

/// The only package in `dist/` whose name begins and ends so.
///
/// # Panics
/// When there is none, or more than one.
#[must_use]
pub fn package(begin: &str, end: &str) -> PathBuf {
    let folder = repository().join("dist");
    let entries = std::fs::read_dir(&folder).expect("dist/ is missing: scripts/package");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("a name that is text"));
    let found: Vec<String> = names
        .filter(|name| name.starts_with(begin) && name.ends_with(end))
        .collect();
    assert_eq!(found.len(), 1, "{begin}*{end}: {found:?}");
    folder.join(&found[0])
}

/// Runs a command that must succeed; its output.
///
/// # Panics
/// With everything it said when it does not.
pub fn done(command: &mut Command) -> String {
    let said = Said::by(command);
    assert_eq!(said.code, 0, "{command:?}: {said:?}");
    said.stdout
}

/// A prefix with `bin/cudasnap` in it, as some package installs it.
#[derive(Debug)]
pub struct Installed {
    prefix: PathBuf,
}

impl Installed {
    /// What is installed below this prefix.
    ///
    /// # Panics
    /// When there is no tool.
    #[must_use]
    pub fn below(prefix: &Path) -> Self {
        let prefix = prefix.canonicalize().expect("a prefix");
        assert!(prefix.join("bin/cudasnap").is_file(), "{prefix:?}");
        Installed { prefix }
    }

    /// The tool, with nothing of the caller's that would change what it does.
    #[must_use]
    pub fn tool(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.prefix.join("bin/cudasnap"));
        command.args(arguments).env_remove("LD_PRELOAD");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CUDASNAP") {
                command.env_remove(name);
            }
        }
        command
    }

    /// The library that the tool would put into a program by itself.
    ///
    /// # Panics
    /// When it finds none, or none that works.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        let said = Said::by(&mut self.tool(&["run", "--dry-run", "--json", "--", "true"]));
        let shown = said.json();
        assert_eq!(shown["active"], true, "{said:?}");
        assert_eq!(shown["obstacle"], serde_json::Value::Null, "{said:?}");
        shown["library"].as_str().expect("a path").into()
    }

    /// Files below the prefix, as paths from there, sorted.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        files_below(&self.prefix)
    }

    /// `simapp` under `cudasnap run`, checkpointed and restored by the tool.
    ///
    /// # Panics
    /// When a step fails, a word of its memory is wrong, or the library did not make all the copies.
    pub fn checkpoints(&self, driver: &SimDriver) {
        let mut command = self.tool(&["run", "--require", "--"]);
        let sim = driver.command("simapp");
        command.arg(sim.get_program()).arg("16");
        command.env("LD_LIBRARY_PATH", &driver.library);
        let mut host = Shimmed::adopt(driver, App::start(&mut command));
        let pid = host.app.pid().to_string();
        for verb in ["checkpoint", "restore"] {
            done(
                self.tool(&[verb, &pid])
                    .env("LD_LIBRARY_PATH", &driver.library),
            );
        }
        assert_eq!(host.app.wrong_words(), 0);
        for direction in ["checkpoint", "restore"] {
            let phase = host.last(direction);
            assert!(phase.expected > 0, "{phase:?}");
            assert_eq!(phase.copied, phase.expected, "{phase:?}");
        }
        assert_eq!(host.steps_but(&[]), []);
    }
}

/// Files below a folder, as paths from there, sorted.
///
/// # Panics
/// When a folder cannot be read.
#[must_use]
pub fn files_below(top: &Path) -> Vec<String> {
    let (mut todo, mut files) = (vec![top.to_path_buf()], Vec::new());
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                todo.push(path);
            } else {
                let from_top = path.strip_prefix(top).expect("below");
                files.push(from_top.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    files
}

/// All parts of a C library that are always there, beside the one that programs name.
const GLIBC: [&str; 4] = ["libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"];

/// A folder with a C library and these programs, and nothing more: for [`inside`].
///
/// # Panics
/// When something cannot be copied.
#[must_use]
pub fn bare_root(programs: &[&str]) -> Folder {
    let root = Folder::in_target();
    for program in programs {
        let text = done(Command::new("ldd").arg(program));
        let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
        for file in libraries.chain([*program]) {
            let file = Path::new(file);
            copy_into(root.path(), file);
            if file.ends_with("libc.so.6") {
                for part in GLIBC {
                    copy_into(root.path(), &file.with_file_name(part));
                }
            }
        }
    }
    for folder in ["proc", "dev", "tmp"] {
        std::fs::create_dir_all(root.file(folder)).expect("a folder");
    }
    root
}

/// A command in that root, which has a `/proc` for as long as the command runs. It takes the place of the process that is started.
#[must_use]
pub fn inside(root: &Folder, command: &[&str]) -> Command {
    let script = "mount -t proc proc \"$0/proc\"; exec chroot \"$0\" \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-euc", script]);
    unshare.arg(root.path()).args(command);
    unshare
}

/// A file to the same path below another root.
fn copy_into(root: &Path, file: &Path) {
    let to = root.join(file.strip_prefix("/").expect("absolute"));
    std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
    std::fs::copy(file, &to).unwrap_or_else(|error| panic!("{file:?}: {error}"));
}
