//! `cudasnap doctor`, completions and man pages, as users start them, on the simulated driver and on a machine without any.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cudasnap_cli::doctor::elf_file::build_id_of;
use cudasnap_cli::doctor::for_restore::messages::{
    FileEntry, Mapping, Memory, RegularFile, MAPS_FILE,
};
use cudasnap_shim_tests::shimmed::library;
use cudasnap_shim_tests::simdriver::{repository, SimDriver};
use cudasnap_shim_tests::tool::{binary, Said};
use prost::Message;
use serde_json::Value;

/// A folder of its own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cudasnap-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The finding of a check in a group.
fn finding<'a>(report: &'a Value, group: &str, check: &str) -> &'a Value {
    let groups = report["groups"].as_array().unwrap();
    let group = groups.iter().find(|one| one["name"] == group).unwrap();
    let findings = group["findings"].as_array().unwrap();
    let found = findings.iter().find(|one| one["check"] == check);
    found.unwrap_or_else(|| panic!("no {check} in {group}"))
}

fn verdict<'a>(report: &'a Value, group: &str, check: &str) -> &'a str {
    finding(report, group, check)["verdict"].as_str().unwrap()
}

/// The tool where the loader finds no driver.
fn without_driver(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("CUDASNAP_LIB");
    command
}

/// Whether this machine has a driver of its own, which these tests do not replace.
fn has_driver() -> bool {
    Path::new("/proc/driver/nvidia/version").exists()
}

#[test]
fn on_the_simulated_driver_nothing_fails() {
    let driver = SimDriver::build(false);
    let said = driver.said("doctor --json");
    let report = said.json();
    assert_eq!(report["schema"], 1);
    assert_eq!(said.code, 0, "{report:#}");
    assert_eq!(report["counts"]["failed"], 0);
    let file = finding(&report, "libcuda", "file")["found"]
        .as_str()
        .unwrap();
    assert!(
        file.ends_with("libcuda.so.1: the simulated driver"),
        "{file}"
    );
    for (group, check) in [
        ("libcuda", "checkpoint calls"),
        ("libcuda", "slots"),
        ("library", "file"),
        ("library", "preload"),
        ("driver", "GPU"),
        ("driver", "persistence mode"),
    ] {
        assert_eq!(verdict(&report, group, check), "ok", "{check}: {report:#}");
    }
    let slots = finding(&report, "libcuda", "slots")["found"]
        .as_str()
        .unwrap();
    for name in ["memcpy", "memmove", "munmap", "mremap"] {
        assert!(slots.contains(name), "{slots}");
    }
    let library_file = finding(&report, "library", "file")["found"]
        .as_str()
        .unwrap();
    assert!(
        library_file.contains(env!("CARGO_PKG_VERSION")),
        "{library_file}"
    );
}

/// The loader would look for parts of the path, and its words would be about something else.
#[test]
fn a_path_that_cannot_be_preloaded_is_told_as_such() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("a b");
    let copy = folder.0.join("libcudasnap.so");
    fs::copy(library(), &copy).unwrap();
    let said = Said::by(driver.tool("doctor --json").env("CUDASNAP_LIB", &copy));
    let report = said.json();
    let preload = finding(&report, "library", "preload");
    assert_eq!(preload["verdict"], "failed", "{preload}");
    let words = |key: &str| preload[key].as_str().unwrap_or_default().to_owned();
    assert!(words("found").contains("a path with blanks"), "{preload}");
    assert!(words("mend").contains("under another path"), "{preload}");
}

/// A container without `/sys`: nothing is said of the kernel that nobody has read.
#[test]
fn settings_that_cannot_be_read_are_told_as_such() {
    let driver = SimDriver::build(false);
    let hidden = "mount -t tmpfs tmpfs /sys; exec \"$0\" doctor --json";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-euc", hidden])
        .arg(binary());
    let report = Said::by(command.env("LD_LIBRARY_PATH", &driver.library)).json();
    for check in ["transparent", "pool of 2 MiB", "pool of 1 GiB"] {
        let found = finding(&report, "huge pages", check);
        let words = found["found"].as_str().unwrap();
        assert!(
            words.starts_with("/sys/kernel/mm cannot be read"),
            "{found}"
        );
    }
    let mend = finding(&report, "huge pages", "transparent")["mend"].clone();
    assert!(mend.as_str().unwrap().contains("mount -t sysfs"), "{mend}");
}

