//! `cudasnap status` from another process, on the simulated driver.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cudasnap_cli::record::view::PhaseView;
use cudasnap_cli::record::Control;
use cudasnap_shim_tests::shimmed::{hostile, library, Shimmed};
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::terminal::terminal;
use cudasnap_shim_tests::tool::{binary, Said};
use cudasnap_wire::Mode;
use serde_json::Value;

/// A child that is killed when the test is over.
struct Running(Child);

impl Running {
    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program that only initialises CUDA.
fn cuinit(driver: &SimDriver) -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| hostile(driver, "cuinit.c", &["-ldl"]))
}

/// Starts a program whose first line on stdout begins with `ready`.
fn ready(command: &mut Command) -> Running {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = Running(child.unwrap_or_else(|error| panic!("{command:?}: {error}")));
    let mut line = String::new();
    let stdout = child.0.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert!(line.starts_with("ready"), "{line:?}");
    child
}

fn light(driver: &SimDriver, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(cuinit(driver));
    command
        .env("LD_LIBRARY_PATH", &driver.library)
        .envs(environment.iter().copied());
    command
}

fn status(driver: &SimDriver, pids: &[i32]) -> Value {
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    let said = driver.said(&format!("status --json {}", pids.join(" ")));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let json = said.json();
    assert_eq!(json["schema"], 1);
    json
}

/// What `--json` says about one process.
fn one(driver: &SimDriver, pid: i32) -> Value {
    status(driver, &[pid])["processes"][0].clone()
}

/// Few huge pages are the machine's, whose memory may be in pieces by now, and no fault of what a test does.
fn abouts(process: &Value) -> Vec<&str> {
    let warnings = process["warnings"].as_array().expect("warnings");
    warnings
        .iter()
        .map(|warning| warning["about"].as_str().expect("a word"))
        .filter(|about| *about != "few-huge-pages")
        .collect()
}

#[test]
fn the_stages_are_told_with_the_library() {
    let driver = SimDriver::build(false);
    let shimmed = Shimmed::start(&driver, &["48"], &[]);
    let pid = shimmed.target().pid();
    let look = || one(&driver, pid);
    let before = look();
    assert_eq!(
        (&before["state"], &before["activity"]),
        (&"running".into(), &"never-used".into())
    );
    assert!(before["nvml"]["memory"].as_u64().unwrap() > 48 << 20);
    shimmed.must("lock");
    assert_eq!(look()["state"], "running", "a lock does not show");
    shimmed.must("checkpoint");
    let there = look();
    assert_eq!(
        (&there["state"], &there["state_from"], &there["activity"]),
        (&"checkpointed".into(), &"record".into(), &"active".into())
    );
    assert_eq!(there["nvml"]["gpus"], serde_json::json!([]));
    assert_eq!(
        (&there["device_mappings"], &there["device_descriptors"]),
        (&0.into(), &0.into())
    );
    let buffer = &shimmed.record().buffer;
    assert_eq!(
        there["library"]["record"]["buffer"]["address"],
        buffer.address
    );
    assert!(there["buffer_pages"]["resident"].as_u64().unwrap() >= buffer.length);
    assert!(there["rss_anon"].as_u64().unwrap() >= buffer.length);
    assert_eq!(there["library"]["file"]["state"], "same");
    assert_eq!(there["preload"]["position"], 1);
    assert_eq!(there["phases"][0]["bytes"], buffer.length);
    shimmed.must("restore");
    shimmed.must("unlock");
    let after = look();
    assert_eq!(
        (&after["state"], &after["phases"][1]["direction"]),
        (&"running".into(), &"restore".into())
    );
    assert!(after["nvml"]["memory"].as_u64().unwrap() > 48 << 20);
    assert!(abouts(&after).is_empty(), "{after}");
}

