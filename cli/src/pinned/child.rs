//! The measuring process, from outside.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::ab::data::Limit;
use crate::foreign_text::printable;

use super::copies::LEAST;
use super::Choice;

/// Time for the driver, the context and pinning.
const START: Duration = Duration::from_secs(60);
/// Slowest link that is waited for, in bytes per second.
const SLOWEST: u64 = 200_000_000;
const TICK: Duration = Duration::from_millis(20);
/// Longest text of either output that is looked at.
const LONGEST: u64 = 64 << 10;

/// This program, also after its file was replaced.
pub fn own_program() -> PathBuf {
    "/proc/self/exe".into()
}

/// Measures by `program`, which is this one.
///
/// # Errors
/// Why there are no rates.
pub fn measure(program: &Path, choice: &Choice, bytes: u64, repeats: u32) -> Result<Limit, String> {
    let mut command = Command::new(program);
    let bytes = bytes.max(LEAST);
    command
        .arg0("cudasnap")
        .arg("pinned")
        .args(["--bytes", &bytes.to_string()])
        .args(["--repeats", &repeats.max(1).to_string()])
        // Whatever is preloaded into this process: these copies are the driver's.
        .env("CUDASNAP", "off");
    choice.prepare(&mut command);
    let copied = bytes.saturating_mul(u64::from(repeats) * 2 + 2);
    let limit = START + Duration::from_secs(copied / SLOWEST);
    let said = run(&mut command, limit)?;
    let rates: Limit = serde_json::from_str(&said).map_err(|error| {
        format!("the measuring process said something else than rates: {error}")
    })?;
    let sound = |rate: f64| rate.is_finite() && rate > 0.0;
    if sound(rates.to_host) && sound(rates.to_device) {
        Ok(rates)
    } else {
        Err("the measuring process said rates that cannot be".into())
    }
}

/// What the command writes to stdout, when it ends well and in time.
fn run(command: &mut Command, limit: Duration) -> Result<String, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: a system call with numbers only, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // It ends with the thread that waits for it.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    };
    let told = |error: io::Error| format!("the measuring process: {error}");
    let mut child = Kill(command.spawn().map_err(told)?);
    let since = Instant::now();
    let status = loop {
        match child.0.try_wait().map_err(told)? {
            Some(status) => break status,
            None if since.elapsed() < limit => std::thread::sleep(TICK),
            None => {
                return Err(format!(
                    "the measuring process was ended after {} s: the driver did not answer",
                    limit.as_secs()
                ))
            }
        }
    };
    let text = text_of(child.0.stdout.take());
    let errors = text_of(child.0.stderr.take());
    if status.success() {
        return Ok(text);
    }
    Err(why(status, &errors))
}

fn why(status: ExitStatus, errors: &str) -> String {
    let last = errors.lines().rfind(|line| !line.trim().is_empty());
    match (last, status.signal(), status.code()) {
        (_, Some(signal), _) => format!("the measuring process ended by signal {signal}"),
        (Some(line), ..) => printable(line.trim_start_matches("cudasnap: ")),
        (None, _, code) => format!(
            "the measuring process ended with status {} and did not say why",
            code.unwrap_or(-1)
        ),
    }
}

fn text_of(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // What cannot be read was not said.
        let _ = pipe.take(LONGEST).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A child that does not outlive its use.
struct Kill(Child);

impl Drop for Kill {
    fn drop(&mut self) {
        // Gone already, or gone now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<String, String> {
        run(Command::new("sh").args(["-c", script]), limit)
    }

    #[test]
    fn what_it_says_is_taken_and_its_troubles_are_told() {
        let long = Duration::from_secs(60);
        assert_eq!(shell("echo hi", long).as_deref(), Ok("hi\n"));
        assert_eq!(
            shell("echo cudasnap: the GPU is gone >&2; exit 1", long).unwrap_err(),
            "the GPU is gone"
        );
        assert!(shell("exit 7", long).unwrap_err().contains("status 7"));
        assert!(shell("kill -9 $$", long).unwrap_err().contains("signal 9"));
    }

    #[test]
    fn one_that_hangs_is_ended() {
        let error = shell("exec sleep 600", Duration::from_millis(50)).unwrap_err();
        assert!(error.contains("did not answer"), "{error}");
    }

    #[test]
    fn what_are_no_rates_is_refused() {
        let choice = Choice::default();
        let error = measure(Path::new("/bin/true"), &choice, 1 << 30, 1).unwrap_err();
        assert!(error.contains("something else than rates"), "{error}");
        let error = measure(Path::new("/no/such/file"), &choice, 1 << 30, 1).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
    }
}
