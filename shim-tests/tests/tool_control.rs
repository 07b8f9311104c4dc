//! `cudasnap mode` and `cudasnap drop`, from another process, on the simulated driver.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cudasnap_cli::process::identity::Identity;
use cudasnap_cli::process::observe::resident_bytes;
use cudasnap_cli::record::view::BufferView;
use cudasnap_shim_tests::shimmed::{library, Shimmed};
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::tool::Said;

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
            (sleeper.0.id().to_string(), "the shim is not loaded"),
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