#[test]
fn a_libcuda_with_read_only_slots_is_a_warning() {
    let driver = SimDriver::build(true);
    let report = driver.said("doctor --json").json();
    assert_eq!(verdict(&report, "libcuda", "slots"), "warning");
    assert_eq!(driver.said("doctor --strict").code, 1);
}

#[test]
fn what_nvml_says_about_the_gpus_is_judged() {
    let driver = SimDriver::build(false);
    let mut command = driver.tool("doctor --json");
    command.envs([
        ("CUDASIM_PERSISTENCE", "0"),
        ("CUDASIM_MIG", "1"),
        ("CUDASIM_DEVICES", "2"),
    ]);
    let said = Said::by(&mut command);
    let report = said.json();
    assert_eq!(said.code, 0);
    assert_eq!(verdict(&report, "driver", "persistence mode"), "warning");
    let mend = finding(&report, "driver", "persistence mode")["mend"]
        .as_str()
        .unwrap();
    assert!(mend.contains("nvidia-smi -pm 1"), "{mend}");
    assert_eq!(verdict(&report, "driver", "MIG"), "warning");
    let gpus = report["groups"][0]["findings"].as_array().unwrap();
    assert_eq!(gpus.iter().filter(|one| one["check"] == "GPU").count(), 2);
}

#[test]
fn more_in_the_gpu_than_main_memory_has_room_for_is_a_warning() {
    let driver = SimDriver::build(false);
    let mut command = driver.tool("doctor --json");
    // 512 TiB.
    let huge = (512u64 << 20).to_string();
    command.envs([
        ("CUDASIM_DEVICE_MIB", &huge),
        ("CUDASIM_FOREIGN_MIB", &huge),
    ]);
    let report = Said::by(&mut command).json();
    assert_eq!(verdict(&report, "memory", "room"), "warning", "{report:#}");
}

#[test]
fn cuda_is_initialised_only_on_request() {
    let driver = SimDriver::build(false);
    let report = driver.said("doctor --cuda --json").json();
    let found = finding(&report, "libcuda", "cuInit");
    assert_eq!(found["verdict"], "ok", "{found}");
    assert!(
        found["found"].as_str().unwrap().contains("CUDA 13."),
        "{found}"
    );
}

#[test]
fn a_machine_without_a_driver_fails_and_says_so() {
    if has_driver() {
        return;
    }
    let said = Said::by(&mut without_driver(&["doctor"]));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stdout.contains("no NVIDIA driver is loaded"),
        "{said:?}"
    );
    assert!(said.stdout.contains("-> install driver 580"), "{said:?}");
    assert_eq!(said.stderr, "");
    let report = Said::by(&mut without_driver(&["doctor", "--json", "--cuda"])).json();
    assert_eq!(report["verdict"], "failed");
    assert_eq!(verdict(&report, "libcuda", "file"), "failed");
    assert_eq!(verdict(&report, "libcuda", "cuInit"), "failed");
}

/// Everything that is not well has a line with what to do.
#[test]
fn what_is_not_well_can_be_mended() {
    let report = Said::by(&mut without_driver(&["doctor", "--json"])).json();
    let groups = report["groups"].as_array().unwrap();
    let mut looked = 0;
    for one in groups
        .iter()
        .flat_map(|group| group["findings"].as_array().unwrap())
    {
        let wrong = ["warning", "failed"].contains(&one["verdict"].as_str().unwrap());
        assert_eq!(wrong, one["mend"].is_string(), "{one}");
        looked += 1;
    }
    assert!(looked > 12, "{looked}");
}

#[test]
fn options_in_the_environment_are_judged_as_run_judges_them() {
    let driver = SimDriver::build(false);
    let with = |pages: &str| {
        let mut command = driver.tool("doctor --json");
        command.env("CUDASNAP_BUFFER", "reserve");
        Said::by(command.env("CUDASNAP_PAGES", pages)).json()
    };
    assert_eq!(verdict(&with("4k"), "library", "options"), "ok");
    for (pages, told) in [("hugetlb", "exclude each other"), ("2m", "it takes thp")] {
        let report = with(pages);
        let options = finding(&report, "library", "options");
        assert_eq!(options["verdict"], "warning");
        assert!(
            options["found"].as_str().unwrap().contains(told),
            "{options}"
        );
    }
}

