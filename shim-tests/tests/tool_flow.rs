//! The verbs on the simulated driver, from another process: what they do, what they say, what they leave.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use cudasnap_cli::record::Control;
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::{App, SimDriver};
use cudasnap_shim_tests::terminal::terminal;
use cudasnap_shim_tests::tool::{binary, until, RunningTool, Said};

fn state(driver: &SimDriver, pid: u32) -> String {
    driver.must_say(&format!("state {pid}")).trim().to_owned()
}

#[test]
fn every_verb_leads_where_it_says() {
    let driver = SimDriver::build(false);
    let mut app = driver.app(&["32"], &[]);
    let pid = app.pid();
    assert_eq!(driver.must_say(&format!("state {pid}")), "running\n");
    for (verb, after) in [
        ("lock", "locked"),
        ("unlock", "running"),
        ("checkpoint", "checkpointed"),
        ("restore", "running"),
        ("toggle", "checkpointed"),
        ("toggle", "running"),
    ] {
        let said = driver.said(&format!("{verb} {pid}"));
        assert_eq!((said.code, said.remarks()), (0, vec![]), "{verb}");
        assert!(
            said.stdout.starts_with(&format!("{pid} simapp  {after}  ")),
            "{said:?}"
        );
        assert_eq!(state(&driver, pid), after);
    }
    assert_eq!(app.wrong_words(), 0);
}

/// A bar has its form from its first line on.
#[test]
fn on_a_terminal_no_bar_begins_as_another() {
    let driver = SimDriver::build(false);
    let app = driver.app(&["64"], &[]);
    for verb in ["checkpoint", "restore"] {
        let (mut person, program) = terminal(10, 80);
        let mut command = driver.tool(&format!("{verb} {}", app.pid()));
        command.env("TERM", "xterm").stdin(Stdio::null());
        let mut child = command
            .stdout(Stdio::null())
            .stderr(program)
            .spawn()
            .unwrap();
        // The parent's copy of the program's side closes here, so that the end can be read.
        drop(command);
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = person.read(&mut piece) {
            text.extend_from_slice(&piece[..length]);
        }
        assert!(child.wait().unwrap().success());
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains(&format!("simapp       {verb}")), "{text:?}");
        assert!(!text.contains("0/0"), "{text:?}");
    }
}

#[test]
fn the_line_tells_what_the_library_did() {
    let driver = SimDriver::build(false);
    let mut shimmed = Shimmed::start(&driver, &["64"], &[]);
    let pid = shimmed.app.pid();
    for (verb, phase) in [("checkpoint", "checkpoint"), ("restore", "restore")] {
        let line = driver.must_say(&format!("{verb} {pid}"));
        let record = shimmed.record();
        let threads = record.last(phase).expect("its phase").threads;
        assert!(
            line.contains(" MB in ") && line.contains("B/s), ") && line.contains(", thp"),
            "{line}"
        );
        assert!(line.contains(&format!(", {threads} thread")), "{line}");
    }
    assert_eq!(shimmed.app.wrong_words(), 0);

    let observing = Shimmed::start(&driver, &["32"], &[("CUDASNAP", "observe")]);
    let line = driver.must_say(&format!("checkpoint {}", observing.app.pid()));
    assert!(
        line.contains("the driver's own copies, observed (100 % of them)"),
        "{line}"
    );
    let plain = driver.app(&["32"], &[]);
    let line = driver.must_say(&format!("checkpoint {}", plain.pid()));
    assert!(line.contains("library not loaded"), "{line}");
}

#[test]
fn several_go_and_come_back_side_by_side() {
    let driver = SimDriver::build(false);
    let mut with = [
        Shimmed::start(&driver, &["48"], &[]),
        Shimmed::start(&driver, &["32"], &[]),
    ];
    let mut without = driver.app(&["32"], &[]);
    let pids = format!(
        "{} {} {}",
        with[0].app.pid(),
        with[1].app.pid(),
        without.pid()
    );
    let said = driver.said(&format!("checkpoint {pids}"));
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.stdout.lines().count(), 3);
    let states = driver.must_say(&format!("state {pids}"));
    let expected: Vec<String> = pids
        .split(' ')
        .map(|pid| format!("{pid} checkpointed"))
        .collect();
    assert_eq!(states.lines().collect::<Vec<_>>(), expected);
    driver.does(&format!("restore {pids}"));
    for shimmed in &mut with {
        assert_eq!(shimmed.app.wrong_words(), 0);
        assert_eq!(shimmed.record().thread_cap, 0);
    }
    assert_eq!(without.wrong_words(), 0);
}