#[test]
fn the_stages_are_told_without_the_library() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["16"], &[]);
    let pid = app.pid() as i32;
    let state = || {
        let seen = one(&driver, pid);
        assert_eq!(
            (&seen["library"]["seen"], &seen["activity"]),
            (&"absent".into(), &"absent".into())
        );
        (seen["state"].clone(), seen["state_from"].clone())
    };
    assert_eq!(state(), ("running".into(), "nvml".into()));
    for action in ["lock", "checkpoint"] {
        assert_eq!(driver.control(action, app.pid(), &[]).code, 0);
    }
    assert_eq!(state(), ("checkpointed".into(), "descriptors".into()));
    // Without NVML nothing tells, since this driver has no device files; and that is a note, not an error.
    let mut blind = driver.tool(&format!("status --json {pid}"));
    let said = Said::by(blind.env_remove("LD_LIBRARY_PATH"));
    let seen = said.json();
    assert_eq!(
        (said.code, &seen["processes"][0]["state"]),
        (0, &"unknown".into())
    );
    assert_eq!(seen["nvml"]["available"], false);
    let text = Said::by(driver.tool("status").env_remove("LD_LIBRARY_PATH"));
    assert!(
        text.code == 0 && text.stdout.contains("note: no word from NVML"),
        "{text:?}"
    );
}

#[test]
fn a_phase_that_goes_on_is_seen() {
    let driver = SimDriver::build(false);
    // The driver stops before copy 2 for long enough to look.
    let shimmed = Shimmed::start(
        &driver,
        &["32"],
        &[("CUDASIM_FAULT", "pause=3000@2,phase=checkpoint")],
    );
    let pid = shimmed.target().pid();
    assert_eq!(driver.control("lock", pid as u32, &[]).code, 0);
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| driver.control("checkpoint", pid as u32, &[]).code);
        let deadline = Instant::now() + Duration::from_secs(60);
        let seen = loop {
            let seen = one(&driver, pid);
            if seen["state"] != "running" {
                break seen;
            }
            assert!(Instant::now() < deadline, "no phase was seen");
        };
        assert_eq!(
            (&seen["state"], &seen["state_from"]),
            (&"checkpointing".into(), &"record".into())
        );
        assert!(seen["percent"].as_u64().unwrap() < 100);
        assert!(seen["buffer_pages"].is_null(), "the driver is not held up");
        // The threads that help have left by now: 20 ms without a copy.
        let helped = |phase: &PhaseView| phase.threads > 1 && !phase.end.is("idle");
        while helped(&shimmed.record().current) {
            assert!(Instant::now() < deadline && !checkpoint.is_finished());
        }
        assert_eq!(one(&driver, pid)["state"], "checkpointing");
        assert_eq!(checkpoint.join().unwrap(), 0);
    });
    assert_eq!(one(&driver, pid)["state"], "checkpointed");
}