#[test]
fn a_library_that_cannot_be_loaded_or_is_open_to_all_is_told() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("doctor-library");
    let with = |path: &Path| {
        let mut command = driver.tool("doctor --json");
        Said::by(command.env("CUDASNAP_LIB", path))
    };
    // A C library that is no cudasnap library: it can be loaded, but that is not what counts.
    let other = driver.library.join("libcuda.so.1");
    let said = with(&other);
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(verdict(&said.json(), "library", "file"), "failed");
    assert_eq!(verdict(&said.json(), "library", "preload"), "failed");
    let torn = folder.file("torn.so", &fs::read(library()).unwrap()[..4096]);
    let said = with(&torn);
    assert_eq!((said.code, said.stderr.as_str()), (1, ""));
    let words = finding(&said.json(), "library", "preload").clone();
    assert!(
        words["found"].as_str().unwrap().contains("ended by signal"),
        "{words}"
    );
    let said = with(&folder.file("text.so", b"not a library"));
    let words = finding(&said.json(), "library", "preload").clone();
    assert!(
        words["found"].as_str().unwrap().contains("ld.so"),
        "{words}"
    );
    let open = folder.file("open.so", &fs::read(library()).unwrap());
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).unwrap();
    let said = with(&open);
    assert_eq!(
        verdict(&said.json(), "library", "preload"),
        "ok",
        "{said:?}"
    );
    assert_eq!(verdict(&said.json(), "library", "safety"), "warning");
    let said = with(&folder.0.join("none.so"));
    assert_eq!(
        (said.code, verdict(&said.json(), "library", "file")),
        (1, "failed")
    );
}

#[test]
fn a_stub_of_a_cuda_package_is_told() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("doctor-stub");
    let source = folder.file(
        "stub.c",
        b"int cuInit(unsigned flags) { return 34 + flags; }\n",
    );
    let library = folder.0.join("libcuda.so.1");
    let built = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
        .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
        .args([&library, &source])
        .status();
    assert!(built.unwrap().success());
    let mut command = driver.tool("doctor --json");
    let said = Said::by(command.env("LD_LIBRARY_PATH", &folder.0));
    let report = said.json();
    assert_eq!(said.code, 1);
    let found = finding(&report, "libcuda", "file")["found"]
        .as_str()
        .unwrap();
    assert!(found.contains("a stub"), "{found}");
    assert_eq!(verdict(&report, "libcuda", "checkpoint calls"), "failed");
}

