//! The scripts of `examples/` that drive a server, run as they are: the runbook in every way that a restore can go, and CRIU's dump and
//! restore without its plugin.

use std::path::PathBuf;
use std::process::Command;

use cudasnap_shim_tests::folder::Folder;
use cudasnap_shim_tests::simdriver::{repository, SimDriver};
use cudasnap_shim_tests::standing::{end_child, lives, Pipes, Standing};
use cudasnap_shim_tests::steps;
use cudasnap_shim_tests::tool::{binary, until, RunningTool, Said};

/// A script of `examples/`.
fn example(name: &str) -> Command {
    cleanly(Command::new(path(name)))
}

fn path(name: &str) -> PathBuf {
    repository().join("examples").join(name)
}

/// With nothing of the caller's that would change what a script does.
fn cleanly(mut command: Command) -> Command {
    for (name, _) in std::env::vars() {
        if name.starts_with("CUDASNAP") || name.starts_with("CUDASIM") || name == "LD_PRELOAD" {
            command.env_remove(name);
        }
    }
    command.env("TOOL", binary());
    command
}

mod runbook {
    use std::time::Duration;

    use cudasnap_shim_tests::watchdog::Watchdog;

    use super::*;

    /// All limits of a runbook together are less.
    const LIMIT: Duration = Duration::from_secs(240);

    /// A server, a place for the one that replaces it, and what the runbook is told.
    struct Site {
        driver: SimDriver,
        folder: Folder,
        old: Standing,
        /// Those of the server that is started cold.
        new: Pipes,
    }

    /// What the old server's command gets beforehand.
    type Change = fn(&mut Command);

    fn nothing(_: &mut Command) {}

    impl Site {
        /// A server that is checkpointed.
        fn checkpointed(change: Change) -> Self {
            let site = Self::running(change);
            site.driver.does(&format!("checkpoint {}", site.old.pid()));
            site
        }

        fn running(change: Change) -> Self {
            let driver = SimDriver::build(false);
            let folder = Folder::new();
            let old = Standing::start(&driver, &folder.file("old"), change);
            let new = Pipes::new(&folder.file("new"));
            Site {
                driver,
                folder,
                old,
                new,
            }
        }

        /// Ends with 0 when the server that should be there answers, and says that its contents are right: the new one if one was started.
        fn health(&self) -> String {
            let folder = self.folder.path().display();
            let script = format!(
                "[ ! -e {folder}/unhealthy ] || [ -e {folder}/cold ] || exit 1\n\
                 at=old; [ ! -e {folder}/cold ] || at=new\n\
                 exec 3<>{folder}/$at/in 4<>{folder}/$at/out\n\
                 echo sum >&3; while read -r line <&4; do\n\
                 case $line in 'bad 0') exit 0 ;; bad*) exit 1 ;; esac; done"
            );
            let path = self.folder.write("health", &script);
            format!("bash {}", path.display())
        }

        /// A cold start as a service manager would write it.
        fn start(&self) -> String {
            let folder = self.folder.path().display();
            let simapp = self.driver.programs.join("simapp");
            format!(
                "touch {folder}/cold; exec {} run --lib {} -- {} 32 <>{folder}/new/in >{folder}/new/out 2>/dev/null",
                binary().display(),
                cudasnap_shim_tests::shimmed::library().display(),
                simapp.display()
            )
        }

        /// The script, with short limits, and more options.
        fn runbook(&self, options: &[&str]) -> Command {
            let mut command = example("runbook/restore-or-cold-start");
            command.env("LD_LIBRARY_PATH", &self.driver.library);
            command.args(["--health", &self.health(), "--start", &self.start()]);
            command.args([
                "--room",
                "2",
                "--healthy",
                "60",
                "--cold",
                "60",
                "--grace",
                "2",
            ]);
            command.arg("--keep").arg(self.folder.file("evidence"));
            command.arg("--pid-file").arg(self.pid_file());
            command.args(options).arg(self.old.pid().to_string());
            command
        }

        /// Runs it to its end, which must come in time: else the server that it waits for is killed.
        fn says(&self, command: &mut Command) -> Said {
            let limit = Watchdog::new("the runbook", self.old.pid() as i32, LIMIT);
            let said = Said::by(command);
            assert!(!limit.has_fired(), "{said:?}");
            said
        }

        fn pid_file(&self) -> PathBuf {
            self.folder.file("pid")
        }

        /// The old server came back, and nothing else was done.
        fn is_restored(&mut self, said: &Said) {
            assert_eq!(said.code, 0, "{said:?}");
            assert!(self.old.lives() && self.old.is_right());
            assert_eq!(
                self.driver.must_say(&format!("state {}", self.old.pid())),
                "running\n"
            );
            assert!(!self.folder.file("cold").exists());
            assert!(!self.folder.file("evidence").exists());
        }

