//! `examples/container/entrypoint` as process 1 of a container, and checkpoints of what runs in one: from within, from a sidecar, from
//! outside, under the capabilities and the system call filter that container runtimes give by default.
//!
//! There is no container runtime here: namespaces, and a model of the filter (`shim-tests/container`).

use std::process::Command;

use cudasnap_shim_tests::container::{Container, Machine, Terms, SYS_PTRACE};
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::steps;
use cudasnap_shim_tests::tool::Said;
use serde_json::Value;

const ENTRYPOINT: &str = "cudasnap-entrypoint";
const SIMAPP: &str = "/opt/cudasnap/simapp";
const SIZE: &str = "64";

fn machine() -> Machine {
    Machine::new(&SimDriver::build(false))
}

/// A container with `simapp` as its process 1, under the library.
fn simapp(machine: &Machine, terms: &Terms) -> Container {
    let container = machine.start(terms, &[], &[ENTRYPOINT, SIMAPP, SIZE]);
    assert_eq!(container.first_line(), "ready 1");
    container
}

/// Whoever drives a container's process by the tool.
struct Driver<'a> {
    name: &'static str,
    /// The tool with these arguments and this process.
    says: Box<dyn Fn(&str) -> Said + 'a>,
}

fn outside(machine: &Machine) -> Driver<'_> {
    Driver {
        name: "from outside",
        says: Box::new(|verb| machine.said(&format!("{verb} --ns-pid 1"))),
    }
}

fn by<'a>(name: &'static str, command: impl Fn(&[&str]) -> Command + 'a) -> Driver<'a> {
    let says = move |verb: &str| {
        let mut words = vec!["cudasnap"];
        words.extend(verb.split(' '));
        words.push("1");
        Said::by(&mut command(&words))
    };
    Driver {
        name,
        says: Box::new(says),
    }
}

fn within<'a>(machine: &'a Machine, first: u32, terms: &'a Terms) -> Driver<'a> {
    by("within", move |words| machine.within(first, terms, words))
}

fn beside<'a>(machine: &'a Machine, first: u32, terms: &'a Terms) -> Driver<'a> {
    by("beside", move |words| machine.beside(first, terms, words))
}

impl Driver<'_> {
    fn must(&self, verb: &str) -> Said {
        let said = (self.says)(verb);
        assert_eq!(said.code, 0, "{} {verb}: {said:?}", self.name);
        said
    }

    /// The process as `status` tells it.
    fn status(&self) -> Value {
        self.must("status --json").json()["processes"][0].clone()
    }
}

/// Checkpoint, restore: contents right, and every byte through the library, which had its helpers and took no step down.
fn cycle_is_right(driver: &Driver<'_>, container: &mut Container) {
    let before = answered(&driver.status());
    driver.must("checkpoint");
    assert_eq!(driver.status()["state"], "checkpointed", "{}", driver.name);
    driver.must("restore");
    assert_eq!(container.ask("sum"), "bad 0", "{}", driver.name);
    let status = driver.status();
    let record = &status["library"]["record"];
    assert_eq!(status["state"], "running", "{}", driver.name);
    assert_eq!(answered(&status), before + 1, "{}", driver.name);
    let history = record["history"].as_array().expect("phases");
    for phase in &history[history.len() - 2..] {
        assert_eq!(phase["end"], "covered", "{}: {phase}", driver.name);
        assert_eq!(phase["copied"], phase["expected"], "{}", driver.name);
        assert!(phase["copied"].as_u64() > Some(64 << 20), "{phase}");
    }
    assert_eq!(steps::listed(&record["counters"]["steps"]), []);
}

fn answered(status: &Value) -> u64 {
    let counters = &status["library"]["record"]["counters"];
    assert_eq!(counters["requests"], counters["answered"]);
    counters["answered"].as_u64().expect("a record")
}

// The entrypoint

