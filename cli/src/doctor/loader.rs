//! What the dynamic loader of this machine does, seen in a child process that does nothing else.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::run::trial::UNWANTED;

/// Programs that only print something about themselves.
const LIMIT: Duration = Duration::from_secs(10);

/// The file that the loader takes for a library's name. Nothing of the library is executed.
pub fn file_of(name: &str) -> Option<PathBuf> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("--version")
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .env("LD_PRELOAD", name);
    path_in(&output_of(&mut command)?, name)
}

/// The path in a line `NAME => PATH (ADDRESS)`.
fn path_in(listing: &str, name: &str) -> Option<PathBuf> {
    listing.lines().find_map(|line| {
        let (found, rest) = line.trim().split_once(" => ")?;
        let (path, _) = rest.rsplit_once(" (")?;
        (found == name && path.starts_with('/')).then(|| PathBuf::from(path))
    })
}

/// Loads the library into a child that prints its version and ends.
///
/// # Errors
/// The loader's words, or what else went wrong.
pub fn try_preload(library: &Path) -> Result<(), String> {
    let mut command = Command::new("/proc/self/exe");
    for option in cudasnap_wire::OPTIONS {
        command.env_remove(option.name);
    }
    // The library says a line when it is loaded: the proof that it was not just left out.
    command
        .arg("--version")
        .env("LD_PRELOAD", library)
        .env("CUDASNAP_LOG", "debug");
    let said = said_by(&mut command).ok_or("no child process can be started, or none ends")?;
    if let Some(signal) = said.status.signal() {
        return Err(format!(
            "a child process with it is ended by signal {signal}"
        ));
    }
    judge(&said.stderr)
}

fn judge(stderr: &str) -> Result<(), String> {
    if stderr
        .lines()
        .any(|line| line.contains("cudasnap") && line.contains(" is loaded"))
    {
        return Ok(());
    }
    let words = stderr
        .lines()
        .next()
        .unwrap_or("it is not among what was loaded");
    Err(words.trim().to_owned())
}

/// What a command said, and how it ended.
struct Said {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

/// Standard output of a command that ends well in time.
pub fn output_of(command: &mut Command) -> Option<String> {
    let said = said_by(command)?;
    said.status.success().then_some(said.stdout)
}

/// `None` when it cannot be started, or does not end in time.
fn said_by(command: &mut Command) -> Option<Said> {
    for name in UNWANTED {
        command.env_remove(name);
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + LIMIT;
    // What these programs say fits into a pipe.
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            _ => break None,
        }
    };
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let status = status?;
    let output = child.wait_with_output().ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Said {
        status,
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_listing_is_read() {
        let listing =
            "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibcuda.so.1 => /opt/a b/libcuda.so.1 (0x00007f)\n\
                       \tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\tlibx.so => not found\n";
        assert_eq!(
            path_in(listing, "libcuda.so.1"),
            Some("/opt/a b/libcuda.so.1".into())
        );
        assert_eq!(path_in(listing, "libx.so"), None);
        assert_eq!(path_in(listing, "liby.so"), None);
    }

    #[test]
    fn only_the_librarys_own_words_prove_that_it_was_loaded() {
        judge("cudasnap[7]: cudasnap 0.1.0 is loaded, mode on\n").unwrap();
        let words = "ERROR: ld.so: object '/x.so' from LD_PRELOAD cannot be preloaded: ignored.";
        assert_eq!(judge(&format!("{words}\n")).unwrap_err(), words);
        assert!(judge("").is_err());
    }

    #[test]
    fn a_command_that_fails_has_no_output() {
        assert_eq!(output_of(Command::new("sh").args(["-c", "exit 1"])), None);
        assert_eq!(output_of(&mut Command::new("/nonexistent")), None);
        let said = output_of(Command::new("sh").args(["-c", "echo a; echo b >&2"]));
        assert_eq!(said.as_deref(), Some("a\n"));
    }
}
