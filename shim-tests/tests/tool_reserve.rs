//! `CUDASNAP_BUFFER=reserve` and `cudasnap reserve`, on the simulated driver: the range is filled from outside, and whatever becomes of
//! the tool meanwhile, the checkpoints are right.

use std::process::Command;
use std::time::{Duration, Instant};

use cudasnap_cli::process::observe::resident_bytes;
use cudasnap_cli::process::target::Target;
use cudasnap_cli::record::view::BufferView;
use cudasnap_cli::reserve::populate::Populator;
use cudasnap_shim_tests::folder::Folder;
use cudasnap_shim_tests::limits::{fake, meminfo, Group};
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::{App, SimDriver};
use cudasnap_shim_tests::tool::{until, RunningTool, Said};
use cudasnap_wire::Step;

const RESERVE: (&str, &str) = ("CUDASNAP_BUFFER", "reserve");
/// Other tests fill the machine too, and make each other wait.
const CALM: &str = "--margin 32M --pressure 100";

/// A process that has a reserved range, empty.
fn reserved(mib: &str, more: &[(&str, &str)]) -> (SimDriver, Shimmed) {
    let driver = SimDriver::build(false);
    let environment = [&[RESERVE], more].concat();
    let mut process = Shimmed::start(&driver, &[mib], &environment);
    process.cycle();
    let buffer = process.record().buffer;
    assert!(buffer.state.is("reserved"), "{buffer:?}");
    assert_eq!(resident(&process, &buffer), 0);
    (driver, process)
}

fn resident(process: &Shimmed, buffer: &BufferView) -> u64 {
    let end = buffer.address + buffer.mapped;
    resident_bytes(process.target(), buffer.address, end).unwrap()
}

fn line(process: &Shimmed, more: &str) -> String {
    format!("reserve {} {CALM} --rate 0 {more}", process.app.pid())
}

/// What a line of `--json` says of the only process.
fn only(said: &Said) -> serde_json::Value {
    said.json()["processes"][0].clone()
}

#[test]
fn a_full_range_is_found_by_the_next_checkpoint() {
    let (driver, mut process) = reserved("64", &[]);
    let before = process.record();
    let buffer = before.buffer.clone();
    let said = driver.must_say(&line(&process, ""));
    assert!(
        said.contains("reserved are in memory") && !said.contains("stopped"),
        "{said}"
    );
    assert!(resident(&process, &buffer) >= buffer.length);
    let status = driver.must_say(&format!("status -v {}", process.app.pid()));
    assert!(
        status.contains("reserved, ") && status.contains("cudasnap reserve"),
        "{status}"
    );
    assert_eq!(
        process.record().buffer,
        buffer,
        "the tool changes nothing in the record"
    );
    process.cycle();
    let after = process.record();
    let checkpoint = after.last("checkpoint").unwrap();
    assert!(checkpoint.kept && checkpoint.is_effective());
    assert_eq!(
        checkpoint.prefaulted, 0,
        "there was nothing left to prefault"
    );
    assert!(after.last("restore").unwrap().is_effective());
    // Given back once more, with the addresses kept.
    assert_eq!(after.buffer, buffer);
    assert_eq!(resident(&process, &buffer), 0);
    assert!(
        process.steps_but(&[]).is_empty(),
        "{:?}",
        process.steps_but(&[])
    );
    let growth = process.growth();
    assert_eq!((growth.threads, growth.descriptors), (0, 0), "{growth:?}");
}

#[test]
fn a_range_that_is_full_in_part_is_completed() {
    for pages in ["thp", "4k"] {
        let (driver, mut process) = reserved("64", &[("CUDASNAP_PAGES", pages)]);
        let buffer = process.record().buffer;
        let said = driver.said(&line(&process, "--limit 24M --json"));
        assert_eq!(said.code, 0, "{said:?}");
        let one = only(&said);
        assert_eq!(one["stopped"]["why"], "limit");
        assert_eq!(one["populated"], 24 << 20);
        assert_eq!(resident(&process, &buffer), 24 << 20);
        // The same command again has nothing to do.
        assert_eq!(
            only(&driver.said(&line(&process, "--limit 24M --json")))["populated"],
            0
        );
        process.cycle();
        let checkpoint = process.last("checkpoint");
        assert!(!checkpoint.kept && checkpoint.is_effective());
        assert!(
            checkpoint.prefaulted <= buffer.length - (24 << 20),
            "{checkpoint:?}"
        );
        assert_eq!(process.record().buffer, buffer);
        assert!(
            process.steps_but(&[]).is_empty(),
            "{:?}",
            process.steps_but(&[])
        );
    }
}

