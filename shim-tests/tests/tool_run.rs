//! `cudasnap run`: the program finds everything as it was, and the library in front.

mod run_world;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cudasnap_cli::process::target::Target;
use cudasnap_cli::record::view::RecordView;
use cudasnap_cli::record::Located;
use cudasnap_cli::run::options::understands;
use cudasnap_shim_tests::shimmed::library;
use cudasnap_shim_tests::simdriver::{App, SimDriver};
use cudasnap_shim_tests::tool::{binary, Said};
use cudasnap_wire::{OptionSpec, OPTIONS};
use run_world::{clean, run, text, tool, Folder};

/// A shell that has said `ready` and waits; killed on drop.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Waiting {
    fn start(command: &mut Command) -> Self {
        let command = command.args(["sh", "-c", "echo ready; read x"]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut waiting = Waiting(command.spawn().unwrap());
        let mut line = String::new();
        let stdout = waiting.0.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        waiting
    }

    fn record(&self) -> RecordView {
        let found = Located::find(Target::new(self.0.id() as i32));
        found
            .and_then(|record| record.read())
            .expect("the shim's record")
    }
}

/// The loader takes a line end as it stands; its listing has it too.
#[test]
fn a_library_below_a_folder_with_a_line_end_is_loaded() {
    let folder = Folder::new();
    std::fs::create_dir(folder.at("a\nb")).unwrap();
    let copy = folder.copy("a\nb/libcudasnap.so", &library());
    let said = run(&[
        "--lib",
        text(&copy),
        "--require",
        "--",
        "sh",
        "-c",
        "echo \"$LD_PRELOAD\"",
    ]);
    assert_eq!(
        said.parts(),
        (0, format!("{}\n", copy.display()), String::new())
    );
}

#[test]
fn options_arrive_in_the_record_of_the_same_process() {
    let driver = SimDriver::build(false);
    let folder = Folder::new();
    let mut command = driver.tool(
        "run --mode observe --threads 3 --pages 4k --buffer keep --keep-max 8M --log off --report",
    );
    clean(&mut command);
    command
        .arg(folder.at("report.json"))
        .arg("--")
        .arg(driver.programs.join("simapp"))
        .arg("16");
    // `start` compares the process's own id with that of the child.
    let mut app = App::start(&mut command);
    let record = Located::find(Target::new(app.pid() as i32)).unwrap();
    assert_eq!(
        Path::new(record.library()),
        library().canonicalize().unwrap()
    );
    let view = record.read().unwrap();
    let options = &view.options;
    assert!(
        options.mode.is("observe") && options.pages.is("4k"),
        "{options:?}"
    );
    assert_eq!(
        (options.threads, options.keep, options.keep_max),
        (3, true, 8 << 20)
    );
    assert_eq!((options.log, options.report), (0, true));
    assert!(view.complaints.is_empty());
    assert_eq!(app.wrong_words(), 0);
}

#[test]
fn a_program_started_by_it_is_checkpointed_and_restored_by_the_library() {
    let driver = SimDriver::build(false);
    let mut command = driver.tool("run --require --");
    clean(&mut command)
        .arg(driver.programs.join("simapp"))
        .arg("32");
    let mut app = App::start(&mut command);
    assert_eq!(driver.control("cycle", app.pid(), &[]).code, 0);
    assert_eq!(app.wrong_words(), 0);
    let view = Located::find(Target::new(app.pid() as i32))
        .unwrap()
        .read()
        .unwrap();
    for direction in ["checkpoint", "restore"] {
        assert!(view.last(direction).unwrap().is_effective(), "{direction}");
    }
}