/// Starts the tool with a DMA so slow that the test can look and act in the middle of a phase.
fn slowly(driver: &SimDriver, arguments: &str) -> RunningTool {
    RunningTool::start(driver.tool(arguments).env("CUDASIM_DMA_GBPS", "0.05"))
}

#[test]
fn threads_are_divided_while_several_copy() {
    let driver = SimDriver::build(false);
    let both = [
        Shimmed::start(&driver, &["48"], &[]),
        Shimmed::start(&driver, &["48"], &[]),
    ];
    let marked = Shimmed::start(&driver, &["32"], &[]);
    // Left behind by a call that was killed.
    marked.located().write(Control::ThreadCap(7)).unwrap();
    let pids = format!(
        "{} {} {}",
        both[0].app.pid(),
        both[1].app.pid(),
        marked.app.pid()
    );
    let tool = slowly(&driver, &format!("checkpoint {pids}"));
    until("the caps", || {
        let cap = both[0].record().thread_cap;
        cap > 0 && both[1].record().thread_cap > 0 && marked.record().thread_cap == cap
    });
    let caps: Vec<u32> = both.iter().map(|one| one.record().thread_cap).collect();
    let cpus = std::thread::available_parallelism().unwrap().get() as u32;
    assert!(
        caps.iter().all(|cap| (1..=cpus.max(1)).contains(cap)),
        "{caps:?}"
    );
    assert_eq!(tool.wait().code, 0);
    for (one, cap) in both.iter().zip(&caps) {
        let record = one.record();
        assert_eq!(record.thread_cap, 0);
        assert!(record.last("checkpoint").unwrap().threads <= *cap);
    }
    assert_eq!(marked.record().thread_cap, 0);
    // One alone is not held back, whatever was left behind.
    both[0].located().write(Control::ThreadCap(1)).unwrap();
    let alone = slowly(&driver, &format!("restore {}", both[0].app.pid()));
    until("the restore", || {
        both[0].record().current.direction.is("restore")
    });
    assert_eq!(both[0].record().thread_cap, 0);
    assert_eq!(alone.wait().code, 0);
}

#[test]
fn one_failure_brings_the_others_back() {
    let driver = SimDriver::build(false);
    let mut good = driver.app(&["32"], &[]);
    let fault = ("CUDASIM_FAULT", "copy:1,phase=checkpoint,times=0");
    let mut bad = Shimmed::start(&driver, &["32"], &[fault]);
    let (good_pid, bad_pid) = (good.pid(), bad.app.pid());
    let said = driver.said(&format!("checkpoint {good_pid} {bad_pid}"));
    assert_eq!(said.code, 3, "{said:?}");
    assert!(
        said.stderr
            .contains(&format!("process {bad_pid} (simapp): checkpoint failed: ")),
        "{said:?}"
    );
    assert!(
        said.stdout.contains("running  brought back")
            && said.stdout.contains("running  checkpoint failed"),
        "{said:?}"
    );
    for pid in [good_pid, bad_pid] {
        assert_eq!(state(&driver, pid), "running");
    }
    assert_eq!((good.wrong_words(), bad.app.wrong_words()), (0, 0));
    assert_eq!(bad.record().thread_cap, 0);

    let said = driver.said(&format!("checkpoint --keep-going {good_pid} {bad_pid}"));
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(state(&driver, good_pid), "checkpointed");
    assert_eq!(state(&driver, bad_pid), "running");
    driver.does(&format!("restore {good_pid}"));
    assert_eq!(good.wrong_words(), 0);
}

#[test]
fn a_lock_that_was_there_before_stays() {
    let driver = SimDriver::build(false);
    let fault = ("CUDASIM_FAULT", "copy:1,phase=checkpoint");
    let app = driver.app(&["32"], &[fault]);
    let pid = app.pid();
    driver.does(&format!("lock {pid}"));
    let said = driver.said(&format!("checkpoint {pid}"));
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(state(&driver, pid), "locked");
    // The fault strikes once.
    driver.does(&format!("checkpoint {pid}"));
    assert_eq!(state(&driver, pid), "checkpointed");
}