#[test]
fn an_empty_range_is_as_good_as_new_memory() {
    let (_driver, mut process) = reserved("40", &[]);
    let buffer = process.record().buffer;
    process.cycle();
    let checkpoint = process.last("checkpoint");
    assert!(!checkpoint.kept && checkpoint.is_effective());
    assert_eq!(process.record().buffer, buffer);
    assert!(process.steps_but(&[]).is_empty());
}

/// The proof that does not depend on the moment: the very call that populates, on a buffer that holds the device's memory.
#[test]
fn populating_a_buffer_in_use_changes_no_byte() {
    let (_driver, mut process) = reserved("64", &[]);
    let populator = Populator::new().unwrap();
    process.must("lock");
    process.must("checkpoint");
    let buffer = process.record().buffer;
    assert!(buffer.state.is("live"));
    let sum = |process: &Shimmed| {
        let mut bytes = vec![0u8; buffer.length as usize];
        use cudasnap_cli::process::target::Memory;
        process.target().read(buffer.address, &mut bytes).unwrap();
        bytes
    };
    let before = sum(&process);
    for offset in (0..buffer.length).step_by(2 << 20) {
        let length = (2 << 20).min(buffer.length - offset);
        populator
            .populate(process.target(), buffer.address + offset, length)
            .unwrap();
    }
    assert!(before == sum(&process));
    process.must("restore");
    process.must("unlock");
    assert_eq!(process.app.wrong_words(), 0);
    assert!(process.last("restore").is_effective());
}

/// Without a random number generator: the same moments each time, spread over what a reserve takes.
fn moment(round: u64) -> Duration {
    Duration::from_micros(round.wrapping_mul(7919) % 90_000 + 10_000)
}

#[test]
fn a_checkpoint_at_any_moment_is_right_whatever_becomes_of_the_tool() {
    let (driver, mut process) = reserved("48", &[]);
    let mut seen = [0; 4];
    for round in 0..50 {
        let rate = format!("reserve {} {CALM} --rate 400M --json", process.app.pid());
        let mut tool = RunningTool::start(&mut driver.tool(&rate));
        std::thread::sleep(moment(round));
        let kind = (round % 3) as usize;
        match kind {
            0 => tool.signal(libc::SIGSTOP),
            1 => tool.signal(libc::SIGKILL),
            _ => {}
        }
        let was_on = tool.runs();
        process.cycle();
        assert!(process.last("checkpoint").is_effective());
        tool.signal(libc::SIGCONT);
        let said = tool.wait();
        match (kind, said.code) {
            (1, _) => seen[1] += 1,
            // It found the record changed, or had been through before.
            (_, 5) => {
                let stopped = &only(&said)["stopped"];
                assert_eq!(stopped["why"], "checkpoint", "{said:?}");
                seen[kind] += u32::from(was_on);
            }
            // Not yet there when the checkpoint came: it says that there is no range, or fills the next one.
            (_, 0 | 4) => seen[3] += 1,
            _ => panic!("{said:?}"),
        }
        assert_eq!(process.app.wrong_words(), 0);
        let buffer = process.record().buffer;
        assert!(buffer.state.is("reserved"));
    }
    assert!(seen[..3].iter().all(|&count| count >= 3), "{seen:?}");
    assert!(
        process.steps_but(&[]).is_empty(),
        "{:?}",
        process.steps_but(&[])
    );
    assert_eq!(process.growth().threads, 0);
}

#[test]
fn it_stops_before_a_control_group_is_full() {
    let (driver, mut process) = reserved("128", &[]);
    let group = Group::new("memory");
    group.set("memory.limit_in_bytes", 96 << 20);
    group.take(process.app.pid());
    let call = format!(
        "reserve {} --margin 24M --pressure 100 --rate 0 --json",
        process.app.pid()
    );
    let said = driver.said(&call);
    assert_eq!(said.code, 5, "{said:?}");
    let one = only(&said);
    assert_eq!(one["stopped"]["why"], "memory");
    assert!(
        one["stopped"]["text"]
            .as_str()
            .unwrap()
            .contains("memory.limit_in_bytes"),
        "{one}"
    );
    let populated = one["populated"].as_u64().unwrap();
    assert!((16 << 20..=72 << 20).contains(&populated), "{one}");
    assert_eq!(group.number("memory.failcnt"), 0, "the limit was never met");
    // Somebody raises the limit, and the same command goes on from there.
    group.set("memory.limit_in_bytes", 512 << 20);
    let said = driver.said(&line(&process, "--json"));
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(only(&said)["resident"], process.record().buffer.length);
    process.cycle();
    assert!(process.last("checkpoint").kept);
    drop(process);
}