/// The library and `run` read the same values: rows of one value per option, given to both.
#[test]
fn run_and_the_library_understand_the_same_values() {
    let long = |length: usize| format!("/{}", "x".repeat(length - 1));
    let paths = [
        long(511),
        long(512),
        "relative".into(),
        "/a b".into(),
        "/".into(),
    ];
    let rows = [
        ["on", "0", "thp", "fresh", "0", "/tmp/x", "off"],
        ["ON", "32", "4K", "KEEP", "1t", "/", "WARN"],
        ["Observe", "33", "hugetlb", "Keep", "1GB", &paths[0], "info"],
        ["off", "-1", "driver", "kept", "0x10", &paths[1], "debug"],
        ["0", "+1", "2m", "0", "16777215T", &paths[2], "trace"],
        [
            "true",
            " 1",
            "THP ",
            "keep ",
            "16777216T",
            &paths[3],
            "error",
        ],
        ["on ", "007", "4", "1", "K", &paths[4], "1"],
        [
            "o",
            "1.5",
            "huge",
            "fres",
            "18446744073709551615",
            "./x",
            "",
        ],
        ["", "", "", "", "18446744073709551616", "", "Debug "],
        [
            "observe\n",
            "99999999999999999999",
            "\u{e9}",
            "\u{e9}",
            "\u{664}",
            "\u{e9}",
            "\u{e9}",
        ],
        ["-", "1K", "thp,4k", "fresh,keep", "-1", "~/x", "-"],
    ];
    for row in rows {
        let mut command = Command::new("env");
        clean(&mut command).env("LD_PRELOAD", library());
        for (option, value) in OPTIONS.iter().zip(row) {
            command.env(option.name, value);
        }
        let record = Waiting::start(command.stderr(Stdio::null())).record();
        let refused: Vec<_> = record
            .complaints
            .iter()
            .filter_map(|complaint| complaint.option)
            .collect();
        let expected: Vec<_> = OPTIONS
            .iter()
            .zip(row)
            .filter(|(option, value)| {
                !value.is_empty() && !understands(option.name, value.as_bytes())
            })
            .map(|(option, _)| option.name)
            .collect();
        assert_eq!(refused, expected, "{row:?}");
    }
}

fn flag(option: &OptionSpec) -> String {
    match option.name.strip_prefix("CUDASNAP_") {
        Some(rest) => format!("--{}", rest.to_lowercase().replace('_', "-")),
        None => "--mode".into(),
    }
}

#[test]
fn an_argument_that_is_not_understood_is_told_with_its_value_and_what_it_takes() {
    for option in OPTIONS {
        let flag = flag(&option);
        let long = "x".repeat(600);
        let bad = match option.name {
            // Anything else is a path.
            "CUDASNAP_REPORT" => OsStr::new(&long),
            _ => OsStr::from_bytes(b"non\xffsense"),
        };
        let said = Said::by(tool(&["run", &flag]).arg(bad).arg("true"));
        assert_eq!(said.code, 2, "{said:?}");
        let shown = format!(
            "error: invalid value '{}' for '{flag} <",
            bad.to_string_lossy()
        );
        assert!(said.stderr.starts_with(&shown), "{said:?}");
        for word in option.values.split(", ") {
            assert!(said.stderr.contains(word), "{word}: {said:?}");
        }
    }
}

/// The library's own line, in a program that was started without the tool.
#[test]
fn the_library_says_which_value_it_does_not_understand_and_what_it_takes() {
    for option in OPTIONS
        .iter()
        .filter(|option| option.name != "CUDASNAP_LOG")
    {
        let mut command = Command::new("true");
        clean(&mut command)
            .env("LD_PRELOAD", library())
            .env("CUDASNAP_LOG", "warn")
            .env(option.name, OsStr::from_bytes(b"non\xffsense"));
        let said = Said::by(&mut command);
        let line = format!(
            "]: {}=\"non\\xffsense\" is not understood: it takes {}; the default {:?} is in force\n",
            option.name, option.values, option.default
        );
        assert!(said.stderr.ends_with(&line), "{said:?}");
        assert_eq!((said.code, said.stderr.lines().count()), (0, 1));
    }
}