/// What a shell as process 1 does with its input, and with a signal.
const WAITS: &str = "echo ready $$; read line; exit 3";
const HANDLES: &str = "trap 'exit 7' TERM; echo ready $$; read line; exit 3";

#[test]
fn the_program_is_process_1_and_gets_the_signals_and_its_status_is_the_containers() {
    let machine = machine();
    for entrypoint in [&[ENTRYPOINT][..], &[]] {
        for (script, term, status) in [(WAITS, false, 3), (HANDLES, true, 7), (WAITS, true, 3)] {
            let command = [entrypoint, &["sh", "-c", script]].concat();
            let container = machine.start(&Terms::usual(), &[], &command);
            assert_eq!(container.first_line(), "ready 1");
            if term {
                container.signal(libc::SIGTERM);
            }
            let said = container.end();
            assert_eq!(said.code, status, "{command:?}: {said:?}");
            assert_eq!(said.stderr, "", "{command:?}");
        }
    }
}

#[test]
fn options_in_the_environment_reach_the_library() {
    let machine = machine();
    let command = [ENTRYPOINT, SIMAPP, SIZE];
    let environment = [("CUDASNAP_BUFFER", "keep"), ("CUDASNAP_THREADS", "2")];
    let container = machine.start(&Terms::usual(), &environment, &command);
    assert_eq!(container.first_line(), "ready 1");
    let status = outside(&machine).status();
    let options = &status["library"]["record"]["options"];
    assert_eq!(
        (&options["keep"], &options["threads"]),
        (&true.into(), &2.into())
    );
    let path = status["library"]["path"].as_str().expect("a path");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(path, format!("/opt/cudasnap/{version}/libcudasnap.so"));
}

/// Prints what it was preloaded with, if anything.
const TELLS: &str = "echo \"[$LD_PRELOAD]\"";

/// Each with one line of why, and the program as it would be without cudasnap.
#[test]
fn where_cudasnap_cannot_be_used_the_program_is_started_plainly() {
    let machine = machine();
    let elsewhere = "cp /usr/local/bin/cudasnap-entrypoint /tmp/entrypoint; PATH=/usr/bin:/bin exec /tmp/entrypoint";
    let broken = "printf '#!/no/such/interpreter\\n' >/tmp/cudasnap; chmod +x /tmp/cudasnap";
    let text =
        "echo no library >/tmp/text; export CUDASNAP_LIB=/tmp/text; exec cudasnap-entrypoint";
    let cases = [
        (
            "export CUDASNAP_PAGES=4m; exec cudasnap-entrypoint".into(),
            "CUDASNAP_PAGES",
        ),
        (
            "export CUDASNAP_LIB=/nowhere; exec cudasnap-entrypoint".into(),
            "/nowhere",
        ),
        (text.into(), "/tmp/text"),
        (elsewhere.into(), "no cudasnap beside"),
        (format!("{broken}; {elsewhere}"), "/tmp/cudasnap"),
    ];
    for (start, why) in cases {
        let script = format!("{start} sh -c '{TELLS}'");
        let container = machine.start(&Terms::usual(), &[], &["sh", "-c", &script]);
        assert_eq!(container.first_line(), "[]", "{script}");
        let said = container.end();
        assert_eq!(said.code, 0, "{script}: {said:?}");
        let lines: Vec<&str> = said.stderr.lines().collect();
        assert!(
            lines.len() == 1 && lines[0].contains(why),
            "{script}: {said:?}"
        );
        // Where the library alone is of no use the tool says it, on the way to the program.
        let ends = ["; without cudasnap: sh", ": it runs without the library"];
        assert!(ends.iter().any(|end| lines[0].ends_with(end)), "{said:?}");
        assert!(lines[0].starts_with("cudasnap"), "{script}: {said:?}");
    }
}