#[test]
fn the_tools_in_path_are_told() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("doctor-tools");
    assert_eq!(
        driver
            .said(&format!("install-links {}", folder.0.display()))
            .code,
        0
    );
    let criu = folder.file("criu", b"#!/bin/sh\necho 'Version: 3.17.1'\n");
    fs::set_permissions(&criu, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = driver.tool("doctor --json");
    let path = format!("{}:/usr/bin:/bin", folder.0.display());
    let report = Said::by(command.env("PATH", path)).json();
    let ours = finding(&report, "tools", "cuda-checkpoint")["found"]
        .as_str()
        .unwrap();
    assert!(ours.ends_with("a link to cudasnap"), "{ours}");
    let found = finding(&report, "tools", "CRIU")["found"].as_str().unwrap();
    assert!(found.starts_with("3.17"), "{found}");
    // A tool that is not executable is none.
    fs::set_permissions(&criu, fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = driver.tool("doctor --json");
    let report = Said::by(command.env("PATH", &folder.0)).json();
    assert_eq!(verdict(&report, "tools", "CRIU"), "unknown");
}

/// Two CRIU images: one process with one file mapped.
fn images(folder: &Folder, file: RegularFile) {
    let image = |kind: u32, message: Vec<u8>| {
        let length = (message.len() as u32).to_le_bytes();
        let head = [0x5456_4319u32.to_le_bytes(), kind.to_le_bytes(), length].concat();
        [head, message].concat()
    };
    let mapping = Mapping {
        start: 0x1000,
        end: 0x2000,
        file: file.id.into(),
        status: MAPS_FILE & 0x40,
    };
    let memory = Memory {
        mappings: vec![mapping],
    };
    let entry = FileEntry {
        id: file.id,
        regular: Some(file),
    };
    folder.file("files.img", &image(0x5630_3138, entry.encode_to_vec()));
    folder.file("mm-42.img", &image(0x5749_2820, memory.encode_to_vec()));
}

/// What CRIU notes about a file.
fn noted(path: &Path) -> RegularFile {
    let mut id = build_id_of(std::fs::File::open(path).unwrap()).expect("a build id");
    id.resize(id.len().next_multiple_of(4), 0);
    let words = id
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    RegularFile {
        id: 9,
        name: path.to_str().unwrap().into(),
        size: Some(fs::metadata(path).unwrap().len()),
        build_id: words.collect(),
    }
}

#[test]
fn before_a_restore_the_library_must_be_the_same() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("doctor-restore");
    let line = format!("doctor --for-restore {}", folder.0.display());
    images(&folder, noted(&library()));
    let said = driver.said(&line);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.contains("same size and build id"), "{said:?}");
    // Another build of the same length, as a rebuild can be.
    let mut other = noted(&library());
    other.build_id[0] ^= 1;
    images(&folder, other);
    let said = driver.said(&line);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.stdout.contains("is another build"), "{said:?}");
    assert!(
        said.stdout
            .contains("-> install the same build at the same path"),
        "{said:?}"
    );
    let mut longer = noted(&library());
    longer.size = longer.size.map(|size| size + 1);
    images(&folder, longer);
    assert!(driver.said(&line).stdout.contains("is another file"));
    let mut missing = noted(&library());
    missing.name = "/opt/nothing/libcudasnap.so".into();
    images(&folder, missing);
    let said = driver.said(&format!("{line} --json"));
    assert_eq!(said.code, 4);
    assert_eq!(verdict(&said.json(), "restore", "library"), "failed");
    let found = finding(&said.json(), "restore", "library").clone();
    assert!(
        found["found"]
            .as_str()
            .unwrap()
            .contains("is missing (for process 42)"),
        "{found}"
    );
}

/// Below `--root` the path is the same, and the file another.
#[test]
fn a_real_dump_is_checked_below_a_root() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("doctor-root");
    let sample = repository().join("cli/tests/criu-4.1.1");
    let line = format!(
        "doctor --for-restore {} --root {}",
        sample.display(),
        folder.0.display()
    );
    let said = driver.said(&line);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(
        said.stdout
            .contains("/opt/cudasnap/0.1.0/libcudasnap.so is missing"),
        "{said:?}"
    );
    assert!(
        said.stdout
            .contains("/opt/driver/libcuda.so.580.159.04 is missing"),
        "{said:?}"
    );
    fs::create_dir_all(folder.0.join("opt/cudasnap/0.1.0")).unwrap();
    folder.file("opt/cudasnap/0.1.0/libcudasnap.so", b"something else");
    let said = driver.said(&line);
    assert!(
        said.stdout.contains("14 bytes here, 4726208 in the images"),
        "{said:?}"
    );
}

#[test]
fn what_is_no_folder_of_images_is_refused() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("doctor-images");
    let line = format!("doctor --for-restore {}", folder.0.display());
    let said = driver.said(&line);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    assert!(said.stderr.contains("no files.img"), "{said:?}");
    folder.file("files.img", b"not an image");
    let said = driver.said(&line);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("no image of CRIU"), "{said:?}");
    assert_eq!(driver.said("doctor --root /").code, 2);
    assert_eq!(driver.said("doctor --cuda --for-restore /").code, 2);
}

#[test]
fn a_closed_stdout_is_no_panic() {
    let driver = SimDriver::build(false);
    for line in [
        "doctor",
        "doctor --json",
        "completions bash",
        "man",
        "mode 1",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = driver.tool(line);
        let output = command
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked"), "{line}: {stderr}");
    }
}