        /// The old server is gone, the new one is right, and what was known of the old one was kept.
        fn is_cold(&mut self, said: &Said) {
            assert_eq!(said.code, 10, "{said:?}");
            assert!(!self.old.lives(), "{said:?}");
            let pid = std::fs::read_to_string(self.pid_file()).expect("a number");
            let pid = pid.trim().parse().expect("a number");
            assert!(lives(pid));
            let mut answer = self.new.ask("sum", pid);
            // What it said when it began, unless the question of its health has heard it.
            while answer.starts_with("ready") {
                answer = self.new.hear(pid);
            }
            end_child(pid);
            assert_eq!(answer, "bad 0");
            let kept = std::fs::read_dir(self.folder.file("evidence")).expect("evidence");
            let kept = kept.flatten().next().expect("evidence").path();
            for name in ["restore.txt", "status.json", "states.txt", "doctor.txt"] {
                assert!(kept.join(name).exists(), "{name}");
            }
        }

        fn evidence(&self, name: &str) -> String {
            let kept = std::fs::read_dir(self.folder.file("evidence")).expect("evidence");
            let kept = kept.flatten().next().expect("evidence").path();
            std::fs::read_to_string(kept.join(name)).expect("a file")
        }
    }

    /// What a caller's environment does to restores: each fails.
    const FAILS: (&str, &str) = ("CUDASIM_FAULT", "copy:middle,phase=restore");

    #[test]
    fn a_restore_that_works() {
        let mut site = Site::checkpointed(nothing);
        let said = site.says(&mut site.runbook(&[]));
        site.is_restored(&said);
    }

    /// Somebody else has restored it, or has ended a restore between its two steps.
    #[test]
    fn a_server_that_runs_or_is_locked() {
        let mut site = Site::running(nothing);
        let said = site.says(&mut site.runbook(&[]));
        site.is_restored(&said);
        site.driver.does(&format!("lock {}", site.old.pid()));
        let said = site.says(&mut site.runbook(&[]));
        site.is_restored(&said);
    }

    #[test]
    fn a_restore_that_fails_once_is_tried_again() {
        let mut site = Site::checkpointed(|command| {
            command.env(FAILS.0, FAILS.1);
        });
        let said = site.says(&mut site.runbook(&[]));
        site.is_restored(&said);
        assert!(
            said.stderr.contains("try 1 of 2 failed with status 1"),
            "{said:?}"
        );
    }

    #[test]
    fn a_restore_that_fails_always_ends_in_a_cold_start() {
        let mut site = Site::checkpointed(nothing);
        let said = site.says(site.runbook(&[]).env(FAILS.0, FAILS.1));
        site.is_cold(&said);
        assert!(
            said.stderr.contains("try 2 of 2 failed with status 1"),
            "{said:?}"
        );
        assert_eq!(site.evidence("states.txt"), "checkpointed\n");
        assert!(site.evidence("restore.txt").contains("restore failed"));
    }

    #[test]
    fn the_contents_of_device_memory_are_saved_when_asked_for() {
        let mut site = Site::checkpointed(nothing);
        let save = site.folder.file("save");
        let mut command = site.runbook(&["--save", save.to_str().expect("text")]);
        let said = site.says(command.env(FAILS.0, FAILS.1));
        site.is_cold(&said);
        let image = save.join(format!("{}.image", site.old.pid()));
        let length = std::fs::metadata(image).expect("an image").len();
        assert!(length > 32 << 20, "{length}");
    }

    #[test]
    fn a_server_that_is_not_healthy_after_its_restore_is_replaced() {
        let mut site = Site::checkpointed(nothing);
        site.folder.write("unhealthy", "");
        let said = site.says(&mut site.runbook(&["--healthy", "1"]));
        site.is_cold(&said);
        assert!(
            said.stderr.contains("restored, and not healthy within 1 s"),
            "{said:?}"
        );
        assert_eq!(site.evidence("states.txt"), "running\n");
    }

    /// A tool that finds no room on the GPU so many times.
    fn without_room(site: &Site, times: u32) -> PathBuf {
        let count = site.folder.write("left", &times.to_string());
        let count = count.display();
        let script = format!(
            "#!/bin/sh\nleft=$(cat {count})\nif [ \"$1\" = restore ] && [ $left -gt 0 ]; then\n\
             echo $((left - 1)) >{count}; export CUDASIM_FOREIGN_MIB=65536\nfi\nexec {} \"$@\"\n",
            binary().display()
        );
        let path = site.folder.write("tool", &script);
        let made = Command::new("chmod").arg("+x").arg(&path).status();
        assert!(made.is_ok_and(|status| status.success()));
        path
    }