#[test]
fn a_program_that_is_not_there_is_told_with_the_shells_status() {
    let machine = machine();
    for (command, status, why) in [
        (
            &[ENTRYPOINT, "no-such-program"][..],
            127,
            "no-such-program: there is no such program in PATH\n",
        ),
        (
            &[ENTRYPOINT, "/etc/passwd"],
            126,
            "/etc/passwd: it may not be executed",
        ),
        (&[ENTRYPOINT], 2, "no command"),
    ] {
        let said = machine.start(&Terms::usual(), &[], command).end();
        assert_eq!(said.code, status, "{command:?}: {said:?}");
        let begins = format!("cudasnap-entrypoint: {why}");
        assert!(said.stderr.starts_with(&begins), "{said:?}");
    }
}

/// What an image whose own entrypoint was forgotten is started with. Its shell must not take it for an option of its own.
#[test]
fn arguments_without_the_images_entrypoint_are_told_as_such() {
    let machine = machine();
    for shell in [&[][..], &["bash"], &["sh"]] {
        for arguments in [&["--model", "x"][..], &["-a", "0", "true"]] {
            let script = ["/usr/local/bin/cudasnap-entrypoint"];
            let command = [shell, &script, arguments].concat();
            let said = machine.start(&Terms::usual(), &[], &command).end();
            assert_eq!(said.code, 127, "{command:?}: {said:?}");
            let words = format!(
                "cudasnap-entrypoint: {} is no program: the image's own entrypoint belongs before it",
                arguments[0]
            );
            assert!(said.stderr.starts_with(&words), "{said:?}");
            assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
        }
    }
}

// Who checkpoints

/// From a second process of the container, from a sidecar, from the machine: each drives a whole cycle.
fn driven_by_all(terms: &Terms) {
    let machine = machine();
    let mut container = simapp(&machine, terms);
    let first = container.first();
    for driver in [
        within(&machine, first, terms),
        beside(&machine, first, terms),
        outside(&machine),
    ] {
        cycle_is_right(&driver, &mut container);
    }
    let said = container.end();
    assert_eq!((said.code, &*said.stderr), (0, ""));
}

#[test]
fn checkpointed_from_within_beside_and_outside_on_the_usual_terms() {
    driven_by_all(&Terms::usual());
}

#[test]
fn checkpointed_in_a_user_namespace() {
    driven_by_all(&Terms::usual().in_user_namespace());
}

/// What Kubernetes calls restricted: another user, no capability, none to be had.
#[test]
fn checkpointed_by_an_unprivileged_user_for_itself() {
    driven_by_all(&Terms::usual().as_user(1000).without_new_privileges());
}

/// The library needs none of what older profiles refuse. The tool does without it too, but for the record, which it cannot read: it says
/// so; from outside all is as ever.
#[test]
fn a_profile_that_refuses_other_processes_memory_hides_the_record_and_nothing_else() {
    let machine = machine();
    let terms = Terms::usual().strict();
    let mut container = simapp(&machine, &terms);
    let within = within(&machine, container.first(), &terms);
    for verb in ["checkpoint", "restore"] {
        let said = within.must(verb);
        let told = said.stdout.contains("library's record not readable");
        assert!(told, "{said:?}");
    }
    assert_eq!(container.ask("sum"), "bad 0");
    let blind = (within.says)("status");
    assert_eq!(blind.code, 4, "{blind:?}");
    assert_eq!(answered(&outside(&machine).status()), 1);
    cycle_is_right(&outside(&machine), &mut container);
}

#[test]
fn another_users_process_takes_the_right_to_trace() {
    let machine = machine();
    let mut container = simapp(&machine, &Terms::usual().as_user(1000));
    let first = container.first();
    for terms in [Terms::usual(), Terms::usual().as_user(1001)] {
        let refused = (beside(&machine, first, &terms).says)("checkpoint");
        assert_eq!(refused.code, 4, "{refused:?}");
        assert!(refused.stderr.contains("CAP_SYS_PTRACE"), "{refused:?}");
    }
    let terms = Terms::usual().keeping(SYS_PTRACE);
    cycle_is_right(&beside(&machine, first, &terms), &mut container);
}
