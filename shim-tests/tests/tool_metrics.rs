//! `cudasnap metrics`, read by a strict reader of the format.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use cudasnap_shim_tests::exposition::Exposition;
use cudasnap_shim_tests::folder::Folder;
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::tool::Said;

fn metrics(driver: &SimDriver, arguments: &str) -> (Said, Exposition) {
    let said = driver.said(&format!("metrics {arguments}"));
    let read = Exposition::read(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    (said, read)
}

#[test]
fn what_the_record_says_is_there() {
    let driver = SimDriver::build(false);
    let environment = [("CUDASNAP_BUFFER", "keep"), ("CUDASNAP_LOG", "loud")];
    let mut process = Shimmed::start(&driver, &["64"], &environment);
    process.cycle();
    process.cycle();
    let fresh = Shimmed::start(&driver, &["16"], &[("CUDASNAP", "observe")]);
    let (pid, other) = (process.app.pid().to_string(), fresh.app.pid().to_string());
    let (said, read) = metrics(&driver, &format!("{pid} {other}"));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let record = process.record();
    let of = |name: &str, more: &[(&str, &str)]| {
        let labels = [&[("pid", pid.as_str()), ("name", "simapp")], more].concat();
        read.value(&format!("cudasnap_{name}"), &labels)
    };
    assert_eq!(of("phases_total", &[]), 4.0);
    assert_eq!(
        of("buffer_requests_total", &[]),
        record.counters.requests as f64
    );
    assert_eq!(of("buffer_requests_answered_total", &[]), 2.0);
    assert_eq!(of("complaints_total", &[]), 1.0);
    assert_eq!(of("cuda_initialised", &[]), 1.0);
    assert_eq!(of("library_info", &[("build_id", &record.build_id)]), 1.0);
    assert_eq!(of("buffer_state", &[("state", "kept")]), 1.0);
    assert_eq!(of("buffer_state", &[("state", "none")]), 0.0);
    assert_eq!(of("buffer_bytes", &[]), record.buffer.length as f64);
    assert_eq!(of("mode", &[("mode", "on")]), 1.0);
    for direction in ["checkpoint", "restore"] {
        let phase = record.last(direction).unwrap();
        let of = |name: &str, more: &[(&str, &str)]| {
            of(
                &format!("last_phase_{name}"),
                &[&[("direction", direction)], more].concat(),
            )
        };
        assert_eq!(of("bytes", &[]), phase.expected as f64);
        assert_eq!(of("copied_bytes", &[]), phase.copied as f64);
        assert_eq!(of("effective", &[]), 1.0);
        assert_eq!(of("kept", &[]), f64::from(u8::from(phase.kept)));
        assert_eq!(of("threads", &[]), f64::from(phase.threads));
        assert_eq!(of("duration_seconds", &[]), phase.total_ns as f64 / 1e9);
        assert_eq!(
            of("piece_seconds", &[("piece", "copying")]),
            phase.copying_ns as f64 / 1e9
        );
        let pages = phase.pages.to_string();
        assert_eq!(of("pages", &[("pages", &pages)]), 1.0);
    }
    for step in &record.counters.steps {
        assert_eq!(
            of("steps_down_total", &[("reason", step.name)]),
            f64::from(step.value)
        );
    }
    let never = [("pid", pid.as_str()), ("reason", "panic")];
    assert_eq!(read.value("cudasnap_steps_down_total", &never), 0.0);
    // The other one has had no phase.
    let of_other = [("pid", other.as_str())];
    assert!(read.find("cudasnap_last_phase_bytes", &of_other).is_empty());
    assert_eq!(
        read.value("cudasnap_mode", &[("pid", &other), ("mode", "observe")]),
        1.0
    );
    assert_eq!(
        read.value("cudasnap_scrape_processes", &[("result", "read")]),
        2.0
    );
}

#[test]
fn who_is_gone_is_left_out_and_counted() {
    let driver = SimDriver::build(false);
    let process = Shimmed::start(&driver, &["16"], &[]);
    let gone = Shimmed::start(&driver, &["16"], &[]);
    let (pid, dead) = (process.app.pid(), gone.app.pid());
    drop(gone);
    let (said, read) = metrics(&driver, &format!("{dead} {pid}"));
    assert_eq!(said.code, 0, "some were read: {said:?}");
    assert_eq!(
        read.value("cudasnap_scrape_processes", &[("result", "ended")]),
        1.0
    );
    assert_eq!(read.values_of("pid"), [pid.to_string().as_str()].into());
    let (said, read) = metrics(&driver, &dead.to_string());
    assert_eq!(said.code, 1);
    assert_eq!(
        read.value("cudasnap_scrape_processes", &[("result", "read")]),
        0.0
    );
}

#[test]
fn who_has_no_library_is_told_when_named_and_left_out_of_all() {
    let driver = SimDriver::build(false);
    let stock = driver.app(&["16"], &[]);
    let process = Shimmed::start(&driver, &["16"], &[]);
    let (pid, without) = (process.app.pid().to_string(), stock.pid().to_string());
    let (said, read) = metrics(&driver, &format!("{without} {pid}"));
    assert_eq!(said.code, 0);
    assert!(
        said.stderr.contains("the library is not loaded"),
        "{said:?}"
    );
    assert_eq!(
        read.value("cudasnap_scrape_processes", &[("result", "failed")]),
        1.0
    );
    let (said, read) = metrics(&driver, "--all");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        !said.stderr.contains(&without),
        "nobody has asked for it: {said:?}"
    );
    let pids = read.values_of("pid");
    assert!(
        pids.contains(pid.as_str()) && !pids.contains(without.as_str()),
        "{pids:?}"
    );
    assert_eq!(driver.said("metrics").code, 2);
}

