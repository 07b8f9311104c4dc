//! Other programs that a checkpoint is made with: `cuda-checkpoint` in PATH, CRIU and its CUDA plugin.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::doctor::finding::{Finding, Group};
use crate::doctor::{loader, read};
use crate::links;

/// Where CRIU looks for plugins, besides `CRIU_LIBS_DIR`.
const PLUGIN_FOLDERS: [&str; 5] = [
    "/usr/lib/criu",
    "/usr/local/lib/criu",
    "/usr/lib64/criu",
    "/usr/lib/x86_64-linux-gnu/criu",
    "/usr/libexec/criu",
];
const PLUGIN: &str = "cuda_plugin.so";

/// Looks at what PATH names.
pub fn look() -> Group {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut findings = vec![cuda_checkpoint(tool_in(&path).as_ref())];
    let criu_path = in_path("criu", &path);
    findings.push(match &criu_path {
        None => Finding::unknown(
            "CRIU",
            "not in PATH; needed only to move processes to disk or to other hosts",
        ),
        Some(path) => {
            let said = loader::output_of(Command::new(path).arg("--version"));
            let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_default();
            criu(said.as_deref(), kernel.trim())
        }
    });
    if criu_path.is_some() {
        findings.push(plugin(plugin_file().as_deref()));
    }
    Group {
        name: "tools",
        findings,
    }
}

fn in_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|file| is_program(file))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// `cuda-checkpoint` in PATH, and whether it is this program.
fn tool_in(path: &OsStr) -> Option<(PathBuf, bool)> {
    let found = in_path(links::NAME, path)?;
    let target = std::fs::canonicalize(&found).unwrap_or_default();
    let is_ours = target.file_name() == Some(OsStr::new("cudasnap"))
        || std::env::current_exe().is_ok_and(|own| own == target);
    Some((found, is_ours))
}

fn cuda_checkpoint(found: Option<&(PathBuf, bool)>) -> Finding {
    const CHECK: &str = "cuda-checkpoint";
    match found {
        Some((path, true)) => Finding::ok(CHECK, format!("{}: a link to cudasnap", path.display())),
        Some((path, false)) => Finding::ok(
            CHECK,
            format!(
                "{}: NVIDIA's, which works with the library as well",
                path.display()
            ),
        ),
        None => Finding::unknown(
            CHECK,
            "not in PATH; CRIU's CUDA plugin needs it (cudasnap install-links DIR)",
        ),
    }
}

/// The first two numbers of a version, such as `(4, 1)` of `Version: 4.1.1`.
fn version_in(text: &str) -> Option<(u32, u32)> {
    let word = text
        .split_whitespace()
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    let mut numbers = word
        .split(|other: char| !other.is_ascii_digit())
        .map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn criu(said: Option<&str>, kernel: &str) -> Finding {
    const CHECK: &str = "CRIU";
    let Some(said) = said else {
        return Finding::warning(CHECK, "criu --version fails", "install CRIU 4.1 or newer");
    };
    let Some((major, minor)) = version_in(said) else {
        return Finding::unknown(CHECK, said.trim());
    };
    let found = format!("{major}.{minor}");
    let new_kernel = version_in(kernel).is_some_and(|(major, _)| major >= 6);
    match (major, minor) {
        // Debian 12's 3.17 did not start on Linux 6.18; 4.1 and 4.2 did.
        (..=3, _) if new_kernel => Finding::warning(
            CHECK,
            format!("{found} is too old for Linux {kernel}"),
            "install CRIU 4.1 or newer (Debian 13 has it)",
        ),
        (..=3, _) => Finding::ok(
            CHECK,
            format!("{found}, without a CUDA plugin (from 4.0 on)"),
        ),
        _ => Finding::ok(CHECK, found),
    }
}

fn plugin_file() -> Option<PathBuf> {
    let named = std::env::var_os("CRIU_LIBS_DIR").map(PathBuf::from);
    let folders = named.into_iter().chain(PLUGIN_FOLDERS.map(PathBuf::from));
    folders
        .map(|folder| folder.join(PLUGIN))
        .find(|file| file.is_file())
}

fn plugin(found: Option<&Path>) -> Finding {
    const CHECK: &str = "CRIU's plugin";
    match found {
        Some(path) => Finding::ok(CHECK, path.display().to_string()),
        None => Finding::unknown(
            CHECK,
            "no cuda_plugin.so: cudasnap checkpoint before criu dump, cudasnap restore after criu restore",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict::{Ok as Fine, Unknown, Warning};

    #[test]
    fn crius_version_is_judged_by_the_kernel() {
        for (said, kernel, verdict) in [
            (Some("Version: 3.17.1\n"), "6.1.0-18-amd64", Warning),
            (Some("Version: 3.17.1\n"), "5.15.0", Fine),
            (Some("Version: 4.1.1\n"), "6.18.4", Fine),
            (Some("Version: 4.2\nGitID: v4.2-5\n"), "6.18.4", Fine),
            (Some("what?"), "6.18.4", Unknown),
            (None, "6.18.4", Warning),
        ] {
            assert_eq!(criu(said, kernel).verdict, verdict, "{said:?} {kernel}");
        }
    }

    #[test]
    fn tools_in_path_are_found() {
        let path = std::env::var_os("PATH").unwrap();
        assert!(in_path("sh", &path).unwrap().is_absolute());
        assert_eq!(in_path("nothing-of-this-name", &path), None);
        let found = |is_ours| cuda_checkpoint(Some(&("/x/cuda-checkpoint".into(), is_ours)));
        assert!(found(true).found.contains("cudasnap") && found(false).found.contains("NVIDIA's"));
        assert_eq!(cuda_checkpoint(None).verdict, Unknown);
        assert_eq!(plugin(Some(Path::new("/x"))).verdict, Fine);
        assert_eq!(plugin(None).verdict, Unknown);
    }
}
