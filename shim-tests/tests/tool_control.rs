//! `cudasnap mode` and `cudasnap drop`, from another process, on the simulated driver.

use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cudasnap_cli::process::identity::Identity;
use cudasnap_cli::process::observe::resident_bytes;
use cudasnap_cli::record::view::BufferView;
use cudasnap_shim_tests::shimmed::{hostile, library, Shimmed};
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::tool::{RunningTool, Said};
use cudasnap_wire::{Buffer, Record};

const LIMIT: Duration = Duration::from_secs(20);
const KEEP: (&str, &str) = ("CUDASNAP_BUFFER", "keep");

fn kept(mib: &str, more: &[(&str, &str)]) -> (SimDriver, Shimmed) {
    let driver = SimDriver::build(false);
    let environment = [&[KEEP], more].concat();
    let mut process = Shimmed::start(&driver, &[mib], &environment);
    process.cycle();
    assert!(process.record().buffer.state.is("kept"));
    (driver, process)
}

fn resident(process: &Shimmed, buffer: &BufferView) -> u64 {
    let end = buffer.address + buffer.mapped;
    resident_bytes(process.target(), buffer.address, end).unwrap()
}

fn state_letter(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = &stat[stat.rfind(')').unwrap() + 2..];
    rest.chars().next().unwrap()
}

