use super::*;
use crate::grammar::{Cli, Command};
use clap::Parser;

fn parsed(line: &str) -> Result<Args, String> {
    match Cli::try_parse_from(line.split_whitespace()) {
        Ok(Cli {
            command: Command::Ab(args),
        }) => Ok(*args),
        Ok(_) => Err("another command".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn a_process_a_program_or_sizes() {
    let args = parsed("cudasnap ab --seed 5 --pause 0.5 4711").unwrap();
    let order = args.order(9).unwrap();
    assert_eq!(order.subjects, [Subject::Process(4711)]);
    assert_eq!((order.seed, order.variants.len()), (5, 2));
    assert_eq!(order.pause, Duration::from_millis(500));
    assert!((order.confidence - 0.95).abs() < 1e-12);
    let args = parsed("cudasnap ab --cycles 3 -- /bin/x --cycles 9").unwrap();
    let order = args.order(9).unwrap();
    let Subject::Program { name, command, .. } = &order.subjects[0] else {
        panic!("{order:?}");
    };
    assert_eq!((&name[..], command.len()), ("x", 3));
    assert_eq!((order.seed, order.rounds.cycles), (9, 3));
    let args = parsed("cudasnap ab --sizes 8,24").unwrap();
    let order = args.order(0).unwrap();
    let Subject::Program { name, command, .. } = &order.subjects[1] else {
        panic!("{order:?}");
    };
    assert_eq!(name, "24 GiB");
    assert_eq!(command[1..], ["workload", "--gib", "24"]);
}

#[test]
fn a_size_is_measured_once() {
    let args = parsed("cudasnap ab --sizes 8,1,8,1").unwrap();
    let names = args.order(0).unwrap().subjects.into_iter();
    let names: Vec<String> = names
        .map(|subject| match subject {
            Subject::Program { name, .. } => name,
            Subject::Process(pid) => pid.to_string(),
        })
        .collect();
    assert_eq!(names, ["8 GiB", "1 GiB"]);
}

#[test]
fn options_of_a_start_are_refused_with_a_process_that_runs() {
    let all = [
        "--ready-command true",
        "--ready-port 80",
        "--ready-line x",
        "--ready-quiet 3",
        "--ready-timeout 3",
        "--end-timeout 3",
        "--program-output x",
        "--rounds-per-visit 1",
    ];
    for option in all {
        let args = parsed(&format!("cudasnap ab {option} 4711")).unwrap();
        let error = args.order(0).unwrap_err();
        let name = option.split(' ').next().unwrap();
        assert!(error.starts_with(&format!("{name}: only for")), "{error}");
        for subject in ["--sizes 1", "-- x"] {
            let args = parsed(&format!("cudasnap ab {option} {subject}")).unwrap();
            assert!(args.order(0).is_ok(), "{option}");
        }
    }
    let args = parsed(&format!("cudasnap ab {} 4711", all.join(" "))).unwrap();
    let error = args.order(0).unwrap_err();
    assert!(
        error.contains("--ready-timeout, --end-timeout, "),
        "{error}"
    );
}

#[test]
fn wrong_lines_are_refused() {
    for line in [
        "cudasnap ab 0",
        "cudasnap ab 1 2",
        "cudasnap ab 1 -- x",
        "cudasnap ab --sizes 8 -- x",
        "cudasnap ab --sizes 8 1",
        "cudasnap ab --sizes 8,x",
        "cudasnap ab --cycles 0 1",
        "cudasnap ab --confidence 100 1",
        "cudasnap ab --confidence 40 1",
        "cudasnap ab --pause -1 1",
        "cudasnap ab --variant fast 1",
        "cudasnap ab --grid threads 1",
    ] {
        assert!(parsed(line).is_err(), "{line}");
    }
    let nothing = parsed("cudasnap ab").unwrap();
    assert!(nothing.order(0).unwrap_err().contains("nothing to measure"));
}

#[test]
fn what_a_running_process_cannot_do_is_told_with_what_to_do() {
    for (variant, part) in [
        ("a:pages=4k", "sets pages=4k"),
        ("a:buffer=keep", "sets buffer=keep"),
        ("stock", "runs without the library"),
    ] {
        let args = parsed(&format!(
            "cudasnap ab --variant observe --variant {variant} 4711"
        ));
        let args = args.unwrap();
        let error = args.order(0).unwrap_err();
        assert!(
            error.contains(part) && error.contains("give the program behind --"),
            "{error}"
        );
        let args = parsed(&format!(
            "cudasnap ab --variant observe --variant {variant} -- x"
        ));
        assert_eq!(args.unwrap().order(0).unwrap().groups.len(), 2);
    }
    let fine = parsed("cudasnap ab --variant observe --grid threads=4|8 4711").unwrap();
    assert_eq!(fine.order(0).unwrap().groups, [[0, 1, 2]]);
}