#[test]
fn options_modes_and_kept_buffers_are_told() {
    let driver = SimDriver::build(false);
    let mut shimmed = Shimmed::start(
        &driver,
        &["16"],
        &[
            ("CUDASNAP_THREADS", "many\u{1b}[31m"),
            ("CUDASNAP_BUFFER", "keep"),
        ],
    );
    let pid = shimmed.target().pid();
    shimmed.cycle();
    let seen = one(&driver, pid);
    assert_eq!(abouts(&seen), ["option-not-understood"]);
    assert_eq!(seen["library"]["record"]["options"]["keep"], true);
    let text = driver.must_say(&format!("status {pid}"));
    assert!(
        text.contains("buffer      kept, ") && text.contains("`cudasnap drop` frees it"),
        "{text}"
    );
    assert!(
        text.contains("CUDASNAP_THREADS=\"many\\u{1b}[31m\" was not understood"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'));
    shimmed.located().write(Control::Mode(Mode::Off)).unwrap();
    let off = one(&driver, pid);
    assert_eq!((&off["activity"], abouts(&off)[1]), (&"off".into(), "off"));
    shimmed
        .located()
        .write(Control::Mode(Mode::Observe))
        .unwrap();
    assert_eq!(one(&driver, pid)["activity"], "observing");
}

#[test]
fn a_driver_that_copies_past_the_library_is_not_effective() {
    let driver = SimDriver::build(true);
    let mut shimmed = Shimmed::start(&driver, &["16"], &[]);
    shimmed.cycle();
    let pid = shimmed.target().pid();
    let seen = one(&driver, pid);
    assert_eq!(seen["activity"], "not-effective");
    let text = driver.must_say(&format!("status {pid}"));
    assert!(
        text.contains("no-copy-slot, 1 time: libcuda's copies could not be taken over"),
        "{text}"
    );
}

#[test]
fn what_would_stop_a_dump_is_listed() {
    let driver = SimDriver::build(false);
    let mut command = light(&driver, &[("CUINIT_HOLD", "1")]);
    let app = ready(command.stderr(Stdio::piped()));
    let seen = one(&driver, app.pid());
    let held = seen["held"].as_array().unwrap();
    let find = |kind: &str| held.iter().find(|held| held["kind"] == kind);
    let memory = held
        .iter()
        .find(|held| held["name"] == "/memfd:held\u{1b}[31m")
        .unwrap();
    assert_eq!(
        (
            &memory["kind"],
            memory["descriptors"].as_array().unwrap().len()
        ),
        (&"memfd".into(), 1)
    );
    // Kernels and sandboxes may forbid rings; the descriptor of one that was made is seen.
    let links = std::fs::read_dir(format!("/proc/{}/fd", app.pid())).unwrap();
    let ring = links
        .filter_map(|link| std::fs::read_link(link.unwrap().path()).ok())
        .any(|link| link.to_string_lossy().contains("io_uring"));
    assert_eq!(find("io-uring").is_some(), ring);
    let text = driver.must_say(&format!("status {}", app.pid()));
    assert!(
        !text.contains('\u{1b}') && text.contains("/memfd:held\\u{1b}[31m (descriptor "),
        "{text}"
    );
    if ring {
        assert!(text.contains("stopped by anon_inode:[io_uring]"), "{text}");
    }
}

/// A copy of the library in a folder of its own.
struct Copy {
    folder: PathBuf,
    file: PathBuf,
}

impl Copy {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("cudasnap-status-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // Another user must reach it.
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let file = folder.join("libcudasnap.so");
        std::fs::copy(library(), &file).unwrap();
        Copy { folder, file }
    }

    fn preload(&self) -> &str {
        self.file.to_str().unwrap()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_library_that_was_deleted_or_replaced_is_told() {
    let driver = SimDriver::build(false);
    let copy = Copy::new("replaced");
    let app = ready(&mut light(&driver, &[("LD_PRELOAD", copy.preload())]));
    assert!(abouts(&one(&driver, app.pid())).is_empty());
    std::fs::remove_file(&copy.file).unwrap();
    let gone = one(&driver, app.pid());
    assert_eq!(abouts(&gone), ["library-missing"]);
    assert!(gone["library"]["path"]
        .as_str()
        .unwrap()
        .ends_with(" (deleted)"));
    assert_eq!(gone["preload"]["position"], 1);
    std::fs::copy(driver.library.join("libcuda.so.1"), &copy.file).unwrap();
    let replaced = one(&driver, app.pid());
    assert_eq!(abouts(&replaced), ["library-replaced"]);
    assert_eq!(replaced["library"]["file"]["state"], "other-build");
    // The same build again.
    std::fs::copy(library(), &copy.file).unwrap();
    assert!(abouts(&one(&driver, app.pid())).is_empty());
}

#[test]
fn another_library_with_mmap_before_this_one_is_told() {
    let driver = SimDriver::build(false);
    let copy = Copy::new("order");
    let source = copy.folder.join("other.c");
    std::fs::write(
        &source,
        "#include <sys/syscall.h>\n#include <unistd.h>\n\
         void *mmap(void *a, unsigned long l, int p, int f, int d, long o) { return (void *)syscall(SYS_mmap, a, l, p, f, d, o); }\n",
    )
    .unwrap();
    let other = copy.folder.join("libother.so");
    let harmless = copy.folder.join("libharmless.so");
    let build = |from: &Path, to: &Path| {
        let done = Command::new("cc")
            .args(["-shared", "-fPIC", "-fno-builtin", "-o"])
            .args([to, from])
            .status();
        assert!(done.unwrap().success());
    };
    build(&source, &other);
    std::fs::write(&source, "int harmless;\n").unwrap();
    build(&source, &harmless);
    let (other, harmless) = (other.to_str().unwrap(), harmless.to_str().unwrap());
    let seen = |preload: &str| {
        let app = ready(&mut light(&driver, &[("LD_PRELOAD", preload)]));
        one(&driver, app.pid())
    };
    let behind = seen(&format!("{other} {harmless}:{}", copy.preload()));
    assert_eq!(abouts(&behind), ["not-first"]);
    assert_eq!(behind["preload"]["position"], 3);
    assert_eq!(behind["preload"]["rivals"], serde_json::json!([other]));
    assert_eq!(
        behind["preload"]["mapped"],
        serde_json::json!([other, harmless, copy.preload()])
    );
    let fine = seen(&format!("{harmless} {}:{other}", copy.preload()));
    assert!(
        abouts(&fine).is_empty() && fine["preload"]["position"] == 2,
        "{fine}"
    );
}

#[test]
fn a_preload_that_did_not_load_is_told() {
    let driver = SimDriver::build(false);
    let mut command = light(&driver, &[("LD_PRELOAD", "/nowhere/libcudasnap.so")]);
    let app = ready(command.stderr(Stdio::null()));
    assert_eq!(abouts(&one(&driver, app.pid())), ["preload-failed"]);
}

#[test]
fn a_cuda_child_without_the_library_is_flagged() {
    let driver = SimDriver::build(false);
    let mut shell = Command::new("sh");
    shell
        .args([
            "-c",
            "exec 3<&0; env -u LD_PRELOAD \"$0\" <&3 >/dev/null & echo ready; wait",
        ])
        .arg(cuinit(&driver))
        .env("LD_LIBRARY_PATH", &driver.library)
        .env("LD_PRELOAD", library());
    // The child reads the shell's input, which is closed when it is dropped.
    shell.process_group(0);
    let parent = ready(&mut shell);
    let group = Group(parent.pid());
    let deadline = Instant::now() + Duration::from_secs(60);
    let child = loop {
        let all = status(&driver, &[]);
        let found = all["processes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|process| process["parent"] == parent.pid())
            .cloned();
        match found {
            Some(child) if child["state"] != "not-initialised" => break child,
            _ => assert!(Instant::now() < deadline, "the child was not seen"),
        }
    };
    assert_eq!(abouts(&child), ["child-without-library"]);
    assert_eq!(child["library_above"]["pid"], parent.pid());
    let text = driver.must_say("status");
    let line = format!(
        "{} warning: process {} (sh) above it has the library and this one has not",
        child["pid"],
        parent.pid()
    );
    assert!(text.contains(&line), "{text}");
    // The shell itself has no CUDA; its tree has.
    let said = driver.said(&format!("status {}", parent.pid()));
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("(sh) does not use CUDA"), "{said:?}");
    let tree = driver.must_say(&format!("status --tree {}", parent.pid()));
    assert!(
        tree.starts_with(&format!("{} cuinit", child["pid"])),
        "{tree}"
    );
    drop(group);
}

/// A process group that is killed when the test is over.
struct Group(i32);

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: takes two numbers; the group is that of a child of ours that has not been waited for.
        unsafe { libc::kill(-self.0, libc::SIGKILL) };
    }
}

#[test]
fn a_process_alone_has_no_cuda_below() {
    let driver = SimDriver::build(false);
    let mut shell = light(&driver, &[("LD_PRELOAD", library().to_str().unwrap())]);
    let app = ready(&mut shell);
    let seen = one(&driver, app.pid());
    assert_eq!(seen["cuda_below"], serde_json::json!([]));
    assert_eq!(seen["name"].as_str().unwrap().get(..6), Some("cuinit"));
}

#[test]
fn numbers_that_name_nothing_to_show_are_told() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["16"], &[]);
    let pid = app.pid();
    let thread = one(&driver, pid as i32)["cuda"]["initialised"]["restore_thread"].clone();
    let own = std::process::id();
    for (pids, code, words) in [
        (
            "2147483646".to_string(),
            1,
            "no process has the id 2147483646".to_string(),
        ),
        (
            format!("{thread}"),
            1,
            format!("{thread} is a thread of process {pid} (simapp): give the process's id"),
        ),
        (
            format!("{own}"),
            1,
            "does not use CUDA: libcuda is not mapped in it".into(),
        ),
        (format!("{pid} {own}"), 0, "does not use CUDA".into()),
        (
            format!("{pid} 2147483646"),
            3,
            "no process has the id".into(),
        ),
        (
            format!("--tree {own} 2147483646"),
            3,
            "no process has the id".into(),
        ),
        (
            "0".into(),
            2,
            "invalid value '0' for '[PID]...': it takes a process id".into(),
        ),
        (
            "--watch=0".into(),
            2,
            "it takes seconds, 0.1 to 86400".into(),
        ),
        ("--tree".into(), 2, "<PID>".into()),
    ] {
        let said = driver.said(&format!("status {pids}"));
        assert_eq!(said.code, code, "{pids}: {said:?}");
        assert!(said.stderr.contains(&words), "{pids}: {said:?}");
        assert_eq!(
            said.stdout.contains("simapp"),
            matches!(code, 0 | 3),
            "{pids}: {said:?}"
        );
    }
}