#[test]
fn a_restore_that_fails_can_be_repeated_and_holds_up_nobody() {
    let driver = SimDriver::build(false);
    let fault = ("CUDASIM_FAULT", "copy:1,phase=restore");
    let mut bad = driver.app(&["32"], &[fault]);
    let mut good = driver.app(&["32"], &[]);
    let pids = format!("{} {}", bad.pid(), good.pid());
    driver.does(&format!("checkpoint {pids}"));
    let said = driver.said(&format!("restore {pids}"));
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(state(&driver, bad.pid()), "checkpointed");
    assert_eq!(good.wrong_words(), 0);
    driver.does(&format!("restore {}", bad.pid()));
    assert_eq!(bad.wrong_words(), 0);
}

#[test]
fn the_object_has_a_schema() {
    let driver = SimDriver::build(false);
    let shimmed = Shimmed::start(&driver, &["32"], &[]);
    let other = std::process::id();
    let pid = shimmed.app.pid();
    let said = driver.said(&format!("checkpoint --json {pid} {other}"));
    assert_eq!(said.code, 0, "{said:?}");
    let json = said.json();
    assert_eq!(
        (&json["schema"], &json["command"], &json["status"]),
        (&1.into(), &"checkpoint".into(), &0.into())
    );
    assert!(json["signal"].is_null() && json["errors"].as_array().unwrap().is_empty());
    let process = &json["processes"][0];
    assert_eq!(
        (&process["pid"], &process["outcome"]),
        (&pid.into(), &"done".into())
    );
    assert_eq!(
        (&process["before"], &process["state"]),
        (&"running".into(), &"checkpointed".into())
    );
    assert_eq!(process["steps"][0]["step"], "lock");
    let step = &process["steps"][1];
    assert_eq!(
        (&step["step"], &step["library"]),
        (&"checkpoint".into(), &"effective".into())
    );
    let length = shimmed.record().buffer.length;
    assert_eq!(step["recorded"]["bytes"], length);
    assert!(step["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(json["processes"][1]["outcome"], "no-cuda");

    let json = driver.said(&format!("state --json {pid}")).json();
    assert_eq!(json["processes"][0]["state"], "checkpointed");
    let said = driver.said(&format!("lock --json {pid} {}", i32::MAX));
    let json = said.json();
    assert_eq!((said.code, &json["status"]), (1, &1.into()));
    assert_eq!(json["errors"].as_array().unwrap().len(), 1);
    let trouble = &json["processes"][0]["troubles"][0];
    assert_eq!(trouble["code"], 401);
}

/// A shell with programs below it; all are killed on drop.
struct Tree {
    shell: Child,
    pids: Vec<u32>,
}

impl Tree {
    fn start(driver: &SimDriver, script: &str, programs: usize) -> Self {
        use std::os::unix::process::CommandExt;
        let simapp = driver.programs.join("simapp");
        let mut shell = Command::new("sh")
            .args(["-c", &script.replace("SIMAPP", simapp.to_str().unwrap())])
            .env("LD_LIBRARY_PATH", &driver.library)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let pids = lines
            .take(programs)
            .map(|line| line.unwrap()["ready ".len()..].parse().unwrap())
            .collect();
        Tree { shell, pids }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // SAFETY: takes numbers only; the group is the one that was made for the shell.
        unsafe { libc::kill(-(self.shell.id() as i32), libc::SIGKILL) };
        let _ = self.shell.wait();
    }
}

#[test]
fn a_tree_is_every_cuda_process_below() {
    let driver = SimDriver::build(false);
    let script = "sleep 600 | SIMAPP 16 & (sleep 600 | SIMAPP 16) & wait";
    let tree = Tree::start(&driver, script, 2);
    let root = tree.shell.id();
    let states = driver.must_say(&format!("state --tree {root}"));
    let mut found: Vec<String> = states.lines().map(str::to_owned).collect();
    let mut expected: Vec<String> = tree
        .pids
        .iter()
        .map(|pid| format!("{pid} running"))
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    driver.does(&format!("checkpoint --tree {root}"));
    for pid in &tree.pids {
        assert_eq!(state(&driver, *pid), "checkpointed");
    }
    driver.does(&format!("restore --tree {root}"));
    // Without a tree the shell is a process without CUDA, and nothing is left.
    let said = driver.said(&format!("checkpoint {root}"));
    assert!(
        said.code == 1 && said.stderr.contains("does not use CUDA"),
        "{said:?}"
    );
}

/// What was started is what people have at hand: a launcher, under the library or not, whose child uses CUDA.
#[test]
fn a_launchers_id_is_answered_with_who_below_it_uses_cuda() {
    let driver = SimDriver::build(false);
    let library = cudasnap_shim_tests::shimmed::library();
    for preload in ["", library.to_str().unwrap()] {
        let script = format!("LD_PRELOAD={preload} exec sh -c 'sleep 600 | SIMAPP 16 & wait'");
        let tree = Tree::start(&driver, &script, 1);
        let root = tree.shell.id();
        let meant = format!("; {} (simapp) below it does: ", tree.pids[0]);
        for (verb, then) in [
            ("state PID", "--tree"),
            ("lock PID", "--tree"),
            ("checkpoint PID", "--tree"),
            ("restore PID", "--tree"),
            ("status PID", "--tree"),
            ("drop PID", "--tree"),
            ("reserve PID", "--tree"),
            ("mode PID off", "name that one"),
            ("buffer PID list", "name that one"),
            ("buffer PID read 0", "name that one"),
            ("buffer PID read 0 --at 10", "name that one"),
        ] {
            let said = driver.said(&verb.replace("PID", &root.to_string()));
            let text = format!("{}{}", said.stdout, said.stderr);
            let words = format!("{meant}{then}");
            assert!(text.contains(&words), "{verb}: {words}: {said:?}");
        }
        assert_eq!(state(&driver, tree.pids[0]), "running");
        driver.does(&format!("checkpoint --tree {root}"));
        assert_eq!(state(&driver, tree.pids[0]), "checkpointed");
    }
}

#[test]
fn a_containers_pid_is_understood() {
    let probe = Command::new("unshare")
        .args(["-p", "-f", "--mount-proc", "true"])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("no right to make a pid namespace here");
        return;
    }
    let driver = SimDriver::build(false);
    // Some processes first, so that the number is none of a container's first ones.
    let inside = "i=0; while [ $i -lt 83 ]; do /bin/true; i=$((i+1)); done; sleep 600 | SIMAPP 16";
    let script = format!("unshare -p -f --mount-proc --kill-child sh -c '{inside}'");
    let tree = Tree::start(&driver, &script, 1);
    let number = tree.pids[0];
    assert!(number > 80, "{number}");
    let said = driver.said(&format!("lock --json --ns-pid {number}"));
    let json = said.json();
    assert_eq!(said.code, 0, "{said:?}");
    let process = &json["processes"][0];
    assert_eq!(process["namespace_pid"], number);
    let pid = process["pid"].as_u64().unwrap() as u32;
    assert_ne!(pid, number);
    let line = driver.must_say(&format!("unlock {pid}"));
    assert!(
        line.contains(&format!("({number} in its container)")),
        "{line}"
    );
    let said = driver.said(&format!("state --ns-pid {}", i32::MAX));
    assert!(
        said.code == 1 && said.stderr.contains("no process in a container"),
        "{said:?}"
    );
}

#[test]
fn a_terminal_sees_bytes_and_rate() {
    let driver = SimDriver::build(false);
    let shimmed = Shimmed::start(&driver, &["64"], &[]);
    let line = format!(
        "stty cols 100 rows 30; {} checkpoint {}",
        binary().display(),
        shimmed.app.pid()
    );
    let seen = Said::by(
        Command::new("script")
            .args(["-q", "-e", "-c", &line, "/dev/null"])
            .env("LD_LIBRARY_PATH", &driver.library)
            .env("CUDASIM_DMA_GBPS", "0.05")
            .env("TERM", "xterm")
            .stdin(Stdio::null()),
    );
    assert_eq!(seen.code, 0, "{seen:?}");
    assert!(seen.stdout.contains("simapp"), "{seen:?}");
    for part in ["copying", "MB/", "GB/s", "checkpointed"] {
        assert!(seen.stdout.contains(part), "{part}: {seen:?}");
    }
}

#[test]
fn a_result_that_nobody_reads_is_no_failure() {
    let driver = SimDriver::build(false);
    let app: App = driver.app(&["16"], &[]);
    let mut child = driver
        .tool(&format!("checkpoint {}", app.pid()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(state(&driver, app.pid()), "checkpointed");
}
