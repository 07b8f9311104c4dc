//! `cudasnap ab` on the simulated driver: what it measures is what was built in, and the process is left as it was found.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use cudasnap_cli::ab::data::{Cycle, Measured, Seen};
use cudasnap_cli::ab::summary::{calls, confidence, counts, Comparison, Direction};
use cudasnap_cli::ab::{doubts, json};
use cudasnap_cli::process::identity::{is_stopped, Identity};
use cudasnap_cli::record::Control;
use cudasnap_shim_tests::folder::Folder;
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::{App, SimDriver};
use cudasnap_shim_tests::tool::{binary, send_signal, until, RunningTool, Said};
use cudasnap_wire::Mode;

/// A run, and where its JSON goes.
struct Ab {
    driver: SimDriver,
    folder: Folder,
}

impl Ab {
    fn new() -> Self {
        Ab {
            driver: SimDriver::build(false),
            folder: Folder::new(),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ab.json")
    }

    /// The tool with these arguments and others behind them.
    fn tool(&self, arguments: &str, more: &[&str]) -> Command {
        let mut tool = self.driver.tool("ab --no-limit --seed 1 --json");
        tool.arg(self.file())
            .args(arguments.split_whitespace())
            .args(more);
        tool
    }

    fn measured(&self) -> Measured {
        json::read(&fs::read_to_string(self.file()).expect("the report")).expect("the model")
    }

    /// Runs it to its end, which must be a success.
    fn run(&self, tool: &mut Command) -> (Said, Measured) {
        let said = Said::by(tool);
        assert_eq!(said.code, 0, "{said:?}");
        (said, self.measured())
    }

    fn state(&self, pid: u32) -> String {
        self.driver.control("state", pid, &[]).stdout
    }
}

fn of<'a>(measured: &'a Measured, variant: &'a str) -> Vec<&'a Cycle> {
    let cycles = measured.workloads[0].cycles.iter();
    cycles
        .filter(|cycle| counts(cycle) && cycle.variant == variant)
        .collect()
}

fn phases<'a>(cycles: &[&'a Cycle]) -> Vec<&'a Seen> {
    let mut all = Vec::new();
    for cycle in cycles {
        for direction in Direction::ALL {
            let phase = direction.of(cycle).expect("a phase");
            assert!(phase.seconds > 0.0 && phase.bytes > 0, "{cycle:?}");
            all.push(phase.seen.as_ref().expect("a record"));
        }
    }
    all
}

fn comparison(measured: &Measured, direction: Direction) -> Comparison {
    let all = calls(&measured.workloads[0], direction, confidence(measured));
    all[1].ratio.clone().expect("pairs")
}

/// A program that starts `simapp` with so many MiB; `before` is what its shell does first.
fn program(driver: &SimDriver, before: &str, mib: u32) -> String {
    let simapp = driver.programs.join("simapp");
    format!("{before}; sleep 600 | {} {mib}", simapp.display())
}

#[test]
fn a_running_process_is_measured_and_left_as_it_was() {
    let ab = Ab::new();
    let mut shimmed = Shimmed::start(&ab.driver, &["32"], &[]);
    shimmed
        .located()
        .write(Control::Mode(Mode::Observe))
        .unwrap();
    shimmed.located().write(Control::ThreadCap(3)).unwrap();
    let pid = shimmed.app.pid();
    let (said, measured) = ab.run(&mut ab.tool(
        "--cycles 4 --verify",
        &["test -d /proc/$CUDASNAP_AB_PID", &pid.to_string()],
    ));
    let workload = &measured.workloads[0];
    assert_eq!(workload.cycles.len(), 10);
    assert!(workload
        .cycles
        .iter()
        .all(|cycle| cycle.verified == Some(true) && cycle.pid == pid as i32));
    let (observed, made) = (of(&measured, "observe"), of(&measured, "on"));
    assert_eq!((observed.len(), made.len()), (4, 4));
    for seen in phases(&observed) {
        assert_eq!((&seen.mode[..], seen.effective), ("observe", false));
    }
    for seen in phases(&made) {
        assert_eq!((&seen.mode[..], seen.effective), ("on", true));
        assert!(seen.threads <= 3, "{seen:?}");
    }
    for direction in ["Checkpoint", "Restore"] {
        assert!(said.stdout.contains(direction), "{said:?}");
    }
    assert!(said.stderr.contains("4 rounds of observe, on; seed 1"));
    assert_eq!(ab.state(pid), "running");
    let record = shimmed.record();
    assert!(record.mode.is("observe"), "{:?}", record.mode);
    assert_eq!(record.thread_cap, 3);
    assert_eq!(shimmed.app.wrong_words(), 0);
}