    #[test]
    fn room_is_waited_for() {
        let mut site = Site::checkpointed(nothing);
        let tool = without_room(&site, 2);
        let said = site.says(site.runbook(&["--room", "60"]).env("TOOL", tool));
        site.is_restored(&said);
        assert_eq!(
            said.stderr.matches("nothing was done").count(),
            2,
            "{said:?}"
        );
    }

    #[test]
    fn room_that_does_not_come_ends_in_a_cold_start() {
        let mut site = Site::checkpointed(nothing);
        let tool = without_room(&site, 1000);
        let said = site.says(site.runbook(&[]).env("TOOL", tool));
        site.is_cold(&said);
        assert!(said.stderr.contains("still refused after 2 s"), "{said:?}");
    }

    /// A server that hears no SIGTERM, in a restore that does not end.
    #[test]
    fn a_restore_that_hangs_and_a_server_that_does_not_end() {
        let mut site = Site::checkpointed(|command| {
            use std::os::unix::process::CommandExt;
            // SAFETY: `signal` may be called between fork and exec, and touches no memory.
            unsafe {
                command.pre_exec(|| {
                    libc::signal(libc::SIGTERM, libc::SIG_IGN);
                    Ok(())
                })
            };
        });
        let mut command = site.runbook(&["--limit", "2"]);
        let said = site.says(command.env("CUDASIM_FAULT", "pause=600000@3"));
        site.is_cold(&said);
        assert!(said.stderr.contains("took longer than 2 s"), "{said:?}");
        assert!(said.stderr.contains("SIGKILL"), "{said:?}");
    }

    #[test]
    fn a_server_that_is_gone() {
        let mut site = Site::checkpointed(nothing);
        end_child(site.old.pid());
        let said = site.says(&mut site.runbook(&[]));
        site.is_cold(&said);
        assert!(said.stderr.contains("no other try"), "{said:?}");
    }

    #[test]
    fn a_cold_start_that_ends_or_never_gets_healthy() {
        for (start, why) in [
            ("exit 3", "the new server has ended"),
            (
                // Nobody who waits for the script's output is to wait for the server.
                "exec sleep 600 >/dev/null 2>&1",
                "not healthy after 1 s",
            ),
        ] {
            let site = Site::checkpointed(nothing);
            let mut command = site.runbook(&["--start", start, "--cold", "1"]);
            let said = site.says(command.env(FAILS.0, FAILS.1));
            let pid = std::fs::read_to_string(site.pid_file()).expect("a number");
            end_child(pid.trim().parse().expect("a number"));
            assert_eq!(said.code, 1, "{said:?}");
            assert!(said.stderr.contains(why), "{said:?}");
        }
    }

    /// The restore that is under way is finished, and nothing is ended.
    #[test]
    fn a_signal_ends_the_runbook_and_no_server() {
        let mut site = Site::checkpointed(nothing);
        let mut command = site.runbook(&[]);
        // Long enough to be met.
        let running = RunningTool::start(command.env("CUDASIM_FAULT", "pause=15000@3"));
        let pid = site.old.pid();
        until("the restore", || {
            let said = site.driver.said(&format!("status --json {pid}"));
            said.code == 0 && said.json()["processes"][0]["state"] != "checkpointed"
        });
        running.signal(libc::SIGTERM);
        let said = running.wait();
        assert_eq!(said.code, 128 + libc::SIGTERM, "{said:?}");
        site.is_restored(&Said { code: 0, ..said });
    }

    #[test]
    fn a_command_line_that_is_not_understood_touches_nothing() {
        let site = Site::checkpointed(nothing);
        let pid = site.old.pid().to_string();
        for arguments in [
            &["--health", "true", "--start", "true"][..],
            &["--health", "true", &pid],
            &["--start", "true", &pid],
            &["--health", "true", "--start", "true", "--no-such", &pid],
            &["--health", "true", "--start", "true", "one"],
            &["--health"],
        ] {
            let said = Said::by(example("runbook/restore-or-cold-start").args(arguments));
            assert_eq!(said.code, 2, "{arguments:?}: {said:?}");
        }
        let said = site.says(site.runbook(&[]).env("TOOL", "/nowhere/cudasnap"));
        assert_eq!(said.code, 2, "{said:?}");
        assert!(site.old.lives());
        assert_eq!(
            site.driver.must_say(&format!("state {pid}")),
            "checkpointed\n"
        );
    }
}

