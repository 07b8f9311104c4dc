//! A program that the tool starts (`ab -- CMD`): ready, asked, ended; and nothing of it left, whatever happens to the tool.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudasnap_cli::process::target::Target;
use cudasnap_cli::record::Located;
use cudasnap_shim_tests::folder::Folder;
use cudasnap_shim_tests::shimmed::library;
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::tool::{binary, send_signal, until};

/// The tool's part, played by a program of the tests. All that it starts is known by a variable in its environment.
struct Starter {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    mark: String,
}

impl Drop for Starter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Of a test that failed.
        for pid in left(&self.mark) {
            send_signal(pid, libc::SIGKILL);
        }
    }
}

/// Processes that have the mark in their environment.
fn left(mark: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|pair| pair == mark.as_bytes())
    };
    pids.filter(has).collect()
}

impl Starter {
    fn start(driver: &SimDriver, options: &[&str], program: &[&str]) -> Self {
        Self::start_with(driver, options, program, |_| {})
    }

    fn start_with(
        driver: &SimDriver,
        options: &[&str],
        program: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("STARTED_BY=test-{}-{number}", std::process::id());
        let has_limit = options.contains(&"--ready-timeout");
        let limit: &[&str] = if has_limit {
            &[]
        } else {
            &["--ready-timeout", "60"]
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_start_program"));
        command
            .arg("--tool")
            .arg(binary())
            .args(["--set", &mark])
            .args(options)
            .args(limit)
            .arg("--")
            .args(program)
            .env("CUDASNAP_LIB", library())
            .env("LD_LIBRARY_PATH", &driver.library)
            .env("SIMAPP", driver.programs.join("simapp"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        Starter {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            mark,
        }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn tell(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}").unwrap();
        self.hear()
    }

    /// The process that uses CUDA.
    fn pid(&mut self) -> u32 {
        let line = self.hear();
        let pid = line.strip_prefix("pid ").and_then(|pid| pid.parse().ok());
        pid.unwrap_or_else(|| panic!("{line}"))
    }

    fn rest(&mut self) -> String {
        let mut rest = String::new();
        let _ = self.stdout.read_to_string(&mut rest);
        rest
    }

    /// The error, and the exit status.
    fn error(&mut self) -> (String, i32) {
        let first = self.hear();
        assert!(!first.starts_with("pid "), "it is ready: {first}");
        let text = format!("{first}\n{}", self.rest());
        let status = self.child.wait().unwrap();
        let error = text
            .strip_prefix("error ")
            .unwrap_or_else(|| panic!("{text}"));
        (error.to_owned(), status.code().unwrap())
    }

    fn expect_nothing_left(&self) {
        until("the end of all", || left(&self.mark).is_empty());
    }
}

fn simapp(driver: &SimDriver) -> String {
    driver.programs.join("simapp").to_str().unwrap().to_owned()
}

const LINE: [&str; 2] = ["--ready-line", "/^ready [0-9]+$/"];

#[test]
fn a_program_is_started_under_the_library_asked_and_ended() {
    let driver = SimDriver::build(false);
    let options = [&LINE[..], &["--set", "CUDASNAP_THREADS=3"]].concat();
    let mut starter = Starter::start(&driver, &options, &[&simapp(&driver), "16"]);
    let pid = starter.pid();
    let record = Located::find(Target::new(pid as i32))
        .unwrap()
        .read()
        .unwrap();
    assert_eq!(record.options.threads, 3);
    assert_eq!(starter.tell("ask sum"), "Ok(\"bad 0\")");
    assert_eq!(driver.control("cycle", pid, &[]).code, 0);
    assert_eq!(starter.tell("ask sum"), "Ok(\"bad 0\")");
    assert_eq!(starter.tell("ending"), "None");
    assert_eq!(left(&starter.mark).len(), 1);
    assert_eq!(starter.tell("end"), "Ok(())");
    starter.expect_nothing_left();
}

#[test]
fn without_the_library_there_is_no_record() {
    let driver = SimDriver::build(false);
    let options = [&LINE[..], &["--stock"]].concat();
    let mut starter =
        Starter::start_with(&driver, &options, &[&simapp(&driver), "16"], |command| {
            command.env("LD_PRELOAD", library());
        });
    let pid = starter.pid();
    assert!(Located::find(Target::new(pid as i32)).is_err());
    assert_eq!(starter.tell("end"), "Ok(())");
}

/// The process that uses CUDA lies two below, all of them ignore SIGTERM, another has a session of its own, and one has lost its parent.
const NEST: &str =
    "exec 3<&0; (setsid sleep 1000 &); (trap '' TERM; setsid sleep 1000 & \"$SIMAPP\" 16 <&3 & wait; sleep 1000)";

#[test]
fn the_cuda_process_is_found_below_and_all_of_it_ends() {
    let driver = SimDriver::build(false);
    let options = [&LINE[..], &["--end-timeout", "0.3"]].concat();
    let mut starter = Starter::start(&driver, &options, &["sh", "-c", NEST]);
    let pid = starter.pid();
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(name.trim(), "simapp");
    assert!(left(&starter.mark).len() >= 4);
    assert_eq!(starter.tell("end"), "Ok(())");
    assert!(
        left(&starter.mark).is_empty(),
        "at once: it has waited for that"
    );
}

/// By SIGKILL the tool cannot do anything any more. The program would not see the end of its input: it has another one.
#[test]
fn nothing_is_left_when_the_tool_is_killed() {
    let driver = SimDriver::build(false);
    let nest = NEST.replace("\"$SIMAPP\" 16 <&3", "sleep 1000 | \"$SIMAPP\" 16");
    let options = [&LINE[..], &["--end-timeout", "0.3"]].concat();
    let mut starter = Starter::start(&driver, &options, &["sh", "-c", &nest]);
    let pid = starter.pid();
    for action in ["lock", "checkpoint"] {
        assert_eq!(driver.control(action, pid, &[]).code, 0, "{action}");
    }
    assert!(left(&starter.mark).len() >= 4);
    send_signal(starter.child.id(), libc::SIGKILL);
    starter.child.wait().unwrap();
    starter.expect_nothing_left();
}

#[test]
fn a_keeper_that_is_killed_takes_the_program_along() {
    let driver = SimDriver::build(false);
    let mut starter = Starter::start(&driver, &LINE, &[&simapp(&driver), "16"]);
    let pid = starter.pid();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let keeper: u32 = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert_ne!(keeper, starter.child.id());
    send_signal(keeper, libc::SIGKILL);
    starter.expect_nothing_left();
    until("the end", || starter.tell("ending").starts_with("Some("));
    let said = starter.tell("end");
    assert!(said.contains("keeper was killed"), "{said}");
}

#[test]
fn a_program_that_dies_early_is_told_with_its_last_words() {
    let driver = SimDriver::build(false);
    for (script, how, words) in [
        (
            // Of two pipes nobody knows which line comes first.
            "echo one >&2; echo two words >&2; exit 3",
            "ended with exit status 3",
            "one / two words",
        ),
        (
            "echo only this; kill -9 $$",
            "ended by signal 9",
            "only this",
        ),
        ("exit 0", "ended with exit status 0", ""),
    ] {
        let mut starter = Starter::start(&driver, &LINE, &["sh", "-c", script]);
        let (error, status) = starter.error();
        assert!(
            error.contains(how) && error.contains(words),
            "{script}: {error}"
        );
        assert_eq!(status, 1);
    }
    let mut starter = Starter::start(&driver, &LINE, &["no-such-program"]);
    let (error, status) = starter.error();
    assert!(error.contains("there is no such program"), "{error}");
    assert_eq!(status, 127);
}

#[test]
fn one_that_dies_later_is_told_too() {
    let driver = SimDriver::build(false);
    let script = "echo starting >&2; exec \"$SIMAPP\" 16";
    let mut starter = Starter::start(&driver, &LINE, &["sh", "-c", script]);
    let pid = starter.pid();
    send_signal(pid, libc::SIGSEGV);
    let mut said = String::new();
    until("the end", || {
        said = starter.tell("ending");
        said != "None"
    });
    assert!(
        said.contains("(simapp) ended by signal 11") && said.contains("starting"),
        "{said}"
    );
    assert!(starter.tell("ask sum").starts_with("Err("));
    assert_eq!(starter.tell("end"), "Ok(())");
}

#[test]
fn several_cuda_processes_are_listed_and_none_is_taken() {
    let driver = SimDriver::build(false);
    let script = "exec 3<&0; \"$SIMAPP\" 16 <&3 & \"$SIMAPP\" 16 <&3 & sleep 1000";
    let mut starter = Starter::start(&driver, &["--ready-quiet", "1"], &["sh", "-c", script]);
    let (error, status) = starter.error();
    assert!(
        error.starts_with("2 processes below the program use CUDA: "),
        "{error}"
    );
    assert_eq!(error.matches("(simapp)").count(), 2, "{error}");
    assert_eq!(status, 4);
    starter.expect_nothing_left();
}

/// With NVML by its memory; without, by the driver's word and its CPU time.
#[test]
fn quiet_memory_is_ready() {
    let driver = SimDriver::build(false);
    for nvml in [true, false] {
        let folder = Folder::new();
        let mut library = driver.library.clone();
        if !nvml {
            library = folder.path().to_path_buf();
            std::os::unix::fs::symlink(
                driver.library.join("libcuda.so.1"),
                library.join("libcuda.so.1"),
            )
            .unwrap();
        }
        let options = ["--ready-quiet", "1"];
        let mut starter =
            Starter::start_with(&driver, &options, &[&simapp(&driver), "64"], |command| {
                command.env("LD_LIBRARY_PATH", &library);
            });
        starter.pid();
        assert_eq!(starter.tell("ask sum"), "Ok(\"bad 0\")", "nvml: {nvml}");
        assert_eq!(starter.tell("end"), "Ok(())");
    }
}

#[test]
fn all_conditions_must_have_come_about() {
    let driver = SimDriver::build(false);
    let folder = Folder::new();
    let flag = folder.file("flag");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let command = format!("test -e {}", flag.display());
    let options = [
        "--ready-port",
        &port,
        "--ready-command",
        &command,
        "--ready-line",
        "ready",
    ];
    let mut starter = Starter::start(&driver, &options, &[&simapp(&driver), "16"]);
    until("the program", || !left(&starter.mark).is_empty());
    let _listener = TcpListener::bind(("127.0.0.1", port.parse().unwrap())).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(starter.child.try_wait().unwrap().is_none());
    std::fs::write(&flag, "").unwrap();
    let asked = Instant::now();
    starter.pid();
    assert!(asked.elapsed() < Duration::from_secs(60));
    // Now it accepts before the program is there.
    let mut second = Starter::start(&driver, &["--ready-port", &port], &[&simapp(&driver), "16"]);
    let (error, status) = second.error();
    assert!(error.contains("accepts already"), "{error}");
    assert_eq!(status, 4);
}

#[test]
fn who_is_not_ready_in_time_is_ended_and_what_was_missing_is_told() {
    let driver = SimDriver::build(false);
    let run = |options: &[&str], program: &[&str], words: &str| {
        let options = [options, &["--ready-timeout", "1"]].concat();
        let mut starter = Starter::start(&driver, &options, program);
        let (error, status) = starter.error();
        assert!(
            error.contains("was not ready within 1 s") && error.contains(words),
            "{error}"
        );
        assert_eq!(status, 1);
        starter.expect_nothing_left();
    };
    let app = simapp(&driver);
    run(
        &["--ready-line", "never"],
        &[&app, "16"],
        "no line with \"never\" has come",
    );
    run(
        &["--ready-command", "false"],
        &[&app, "16"],
        "\"false\" has not returned 0",
    );
    run(
        &["--ready-line", "hello"],
        &["sh", "-c", "echo hello; sleep 1000"],
        "no process below it uses CUDA",
    );
    run(
        &["--ready-quiet", "900"],
        &[&app, "16"],
        "its GPU memory still changes",
    );
}

#[test]
fn a_signal_meanwhile_ends_it() {
    let driver = SimDriver::build(false);
    let mut starter = Starter::start(
        &driver,
        &["--ready-line", "never"],
        &[&simapp(&driver), "16"],
    );
    until("the program", || !left(&starter.mark).is_empty());
    send_signal(starter.child.id(), libc::SIGINT);
    let (error, status) = starter.error();
    assert_eq!((error.trim(), status), ("interrupted by signal 2", 130));
    starter.expect_nothing_left();
}

/// It writes without end, and nobody reads: neither our stderr, which is full, nor anybody else.
#[test]
fn output_that_nobody_takes_does_not_stop_it() {
    let driver = SimDriver::build(false);
    let (_nobody, full) = std::io::pipe().unwrap();
    let script = "head -c 60000000 /dev/zero | tr '\\0' x >&2; echo >&2; exec \"$SIMAPP\" 16";
    let mut starter = Starter::start_with(&driver, &LINE, &["sh", "-c", script], |command| {
        command.stderr(full);
    });
    starter.pid();
    assert_eq!(starter.tell("ask sum"), "Ok(\"bad 0\")");
    assert_eq!(starter.tell("end"), "Ok(())");
}

#[test]
fn its_outputs_go_to_a_file_when_asked() {
    let driver = SimDriver::build(false);
    let folder = Folder::new();
    let log = folder.file("log");
    let options = [&LINE[..], &["--program-output", log.to_str().unwrap()]].concat();
    let script = "echo on stderr >&2; exec \"$SIMAPP\" 16";
    let mut starter = Starter::start(&driver, &options, &["sh", "-c", script]);
    let pid = starter.pid();
    assert_eq!(starter.tell("end"), "Ok(())");
    let text = std::fs::read_to_string(log).unwrap();
    assert!(
        text.contains("on stderr\n") && text.contains(&format!("ready {pid}\n")),
        "{text}"
    );
}

/// A stopped program hears no SIGTERM until it goes on.
#[test]
fn a_stopped_program_ends_too() {
    let driver = SimDriver::build(false);
    let mut starter = Starter::start(&driver, &LINE, &[&simapp(&driver), "16"]);
    let pid = starter.pid();
    send_signal(pid, libc::SIGSTOP);
    assert_eq!(starter.tell("end"), "Ok(())");
    starter.expect_nothing_left();
}