#[test]
fn it_stops_when_the_machine_is_short_or_others_wait() {
    let (driver, process) = reserved("32", &[]);
    let folder = Folder::new();
    let call = |place, file: &str, text: &str| {
        let file = folder.write(file, text);
        let pid = process.app.pid();
        let mut command = driver.tool(&format!("reserve {pid} --margin 64M --json"));
        fake(&mut command, &[(place, &file)]);
        Said::by(&mut command)
    };
    let said = call(
        "/proc/meminfo",
        "meminfo",
        &meminfo(&[("MemAvailable", 90_000)]),
    );
    assert_eq!(said.code, 5, "{said:?}");
    assert_eq!(only(&said)["stopped"]["why"], "memory");
    assert_eq!(only(&said)["populated"], 0);
    let pressed = "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\n";
    let said = call("/proc/pressure/memory", "pressure", pressed);
    assert_eq!(said.code, 5, "{said:?}");
    assert_eq!(only(&said)["stopped"]["why"], "pressure");
    assert_eq!(only(&said)["populated"], 0);
    assert_eq!(resident(&process, &process.record().buffer), 0);
}

#[test]
fn a_reserved_range_is_dropped_and_comes_again() {
    let (driver, mut process) = reserved("48", &[]);
    let buffer = process.record().buffer;
    driver.does(&line(&process, ""));
    let said = driver.must_say(&format!("drop {}", process.app.pid()));
    assert!(
        said.contains(" freed ") && said.contains("of a reserved buffer"),
        "{said}"
    );
    assert_eq!(resident(&process, &buffer), 0);
    let refused = driver.said(&line(&process, ""));
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.stderr.contains("dropped"), "{refused:?}");
    process.cycle();
    let record = process.record();
    assert!(record.drop == 0 && !record.last("checkpoint").unwrap().kept);
    driver.does(&line(&process, ""));
    process.cycle();
    assert!(process.last("checkpoint").kept);
    assert!(process.steps_but(&[]).is_empty());
}

#[test]
fn a_drop_in_the_middle_ends_it() {
    let (driver, process) = reserved("64", &[]);
    let slow = format!("reserve {} {CALM} --rate 16M --json", process.app.pid());
    let tool = RunningTool::start(&mut driver.tool(&slow));
    let buffer = process.record().buffer;
    until("a page", || resident(&process, &buffer) > 0);
    driver.does(&format!("drop {}", process.app.pid()));
    let said = tool.wait();
    assert_eq!(said.code, 5, "{said:?}");
    assert_eq!(only(&said)["stopped"]["why"], "dropped");
    // At most the part that was under way.
    assert!(resident(&process, &buffer) <= 2 << 20);
}

#[test]
fn without_a_range_it_says_what_to_do() {
    let driver = SimDriver::build(false);
    let mut keeps = Shimmed::start(&driver, &["16"], &[("CUDASNAP_BUFFER", "keep")]);
    keeps.cycle();
    let mut young = Shimmed::start(&driver, &["16"], &[RESERVE]);
    let refused = |process: &Shimmed| {
        let said = driver.said(&line(process, ""));
        assert_eq!((said.code, &*said.stdout), (4, ""), "{said:?}");
        said.stderr
    };
    assert!(refused(&keeps).contains("CUDASNAP_BUFFER=reserve"));
    assert!(refused(&young).contains("checkpoint and restore it once"));
    young.must("lock");
    young.must("checkpoint");
    assert!(refused(&young).contains("after the restore"));
    young.must("restore");
    young.must("unlock");
    driver.does(&format!("mode {} off", young.app.pid()));
    assert!(refused(&young).contains("mode PID on"));
    let mut plain = driver.command("simapp");
    let plain = App::start(plain.arg("16"));
    let said = driver.said(&format!("reserve {} --json", plain.pid()));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.json()["errors"][0]
        .as_str()
        .unwrap()
        .contains("not loaded"));
    assert_eq!(young.app.wrong_words(), 0);
}

/// A child of fork has the range too, and will never use it.
#[test]
fn the_range_of_a_forked_child_is_left_alone() {
    let (driver, mut process) = reserved("32", &[]);
    process.app.tell("child");
    let heard = process.app.hear();
    let child: i32 = heard
        .strip_prefix("child ")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let said = driver.said(&format!("reserve {child} {CALM} --rate 0"));
    assert_eq!((said.code, &*said.stdout), (4, ""), "{said:?}");
    assert!(said.stderr.contains("forked from the process"), "{said:?}");
    let tree = format!(
        "reserve --tree {} {CALM} --rate 0 --json",
        process.app.pid()
    );
    let said = driver.said(&tree);
    let buffer = process.record().buffer;
    let of_child = resident_bytes(
        Target::new(child),
        buffer.address,
        buffer.address + buffer.mapped,
    );
    assert_eq!(of_child.unwrap(), 0);
    assert_eq!(
        resident(&process, &buffer),
        buffer.length.next_multiple_of(2 << 20),
        "{said:?}"
    );
    process.cycle();
    assert!(process.last("checkpoint").kept);
    assert_eq!(process.app.wrong_words(), 0);
}