fn expect_state(pid: u32, letter: char) {
    let deadline = Instant::now() + LIMIT;
    while state_letter(pid) != letter {
        assert!(Instant::now() < deadline, "{}", state_letter(pid));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn signal(pid: u32, number: i32) {
    // SAFETY: takes numbers only; the process is a child that was not waited for.
    assert_eq!(unsafe { libc::kill(pid as i32, number) }, 0);
}

#[test]
fn a_kept_buffer_is_freed_at_once_and_the_next_cycle_is_right() {
    let (driver, mut process) = kept("64", &[]);
    let buffer = process.record().buffer;
    let before = resident(&process, &buffer);
    assert!(before >= 64 << 20, "{before}");
    let said = driver.must_say(&format!("drop {}", process.app.pid()));
    assert!(said.contains(" freed 1"), "{said}");
    assert!(resident(&process, &buffer) < 1 << 20);
    // The library takes the addresses back by itself, in the next request at the latest.
    assert_eq!(process.record().drop, 1);
    process.cycle();
    let view = process.record();
    assert_eq!(view.drop, 0);
    assert!(!view.last("checkpoint").unwrap().kept);
    assert!(view.last("restore").unwrap().is_effective());
    assert!(
        process.steps_but(&[]).is_empty(),
        "{:?}",
        process.steps_but(&[])
    );
    // Once more, now that there is a kept buffer again.
    let said = driver.must_say(&format!("drop {}", process.app.pid()));
    assert!(said.contains(" freed 1"), "{said}");
}

#[test]
fn a_second_drop_says_that_nothing_is_left() {
    let (driver, process) = kept("32", &[]);
    let line = format!("drop {} --json", process.app.pid());
    let first = driver.said(&line).json();
    assert_eq!(first["schema"], 1);
    let one = &first["processes"][0];
    assert_eq!(one["state"], "kept");
    assert!(one["before"].as_u64().unwrap() >= 32 << 20);
    assert!(one["after"].as_u64().unwrap() < 1 << 20);
    assert!(one["not_at_once"].is_null(), "{one}");
    let second = driver.must_say(&format!("drop {}", process.app.pid()));
    assert!(second.contains("holds no memory any more"), "{second}");
}

#[test]
fn a_busy_program_is_not_interrupted() {
    let (driver, mut process) = kept("64", &[]);
    let buffer = process.record().buffer;
    process.app.tell("busy");
    assert_eq!(process.app.hear(), "busy");
    let said = driver.must_say(&format!("drop {}", process.app.pid()));
    assert!(said.contains(" freed "), "{said}");
    assert_eq!(process.app.hear(), "idle");
    assert!(resident(&process, &buffer) < 1 << 20);
    assert_eq!(process.app.wrong_words(), 0);
    process.cycle();
}

/// Each drop stops the restore thread and others in the calls they wait in: those must go on as if nothing had been.
#[test]
fn many_drops_leave_the_program_as_it_was() {
    let (driver, mut process) = kept("16", &[]);
    for _ in 0..5 {
        let _ = driver.must_say(&format!("drop {}", process.app.pid()));
        assert_eq!(process.app.wrong_words(), 0);
        process.cycle();
        assert!(process.record().buffer.state.is("kept"));
    }
    let growth = process.growth();
    assert_eq!(growth.threads, 0, "{growth:?}");
}

#[test]
fn a_stopped_process_stays_stopped() {
    let (driver, mut process) = kept("32", &[]);
    let buffer = process.record().buffer;
    let pid = process.app.pid();
    signal(pid, libc::SIGSTOP);
    expect_state(pid, 'T');
    let said = driver.must_say(&format!("drop {pid}"));
    assert!(said.contains(" freed "), "{said}");
    expect_state(pid, 'T');
    assert!(resident(&process, &buffer) < 1 << 20);
    signal(pid, libc::SIGCONT);
    assert_eq!(process.app.wrong_words(), 0);
    process.cycle();
}

#[test]
fn signals_meanwhile_are_not_lost() {
    let (driver, mut process) = kept("32", &[]);
    let pid = process.app.pid();
    // SIGCONT to a process that runs does nothing but wake it; SIGSTOP must stop it.
    let sender = std::thread::spawn(move || {
        for _ in 0..200 {
            signal(pid, libc::SIGCONT);
            std::thread::sleep(Duration::from_micros(500));
        }
        signal(pid, libc::SIGSTOP);
    });
    let _ = driver.must_say(&format!("drop {pid}"));
    sender.join().unwrap();
    expect_state(pid, 'T');
    signal(pid, libc::SIGCONT);
    assert_eq!(process.app.wrong_words(), 0);
    process.cycle();
}

#[test]
fn a_process_that_keeps_nothing_is_told() {
    let driver = SimDriver::build(false);
    let mut process = Shimmed::start(&driver, &["16"], &[]);
    let line = format!("drop {}", process.app.pid());
    assert!(driver
        .must_say(&line)
        .contains("no buffer is kept (state: none)"));
    for action in ["lock", "checkpoint"] {
        process.must(action);
    }
    assert!(driver
        .must_say(&line)
        .contains("no buffer is kept (state: live)"));
    for action in ["restore", "unlock"] {
        process.must(action);
    }
    assert_eq!(process.record().drop, 0);
    assert_eq!(process.app.wrong_words(), 0);
}

/// Traces the process from a thread of its own until it is dropped.
struct Traced(
    Option<std::sync::mpsc::Sender<()>>,
    Option<std::thread::JoinHandle<()>>,
);

impl Traced {
    fn new(pid: i32) -> Self {
        let (stop, until) = std::sync::mpsc::channel::<()>();
        let (is, ready) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let none = std::ptr::null_mut::<u8>();
            // SAFETY: takes numbers only. The kernel lets the process go when this thread ends.
            let traced = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) };
            assert_eq!(traced, 0);
            is.send(()).unwrap();
            let _ = until.recv();
        });
        ready.recv().unwrap();
        Traced(Some(stop), Some(thread))
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.0.take();
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}

#[test]
fn a_traced_process_frees_its_buffer_at_its_next_mmap() {
    let (driver, mut process) = kept("32", &[]);
    let buffer = process.record().buffer;
    let traced = Traced::new(process.app.pid() as i32);
    let said = driver.must_say(&format!("drop {}", process.app.pid()));
    assert!(
        said.contains("at the process's next mmap; not at once: process "),
        "{said}"
    );
    assert!(said.contains("is tracing it"), "{said}");
    assert!(resident(&process, &buffer) >= 32 << 20);
    assert_eq!(process.record().drop, 1);
    drop(traced);
    process.cycle();
    assert!(!process.last("checkpoint").kept);
}