mod active {
    use super::*;

    fn words(driver: &SimDriver, arguments: &[&str]) -> (i32, String) {
        let mut command = example("runbook/is-active");
        command.args(arguments);
        let said = Said::by(command.env("LD_LIBRARY_PATH", &driver.library));
        (said.code, said.stdout)
    }

    #[test]
    fn a_server_under_the_library_before_and_after_its_first_cycle() {
        let driver = SimDriver::build(false);
        let folder = Folder::new();
        let server = Standing::start(&driver, &folder.file("pipes"), |_| ());
        let pid = server.pid().to_string();
        assert_eq!(words(&driver, &[&pid]), (0, "never-used\n".into()));
        assert_eq!(
            words(&driver, &["--copied", &pid]),
            (1, "never-used\n".into())
        );
        driver.does(&format!("checkpoint {pid}"));
        driver.does(&format!("restore {pid}"));
        for arguments in [&[&*pid][..], &["--copied", &pid]] {
            assert_eq!(words(&driver, arguments), (0, "active\n".into()));
        }
    }

    #[test]
    fn a_command_line_that_is_not_understood_is_answered_with_the_usage() {
        let said = |arguments: &[&str]| Said::by(example("runbook/is-active").args(arguments));
        for arguments in [&["-h"][..], &["--help"]] {
            let said = said(arguments);
            assert_eq!((said.code, &*said.stderr), (0, ""), "{arguments:?}");
            assert!(said.stdout.contains("is-active --copied PID..."));
        }
        for arguments in [&[][..], &["--copied"], &["--no-such", "1"], &["one"]] {
            let said = said(arguments);
            assert_eq!((said.code, &*said.stdout), (2, ""), "{arguments:?}");
            assert!(said.stderr.contains("is-active PID..."), "{said:?}");
        }
    }

    /// The servers are children of this process: named together they are a tree in which one does without.
    #[test]
    fn one_without_the_library_is_enough() {
        let driver = SimDriver::build(false);
        let folder = Folder::new();
        let with = Standing::start(&driver, &folder.file("with"), |_| ());
        let without = driver.app(&["16"], &[]);
        let (with, without) = (with.pid().to_string(), without.pid().to_string());
        assert_eq!(words(&driver, &[&with, &without]).0, 1);
        assert_eq!(words(&driver, &[&without]).0, 1);
        assert_eq!(words(&driver, &[&with]).0, 0);
    }

    #[test]
    fn a_process_without_cuda_is_none() {
        let driver = SimDriver::build(false);
        let own = std::process::id().to_string();
        assert_ne!(words(&driver, &[&own, "4194304"]).0, 0);
        assert_ne!(words(&driver, &["--copied"]).0, 0);
    }
}

/// As packages and images have them: beside the tool, in a folder that PATH need not have.
mod installed {
    use super::*;

    #[test]
    fn a_script_takes_the_tool_beside_it() {
        let folder = Folder::new();
        folder.write(
            "cudasnap",
            "#!/bin/sh\necho \"{\\\"activity\\\":\\\"active\\\"}\"\necho \"beside: $*\" >&2\n",
        );
        for name in [
            "runbook/is-active",
            "runbook/restore-or-cold-start",
            "criu/dump-and-restore",
        ] {
            let to = folder.file(name.rsplit('/').next().expect("a name"));
            std::fs::copy(path(name), to).expect("a copy");
        }
        let made = Command::new("chmod")
            .arg("+x")
            .arg(folder.file("cudasnap"))
            .status();
        assert!(made.is_ok_and(|status| status.success()));
        let own = std::process::id().to_string();
        let images = folder.file("images");
        for arguments in [
            &["is-active", &own][..],
            &[
                "restore-or-cold-start",
                "--health",
                "true",
                "--start",
                "true",
                &own,
            ],
            &[
                "dump-and-restore",
                "restore",
                images.to_str().expect("text"),
            ],
        ] {
            let mut command = cleanly(Command::new(folder.file(arguments[0])));
            command.args(&arguments[1..]).env_remove("TOOL");
            let said = Said::by(command.env("CRIU", "false"));
            assert!(said.stderr.contains("beside: "), "{said:?}");
        }
    }
}

mod criu {
    use cudasnap_shim_tests::images::criu::criu;

    use super::*;

    fn script(driver: &SimDriver, arguments: &[&str]) -> Command {
        let mut command = cleanly(Command::new("timeout"));
        command.args(["--signal=KILL", "120"]);
        command.arg(path("criu/dump-and-restore"));
        command
            .env("LD_LIBRARY_PATH", &driver.library)
            .env("CRIU", criu());
        command.args(arguments);
        command
    }