#[test]
fn without_the_right_what_can_be_shown_is_shown() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["16"], &[]);
    // The binary where another user can read it.
    let copy = Copy::new("rights");
    let tool = copy.folder.join("cudasnap");
    std::fs::copy(binary(), &tool).unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let nobody = |arguments: &[&str]| {
        let mut command = Command::new(&tool);
        Said::by(command.arg("status").args(arguments).uid(65534).gid(65534))
    };
    let pid = app.pid().to_string();
    let named = nobody(&[&pid]);
    assert_eq!(named.code, 4, "{named:?}");
    assert!(
        named
            .stdout
            .starts_with(&format!("{pid} simapp, user root\n")),
        "{named:?}"
    );
    assert!(
        named
            .stderr
            .contains("it belongs to user 0 and this is user 65534"),
        "{named:?}"
    );
    let all = nobody(&[]);
    assert_eq!((all.code, all.stderr.as_str()), (0, ""));
    assert!(
        all.stdout
            .contains("may not be looked into, and may use CUDA: run as root"),
        "{all:?}"
    );
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let driver = SimDriver::build(false);
    let mut command = light(&driver, &[]);
    let app = ready(command.arg("\u{1b}[2J a\nb"));
    for line in [
        "status".to_string(),
        format!("status {}", app.pid()),
        "status --verbose".into(),
    ] {
        let text = driver.must_say(&line);
        assert!(
            !text
                .chars()
                .any(|character| character.is_control() && character != '\n'),
            "{text:?}"
        );
        assert!(text.contains("\\u{1b}[2J a"), "{text}");
    }
    assert!(status(&driver, &[app.pid()])["processes"][0]["command"][1]
        .as_str()
        .unwrap()
        .contains("\u{1b}[2J a\nb"));
}