/// A process of another user's, and the tool run by that user: neither may touch the other's.
#[test]
fn another_users_process_is_refused() {
    let (driver, process) = kept("16", &[]);
    let pid = process.app.pid();
    let as_nobody = |line: &str| Said::by(driver.tool(line).uid(65534).gid(65534));
    for line in [
        format!("drop {pid}"),
        format!("mode {pid}"),
        format!("mode {pid} off"),
    ] {
        let said = as_nobody(&line);
        assert_eq!(said.code, 4, "{line}: {said:?}");
        assert!(said.stderr.contains("it belongs to user 0"), "{said:?}");
    }
    let view = process.record();
    assert!(view.drop == 0 && view.mode.is("on"));
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_is_no_process_with_the_library_is_told() {
    let driver = SimDriver::build(false);
    let sleeper = Killed(
        Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let process = Shimmed::start(&driver, &["16"], &[]);
    let tid = std::fs::read_dir(format!("/proc/{}/task", process.app.pid()))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .find(|tid| *tid != process.app.pid().to_string())
        .unwrap();
    for verb in ["drop", "mode"] {
        for (pid, words) in [
            ("999999999".to_string(), "no process has the id"),
            (tid.clone(), "is a thread of process"),
            (sleeper.0.id().to_string(), "the library is not loaded"),
        ] {
            let said = driver.said(&format!("{verb} {pid}"));
            assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{said:?}");
            assert!(said.stderr.starts_with("cudasnap: "), "{said:?}");
            assert!(said.stderr.contains(words), "{said:?}");
        }
        assert_eq!(driver.said(&format!("{verb} 0")).code, 2);
    }
    // One of several fails.
    let said = driver.said(&format!("drop {} {}", process.app.pid(), sleeper.0.id()));
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.stdout.contains("no buffer is kept"), "{said:?}");
}

/// A shell and everything below it, ended with its process group.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: takes numbers only; the group is that of a child that was not waited for.
        unsafe { libc::killpg(self.0.id() as i32, libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

#[test]
fn a_tree_of_processes_is_dropped() {
    let driver = SimDriver::build(false);
    let simapp = driver.command("simapp").get_program().to_owned();
    let mut command = Command::new("sh");
    command
        .args(["-c", "sleep 600 | LD_PRELOAD=\"$1\" \"$0\" 16"])
        .args([simapp, library().into()])
        .env("LD_LIBRARY_PATH", &driver.library)
        .stdout(Stdio::piped())
        .process_group(0);
    let mut shell = Group(command.spawn().unwrap());
    let mut first = String::new();
    let mut stdout = BufReader::new(shell.0.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    let pid = first.trim().strip_prefix("ready ").unwrap();
    let said = driver.must_say(&format!("drop --tree {}", shell.0.id()));
    let expected = format!("{pid} (simapp): no buffer is kept (state: none), nothing to free\n");
    assert_eq!(said, expected);
}

/// Writes words into the record of a process, as a process that lies would.
fn lie(process: &Shimmed, words: &[(usize, u64)]) {
    let buffer = process.located().address() + offset_of!(Record, buffer) as u64;
    for (offset, word) in words {
        let bytes = word.to_ne_bytes();
        process
            .target()
            .write(buffer + *offset as u64, &bytes)
            .unwrap();
    }
}

#[test]
fn a_record_that_lies_frees_nothing_and_ends() {
    let (driver, mut process) = kept("32", &[]);
    let truth = process.record().buffer;
    let (address, length, mapped) = (
        offset_of!(Buffer, address),
        offset_of!(Buffer, length),
        offset_of!(Buffer, mapped),
    );
    let image = process.target().mappings().unwrap()[0].start;
    let pid = process.app.pid();
    for (lies, words) in [
        // Its end lies before its start: every address would be "inside".
        (&[(mapped, 0u64.wrapping_sub(1 << 30))][..], "cannot be"),
        (&[(mapped, truth.mapped + 1)], "cannot be"),
        (&[(mapped, truth.length - 4096)], "cannot be"),
        (&[(address, truth.address + 1)], "cannot be"),
        (&[(address, u64::MAX - 4095)], "cannot be"),
        // Longer than any memory: days of slices.
        (&[(mapped, 1 << 60)], "longer than main memory"),
        // Other memory: files, holes.
        (&[(address, image)], "other memory"),
        (&[(mapped, truth.mapped + (1 << 30))], "other memory"),
    ] {
        lie(&process, lies);
        let said = driver.said(&format!("drop {pid}"));
        let text = format!("{}{}", said.stdout, said.stderr);
        assert!(text.contains(words), "{lies:?}: {said:?}");
        assert_eq!(said.code, i32::from(words == "cannot be"), "{said:?}");
        let truth = [
            (address, truth.address),
            (length, truth.length),
            (mapped, truth.mapped),
        ];
        lie(&process, &truth);
        assert_eq!(process.app.wrong_words(), 0);
    }
    assert!(resident(&process, &truth) >= 32 << 20);
    process.cycle();
}

/// SIGKILL of the tool at any moment: the threads that it had stopped go on as if nothing had been.
#[test]
fn a_tool_that_is_killed_leaves_the_process_as_it_was() {
    let (driver, mut process) = kept("128", &[]);
    let masks = |process: &Shimmed| -> Vec<String> {
        let pid = process.app.pid();
        let threads = cudasnap_cli::process::observe::threads(process.target()).unwrap();
        let lines = threads.iter().map(|thread| {
            let status = format!("/proc/{pid}/task/{}/status", thread.tid);
            let status = std::fs::read_to_string(status).unwrap();
            let line = status.lines().find(|line| line.starts_with("SigBlk:"));
            line.unwrap().to_owned()
        });
        lines.collect()
    };
    let traced = |process: &Shimmed| {
        let status = format!("/proc/{}/status", process.app.pid());
        let status = std::fs::read_to_string(status).unwrap();
        !status.contains("TracerPid:\t0\n")
    };
    let before = masks(&process);
    for round in 0..24 {
        let mut tool = RunningTool::start(&mut driver.tool(&format!("drop {}", process.app.pid())));
        while !traced(&process) && tool.runs() {}
        std::thread::sleep(Duration::from_micros(300 * (round % 12)));
        tool.signal(libc::SIGKILL);
        let _ = tool.wait();
        // Its tracer ends by itself.
        let deadline = Instant::now() + LIMIT;
        while traced(&process) {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(process.app.wrong_words(), 0, "{round}");
        assert_eq!(masks(&process), before, "{round}");
        process.cycle();
    }
}

#[test]
fn a_process_without_its_first_thread_is_not_said_to_have_ended() {
    let driver = SimDriver::build(false);
    let program = hostile(&driver, "first_thread_ends.c", &[]);
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Killed(command.spawn().unwrap());
    let pid = process.0.id();
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let identity = Identity::of(pid as i32);
    drop(process.0.stdin.take());
    expect_state(pid, 'Z');
    for verb in ["drop", "mode", "state", "checkpoint"] {
        let said = driver.said(&format!("{verb} {pid}"));
        assert_eq!(said.code, 1, "{said:?}");
        assert!(
            said.stderr.contains("the first thread of process"),
            "{said:?}"
        );
    }
    identity.unwrap().check().unwrap();
}

#[test]
fn json_is_printed_on_every_path() {
    let (driver, process) = kept("16", &[]);
    let pid = process.app.pid();
    let sleeper = Killed(Command::new("sleep").arg("600").spawn().unwrap());
    let sleeper = sleeper.0.id();
    for (line, code) in [
        (format!("drop --json {sleeper}"), 1),
        (format!("drop --json {pid} {sleeper}"), 3),
        (format!("drop --json {pid} 999999999"), 1),
        ("drop --json 999999999".into(), 1),
        (format!("drop --json --tree {sleeper}"), 1),
        (format!("drop --json --ns-pid {sleeper}"), 1),
        ("mode --json 999999999".into(), 1),
        (format!("mode --json {sleeper} off"), 1),
        (format!("mode --json {pid}"), 0),
    ] {
        let said = driver.said(&line);
        assert_eq!(said.code, code, "{line}: {said:?}");
        let json = said.json();
        assert_eq!(
            (&json["schema"], &json["status"]),
            (&1.into(), &code.into())
        );
        let errors = json["errors"].as_array().unwrap();
        assert_eq!(errors.is_empty(), code == 0, "{line}: {json}");
        for error in errors {
            assert!(said.stderr.contains(error.as_str().unwrap()), "{said:?}");
        }
    }
    let mut refused = driver.tool(&format!("drop --json {pid}"));
    let said = Said::by(refused.uid(65534).gid(65534));
    assert_eq!((said.code, &said.json()["status"]), (4, &4.into()));
}

/// A name is whatever a process likes.
#[test]
fn a_name_cannot_command_the_terminal() {
    let driver = SimDriver::build(false);
    let mut named = Command::new("sh");
    let script = r"printf '\033]0;x\007' > /proc/$$/comm; echo named; read line";
    named
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut named = Killed(named.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(named.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "named\n");
    let pid = named.0.id();
    for verb in ["state", "checkpoint", "lock --verbose", "status"] {
        let said = driver.said(&format!("{verb} {pid}"));
        let text = format!("{}{}", said.stdout, said.stderr);
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{said:?}");
        assert!(verb == "status" || text.contains("u{1b}"), "{said:?}");
    }
}

/// Nobody reads, or the disk is full: the status is still that of the work.
#[test]
fn an_output_that_takes_nothing_is_no_panic() {
    let (driver, process) = kept("16", &[]);
    let pid = process.app.pid();
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let closed = || std::io::pipe().unwrap().1;
    for (line, code) in [
        ("drop 999999999".to_string(), 1),
        ("mode 999999999 --json".into(), 1),
        ("state 999999999".into(), 1),
        ("--get-state --pid 999999999".into(), 1),
        ("--get-state".into(), 1),
        (format!("--action fly --pid {pid}"), 1),
        (format!("mode {pid}"), 0),
        (format!("--get-state --pid {pid}"), 0),
        (format!("state {pid}"), 0),
    ] {
        let with = |stdout: Stdio, stderr: Stdio| {
            let mut tool = driver.tool(&line);
            tool.stdout(stdout).stderr(stderr).status().unwrap().code()
        };
        let null = Stdio::null;
        assert_eq!(with(null(), full().into()), Some(code), "{line}");
        assert_eq!(with(null(), closed().into()), Some(code), "{line}");
        assert_eq!(with(closed().into(), null()), Some(code), "{line}");
        assert_eq!(with(full().into(), null()), Some(1), "{line}");
    }
}

#[test]
fn a_mode_counts_from_the_next_buffer_on() {
    let driver = SimDriver::build(false);
    let mut process = Shimmed::start(&driver, &["16"], &[]);
    let pid = process.app.pid();
    assert_eq!(driver.must_say(&format!("mode {pid}")), "on\n");
    process.must("lock");
    process.must("checkpoint");
    let said = driver.must_say(&format!("mode {pid} observe"));
    assert!(
        said.starts_with("on -> observe (from the next checkpoint on"),
        "{said}"
    );
    process.must("restore");
    process.must("unlock");
    assert!(process.last("restore").mode.is("on"));
    process.cycle();
    assert!(process.last("checkpoint").mode.is("observe"));
    let said = driver.said(&format!("mode {pid} off --json")).json();
    assert_eq!(said["schema"], 1);
    assert_eq!(
        (&said["before"], &said["after"]),
        (&"observe".into(), &"off".into())
    );
    assert_eq!(said["buffer_keeps_its_mode"], false);
    let requests = process.record().counters.answered;
    process.cycle();
    assert_eq!(process.record().counters.answered, requests);
    assert_eq!(driver.must_say(&format!("mode {pid} on")), "off -> on\n");
    assert_eq!(driver.said(&format!("mode {pid} sometimes")).code, 2);
    Identity::of(pid as i32).unwrap();
}
