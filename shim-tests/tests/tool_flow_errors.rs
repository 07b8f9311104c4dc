//! What can go wrong with a verb: told clearly, with the right status, and nothing touched that need not be.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use cudasnap_cli::process::cuda::CudaUse;
use cudasnap_cli::process::target::Target;
use cudasnap_shim_tests::freeze::Freeze;
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::{App, SimDriver};
use cudasnap_shim_tests::tool::{binary, send_signal, RunningTool, Said};

fn state(driver: &SimDriver, pid: u32) -> String {
    driver.control("state", pid, &[]).stdout
}

/// A process without CUDA; killed on drop.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Sleeper(Command::new("sleep").arg("600").spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn restore_thread(app: &App) -> i32 {
    match CudaUse::of(Target::new(app.pid() as i32)) {
        Ok(CudaUse::Initialised { restore_thread }) => restore_thread,
        other => panic!("{other:?}"),
    }
}

/// Checks status and a part of what is said on stderr.
fn expect(said: &Said, code: i32, part: &str) {
    assert!(
        said.code == code && said.stderr.contains(part),
        "{code}, {part}: {said:?}"
    );
    for line in said.stderr.lines() {
        assert!(line.starts_with("cudasnap: "), "{line}");
    }
}

#[test]
fn numbers_that_name_no_process_to_work_on() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["16"], &[]);
    let (pid, nobody) = (app.pid(), i32::MAX);
    for verb in ["state", "lock", "checkpoint", "restore", "unlock", "toggle"] {
        let said = driver.said(&format!("{verb} {nobody}"));
        expect(&said, 1, &format!("no process has the id {nobody}"));
    }
    let tid = restore_thread(&app);
    let said = driver.said(&format!("checkpoint {tid}"));
    expect(
        &said,
        1,
        &format!("{tid} is a thread of process {pid} (simapp)"),
    );
    // With several nothing is done for any, unless that is wanted.
    let said = driver.said(&format!("lock {pid} {nobody}"));
    expect(&said, 3, "no process has the id");
    assert!(
        said.stdout.contains("running  nothing was done"),
        "{said:?}"
    );
    assert_eq!(state(&driver, pid), "running");
    let said = driver.said(&format!("lock --keep-going {pid} {nobody}"));
    expect(&said, 3, "no process has the id");
    assert_eq!(state(&driver, pid), "locked");
}

#[test]
fn a_process_without_cuda_is_no_failure_of_the_rest() {
    let driver = SimDriver::build(false);
    let (app, sleeper) = (driver.app(&["16"], &[]), Sleeper::start());
    let (pid, other) = (app.pid(), sleeper.0.id());
    let said = driver.said(&format!("checkpoint {other} {pid}"));
    expect(
        &said,
        0,
        &format!("process {other} (sleep) does not use CUDA"),
    );
    assert_eq!(state(&driver, pid), "checkpointed");
    expect(
        &driver.said(&format!("restore {other}")),
        1,
        "does not use CUDA",
    );
    let said = driver.said(&format!("state {pid} {other}"));
    expect(&said, 0, "does not use CUDA");
    assert_eq!(said.stdout, format!("{pid} checkpointed\n"));
    expect(
        &driver.said(&format!("state --tree {other}")),
        1,
        "no CUDA process among",
    );
}

#[test]
fn wrong_states_are_told_as_the_driver_tells_them() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["16"], &[]);
    let pid = app.pid();
    let wrong = "error 401 CUDA_ERROR_ILLEGAL_STATE \"";
    for (verb, already) in [("unlock", true), ("restore", true)] {
        expect(&driver.said(&format!("{verb} {pid}")), 1, wrong);
        let said = driver.said(&format!("{verb} --already-ok {pid}"));
        assert!(said.code == 0 && already && said.stdout.contains("already so"));
    }
    driver.does(&format!("lock {pid}"));
    expect(&driver.said(&format!("lock {pid}")), 1, wrong);
    driver.does(&format!("lock --already-ok {pid}"));
    let said = driver.said(&format!("restore {pid}"));
    expect(&said, 1, &format!("cudasnap unlock {pid}"));
    expect(
        &driver.said(&format!("toggle {pid}")),
        1,
        "neither running nor checkpointed",
    );
    driver.does(&format!("checkpoint {pid}"));
    expect(&driver.said(&format!("checkpoint {pid}")), 1, wrong);
    driver.does(&format!("checkpoint --already-ok {pid}"));
    expect(
        &driver.said(&format!("unlock --already-ok {pid}")),
        1,
        &format!("cudasnap restore {pid}"),
    );
    assert_eq!(state(&driver, pid), "checkpointed");
}