#[test]
fn libcuda_that_is_only_loaded_is_told_apart() {
    let driver = SimDriver::build(false);
    let app = ready(&mut light(&driver, &[("CUINIT_SKIP", "1")]));
    let seen = one(&driver, app.pid());
    assert_eq!(
        (&seen["state"], &seen["cuda"]),
        (&"not-initialised".into(), &"loaded".into())
    );
}

/// A process that only calls the driver for others has a restore thread too, but nothing that could be checkpointed.
#[test]
fn a_mere_caller_of_the_driver_is_not_checkpointed() {
    let driver = SimDriver::build(false);
    let app = ready(driver.command("simapp").arg("64"));
    let caller = ready(&mut light(&driver, &[]));
    let preloaded = ready(light(&driver, &[]).env("LD_PRELOAD", library()));
    driver.does(&format!("checkpoint {}", app.pid()));
    for pid in [caller.pid(), preloaded.pid()] {
        let seen = one(&driver, pid);
        assert_eq!(
            (&seen["state"], &seen["state_from"]),
            (&"no-context".into(), &"memory".into())
        );
    }
    assert_eq!(one(&driver, app.pid())["state"], "checkpointed");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let driver = SimDriver::build(false);
    for arguments in ["status", "status --json", "status --watch=0.1"] {
        let mut command = driver.tool(arguments);
        let mut child = Running(
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        drop(child.0.stdout.take());
        let code = child.0.wait().unwrap().code();
        let mut stderr = String::new();
        child
            .0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments}");
    }
}

