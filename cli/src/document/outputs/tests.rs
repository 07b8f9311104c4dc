use std::os::unix::fs::symlink;

use clap::Parser;

use super::*;
use crate::document::examples::report;

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    outputs: OutputArgs,
}

fn parsed(arguments: &[&str]) -> OutputArgs {
    Command::parse_from([&["x"], arguments].concat()).outputs
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// All five, in this folder.
fn all(folder: &Path) -> OutputArgs {
    let file = |name: &str| Some(folder.join(name));
    OutputArgs {
        json: file("a.json"),
        csv: file("a.csv"),
        markdown: file("a.md"),
        html: file("a.html"),
        png: file("a.png"),
    }
}

fn files(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_is_asked_for_is_written_and_nothing_else() {
    let folder = folder();
    let path = folder.path();
    let outputs = all(path);
    outputs.check().unwrap();
    assert_eq!(
        files(path),
        Vec::<String>::new(),
        "looking leaves nothing behind"
    );
    let written = outputs.write("{}", "a,b\r\n", &report()).unwrap();
    assert_eq!(written.len(), 5);
    assert_eq!(files(path), ["a.csv", "a.html", "a.json", "a.md", "a.png"]);
    let read = |name: &str| std::fs::read(path.join(name)).unwrap();
    assert_eq!(read("a.json"), b"{}\n");
    assert_eq!(read("a.csv"), b"a,b\r\n");
    assert!(read("a.md").starts_with(b"# "));
    assert!(read("a.html").starts_with(b"<!doctype html>"));
    assert!(read("a.png").starts_with(b"\x89PNG"));
    assert!(OutputArgs::default()
        .write("", "", &report())
        .unwrap()
        .is_empty());
}

#[test]
fn an_old_file_is_replaced_and_keeps_its_mode_a_new_one_has_the_usual() {
    let folder = folder();
    let old = folder.path().join("old");
    std::fs::write(&old, "before").unwrap();
    std::fs::set_permissions(&old, Permissions::from_mode(0o640)).unwrap();
    parsed(&["--json", old.to_str().unwrap()])
        .write("1", "", &report())
        .unwrap();
    assert_eq!(std::fs::read(&old).unwrap(), b"1\n");
    assert_eq!(mode(&old), 0o640);
    let usual = folder.path().join("usual");
    File::create(&usual).unwrap();
    let new = folder.path().join("new");
    parsed(&["--json", new.to_str().unwrap()])
        .write("1", "", &report())
        .unwrap();
    assert_eq!(mode(&new), mode(&usual));
}

#[test]
fn what_a_link_leads_to_is_replaced_and_not_the_link() {
    let folder = folder();
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    std::fs::write(&real, "before").unwrap();
    symlink(&real, &link).unwrap();
    let outputs = parsed(&["--json", link.to_str().unwrap()]);
    outputs.check().unwrap();
    outputs.write("1", "", &report()).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read(&real).unwrap(), b"1\n");
    symlink(
        folder.path().join("nowhere"),
        folder.path().join("dangling"),
    )
    .unwrap();
    let dangling = folder.path().join("dangling");
    let complaint = parsed(&["--csv", dangling.to_str().unwrap()])
        .check()
        .unwrap_err();
    assert!(complaint.contains("leads nowhere"), "{complaint}");
}

#[test]
fn what_cannot_be_written_is_told_before_anything_is_measured() {
    let folder = folder();
    let path = folder.path();
    let outputs = OutputArgs {
        json: Some(path.join("no/such/a.json")),
        csv: Some(path.to_owned()),
        html: Some(path.join("a.html")),
        markdown: Some(PathBuf::from("/proc/self/a.md")),
        png: None,
    };
    let complaint = outputs.check().unwrap_err();
    for part in ["no/such", "is a folder", "/proc/self/a.md"] {
        assert!(complaint.contains(part), "{complaint}");
    }
    assert!(!complaint.contains("a.html"), "{complaint}");
    assert_eq!(files(path), Vec::<String>::new());
}

#[test]
fn two_reports_do_not_go_to_one_place() {
    let folder = folder();
    let path = folder.path();
    std::fs::create_dir(path.join("sub")).unwrap();
    let outputs = OutputArgs {
        json: Some(path.join("a")),
        csv: Some(path.join("sub/../a")),
        ..OutputArgs::default()
    };
    assert!(outputs.check().unwrap_err().contains("two reports"));
    assert!(parsed(&["--json", "-", "--csv", "-"])
        .check()
        .unwrap_err()
        .contains("two reports"));
    let one = parsed(&["--json", "-"]);
    one.check().unwrap();
    assert!(one.takes_stdout());
    assert!(!outputs.takes_stdout());
}

#[test]
fn what_is_read_is_not_replaced() {
    let folder = folder();
    let (input, link) = (folder.path().join("in"), folder.path().join("link"));
    std::fs::write(&input, "lines").unwrap();
    std::os::unix::fs::symlink(&input, &link).unwrap();
    let outputs = |path: &Path| OutputArgs {
        csv: Some(path.into()),
        ..OutputArgs::default()
    };
    let apart = |path: &Path| outputs(path).check_apart_from([&*input].into_iter());
    for path in [&input, &link] {
        assert!(apart(path).unwrap_err().contains("would replace it"));
    }
    assert_eq!(apart(&folder.path().join("out")), Ok(()));
    assert_eq!(apart(Path::new("-")), Ok(()));
}

#[test]
fn a_file_that_fails_leaves_the_old_one_and_does_not_stop_the_others() {
    let folder = folder();
    let path = folder.path();
    let outputs = OutputArgs {
        json: Some(path.join("gone/a.json")),
        csv: Some(path.join("a.csv")),
        ..OutputArgs::default()
    };
    std::fs::create_dir(path.join("gone")).unwrap();
    outputs.check().unwrap();
    std::fs::remove_dir(path.join("gone")).unwrap();
    let complaint = outputs.write("1", "x", &report()).unwrap_err();
    assert!(complaint.contains("gone"), "{complaint}");
    assert_eq!(files(path), ["a.csv"]);
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    // The child, below.
    if let Some(old) = std::env::var_os("CUDASNAP_OLD") {
        return into_a_full_disk(old.to_str().unwrap());
    }
    let folder = folder();
    let old = folder.path().join("old");
    std::fs::write(&old, "before").unwrap();
    // A limit on the size of files is a disk that is full for this process; in a child, for it holds for all of it.
    let status = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 0 && exec \"$0\" --exact document::outputs::tests::a_full_disk_leaves_the_old_file"])
        .arg(std::env::current_exe().unwrap())
        .env("CUDASNAP_OLD", &old)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(std::fs::read(&old).unwrap(), b"before");
    assert_eq!(files(folder.path()), ["old"]);
}