#[test]
fn options_that_exclude_each_other_are_refused_before_anything_is_started() {
    let folder = Folder::new();
    let touched = folder.at("touched");
    for (arguments, environment) in [
        ("--buffer reserve --pages hugetlb", ""),
        ("--buffer reserve", "CUDASNAP_PAGES=hugetlb"),
        ("--pages hugetlb", "CUDASNAP_BUFFER=Reserve"),
        ("", "CUDASNAP_BUFFER=reserve CUDASNAP_PAGES=hugetlb"),
    ] {
        let mut command = tool(&["run"]);
        let variables = environment.split_whitespace();
        command
            .args(arguments.split_whitespace())
            .arg("touch")
            .arg(&touched)
            .envs(variables.filter_map(|word| word.split_once('=')));
        let said = Said::by(&mut command);
        assert_eq!(said.code, 2, "{said:?}");
        let expected =
            "cudasnap: CUDASNAP_BUFFER=reserve and CUDASNAP_PAGES=hugetlb exclude each other: ";
        assert!(
            said.stderr.starts_with(expected) && said.stderr.contains("--pages thp"),
            "{said:?}"
        );
    }
    assert!(!touched.exists());
    // An argument takes the place of a variable.
    let said = Said::by(
        tool(&["run", "--pages", "4k", "--buffer", "reserve", "true"])
            .env("CUDASNAP_PAGES", "hugetlb"),
    );
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn wrong_values_are_refused_before_anything_is_started() {
    let folder = Folder::new();
    let touched = folder.at("touched");
    for option in OPTIONS {
        let said = Said::by(tool(&["run", "touch", text(&touched)]).env(option.name, "nonsense"));
        assert_eq!(said.code, 2, "{}: {said:?}", option.name);
        let expected = format!(
            "cudasnap: {} is \"nonsense\", which the library does not understand",
            option.name
        );
        assert!(
            said.stderr.starts_with(&expected) && said.stderr.contains(option.values),
            "{said:?}"
        );
    }
    assert_eq!(run(&["--threads", "33", "touch", text(&touched)]).code, 2);
    assert_eq!(
        Said::by(tool(&["run", "touch", text(&touched)]).env("CUDASNAP_LIB", "/no/such")).code,
        2
    );
    assert_eq!(run(&["--lib", "/no/such", "touch", text(&touched)]).code, 2);
    assert!(!touched.exists());
    // What an argument replaces is not read by anybody.
    let said = Said::by(
        tool(&["run", "--threads", "2", "printenv", "CUDASNAP_THREADS"])
            .env("CUDASNAP_THREADS", "x"),
    );
    assert_eq!(said.parts(), (0, "2\n".into(), String::new()));
}

#[test]
fn a_misspelt_variable_is_told_and_the_program_runs() {
    let said = Said::by(tool(&["run", "echo", "x"]).env("CUDASNAP_THREDS", "2"));
    assert_eq!((said.code, said.stdout.as_str()), (0, "x\n"));
    assert!(
        said.stderr
            .starts_with("cudasnap: CUDASNAP_THREDS means nothing"),
        "{said:?}"
    );
    assert_eq!(said.stderr.lines().count(), 1);
}

fn preload_after(before: Option<&str>, arguments: &[&str]) -> String {
    let mut command = tool(&["run"]);
    command.args(arguments).args(["printenv", "LD_PRELOAD"]);
    if let Some(before) = before {
        command.env("LD_PRELOAD", before);
    }
    let said = Said::by(&mut command);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{before:?}");
    said.stdout.trim_end().to_string()
}

#[test]
fn what_is_preloaded_already_stays_behind_the_library() {
    let folder = Folder::new();
    let one = folder.compiled("one.so", "", &["-shared"]);
    let two = folder.compiled("two.so", "", &["-shared"]);
    let (one, two, library) = (text(&one), text(&two), library());
    let library = text(&library);
    assert_eq!(preload_after(None, &[]), library);
    assert_eq!(preload_after(Some(""), &[]), library);
    for list in [format!("{one}:{two}"), format!("{one} {two}")] {
        assert_eq!(preload_after(Some(&list), &[]), format!("{library}:{list}"));
    }
    // The tool itself may be started under the preload; nested calls add nothing.
    let tool = binary();
    let nested = ["--", text(&tool), "run", "--"];
    assert_eq!(
        preload_after(Some(one), &nested),
        format!("{library}:{one}")
    );
    assert_eq!(
        preload_after(Some(&format!("{one} {library}")), &nested),
        format!("{library}:{one}")
    );
    let link = folder.at("link.so");
    std::os::unix::fs::symlink(library, &link).unwrap();
    let by_link = format!("{}:{one}", text(&link));
    assert_eq!(preload_after(Some(&by_link), &[]), by_link);
}

#[test]
fn another_copy_of_the_library_is_replaced() {
    let folder = Folder::new();
    let copy = folder.copy("libcudasnap.so", &library());
    let mut command = tool(&["run", "printenv", "LD_PRELOAD"]);
    let said = Said::by(command.env("LD_PRELOAD", &copy));
    assert_eq!(said.stdout.trim_end(), text(&library()));
    assert!(
        said.stderr.contains("another copy of the library") && said.stderr.contains(text(&copy)),
        "{said:?}"
    );
}

/// Descriptors, folder, arguments and environment, as the program sees them.
const LOOK: &str = "import os, sys
print([fd for fd in range(20) if os.path.exists('/proc/self/fd/%d' % fd)])
print(os.getcwd(), open('/proc/self/cmdline').read().split('\\0'), os.getppid())
environment = open('/proc/self/environ', 'rb').read().split(b'\\0')
print([e for e in environment if not e.startswith((b'LD_PRELOAD=', b'PYTHON', b'PYENV', b'CUDASNAP'))])";

/// Runs looks with and without the tool, after the same preparation in the child, and compares.
fn looks_the_same(prepare: fn() -> std::io::Result<()>) {
    let look = |mut command: Command, rest: &[&str]| {
        command.args(rest).current_dir("/usr");
        clean(&mut command).env("ZZ", "1").env("AA", "2");
        // SAFETY: the preparations make system calls only.
        unsafe { command.pre_exec(prepare) };
        let said = Said::by(&mut command);
        assert!(said.code == 0 && !said.stdout.is_empty(), "{said:?}");
        said
    };
    let python = ["-c", "import sys; print(sys.executable)"];
    let python = Said::by(Command::new("python3").args(python)).stdout;
    // Python changes its own signals: of these grep tells.
    let signals: &[&str] = &["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"];
    let others = &[python.trim_end(), "-S", "-c", LOOK, "a b", ""];
    for program in [signals, others] {
        let plain = look(Command::new(program[0]), &program[1..]);
        let mut under = Command::new(binary());
        under.args(["run", "--require", "--"]).arg(program[0]);
        assert_eq!(plain, look(under, &program[1..]));
    }
}

#[test]
fn signals_arguments_folder_and_environment_stay_as_they_are() {
    looks_the_same(|| Ok(()));
}

#[test]
fn an_inherited_disposition_and_mask_stay_too() {
    looks_the_same(|| {
        // SAFETY: system calls on a set of this function's own.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            // Then no child leaves a status.
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGUSR1);
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        Ok(())
    });
}