#[test]
fn a_toggle_of_both_kinds_is_refused() {
    let driver = SimDriver::build(false);
    let (away, here) = (driver.app(&["16"], &[]), driver.app(&["16"], &[]));
    driver.does(&format!("checkpoint {}", away.pid()));
    let pids = format!("{} {}", away.pid(), here.pid());
    expect(
        &driver.said(&format!("toggle {pids}")),
        4,
        "\"all or nothing\"",
    );
    assert_eq!(state(&driver, away.pid()), "checkpointed");
    assert_eq!(state(&driver, here.pid()), "running");
    driver.does(&format!("toggle --keep-going {pids}"));
    assert_eq!(state(&driver, away.pid()), "running");
    assert_eq!(state(&driver, here.pid()), "checkpointed");
}

/// Stops `app` inside a call of CUDA, and does something while its lock can be asked for and not be got.
fn while_computing<T>(app: &mut App, action: impl FnOnce() -> T) -> T {
    app.tell("busy");
    assert_eq!(app.hear(), "busy");
    // Well inside the call, which fills 512 MiB.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let mut freeze = Freeze::new(app.pid() as i32, restore_thread(app)).unwrap();
    freeze.with_restore_thread(action).unwrap()
}

#[test]
fn a_lock_that_is_not_got_in_time_leaves_all_running() {
    let driver = SimDriver::build(false);
    let (mut busy, free) = (driver.app(&["16"], &[]), driver.app(&["16"], &[]));
    let (pid, other) = (busy.pid(), free.pid());
    let said = while_computing(&mut busy, || {
        driver.said(&format!("checkpoint --timeout 0.3 {other} {pid}"))
    });
    expect(
        &said,
        3,
        &format!("process {pid} (simapp): lock failed: cuCheckpointProcessLock: error 600"),
    );
    expect(&said, 3, "the process is running");
    expect(&said, 3, "--timeout");
    assert_eq!(busy.hear(), "idle");
    for pid in [pid, other] {
        assert_eq!(state(&driver, pid), "running");
    }
    // A thread that was stopped in the middle has let go: the lock is there to be got.
    driver.does(&format!("lock --timeout 0 {pid}"));
}

#[test]
fn what_the_command_line_does_not_mean() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["16"], &[]);
    let pid = app.pid();
    let uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";
    for (line, part) in [
        (format!("restore {pid} --device-map 0=1"), "is no UUID"),
        (
            format!("restore {pid} --device-map {uuid}"),
            "it takes OLD=NEW",
        ),
        (format!("restore {pid} --device-map"), "--device-map"),
        (format!("lock {pid} --timeout -1"), "--timeout"),
        (
            format!("lock {pid} --timeout x"),
            "'x' for '--timeout <SECONDS>': it takes seconds",
        ),
        (
            format!("lock {pid} --patience 0"),
            "seconds, with fractions, more than 0",
        ),
        (format!("unlock {pid} --timeout 1"), "--timeout"),
        ("checkpoint".into(), "PID"),
    ] {
        let said = driver.said(&line);
        assert!(
            said.code == 2 && said.stderr.contains(part),
            "{line}: {said:?}"
        );
    }
    let map = format!("--device-map {uuid}={uuid}");
    expect(
        &driver.said(&format!("toggle {pid} {map}")),
        4,
        "--device-map goes with",
    );
    assert_eq!(state(&driver, pid), "running");
    driver.does(&format!("checkpoint {pid}"));
    expect(
        &driver.said(&format!("restore {pid} {map}")),
        1,
        "not supported by this driver on this device",
    );
    assert_eq!(state(&driver, pid), "checkpointed");
    driver.does(&format!("restore {pid}"));
}

