//! Folders with programs of all kinds, and `cudasnap run` on them.

// Each test crate uses its part of this module.
#![allow(dead_code)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use cudasnap_shim_tests::shimmed::library;
use cudasnap_shim_tests::tool::{binary, Said};

/// A folder that everybody may read, removed on drop.
pub struct Folder {
    pub path: PathBuf,
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Folder {
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("cudasnap-run-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        let folder = Folder { path };
        folder.mode("", 0o755);
        folder
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn mode(&self, name: &str, mode: u32) {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.at(name), permissions).unwrap();
    }

    /// A file that may be executed.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.at(name), bytes).unwrap();
        self.mode(name, 0o755);
        self.at(name)
    }

    pub fn copy(&self, name: &str, from: &Path) -> PathBuf {
        std::fs::copy(from, self.at(name)).unwrap();
        self.mode(name, 0o755);
        self.at(name)
    }

    /// A C program, or with `-shared` a library.
    pub fn compiled(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let code = self.at(&format!("{name}.c"));
        std::fs::write(&code, source).unwrap();
        let output = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
            .arg("-o")
            .args([&self.at(name), &code])
            .args(flags)
            .output()
            .expect("a C compiler");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
        self.at(name)
    }

    /// A program that prints the list of preloads that it has got, and starts what it is told to.
    pub fn shows_preload(&self, name: &str, flags: &[&str]) -> PathBuf {
        let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
            int main(int n, char **a) { char *p = getenv(\"LD_PRELOAD\"); printf(\"[%s]\\n\", p ? p : \"\");\n\
            fflush(stdout); if (n > 1) execv(a[1], a + 1); return n > 1; }\n";
        self.compiled(name, source, flags)
    }

    /// The library with some of its bytes replaced by as many others.
    pub fn patched_library(&self, name: &str, from: &str, to: &str) -> PathBuf {
        assert_eq!(from.len(), to.len());
        let mut bytes = std::fs::read(library()).unwrap();
        let places: Vec<usize> = (0..bytes.len() - from.len())
            .filter(|at| bytes[*at..].starts_with(from.as_bytes()))
            .collect();
        assert!(!places.is_empty(), "{from}");
        for at in places {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
        self.file(name, bytes)
    }
}

/// The tool, with nothing of the caller's that would change what it does.
pub fn tool(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments);
    clean(&mut command);
    command
}

/// Takes the variables out that the tool and the library read.
pub fn clean(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CUDASNAP") {
            command.env_remove(name);
        }
    }
    command
        .env_remove("LD_PRELOAD")
        .env_remove("ASAN_OPTIONS")
        .env("CUDASNAP_LIB", library())
}

/// `cudasnap run` with these arguments.
pub fn run(arguments: &[&str]) -> Said {
    Said::by(tool(&["run"]).args(arguments))
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