#[test]
fn threads_are_switched_within_the_process() {
    let ab = Ab::new();
    let shimmed = Shimmed::start(&ab.driver, &["32"], &[]);
    let pid = shimmed.app.pid();
    let (_, measured) = ab.run(&mut ab.tool("--cycles 2 --grid threads=1|2", &[&pid.to_string()]));
    let variants = &measured.workloads[0].variants;
    assert_eq!(variants.len(), 3);
    for seen in phases(&of(&measured, "threads=1")) {
        assert_eq!(seen.threads, 1);
    }
    let two = of(&measured, "threads=2");
    assert!(phases(&two).iter().any(|seen| seen.threads == 2));
    assert_eq!(shimmed.record().thread_cap, 0);
}

/// The same against itself: the ratio is 1, and an interval of 99.9 % misses it once in a thousand runs.
#[test]
fn an_arm_against_itself_is_one() {
    let ab = Ab::new();
    let shimmed = Shimmed::start(&ab.driver, &["16"], &[]);
    let line =
        "--cycles 12 --confidence 99.9 --variant one:mode=observe --variant other:mode=observe";
    let mut tool = ab.tool(line, &[&shimmed.app.pid().to_string()]);
    let (_, measured) = ab.run(tool.env("CUDASIM_DMA_GBPS", "1"));
    for direction in Direction::ALL {
        let found = comparison(&measured, direction);
        assert_eq!(found.pairs, 12);
        let interval = found.interval.expect("12 pairs");
        assert!(interval.contains(1.0), "{direction:?} {found:?}");
    }
}

/// One variant's driver waits a second in each phase; the other's does not. So the ratio is 1 + 1 s / the other's time, which the DMA's rate
/// decides. Each has processes of its own.
#[test]
fn a_slower_driver_is_measured_by_as_much_as_it_is_slower() {
    let ab = Ab::new();
    let slow = "if [ \"$CUDASNAP_SPARSE\" = off ]; then export CUDASIM_FAULT=pause=1000@0; fi";
    let line = "--cycles 11 --rounds-per-visit 6 --confidence 99.9 --variant on --variant slowed:sparse=off -- sh -c";
    let script = program(&ab.driver, slow, 16);
    let mut tool = ab.tool(line, &[&script]);
    let (_, measured) = ab.run(tool.env("CUDASIM_DMA_GBPS", "1"));
    let workload = &measured.workloads[0];
    assert_eq!(workload.name, "sh");
    for direction in Direction::ALL {
        let all = calls(workload, direction, confidence(&measured));
        let usual = all[0].seconds.expect("cycles").median;
        let found = comparison(&measured, direction);
        let interval = found.interval.expect("11 pairs");
        let true_ratio = 1.0 + 1.0 / usual;
        assert!(
            interval.contains(true_ratio) && found.is_shown(),
            "{direction:?} {true_ratio} {found:?}"
        );
    }
    // Two visits to each, each to a process that is gone afterwards.
    let mut pids: Vec<i32> = workload.cycles.iter().map(|cycle| cycle.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 4);
    for pid in pids {
        // Killed, and perhaps not collected yet.
        until("its end", || Identity::of(pid).is_err());
    }
}

#[test]
fn without_the_library_is_a_variant_too() {
    let ab = Ab::new();
    let script = program(&ab.driver, ":", 32);
    let maps = ab.folder.path().join("maps");
    let look = format!(
        "grep -c libcudasnap /proc/$CUDASNAP_AB_PID/maps >> {}; true",
        maps.display()
    );
    let line = "--cycles 2 --variant stock --variant on --verify";
    let (_, measured) = ab.run(&mut ab.tool(line, &[&look, "--", "sh", "-c", &script]));
    // A line per cycle: how often the library is mapped.
    let maps = fs::read_to_string(maps).unwrap();
    let cycles = &measured.workloads[0].cycles;
    assert_eq!(maps.lines().count(), cycles.len());
    for (count, cycle) in maps.lines().zip(cycles) {
        assert_eq!(count == "0", cycle.variant == "stock", "{cycle:?}");
    }
    let stock = of(&measured, "stock");
    assert_eq!(stock.len(), 2);
    for cycle in stock {
        let phase = cycle.checkpoint.as_ref().unwrap();
        assert!(phase.seen.is_none() && phase.bytes == 0 && phase.seconds > 0.0);
    }
    assert!(phases(&of(&measured, "on"))
        .iter()
        .all(|seen| seen.effective));
    // The same program: its bytes are known from the other's.
    let all = calls(&measured.workloads[0], Direction::Checkpoint, 0.95);
    assert!(all[0].rate.is_some());
}