#[test]
fn what_is_no_process_id_is_told_by_every_command() {
    let driver = SimDriver::build(false);
    for command in [
        "lock",
        "checkpoint",
        "restore",
        "unlock",
        "toggle",
        "state",
        "status",
        "buffer",
        "mode",
        "drop",
        "reserve",
    ] {
        for word in ["abc", "0", "2147483648", "1.5", "+7x"] {
            let said = driver.said(&format!("{command} {word}"));
            let (value, rest) = (
                format!("error: invalid value '{word}' for '"),
                "it takes a process id, 1 to 2147483647",
            );
            assert!(
                said.code == 2 && said.stderr.starts_with(&value) && said.stderr.contains(rest),
                "{command}: {said:?}"
            );
        }
    }
    let mut named = Command::new(binary());
    let said = Said::by(named.args(["--get-state", "--pid", "abc"]));
    assert!(
        said.code == 1
            && said
                .stderr
                .contains("'abc' for '--pid <PID>': it takes a process id"),
        "{said:?}"
    );
}

/// The tool in a folder that everybody may enter.
struct Public(PathBuf);

impl Public {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("cudasnap-public-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::copy(binary(), folder.join("cudasnap")).unwrap();
        Public(folder)
    }
}

impl Drop for Public {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn another_users_process_is_refused_with_the_right_that_is_missing() {
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("only root can play another user");
        return;
    }
    let driver = SimDriver::build(false);
    let (app, public) = (driver.app(&["16"], &[]), Public::new());
    let pid = app.pid();
    for line in [
        format!("checkpoint {pid}"),
        format!("state {pid}"),
        format!("lock --tree {pid}"),
    ] {
        let said = Said::by(
            Command::new(public.0.join("cudasnap"))
                .args(line.split(' '))
                .uid(65534)
                .gid(65534)
                .current_dir("/"),
        );
        let part = if line.contains("--tree") {
            "may not be looked into"
        } else {
            "it belongs to user 0 and this is user 65534"
        };
        expect(&said, 4, part);
    }
    assert_eq!(state(&driver, pid), "running");
}

#[test]
fn no_room_is_a_refusal_before_anything_is_touched() {
    let driver = SimDriver::build(false);
    let mut shimmed = Shimmed::start(&driver, &["32"], &[]);
    let pid = shimmed.app.pid();
    let with =
        |variable: &str, value: &str, line: &str| Said::by(driver.tool(line).env(variable, value));
    // 95 TiB.
    let claims = ("CUDASIM_CLAIMED_MIB", "99999999");
    let said = with(claims.0, claims.1, &format!("checkpoint {pid}"));
    expect(&said, 4, "leaves room for");
    assert_eq!(state(&driver, pid), "running");
    let json = with(claims.0, claims.1, &format!("checkpoint --json {pid}")).json();
    assert_eq!((&json["status"], &json["schema"]), (&4.into(), &1.into()));
    assert_eq!(json["processes"][0]["outcome"], "untouched");
    let said = with(claims.0, claims.1, &format!("checkpoint --force {pid}"));
    assert_eq!((said.code, said.remarks()), (0, vec![]), "{said:?}");

    let foreign = ("CUDASIM_FOREIGN_MIB", "65530");
    let said = with(foreign.0, foreign.1, &format!("restore {pid}"));
    expect(&said, 4, "on the GPUs");
    assert_eq!(state(&driver, pid), "checkpointed");
    let said = with(foreign.0, foreign.1, &format!("restore --force {pid}"));
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(shimmed.app.wrong_words(), 0);
}

