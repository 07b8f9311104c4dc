//! What says whether a process is right after its cycles: the verification command, or the built-in workload about itself.

use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::target::Started;
use crate::{output, shell};

/// Names the process to the command.
pub const VARIABLE: &str = "CUDASNAP_AB_PID";
/// How often its end and signals are looked at.
const TICK: Duration = Duration::from_millis(10);
/// How long the built-in workload may take to compare what it holds. 48 GiB take seconds.
const COMPARED: Duration = Duration::from_secs(600);
/// What it answers when every word is right.
const RIGHT: &str = "bad 0";

/// Asks the built-in workload to compare its contents, which no cycle changes: what any of them has spoiled is seen. One that gives no answer
/// is not right. `None`: a signal came first, which is put into `signal`.
pub fn ask(
    workload: &mut Started,
    signals: &Receiver<i32>,
    signal: &mut Option<i32>,
) -> Option<bool> {
    let is_over = || {
        if let Ok(number) = signals.try_recv() {
            signal.get_or_insert(number);
        }
        signal.is_some()
    };
    let said = match workload.ask("sum", COMPARED, is_over) {
        Ok(answer) => answer?,
        Err(error) => error,
    };
    if said != RIGHT {
        output::complain(format_args!("contents compared: {said}"));
    }
    Some(said == RIGHT)
}

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
    let mut shell = shell::command(command);
    shell
        .env(VARIABLE, pid.to_string())
        .stdout(stderr())
        .stderr(stderr());
    let mut child = match shell.spawn() {
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
            shell::end(&mut child);
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

    /// Its own child too.
    #[test]
    fn a_signal_ends_what_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let started = folder.path().join("started");
        let command = format!(
            "sleep 600 & echo $! > {0}.part; mv {0}.part {0}; wait",
            started.display()
        );
        let (send, signals) = unbounded();
        let path = started.clone();
        let presser = std::thread::spawn(move || {
            let since = std::time::Instant::now();
            while !path.exists() && since.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(TICK);
            }
            send.send(2).unwrap();
        });
        let mut signal = None;
        assert_eq!(run(&command, 1, &signals, &mut signal), None);
        presser.join().unwrap();
        let child: i32 = std::fs::read_to_string(&started)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let since = std::time::Instant::now();
        while crate::process::identity::Identity::of(child).is_ok() {
            assert!(since.elapsed() < Duration::from_secs(60), "{child} lives");
            std::thread::sleep(TICK);
        }
    }

    #[test]
    fn it_dies_with_the_one_who_waits() {
        let (_send, signals) = unbounded();
        let mut signal = None;
        // Its parent's death is told to it by SIGKILL, as it says of itself.
        let command = "command -v python3 > /dev/null || exit 0; exec python3 -c 'import ctypes, sys; n = ctypes.c_int(0); \
                       ctypes.CDLL(None).prctl(2, ctypes.byref(n)); sys.exit(0 if n.value == 9 else 1)'";
        assert_eq!(run(command, 1, &signals, &mut signal), Some(true));
    }
}