#[test]
fn a_kept_buffer_is_found_by_the_variant_that_keeps_it_and_by_no_other() {
    let ab = Ab::new();
    let script = program(&ab.driver, ":", 32);
    let line = "--cycles 3 --rounds-per-visit 3 --variant on --variant kept:buffer=keep -- sh -c";
    let (_, measured) = ab.run(&mut ab.tool(line, &[&script]));
    let kept = |variant: &str| -> Vec<bool> {
        let cycles = of(&measured, variant);
        let seen = cycles
            .iter()
            .map(|cycle| cycle.checkpoint.as_ref().unwrap().seen.as_ref().unwrap());
        seen.map(|seen| seen.kept).collect()
    };
    assert_eq!(kept("on"), [false; 3]);
    assert_eq!(kept("kept"), [true; 3], "{:?}", of(&measured, "kept"));

    // In one process nobody inherits it.
    let shimmed = Shimmed::start(&ab.driver, &["32"], &[("CUDASNAP_BUFFER", "keep")]);
    let pid = shimmed.app.pid().to_string();
    let line = "--cycles 4 --variant on --variant few:threads=1";
    let (said, measured) = ab.run(&mut ab.tool(line, &[&pid]));
    for cycle in &measured.workloads[0].cycles[1..] {
        assert_eq!(cycle.dropped, Some(true), "{cycle:?}");
        let seen = cycle.checkpoint.as_ref().unwrap().seen.as_ref().unwrap();
        assert!(!seen.kept);
    }
    assert!(said.stdout.contains("keeps its buffer"), "{said:?}");
}

/// Waits until a phase of this direction copies.
fn in_the_middle(shimmed: &Shimmed, direction: &str) {
    until("the first copy", || {
        let phase = shimmed.record().current;
        phase.direction.is(direction) && phase.copied > 0 && phase.end.is("running")
    });
}

#[test]
fn a_signal_ends_the_run_with_the_process_at_work_and_the_report_there() {
    for (direction, signal, code) in [
        ("checkpoint", libc::SIGINT, 130),
        ("restore", libc::SIGTERM, 143),
    ] {
        let ab = Ab::new();
        let mut shimmed = Shimmed::start(&ab.driver, &["64"], &[]);
        let pid = shimmed.app.pid();
        let mut tool = ab.tool("--cycles 50 --warm-up 0", &[&pid.to_string()]);
        let tool = RunningTool::start(tool.env("CUDASIM_DMA_GBPS", "0.2"));
        in_the_middle(&shimmed, direction);
        tool.signal(signal);
        if direction == "checkpoint" {
            // Whoever presses again is not told again.
            in_the_middle(&shimmed, "restore");
            tool.signal(signal);
        }
        let said = tool.wait();
        assert_eq!(said.code, code, "{said:?}");
        let told = said.stderr.matches("this cycle is finished first");
        assert_eq!(told.count(), 1, "{said:?}");
        assert_eq!(ab.state(pid), "running");
        assert_eq!(shimmed.app.wrong_words(), 0);
        assert!(shimmed.record().mode.is("on"));
        let measured = ab.measured();
        let why = measured.stopped.clone().expect("the reason");
        assert!(why.contains(&format!("signal {signal}")), "{why}");
        let last = measured.workloads[0].cycles.last().expect("a cycle");
        assert!(last.restore.is_some() && last.unlock.is_some() && last.error.is_none());
    }
}

#[test]
fn a_process_that_dies_leaves_a_report_and_a_reason() {
    let ab = Ab::new();
    let shimmed = Shimmed::start(&ab.driver, &["64"], &[]);
    let pid = shimmed.app.pid();
    let mut tool = ab.tool("--cycles 50", &[&pid.to_string()]);
    let tool = RunningTool::start(tool.env("CUDASIM_DMA_GBPS", "0.2"));
    // The second cycle: one is whole.
    until("a whole cycle", || shimmed.record().counters.phases >= 2);
    in_the_middle(&shimmed, "checkpoint");
    send_signal(pid, libc::SIGKILL);
    let said = tool.wait();
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr.contains("ended by signal 9 during checkpoint"),
        "{said:?}"
    );
    let measured = ab.measured();
    let cycles = &measured.workloads[0].cycles;
    assert!(cycles[0].error.is_none() && cycles.last().unwrap().error.is_some());
    assert!(measured.stopped.is_some());
}