#[test]
fn the_looks_are_told_to_those_who_ask() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["16"], &[]);
    let pid = app.pid();
    let said = driver.said(&format!("checkpoint --verbose {pid}"));
    expect(&said, 0, "into main memory, room for");
    expect(&said, 0, &format!("{pid} simapp: lock"));
    let said = driver.said(&format!("restore -v {pid}"));
    expect(&said, 0, "an unknown size back to the GPUs");
}

#[test]
fn a_driver_that_does_not_answer_is_given_up_with_its_process_named() {
    let driver = SimDriver::build(false);
    let (stopped, free) = (driver.app(&["16"], &[]), driver.app(&["16"], &[]));
    let (pid, other) = (stopped.pid(), free.pid());
    send_signal(pid, libc::SIGSTOP);
    for line in [
        format!("state --patience 0.5 {other} {pid}"),
        format!("lock --patience 0.5 {other} {pid}"),
    ] {
        let said = driver.said(&line);
        let part = format!("process {pid} (simapp): the driver does not answer for 0.5 s");
        expect(&said, 3, &part);
    }
    assert_eq!(state(&driver, other), "running");
    send_signal(pid, libc::SIGCONT);
    driver.does(&format!("lock --timeout 5 {pid}"));
}

#[test]
fn a_process_that_dies_in_mid_step_is_told_with_its_signal() {
    let driver = SimDriver::build(false);
    for (verb, prepare) in [("checkpoint", None), ("restore", Some("checkpoint"))] {
        let shimmed = Shimmed::start(&driver, &["64"], &[]);
        let pid = shimmed.app.pid();
        if let Some(first) = prepare {
            driver.does(&format!("{first} {pid}"));
        }
        let mut command = driver.tool(&format!("{verb} {pid}"));
        let tool = RunningTool::start(command.env("CUDASIM_DMA_GBPS", "0.02"));
        while !(shimmed.record().current.direction.is(verb) && shimmed.record().current.copied > 0)
        {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        send_signal(pid, libc::SIGKILL);
        let said = tool.wait();
        expect(
            &said,
            1,
            &format!("process {pid} (simapp): ended by signal 9 during {verb}"),
        );
        assert!(said.stdout.contains(&format!("{verb} failed")), "{said:?}");
    }
}

#[test]
fn a_driver_that_cannot_be_loaded_is_told_with_its_causes() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["16"], &[]);
    let folder = std::env::temp_dir().join(format!("cudasnap-no-driver-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libcuda.so.1"), "no library").unwrap();
    let mut command = driver.tool(&format!("state {}", app.pid()));
    let said = Said::by(
        command
            .env("LD_LIBRARY_PATH", &folder)
            .env("CUDA_VISIBLE_DEVICES", ""),
    );
    std::fs::remove_dir_all(&folder).unwrap();
    expect(&said, 1, "cannot load libcuda.so.1");
    expect(&said, 1, "CUDA_VISIBLE_DEVICES is \"\"");
    // As from another terminal than the one that the process was started from.
    let theirs = driver.library.join("libcuda.so.1");
    let theirs = format!(
        "process {} (simapp) has it from {}: ",
        app.pid(),
        theirs.display()
    );
    expect(
        &said,
        1,
        &format!("{theirs}the simulated driver: eval \"$(scripts/sim-env)\""),
    );
}

#[test]
fn a_rank_that_has_ended_does_not_keep_the_others_from_coming_back() {
    let driver = SimDriver::build(false);
    let mut lives = driver.app(&["32"], &[]);
    let dies = driver.app(&["32"], &[]);
    let pids = format!("{} {}", lives.pid(), dies.pid());
    driver.does(&format!("checkpoint {pids}"));
    drop(dies);
    let said = driver.said(&format!("restore {pids}"));
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(
        driver.must_say(&format!("state {}", lives.pid())),
        "running\n"
    );
    assert_eq!(lives.wrong_words(), 0);
    // On the way to a checkpoint it does, and what helps is named.
    let said = driver.said(&format!("checkpoint {pids}"));
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.stderr.contains("--keep-going"), "{said:?}");
    assert_eq!(
        driver.must_say(&format!("state {}", lives.pid())),
        "running\n"
    );
}