#[test]
fn a_watch_repeats_until_a_signal_ends_it() {
    let driver = SimDriver::build(false);
    let app = ready(&mut light(&driver, &[]));
    let mut command = driver.tool(&format!("status --json --watch=0.1 {}", app.pid()));
    let mut watch = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut times = Vec::new();
    for _ in 0..3 {
        let json: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(json["processes"][0]["pid"], app.pid());
        times.push(json["time_unix_ns"].as_u64().unwrap());
    }
    assert!(times[0] < times[1] && times[1] < times[2]);
    // The process ends: the watch goes on and says so.
    drop(app);
    loop {
        let json: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if json["processes"].as_array().unwrap().is_empty() {
            assert!(json["errors"][0]
                .as_str()
                .unwrap()
                .contains("no process has the id"));
            break;
        }
    }
    // SAFETY: takes two numbers; the child has not been waited for.
    unsafe { libc::kill(watch.pid(), libc::SIGINT) };
    assert_eq!(watch.0.wait().unwrap().code(), Some(130));
}

#[test]
fn a_watch_on_a_terminal_redraws_and_gives_the_cursor_back() {
    let driver = SimDriver::build(false);
    let app = ready(&mut light(&driver, &[]));
    let (mut person, program) = terminal(10, 80);
    let mut command = driver.tool("status --watch=0.1");
    command
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(program);
    let mut watch = Running(command.spawn().unwrap());
    // The parent's copy of the program's side closes here, so that the end can be read.
    drop(command);
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    let rounds = |text: &[u8]| String::from_utf8_lossy(text).matches("\u{1b}[J").count();
    while rounds(&text) < 3 {
        let length = person.read(&mut piece).unwrap();
        text.extend_from_slice(&piece[..length]);
    }
    // SAFETY: takes two numbers; the child has not been waited for.
    unsafe { libc::kill(watch.pid(), libc::SIGTERM) };
    while let Ok(length @ 1..) = person.read(&mut piece) {
        text.extend_from_slice(&piece[..length]);
    }
    assert_eq!(watch.0.wait().unwrap().code(), Some(143));
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(
        text.starts_with("\u{1b}[?25l") && text.ends_with("\u{1b}[?25h"),
        "{text:?}"
    );
    assert!(
        text.contains("Ctrl-C ends") && text.contains("cuinit"),
        "{text:?}"
    );
    for frame in text.split("\u{1b}[H").skip(1) {
        assert!(frame.matches('\n').count() < 10, "{frame:?}");
    }
    drop(app);
}

#[test]
fn two_hundred_processes_are_all_listed() {
    let driver = SimDriver::build(false);
    let preload = library();
    let environment = [("LD_PRELOAD", preload.to_str().unwrap())];
    let apps: Vec<Running> = (0..200)
        .map(|_| ready(&mut light(&driver, &environment)))
        .collect();
    let began = Instant::now();
    let text = driver.must_say("status");
    println!("200 processes in {:?}", began.elapsed());
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for app in &apps {
        let pid = app.pid().to_string();
        let row = rows.iter().find(|row| row.first() == Some(&pid.as_str()));
        let row = row.unwrap_or_else(|| panic!("{pid} is missing in {text}"));
        assert!(row.join(" ").contains("never used"), "{row:?}");
    }
}

#[test]
fn processes_that_end_meanwhile_are_left_out() {
    let driver = SimDriver::build(false);
    let storm = hostile(&driver, "forkstorm.c", &["-shared", "-fPIC"]);
    let out = std::env::temp_dir().join(format!("cudasnap-status-storm-{}", std::process::id()));
    let preload = format!("{}:{}", library().display(), storm.display());
    let app = ready(&mut light(
        &driver,
        &[
            ("LD_PRELOAD", &preload),
            ("FORKSTORM_OUT", out.to_str().unwrap()),
        ],
    ));
    for round in 0..30 {
        let said = driver.said(if round % 2 == 0 {
            "status"
        } else {
            "status --json"
        });
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
        assert!(said.stdout.contains(&app.pid().to_string()), "{said:?}");
    }
    // Read while it lives: it may be killed between emptying and writing.
    let deadline = Instant::now() + Duration::from_secs(60);
    let forks = loop {
        match std::fs::read_to_string(&out) {
            Ok(text) if text.ends_with('\n') => break text,
            _ => assert!(Instant::now() < deadline, "no fork was told"),
        }
    };
    drop(app);
    let _ = std::fs::remove_file(&out);
    // Forks, vforks, spawns, and how many of them went wrong.
    assert_eq!(forks.split(' ').nth(3), Some("0"), "{forks}");
}