#[test]
fn a_program_that_dies_is_told_too() {
    let ab = Ab::new();
    let script = program(&ab.driver, ":", 16);
    let line = "--cycles 50 --verify";
    let kill = "kill -9 $CUDASNAP_AB_PID";
    let said = Said::by(&mut ab.tool(line, &[kill, "--", "sh", "-c", &script]));
    assert_eq!(said.code, 1, "{said:?}");
    // It may still be dying when the next cycle begins.
    let told = ["between two cycles", "ended by signal 9 during lock"];
    assert!(
        told.iter().any(|told| said.stderr.contains(told)),
        "{said:?}"
    );
    assert_eq!(ab.measured().workloads[0].cycles.len(), 2);
}

/// A restore that fails is tried again, and the run goes on.
#[test]
fn a_cycle_that_fails_is_left_out_and_the_process_brought_back() {
    let ab = Ab::new();
    let fault = ("CUDASIM_FAULT", "copy:middle,phase=restore,keep,times=1");
    let mut shimmed = Shimmed::start(&ab.driver, &["32"], &[fault]);
    let pid = shimmed.app.pid();
    let said = Said::by(&mut ab.tool("--cycles 3", &[&pid.to_string()]));
    assert_eq!(said.code, 3, "{said:?}");
    let measured = ab.measured();
    let cycles = &measured.workloads[0].cycles;
    assert_eq!(cycles.len(), 8);
    let failed: Vec<&Cycle> = cycles
        .iter()
        .filter(|cycle| cycle.error.is_some())
        .collect();
    assert_eq!(failed.len(), 1);
    assert!(failed[0].error.as_ref().unwrap().contains("restore failed"));
    assert!(said.stdout.contains("failed and was left out"), "{said:?}");
    assert_eq!(ab.state(pid), "running");
    assert_eq!(shimmed.app.wrong_words(), 0);
}

/// It ends with the run: no way back is of use.
#[test]
fn a_program_that_cannot_be_brought_back_is_ended_and_told() {
    let ab = Ab::new();
    let simapp = ab.driver.programs.join("simapp").display().to_string();
    let fault = "CUDASIM_FAULT=copy:middle,phase=restore,keep,times=9";
    let program = ["--", "env", fault, &simapp, "32"];
    let said = Said::by(&mut ab.tool("--cycles 3", &program));
    assert_eq!(said.code, 1, "{said:?}");
    let last = said.stderr.lines().last().expect("a last line");
    assert!(
        last.contains("could not be brought back, it was checkpointed: restore failed")
            && last.contains("the program is ended")
            && !last.contains("cudasnap restore"),
        "{said:?}"
    );
    assert_eq!(ab.measured().workloads[0].cycles.len(), 1);
}

/// After three more tries the run ends; the process is not lost, and the report has what was measured.
#[test]
fn a_process_that_cannot_be_brought_back_is_told_with_the_way_back() {
    let ab = Ab::new();
    // The cycle tries twice by itself.
    let fault = ("CUDASIM_FAULT", "copy:middle,phase=restore,keep,times=5");
    let mut shimmed = Shimmed::start(&ab.driver, &["32"], &[fault]);
    let pid = shimmed.app.pid();
    let said = Said::by(&mut ab.tool("--cycles 3", &[&pid.to_string()]));
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(said.stderr.matches("tried again in").count(), 3, "{said:?}");
    assert!(
        said.stderr.contains(&format!(
            "process {pid} is left checkpointed, restore failed"
        )) && said.stderr.contains(&format!("\"cudasnap restore {pid}\"")),
        "{said:?}"
    );
    assert_eq!(ab.measured().workloads[0].cycles.len(), 1);
    assert_eq!(ab.state(pid), "checkpointed");
    // The fault is over now.
    for way_back in ["restore", "unlock"] {
        shimmed.must(way_back);
    }
    assert_eq!(shimmed.app.wrong_words(), 0);
}

