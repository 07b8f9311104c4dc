//! The verification command between cycles.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::output;

/// Names the process to the command.
pub const VARIABLE: &str = "CUDASNAP_AB_PID";
/// How often its end and signals are looked at.
const TICK: Duration = Duration::from_millis(10);

/// Runs it in a shell; what it writes goes to stderr, since stdout may be a report. `None`: it gave no answer, or a signal came first,
/// which is put into `signal`.
pub fn run(
    command: &str,
    pid: i32,
    signals: &Receiver<i32>,
    signal: &mut Option<i32>,
) -> Option<bool> {
    let stderr = || {
        let copy = std::io::stderr().as_fd().try_clone_to_owned();
        copy.map_or_else(|_| Stdio::null(), Stdio::from)
    };
    let started = Command::new("/bin/sh")
        .args(["-c", command])
        .env(VARIABLE, pid.to_string())
        .stdin(Stdio::null())
        .stdout(stderr())
        .stderr(stderr())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            output::complain(format_args!("the verification command: {error}"));
            return None;
        }
    };
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.success());
        }
        if let Ok(number) = signals.recv_timeout(TICK) {
            signal.get_or_insert(number);
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::unbounded;

    #[test]
    fn its_status_is_the_answer_and_it_knows_the_process() {
        let (_send, signals) = unbounded();
        let mut signal = None;
        let mut ask = |command| run(command, 77, &signals, &mut signal);
        assert_eq!(ask("test \"$CUDASNAP_AB_PID\" = 77"), Some(true));
        assert_eq!(ask("exit 3"), Some(false));
        assert_eq!(signal, None);
    }

    #[test]
    fn a_signal_ends_one_that_hangs() {
        let (send, signals) = unbounded();
        send.send(15).unwrap();
        let mut signal = None;
        assert_eq!(run("exec sleep 600", 1, &signals, &mut signal), None);
        assert_eq!(signal, Some(15));
    }
}