#[test]
fn a_program_that_writes_into_a_closed_pipe_dies_as_ever() {
    let script =
        "\"$0\" run -- yes | head -1; \"$0\" run -- sh -c 'kill -s PIPE $$; echo survived'";
    let mut command = Command::new("sh");
    let said = Said::by(clean(command.args(["-c", script]).arg(binary())));
    assert_eq!(said.stdout, "y\n");
    assert_eq!(said.code, 128 + libc::SIGPIPE);
}

/// `$0` is the tool, or `env`, which also does nothing but execute the rest.
fn scripted(script: &str) -> (Said, Said) {
    let by = |wrapper: &str| {
        let mut command = Command::new("sh");
        Said::by(clean(command.args(["-c", script, "sh", wrapper])))
    };
    (by("env"), by(&format!("{} run --", text(&binary()))))
}

#[test]
fn closed_descriptors_stay_closed() {
    let closed =
        "$1 sh -c 'for n in 0 1 2; do test -e /proc/$$/fd/$n && echo $n >&9; done' 9>&1 <&-";
    for redirection in ["", " >&-", " 2>&-", " >&- 2>&-"] {
        let (plain, under) = scripted(&format!(
            "exec 8>&1; {} 9>&8 {redirection}",
            closed.replace(" 9>&1", "")
        ));
        assert_eq!(plain, under, "{redirection}");
        assert!(!plain.stdout.contains('0'), "{plain:?}");
    }
    // Its own messages have nowhere to go: no reason to die.
    let (_, under) = scripted("$1 /no/such/program >&- 2>&- <&-; echo $?");
    assert_eq!(under.stdout, "127\n");
    let (_, under) = scripted("$1 /no/such/program 2>/dev/full; echo $?");
    assert_eq!(under.stdout, "127\n");
}