/// Error 2, what a full machine or GPU gives.
#[test]
fn a_run_in_which_every_cycle_fails_ends_soon() {
    let ab = Ab::new();
    let shimmed = Shimmed::start(
        &ab.driver,
        &["32"],
        &[("CUDASIM_FAULT", "mmap-refused,times=0")],
    );
    let pid = shimmed.app.pid();
    let said = Said::by(&mut ab.tool("--cycles 50", &[&pid.to_string()]));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("3 cycles in a row failed"), "{said:?}");
    assert!(said.stderr.contains("error 2"), "{said:?}");
    assert_eq!(ab.measured().workloads[0].cycles.len(), 3);
    assert_eq!(ab.state(pid), "running");
}

#[test]
fn wrong_contents_are_a_failure() {
    let ab = Ab::new();
    let shimmed = Shimmed::start(&ab.driver, &["16"], &[]);
    let said = Said::by(&mut ab.tool(
        "--cycles 2 --verify",
        &["exit 1", &shimmed.app.pid().to_string()],
    ));
    assert_eq!(said.code, 3, "{said:?}");
    assert!(
        said.stdout.contains("said no after cycles 1, 2"),
        "{said:?}"
    );
    let found = doubts::look(&ab.measured());
    assert!(matches!(found[0], doubts::Doubt::Wrong { .. }), "{found:?}");
    // The warm-up round too.
    for told in [
        "Contents were wrong after 6 of 6 cycles: the numbers are worthless",
        "wrong after 6 of 6 cycles",
    ] {
        assert!(said.stdout.contains(told), "{said:?}");
    }
}

/// The lock of a process that is stopped never comes back.
#[test]
fn a_stopped_process_is_left_with_the_commands_that_bring_it_back() {
    let ab = Ab::new();
    let mut shimmed = Shimmed::start(&ab.driver, &["16"], &[]);
    let pid = shimmed.app.pid();
    // It is stopped when its first cycle was made and verified, and the next one begins.
    let stop = "kill -STOP $CUDASNAP_AB_PID";
    let mut tool = ab.tool("--cycles 3 --warm-up 0 --verify", &[stop, &pid.to_string()]);
    let said = Said::by(&mut tool);
    send_signal(pid, libc::SIGCONT);
    assert_eq!(said.code, 1, "{said:?}");
    for told in [
        "it is stopped (SIGSTOP, Ctrl-Z or a debugger)".to_owned(),
        format!("process {pid} is left running as far as is known"),
        format!("\"kill -CONT {pid}\" lets it go on, then \"cudasnap restore {pid}\""),
        format!("\"cudasnap unlock {pid}\""),
    ] {
        assert!(said.stderr.contains(&told), "{told}: {said:?}");
    }
    assert_eq!(ab.measured().workloads[0].cycles.len(), 2);
    // As the message says: what was ordered comes about late.
    until("its state", || {
        ["running", "locked"].contains(&&ab.state(pid)[..])
    });
    if ab.state(pid) == "locked" {
        shimmed.must("unlock");
    }
    assert_eq!(shimmed.app.wrong_words(), 0);
    assert!(shimmed.record().mode.is("on"));
}

/// Ctrl-Z within a checkpoint: the cycle is finished, then the run is suspended, and goes on later.
#[test]
fn a_suspension_waits_for_the_end_of_its_cycle() {
    let ab = Ab::new();
    let mut shimmed = Shimmed::start(&ab.driver, &["64"], &[]);
    let pid = shimmed.app.pid();
    let mut tool = ab.tool("--cycles 1 --warm-up 0", &[&pid.to_string()]);
    // A group of its own whose parent is in the same session: the kernel suspends no orphans.
    tool.env("CUDASIM_DMA_GBPS", "0.2").process_group(0);
    let tool = RunningTool::start(&mut tool);
    in_the_middle(&shimmed, "checkpoint");
    tool.signal(libc::SIGTSTP);
    until("the suspension", || is_stopped(tool.pid() as i32));
    assert_eq!(ab.state(pid), "running", "between two cycles");
    let phases = shimmed.record().counters.phases;
    assert_eq!(phases, 2, "a checkpoint and its restore");
    tool.signal(libc::SIGCONT);
    let said = tool.wait();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.stderr.contains("Ctrl-Z: this cycle is finished first"),
        "{said:?}"
    );
    assert_eq!(ab.measured().workloads[0].cycles.len(), 2);
    assert_eq!(shimmed.app.wrong_words(), 0);
}

