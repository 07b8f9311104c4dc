//! The drop-in for NVIDIA's `cuda-checkpoint`, on the simulated driver: what CRIU's CUDA plugin executes and parses, and what
//! people type.
//!
//! The plugin (CRIU 4.2) executes `cuda-checkpoint` from PATH, with stdout and stderr in one pipe:
//!
//! | arguments | what it takes from the output |
//! |---|---|
//! | `-h` | the first 2047 bytes contain `--action` |
//! | `--get-restore-tid --pid N` | exit 0: the whole output is one number; exit 1: a process without CUDA |
//! | `--get-state --pid TID` | begins with `running`, `locked` or `checkpointed`; it passes the restore thread's id |
//! | `--action lock --pid N --timeout MS` | exit 0 or not |
//! | `--action checkpoint \| restore \| unlock --pid N` | exit 0 or not |

use std::path::PathBuf;
use std::process::Command;

use cudasnap_shim_tests::simdriver::{App, SimDriver};
use cudasnap_shim_tests::tool::{binary, Said};

/// The binary under NVIDIA's name, in a folder of its own.
struct DropIn {
    driver: SimDriver,
    folder: PathBuf,
}

impl DropIn {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("cudasnap-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let installed = Command::new(binary())
            .arg("install-links")
            .arg(&folder)
            .output()
            .unwrap();
        assert!(installed.status.success(), "{installed:?}");
        DropIn {
            driver: SimDriver::build(false),
            folder,
        }
    }

    fn run(&self, line: &str) -> (i32, String, String) {
        let mut command = Command::new(self.folder.join("cuda-checkpoint"));
        command
            .args(line.split_whitespace())
            .env("LD_LIBRARY_PATH", &self.driver.library);
        Said::by(&mut command).parts()
    }

    fn must(&self, line: &str) -> String {
        let (code, stdout, stderr) = self.run(line);
        assert_eq!((code, stderr.as_str()), (0, ""), "{line}");
        stdout
    }

    fn state(&self, app: &App) -> String {
        self.must(&format!("--get-state --pid {}", app.pid()))
    }
}

impl Drop for DropIn {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn criu_gets_what_it_parses() {
    let tool = DropIn::new("criu");
    let mut app = tool.driver.app(&["32"], &[]);
    let pid = app.pid();
    let help = tool.must("-h");
    assert!(help[..help.len().min(2047)].contains("--action"));
    let tid: i32 = tool
        .must(&format!("--get-restore-tid --pid {pid}"))
        .trim_end()
        .parse()
        .unwrap();
    let name = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap();
    assert!(name.starts_with("cuda"), "{name}");
    assert_eq!(tool.state(&app), "running\n");
    for (action, state) in [
        ("lock --timeout 10000", "locked\n"),
        ("checkpoint", "checkpointed\n"),
        ("restore", "locked\n"),
        ("unlock", "running\n"),
    ] {
        let (action, more) = action.split_once(' ').unwrap_or((action, ""));
        assert_eq!(
            tool.must(&format!("--action {action} --pid {pid} {more}")),
            "",
            "{action}"
        );
        assert_eq!(tool.state(&app), state);
    }
    assert_eq!(app.wrong_words(), 0);
    let own = std::process::id();
    let (code, stdout, stderr) = tool.run(&format!("--get-restore-tid --pid {own}"));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert_eq!(
        stderr,
        format!("Could not find restore thread for process ID {own}\n")
    );
}

#[test]
fn toggle_goes_there_and_back() {
    let tool = DropIn::new("toggle");
    let mut app = tool.driver.app(&["32"], &[]);
    let line = format!("--toggle --pid {}", app.pid());
    for state in ["checkpointed\n", "running\n"] {
        assert_eq!(tool.must(&line), "");
        assert_eq!(tool.state(&app), state);
    }
    assert_eq!(app.wrong_words(), 0);
    tool.must(&format!("--action lock -p {}", app.pid()));
    let (code, _, stderr) = tool.run(&line);
    assert!(code == 1 && stderr.contains("it is locked"), "{stderr}");
}

#[test]
fn errors_have_nvidias_form_and_change_nothing() {
    let tool = DropIn::new("errors");
    let app = tool.driver.app(&["32"], &[]);
    let pid = app.pid();
    let me = std::process::id();
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    for (line, expected) in [
        (
            format!("--action unlock --pid {pid}"),
            format!("Could not unlock on process ID {pid}: \""),
        ),
        (
            format!("--action restore --pid {pid}"),
            format!("Could not restore on process ID {pid}: \""),
        ),
        (
            format!("--get-state --pid {me}"),
            format!("Error getting process state for process ID {me}: \""),
        ),
        (
            "--get-state --pid 2147483646".into(),
            "Error getting process state for process ID 2147483646: \"".into(),
        ),
        (
            format!("--toggle --pid {pid} --device-map {uuid}={uuid}"),
            "--device-map goes with the toggle that restores".into(),
        ),
        (
            format!("--toggle --pid {pid} --device-map 0=1"),
            "is no UUID of a GPU".into(),
        ),
        (
            format!("--action checkpoint --pid {pid} --timeout 5"),
            "--timeout goes with --action lock".into(),
        ),
        ("--toggle".into(), "--pid".into()),
        (
            format!("--toggle --action lock --pid {pid}"),
            "cannot be used with".into(),
        ),
    ] {
        let (code, stdout, stderr) = tool.run(&line);
        assert_eq!((code, stdout.as_str()), (1, ""), "{line}");
        assert!(stderr.contains(&expected), "{line}: {stderr}");
    }
    assert_eq!(tool.state(&app), "running\n");
}

#[test]
fn a_toggle_whose_checkpoint_fails_does_not_leave_it_locked() {
    let tool = DropIn::new("failing");
    let mut app = tool
        .driver
        .app(&["32"], &[("CUDASIM_FAULT", "copy:1,phase=checkpoint")]);
    let (code, _, stderr) = tool.run(&format!("--toggle --pid {}", app.pid()));
    assert!(
        code == 1 && stderr.contains("Could not checkpoint on process ID"),
        "{stderr}"
    );
    assert_eq!(tool.state(&app), "running\n");
    assert_eq!(app.wrong_words(), 0);
}

#[test]
fn links_are_made_once_and_overwrite_nothing() {
    let tool = DropIn::new("links");
    let again = Command::new(binary())
        .arg("install-links")
        .arg(&tool.folder)
        .output()
        .unwrap();
    assert!(
        again.status.success()
            && String::from_utf8_lossy(&again.stdout).contains("is there already")
    );
    let link = tool.folder.join("cuda-checkpoint");
    std::fs::remove_file(&link).unwrap();
    std::fs::write(&link, "NVIDIA's").unwrap();
    let refused = Command::new(binary())
        .arg("install-links")
        .arg(&tool.folder)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(&link).unwrap(), "NVIDIA's");
}

#[test]
fn a_job_needs_a_driver_that_knows_jobs() {
    let tool = DropIn::new("job");
    // Where there is no driver, or one before 590.
    let (code, stdout, stderr) = tool.run("-j echo -n started");
    if code == 1 {
        assert!(stderr.contains("needs driver 590"), "{stderr}");
        assert!(!tool.must("--help").contains("--launch-job"));
    } else {
        assert_eq!((code, stdout.as_str()), (0, "started"), "{stderr}");
        assert!(tool.must("--help").contains("--launch-job"));
    }
}