#[test]
fn a_tree_stands_for_all_below() {
    let driver = SimDriver::build(false);
    let process = Shimmed::start(&driver, &["16"], &[]);
    let own = std::process::id();
    let (said, read) = metrics(&driver, &format!("--tree {own}"));
    assert_eq!(said.code, 0, "{said:?}");
    let pid = process.app.pid().to_string();
    assert!(read.values_of("pid").contains(pid.as_str()));
}

/// Whoever reads at any moment finds a whole file.
#[test]
fn a_file_is_never_half_written() {
    let driver = SimDriver::build(false);
    let process = Shimmed::start(&driver, &["16"], &[]);
    let folder = Folder::new();
    let path = folder.file("cudasnap.prom");
    let line = format!("metrics {} --output {}", process.app.pid(), path.display());
    driver.does(&line);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut read = 0;
            while !stop.load(Ordering::Relaxed) || read == 0 {
                let text = std::fs::read_to_string(&path).expect("it is always there");
                Exposition::read(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
                read += 1;
            }
        });
        for _ in 0..20 {
            driver.does(&line);
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    let names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .map(|f| f.file_name())
        .collect();
    assert_eq!(names, ["cudasnap.prom"], "nothing is left beside it");
    let said = driver.said(&format!(
        "metrics --all --output {}/none/x.prom",
        folder.path().display()
    ));
    assert_eq!(said.code, 1);
    assert!(
        said.stderr.contains("none/x.prom: No such file"),
        "{said:?}"
    );
}

/// The driver is not even loaded: a file that is no library stands in its place.
#[test]
fn cuda_is_not_initialised() {
    let driver = SimDriver::build(false);
    let process = Shimmed::start(&driver, &["16"], &[]);
    let folder = Folder::new();
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        folder.write(name, "no library");
    }
    let mut command: Command = driver.tool(&format!("metrics {}", process.app.pid()));
    let said = Said::by(command.env("LD_LIBRARY_PATH", folder.path()));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.contains("cudasnap_phases_total"));
}