#[test]
fn it_becomes_the_program_as_the_first_process_of_a_container_too() {
    let (plain, under) = scripted("unshare --pid --fork $1 sh -c 'echo $$; exit 7'");
    assert_eq!(plain, under);
    if plain.stdout != "1\n" {
        eprintln!("not tried as pid 1: {plain:?}");
    }
    let (_, under) = scripted("echo $$; exec $1 sh -c 'echo $$'");
    let pids: Vec<&str> = under.stdout.lines().collect();
    assert_eq!(pids.len(), 2);
    assert_eq!(pids[0], pids[1]);
}

#[test]
fn ordinary_programs_write_the_same_bytes() {
    let scripts = [
        "$1 sh -c 'echo out; echo err >&2; exit 3'",
        "$1 git --version; $1 git log nothing 2>&1 >/dev/null",
        "$1 perl -e 'print STDERR \"e\\n\"; print \"x\\n\"; exit 5'",
        "$1 python3 -c 'import subprocess; subprocess.run([\"sh\", \"-c\", \"echo $((6 * 7)); nosuchtool\"])'",
        "d=$(mktemp -d); echo 'int main(void){return 4;}' >$d/a.c; $1 cc -Wall -o $d/a $d/a.c; $1 $d/a; s=$?; rm -r $d; exit $s",
        "echo 'int main(void){return x;}' | $1 cc -xc -o /dev/null -",
        "$1 sh -c 'kill -TERM $$'",
        "$1 env -i /bin/echo x",
    ];
    for script in scripts {
        let (plain, under) = scripted(script);
        assert_eq!(plain, under, "{script}");
        assert!(plain.code != 0 || !plain.stdout.is_empty(), "{plain:?}");
    }
}

#[test]
fn it_shows_what_it_would_do() {
    let arguments = [
        "run",
        "--dry-run",
        "--threads",
        "4",
        "sh",
        "-c",
        "exit 9",
        "x y",
    ];
    let shown = Said::by(&mut tool(&arguments));
    assert_eq!((shown.code, shown.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert_eq!(lines[0], "command  sh -c 'exit 9' 'x y'");
    assert!(lines.contains(&"sets     CUDASNAP_THREADS=4"), "{lines:?}");
    let json = Said::by(tool(&["run", "--json"]).args(&arguments[1..])).json();
    assert_eq!(
        (&json["schema"], &json["active"], &json["obstacle"]),
        (&1.into(), &true.into(), &().into())
    );
    assert_eq!(json["arguments"].as_array().unwrap().len(), 4);
    assert_eq!(json["environment"]["LD_PRELOAD"], text(&library()));
    // Nobody reads it: no reason to die.
    let mut closed = Command::new("sh");
    let script = "\"$0\" run --dry-run true | true; \"$0\" run --dry-run true >/dev/full";
    let said = Said::by(clean(closed.args(["-c", script]).arg(binary())));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr.starts_with("cudasnap: ") && said.stderr.lines().count() == 1,
        "{said:?}"
    );
}