fn into_a_full_disk(old: &str) {
    let outputs = parsed(&["--json", old]);
    outputs.check().unwrap();
    let complaint = outputs.write("[1]", "", &report()).unwrap_err();
    assert!(complaint.contains("old: File too large"), "{complaint}");
}

#[test]
fn devices_and_pipes_are_written_to_and_stay() {
    let folder = folder();
    let null = parsed(&["--json", "/dev/null"]);
    null.check().unwrap();
    null.write("1", "", &report()).unwrap();
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .unwrap();
    assert!(made.success());
    let outputs = parsed(&["--csv", pipe.to_str().unwrap()]);
    outputs.check().unwrap();
    assert!(outputs.write("", "x", &report()).is_err(), "nobody reads");
    let reader = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&pipe)
        .unwrap();
    outputs.write("", "a,b", &report()).unwrap();
    assert_eq!(io::read_to_string(reader).unwrap(), "a,b");
    assert!(!std::fs::metadata(&pipe).unwrap().is_file());
}

#[test]
fn a_programs_output_and_a_report_do_not_share_a_file() {
    let folder = folder();
    let path = folder.path().canonicalize().unwrap();
    let report = path.join("a.json");
    let outputs = OutputArgs {
        json: Some(report.clone()),
        ..OutputArgs::default()
    };
    let beside = |other: &Path| outputs.check_beside(Some(other));
    let shared = "a report and the program's output cannot both go there";
    std::fs::create_dir(path.join("sub")).unwrap();
    // Before the file is there, and afterwards; by other paths to it.
    for exists in [false, true] {
        if exists {
            std::fs::write(&report, "").unwrap();
            symlink(&report, path.join("link")).unwrap();
            std::fs::hard_link(&report, path.join("hard")).unwrap();
        }
        let names = if exists {
            &["a.json", "sub/../a.json", "link", "hard"][..]
        } else {
            &["a.json", "sub/../a.json"]
        };
        for name in names {
            let error = beside(&path.join(name)).unwrap_err();
            assert!(error.ends_with(shared), "{name}: {error}");
        }
        assert_eq!(beside(&path.join("log")), Ok(()));
    }
    assert!(!path.join("log").exists(), "looking leaves nothing behind");
    let error = beside(&path.join("none/log")).unwrap_err();
    assert!(error.contains("No such file"), "{error}");
    assert!(beside(&path.join("sub"))
        .unwrap_err()
        .contains("is a folder"));
    assert_eq!(outputs.check_beside(None), Ok(()));
}