    fn phases_are_covered(driver: &SimDriver, pid: u32, count: usize) {
        let status = Said::by(&mut driver.tool(&format!("status --json {pid}"))).json();
        let record = &status["processes"][0]["library"]["record"];
        let history = record["history"].as_array().expect("phases");
        assert_eq!(history.len(), count);
        for phase in history {
            assert_eq!(phase["end"], "covered", "{phase}");
            assert_eq!(phase["copied"], phase["expected"], "{phase}");
        }
        assert_eq!(steps::listed(&record["counters"]["steps"]), []);
    }

    /// With a kept buffer, which is dropped before the dump.
    #[test]
    #[ignore = "needs CRIU"]
    fn a_server_goes_into_files_and_comes_back_twice() {
        let driver = SimDriver::build(false);
        let folder = Folder::in_target();
        let mut server = Standing::start(&driver, &folder.file("pipes"), |command| {
            command.env("CUDASNAP_BUFFER", "keep");
        });
        let pid = server.pid().to_string();
        driver.does(&format!("checkpoint {pid}"));
        driver.does(&format!("restore {pid}"));
        for round in 1..=2 {
            let images = folder.file(&format!("images-{round}"));
            let images = images.to_str().expect("text");
            let said = Said::by(&mut script(&driver, &["dump", &pid, images]));
            assert_eq!(said.code, 0, "{said:?}");
            assert!(said.stdout.contains("freed"), "{said:?}");
            assert!(!server.lives());
            server.collect();
            let said = Said::by(&mut script(&driver, &["restore", images]));
            assert_eq!(said.code, 0, "{said:?}");
            assert!(server.is_right());
            phases_are_covered(&driver, server.pid(), 2 + 2 * round);
        }
    }

    #[test]
    #[ignore = "needs CRIU"]
    fn after_a_dump_that_fails_the_server_runs_on() {
        let driver = SimDriver::build(false);
        let folder = Folder::in_target();
        let mut server = Standing::start(&driver, &folder.file("pipes"), |_| ());
        let pid = server.pid().to_string();
        let images = folder.file("images");
        let images = images.to_str().expect("text");
        // An option that CRIU does not have.
        let mut command = script(&driver, &["dump", &pid, images]);
        let said = Said::by(command.env("CRIU_OPTIONS", "--no-such-option"));
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.stderr.contains("runs on"), "{said:?}");
        assert!(server.is_right());
        phases_are_covered(&driver, server.pid(), 2);
    }

    #[test]
    #[ignore = "needs CRIU"]
    fn another_library_at_the_path_is_refused_before_anything_is_restored() {
        let driver = SimDriver::build(false);
        let folder = Folder::in_target();
        let own = folder.file("libcudasnap.so");
        std::fs::copy(cudasnap_shim_tests::shimmed::library(), &own).expect("a library");
        let mut server = Standing::start(&driver, &folder.file("pipes"), |command| {
            command.env("CUDASNAP_LIB", folder.file("libcudasnap.so"));
        });
        let pid = server.pid().to_string();
        let images = folder.file("images");
        let images = images.to_str().expect("text");
        assert_eq!(
            Said::by(&mut script(&driver, &["dump", &pid, images])).code,
            0
        );
        server.collect();
        std::fs::rename(&own, folder.file("away")).expect("a library");
        let said = Said::by(&mut script(&driver, &["restore", images]));
        assert_eq!(said.code, 4, "{said:?}");
        assert!(!server.lives());
        std::fs::rename(folder.file("away"), &own).expect("a library");
        let said = Said::by(&mut script(&driver, &["restore", images]));
        assert_eq!(said.code, 0, "{said:?}");
        assert!(server.is_right());
    }

    #[test]
    #[ignore = "needs CRIU"]
    fn what_cannot_be_dumped_is_refused_before_anything_is_touched() {
        let driver = SimDriver::build(false);
        let folder = Folder::in_target();
        let mut server = Standing::start(&driver, &folder.file("pipes"), |_| ());
        let pid = server.pid().to_string();
        let there = folder.path().to_str().expect("text");
        for (arguments, status) in [
            (&["dump", &pid, there][..], 4),
            (&["dump", "4194304", "/nowhere"], 4),
            (&["dump", &pid], 2),
            (&["restore"], 2),
            (&["restore", there], 1),
            (&[], 2),
        ] {
            let said = Said::by(&mut script(&driver, arguments));
            assert_eq!(said.code, status, "{arguments:?}: {said:?}");
        }
        assert!(server.is_right());
        assert_eq!(driver.must_say(&format!("state {pid}")), "running\n");
    }
}