#[test]
fn several_processes_are_filled_in_turn() {
    let (driver, mut first) = reserved("32", &[]);
    let (_other, mut second) = reserved("40", &[]);
    let pids = [&first, &second].map(|process| process.app.pid());
    let call = format!("reserve {} {} {CALM} --rate 0 --json", pids[0], pids[1]);
    let said = driver.said(&call);
    assert_eq!(said.code, 0, "{said:?}");
    let json = said.json();
    assert_eq!((&json["schema"], &json["status"]), (&1.into(), &0.into()));
    for (line, process) in json["processes"]
        .as_array()
        .unwrap()
        .iter()
        .zip([&first, &second])
    {
        assert_eq!(line["pid"], process.app.pid());
        assert_eq!(line["resident"], process.record().buffer.length);
        assert!(line["stopped"].is_null());
    }
    first.must("lock");
    first.must("checkpoint");
    let said = driver.said(&call);
    assert_eq!(said.code, 3, "one of two: {said:?}");
    assert_eq!(said.json()["processes"][0]["pid"], pids[1]);
    first.must("restore");
    first.must("unlock");
    second.cycle();
    assert!(first.last("checkpoint").kept && second.last("checkpoint").kept);
    assert_eq!(first.app.wrong_words(), 0);
}

#[test]
fn its_rate_is_kept_and_a_signal_ends_it() {
    let (driver, mut process) = reserved("64", &[]);
    let slow = format!("reserve {} {CALM} --rate 32M --json", process.app.pid());
    let began = Instant::now();
    let tool = RunningTool::start(&mut driver.tool(&slow));
    std::thread::sleep(Duration::from_millis(600));
    tool.signal(libc::SIGTERM);
    let said = tool.wait();
    let took = began.elapsed().as_secs_f64();
    assert_eq!(said.code, 143, "{said:?}");
    let one = only(&said);
    assert_eq!(one["stopped"]["why"]["signal"], 15);
    let populated = one["populated"].as_u64().unwrap() as f64;
    // What it may catch up, and the first part.
    let most = (took + 0.05) * f64::from(32 << 20) + f64::from(2 << 20);
    assert!(
        populated > 0.0 && populated <= most,
        "{populated} in {took} s"
    );
    process.cycle();
}

#[test]
fn a_process_that_ends_is_told() {
    let (driver, process) = reserved("64", &[]);
    let pid = process.app.pid();
    let slow = format!("reserve {pid} {CALM} --rate 8M --json");
    let tool = RunningTool::start(&mut driver.tool(&slow));
    let buffer = process.record().buffer;
    until("a page", || resident(&process, &buffer) > 0);
    drop(process);
    let said = tool.wait();
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(only(&said)["stopped"]["why"], "ended");
    assert!(Target::new(pid as i32).mappings().is_err());
}

/// The addresses go where the next request does not fit, or where the program maps over them.
#[test]
fn hugetlb_pages_are_not_reserved() {
    let (driver, mut process) = {
        let driver = SimDriver::build(false);
        let environment = [RESERVE, ("CUDASNAP_PAGES", "hugetlb")];
        let mut process = Shimmed::start(&driver, &["32"], &environment);
        process.cycle();
        (driver, process)
    };
    let record = process.record();
    match record
        .last("checkpoint")
        .unwrap()
        .pages
        .to_string()
        .as_str()
    {
        // A pool that has the pages.
        "hugetlb" => {
            assert!(record.buffer.state.is("none"));
            assert_eq!(driver.said(&line(&process, "")).code, 4);
        }
        // Stepped down: then they are pages as others are.
        _ => {
            assert!(record.buffer.state.is("reserved"));
            driver.does(&line(&process, ""));
        }
    }
    process.cycle();
    assert!(process.steps_but(&[Step::NoHugetlb]).is_empty());
}

#[test]
fn a_process_of_another_user_is_refused() {
    let (driver, process) = reserved("32", &[]);
    let mut command: Command = driver.tool(&line(&process, ""));
    // The kernel takes root's rights with the user.
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let said = Said::by(&mut command);
    assert_eq!(said.code, 4, "{said:?}");
    assert_eq!(resident(&process, &process.record().buffer), 0);
}