#[test]
fn completions_are_made_for_every_shell_and_parse() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("completions");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = driver.must_say(&format!("completions {shell}"));
        assert!(
            text.contains("checkpoint") && text.contains("for-restore"),
            "{shell}"
        );
        let script = folder.file(shell, text.as_bytes());
        // Shells that are not here cannot be asked.
        let parsed = match shell {
            "bash" => Command::new("bash").arg("-n").arg(&script).output(),
            "zsh" => Command::new("zsh").arg("-n").arg(&script).output(),
            "fish" => Command::new("fish").arg("-n").arg(&script).output(),
            _ => continue,
        };
        match parsed {
            Ok(output) => assert!(output.status.success(), "{shell}: {output:?}"),
            Err(error) => assert!(shell != "bash" && error.kind() == std::io::ErrorKind::NotFound),
        }
    }
    assert_eq!(driver.said("completions csh").code, 2);
}

/// `cudasnap doctor --f<TAB>`, asked of bash itself.
#[test]
fn bash_completes_commands_and_flags() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("bash-completion");
    let script = folder.file("cudasnap", driver.must_say("completions bash").as_bytes());
    let complete = |words: &str| {
        let ask = format!(
            ". {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _cudasnap cudasnap \"${{COMP_WORDS[-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        Said::by(Command::new("bash").args(["--norc", "-c", &ask])).stdout
    };
    assert!(complete("cudasnap che")
        .lines()
        .any(|word| word == "checkpoint"));
    assert!(complete("cudasnap doctor --f")
        .lines()
        .any(|word| word == "--for-restore"));
    assert!(complete("cudasnap mode 1 o").lines().count() >= 1);
}

/// What stands behind `run` and its options is another program's line.
#[test]
fn bash_completes_the_program_of_run_and_not_our_options_behind_it() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("bash-program");
    let script = folder.file("cudasnap", driver.must_say("completions bash").as_bytes());
    folder.file("text", b"");
    let complete = |words: &str, offset: &str| {
        let ask = format!(
            "cd {}; . {}; {offset}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _cudasnap_with_more cudasnap \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            folder.0.display(),
            script.display()
        );
        let said = Said::by(Command::new("bash").args(["--norc", "-c", &ask]));
        let words = said.stdout.lines().map(str::to_owned);
        words.collect::<Vec<String>>()
    };
    let has = |words: &[String], word: &str| words.iter().any(|other| other == word);
    for line in ["", "--", "--require", "--lib /x.so --", "--threads = 4"] {
        let found = complete(&format!("cudasnap run {line} mkf"), "");
        assert!(has(&found, "mkfifo"), "{line}: {found:?}");
        // Without anybody who knows that program: files.
        let found = complete(&format!("cudasnap run {line} mkfifo t"), "");
        assert!(has(&found, "text"), "{line}: {found:?}");
        let found = complete(&format!("cudasnap run {line} mkfifo --"), "");
        assert!(!has(&found, "--require"), "{line}: {found:?}");
        // As bash-completion does it.
        let offset = "_command_offset() { COMPREPLY=(\"${COMP_WORDS[$1]}\"); }";
        let found = complete(&format!("cudasnap run {line} mkfifo --"), offset);
        assert_eq!(found, ["mkfifo"], "{line}");
    }
    assert!(has(&complete("cudasnap run --req", ""), "--require"));
    assert!(has(&complete("cudasnap run --pages 4", ""), "4k"));
}

#[test]
fn a_man_page_is_written_for_every_command() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("man");
    assert_eq!(driver.must_say(&format!("man {}", folder.0.display())), "");
    let page = fs::read_to_string(folder.0.join("cudasnap.1")).unwrap();
    assert_eq!(page, driver.must_say("man"));
    for words in ["EXIT STATUS", "ENVIRONMENT", "CUDASNAP_THREADS", "SEE ALSO"] {
        assert!(page.contains(words), "{words}");
    }
    for command in [
        "run",
        "checkpoint",
        "restore",
        "status",
        "doctor",
        "mode",
        "drop",
        "man",
    ] {
        let page = fs::read_to_string(folder.0.join(format!("cudasnap-{command}.1"))).unwrap();
        assert!(page.contains(&format!("cudasnap\\-{command}")), "{page}");
    }
    assert!(!folder.0.join("cudasnap-help.1").exists());
    let said = driver.said("man /nonexistent/folder");
    assert_eq!(said.code, 1);
    assert!(
        said.stderr.starts_with("cudasnap: /nonexistent/folder: "),
        "{said:?}"
    );
}