#[test]
fn outputs_that_cannot_be_are_refused_first() {
    let ab = Ab::new();
    let file = ab.file().display().to_string();
    let part = "a report and the program's output cannot both go there";
    refused(&ab, &format!("--program-output {file} -- sh"), 4, part);
    let none = "--program-output /no/such/folder/log -- sh";
    refused(&ab, none, 4, "No such file");
    let shimmed = Shimmed::start(&ab.driver, &["16"], &[]);
    let line = format!("--end-timeout 3 {}", shimmed.app.pid());
    refused(&ab, &line, 2, "--end-timeout: only for a program");
    let line = "--ready-line /(/ -- sh";
    let part = "'/(/' for '--ready-line <TEXT>': it takes a text, or /REGEX/ (unclosed group)";
    refused(&ab, line, 2, part);
}

/// Checks that a call is refused with this status and these words, and leaves no report.
fn refused(ab: &Ab, line: &str, code: i32, part: &str) {
    let said = Said::by(&mut ab.tool(line, &[]));
    assert_eq!(said.code, code, "{line}: {said:?}");
    assert!(said.stderr.contains(part), "{line}: {said:?}");
    assert!(!ab.file().exists());
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_touched() {
    let ab = Ab::new();
    let plain: App = ab.driver.app(&["16"], &[]);
    let shimmed = Shimmed::start(&ab.driver, &["16"], &[]);
    let (without, pid) = (plain.pid(), shimmed.app.pid());
    refused(
        &ab,
        &format!("{without}"),
        4,
        "start it with \"cudasnap run -- CMD\"",
    );
    refused(
        &ab,
        &format!("--variant observe --variant a:pages=4k {pid}"),
        2,
        "give the program behind --",
    );
    refused(&ab, "", 2, "nothing to measure");
    refused(&ab, "-- /no/such/program", 127, "was not started");
    refused(&ab, &format!("{}", i32::MAX), 4, "no process has the id");
    refused(
        &ab,
        &format!("{}", std::process::id()),
        1,
        "does not use CUDA",
    );
    shimmed.must("lock");
    refused(
        &ab,
        &format!("{pid}"),
        4,
        &format!("\"cudasnap unlock {pid}\""),
    );
    shimmed.must("checkpoint");
    refused(
        &ab,
        &format!("{pid}"),
        4,
        &format!("\"cudasnap restore {pid}\""),
    );
    assert_eq!(ab.state(pid), "checkpointed");
    assert_eq!(shimmed.record().counters.requests, 1);
    assert_eq!(ab.state(without), "running");
}

#[test]
fn room_and_rights_are_looked_at_first() {
    let ab = Ab::new();
    let shimmed = Shimmed::start(&ab.driver, &["16"], &[]);
    let pid = shimmed.app.pid().to_string();
    let mut tool = ab.tool("--cycles 1", &[&pid]);
    let said = Said::by(tool.env("CUDASIM_CLAIMED_MIB", "99999999"));
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.stderr.contains("into main memory"), "{said:?}");
    assert_eq!(shimmed.record().counters.requests, 0);
}

#[test]
fn another_users_process_is_refused_with_the_right_that_is_missing() {
    // SAFETY: takes nothing, cannot fail.
    let user = unsafe { libc::geteuid() };
    assert_eq!(user, 0, "only root can play another user");
    let ab = Ab::new();
    let shimmed = Shimmed::start(&ab.driver, &["16"], &[]);
    let tool = ab.folder.path().join("cudasnap");
    fs::copy(binary(), &tool).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let said = Said::by(
        Command::new(&tool)
            .args(["ab", &shimmed.app.pid().to_string()])
            .uid(65534)
            .gid(65534)
            .current_dir("/"),
    );
    assert_eq!(said.code, 4, "{said:?}");
    assert!(
        said.stderr
            .contains("it belongs to user 0 and this is user 65534"),
        "{said:?}"
    );
    assert_eq!(shimmed.record().counters.requests, 0);
}

/// With the limit of the bus in the same run, which here is what was set.
#[test]
fn sizes_are_measured_with_the_built_in_workload() {
    let ab = Ab::new();
    let page = ab.folder.path().join("ab.html");
    let mut tool = ab
        .driver
        .tool("ab --seed 1 --cycles 1 --warm-up 0 --sizes 1,2 --json");
    tool.arg(ab.file()).arg("--html").arg(&page);
    let (said, measured) = ab.run(tool.env("CUDASIM_DMA_GBPS", "3"));
    let names: Vec<&str> = measured
        .workloads
        .iter()
        .map(|workload| &workload.name[..])
        .collect();
    assert_eq!(names, ["1 GiB", "2 GiB"], "{said:?}");
    for (workload, gib) in measured.workloads.iter().zip([1, 2]) {
        let limit = workload.limit.expect("a limit");
        for rate in [limit.to_host, limit.to_device] {
            assert!((0.1..3.2).contains(&rate), "{limit:?}");
        }
        assert_eq!(workload.cycles.len(), 2);
        for cycle in &workload.cycles {
            assert_eq!(cycle.error, None, "{cycle:?}");
            for direction in Direction::ALL {
                let phase = direction.of(cycle).expect("a phase");
                assert!(phase.bytes >= gib << 30, "{cycle:?}");
                let is_on = phase.seen.as_ref().expect("a record").effective;
                assert_eq!(is_on, cycle.variant == "on");
            }
        }
        // No cycle changes the contents: one look at the end sees what any has spoiled.
        let verified: Vec<_> = workload.cycles.iter().map(|cycle| cycle.verified).collect();
        assert_eq!(verified, [None, Some(true)]);
    }
    let page = fs::read_to_string(page).expect("the page");
    assert!(page.contains("over size") && page.contains("<svg"));
    assert!(page.contains("right after 2 cycles"));
}

#[test]
fn what_a_cycle_spoils_of_the_built_in_workload_is_found() {
    let ab = Ab::new();
    let mut tool = ab
        .driver
        .tool("ab --seed 1 --cycles 1 --warm-up 0 --no-limit --sizes 1 --json");
    tool.arg(ab.file()).env("CUDASIM_MUTATE", "skip-copy");
    let said = Said::by(&mut tool);
    assert_eq!(said.code, 3, "{said:?}");
    let cycles = &ab.measured().workloads[0].cycles;
    let verified: Vec<_> = cycles.iter().map(|cycle| cycle.verified).collect();
    assert_eq!(verified, [None, Some(false)]);
    assert!(said.stderr.contains("contents compared: bad "), "{said:?}");
    assert!(
        said.stdout.contains("Verification said no after cycle 2"),
        "{said:?}"
    );
}

/// It would take half a second and more. What was measured stands, and nobody says that the contents are right.
#[test]
fn a_signal_while_the_built_in_workload_compares_ends_the_run() {
    let ab = Ab::new();
    let phases = ab.folder.path().join("phases");
    let mut tool = ab.tool("--cycles 1 --warm-up 0 --sizes 2", &[]);
    tool.env("CUDASNAP_REPORT", &phases);
    let tool = RunningTool::start(&mut tool);
    until("the end of both cycles", || {
        fs::read_to_string(&phases).is_ok_and(|lines| lines.lines().count() == 4)
    });
    // The last line is written when the restore is over; its unlock comes after that.
    std::thread::sleep(Duration::from_millis(50));
    tool.signal(libc::SIGINT);
    let said = tool.wait();
    assert_eq!(said.code, 130, "{said:?}");
    assert!(!said.stderr.contains("contents compared"), "{said:?}");
    let measured = ab.measured();
    let why = measured.stopped.clone().expect("the reason");
    assert!(why.contains("signal 2"), "{why}");
    let cycles = &measured.workloads[0].cycles;
    assert!(cycles.len() == 2 && cycles.iter().all(counts));
    assert!(cycles.iter().all(|cycle| cycle.verified.is_none()));
}

/// Which GPU a program takes is known once it has.
#[test]
fn the_gpu_of_a_program_is_the_one_that_it_took() {
    let ab = Ab::new();
    let mut command = ab.driver.tool("ab --seed 1 --cycles 1 --warm-up 0 --json");
    command
        .arg(ab.file())
        .args(["--ready-line", "ready", "--"])
        .arg(binary())
        .args(["workload", "--mib", "96", "--gpu", "1"])
        .envs([("CUDASIM_DEVICES", "2"), ("CUDASIM_DMA_GBPS", "3")]);
    let (said, measured) = ab.run(&mut command);
    assert_eq!(measured.gpu.and_then(|gpu| gpu.number), Some(1), "{said:?}");
    assert!(measured.workloads[0].limit.is_some(), "{said:?}");
}
