//! `cudasnap run`: programs that cannot be started, and those in which the library cannot be active.

mod run_world;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use cudasnap_shim_tests::shimmed::library;
use cudasnap_shim_tests::tool::{binary, Said};
use run_world::{clean, run, text, tool, Folder};

const NOBODY: u32 = 65534;

/// The program is told about, refused with `--require`, and else run with exactly this list of preloads.
fn hindered(program: &Path, why: &str, preload: &str) {
    let program = text(program);
    let said = run(&["--require", program]);
    assert_eq!((said.code, said.stdout.as_str()), (4, ""), "{said:?}");
    one_line(&said, &[why, "not started (--require)"]);
    let consequence = if preload.is_empty() {
        "it runs without the library"
    } else {
        "the programs that it starts get it"
    };
    let said = run(&[program]);
    one_line(&said, &[why, consequence]);
    assert_eq!((said.code, said.stdout), (0, format!("[{preload}]\n")));
}

fn one_line(said: &Said, words: &[&str]) {
    assert!(
        said.stderr.starts_with("cudasnap: ") && said.stderr.lines().count() == 1,
        "{said:?}"
    );
    for word in words {
        assert!(said.stderr.contains(word), "'{word}' in {said:?}");
    }
}

#[test]
fn statuses_of_a_shell_when_there_is_nothing_to_run() {
    let folder = Folder::new();
    let plain = folder.file("plain", "text");
    folder.mode("plain", 0o644);
    let lost = folder.file("lost", "#!/no/such/interpreter\n");
    let binary = folder.file("binary", [0xde, 0xad, 0, 1, 2, 3]);
    let dos = folder.file("dos", "#!/bin/sh\r\necho hi\r\n");
    let pipe = CString::new(folder.at("pipe").as_os_str().as_bytes()).unwrap();
    // SAFETY: a terminated string, valid for the call.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o755) }, 0);
    // Nobody will ever write into it: a tool that opens it waits for ever.
    let on_pipe = folder.file("on-pipe", format!("#!{}/pipe\n", folder.path.display()));
    let mut deep = folder.file("deep0", "#!/bin/sh\n");
    for level in 1..8 {
        deep = folder.file(&format!("deep{level}"), format!("#!{}\n", deep.display()));
    }
    let loader = folder.shows_preload(
        "loader",
        &["-Wl,--dynamic-linker=/lib/ld-musl-nowhere.so.1"],
    );
    for (program, status, words) in [
        (
            "no-such-program-at-all",
            127,
            "there is no such program in PATH",
        ),
        ("/no/such/program", 127, "there is no such program"),
        ("", 127, "there is no such program"),
        ("/bin/sh/x", 127, "there is no such program"),
        (text(&folder.path), 126, "it is a folder"),
        (text(&plain), 126, "it may not be executed"),
        ("/dev/null", 126, "it may not be executed"),
        (
            text(&lost),
            127,
            "it needs /no/such/interpreter, which is not there",
        ),
        (
            text(&binary),
            126,
            "it is in no format that this machine executes",
        ),
        (
            text(&dos),
            127,
            "it needs /bin/sh\\r, which is not there: its first line ends in a carriage return",
        ),
        (text(&on_pipe), 126, "it may not be executed"),
        (text(&deep), 126, "scripts whose interpreters are scripts"),
        (
            text(&loader),
            127,
            "it needs /lib/ld-musl-nowhere.so.1, which is not there",
        ),
    ] {
        let said = run(&[program]);
        assert_eq!(said.code, status, "{program}: {said:?}");
        let last = said.stderr.lines().last().unwrap();
        assert!(
            last.starts_with("cudasnap: ") && last.contains(words),
            "{program}: {said:?}"
        );
    }
}

#[test]
fn a_first_line_that_the_kernel_finds_too_long_is_for_the_shell() {
    let folder = Folder::new();
    let line = format!("#!/{}\n", "x".repeat(300));
    let script = folder.file("long", line + "echo run by the shell\n");
    let said = run(&[text(&script)]);
    assert_eq!(
        said.parts(),
        (0, "run by the shell\n".into(), String::new())
    );
}

#[test]
fn the_search_is_that_of_execvp() {
    let folder = Folder::new();
    folder.file("tool", "echo by sh: $0 $1\n");
    std::fs::create_dir(folder.at("first")).unwrap();
    folder.file("first/tool", "");
    folder.mode("first/tool", 0o644);
    let path = format!(
        "{}:{}:/usr/bin:/bin",
        folder.at("first").display(),
        folder.path.display()
    );
    let said = Said::by(tool(&["run", "tool", "x"]).env("PATH", path));
    assert_eq!(
        said.parts(),
        (
            0,
            format!("by sh: {} x\n", folder.at("tool").display()),
            String::new()
        )
    );
    // An empty element is the current folder.
    let said = Said::by(
        tool(&["run", "tool"])
            .env("PATH", ":/bin")
            .current_dir(&folder.path),
    );
    assert_eq!(said.stdout, "by sh: ./tool\n");
    let only = folder.at("first");
    assert_eq!(Said::by(tool(&["run", "tool"]).env("PATH", only)).code, 126);
}

#[test]
fn static_programs() {
    let folder = Folder::new();
    let program = folder.shows_preload("static", &["-static"]);
    hindered(&program, "statically linked", text(&library()));
    let pie = folder.shows_preload("static-pie", &["-static-pie"]);
    hindered(&pie, "statically linked", text(&library()));
    let script = folder.file("script", format!("#!{}\n", program.display()));
    hindered_script(&script, &program);
    // What it starts has the library: a static init in front of the real program.
    let dynamic = folder.shows_preload("dynamic", &[]);
    let said = run(&[text(&program), text(&dynamic)]);
    assert_eq!(said.stdout, format!("[{0}]\n[{0}]\n", text(&library())));
}

/// The kernel hands the script's name over: the program would execute it again.
fn hindered_script(script: &Path, interpreter: &Path) {
    let said = run(&["--require", text(script)]);
    assert_eq!(said.code, 4);
    let both = format!("{} (runs {})", text(interpreter), text(script));
    one_line(&said, &["statically linked", &both]);
}

#[test]
fn a_static_program_whose_children_would_break_gets_nothing() {
    let folder = Folder::new();
    let program = folder.shows_preload("static", &["-static"]);
    let broken = folder.patched_library("broken.so", "GLIBC_2.34\0", "GLIBC_9.34\0");
    let said = run(&["--lib", text(&broken), text(&program)]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "[]\n"));
    one_line(&said, &["statically linked", "it runs without the library"]);
    assert!(!said.stderr.contains("get it"), "{said:?}");
}

#[test]
fn musl_programs() {
    let folder = Folder::new();
    // What counts is the loader's name; with this one no machine has it, so the program is only looked at.
    let program = folder.shows_preload("musl", &["-Wl,--dynamic-linker=/lib/ld-musl-nowhere.so.1"]);
    let said = run(&["--require", text(&program)]);
    assert_eq!(said.code, 4);
    one_line(
        &said,
        &["built for musl (its loader is /lib/ld-musl-nowhere.so.1)"],
    );
    // Where musl is, it is run, and would die with the library in its environment.
    if Path::new("/lib/ld-musl-x86_64.so.1").exists() {
        let compiler = Command::new("musl-gcc").arg("--version").output();
        if compiler.is_ok_and(|output| output.status.success()) {
            let source = folder.at("musl.c");
            let program = folder.at("real");
            let built = Command::new("musl-gcc")
                .arg("-o")
                .args([&program, &source])
                .status();
            assert!(built.unwrap().success());
            hindered(&program, "built for musl", "");
            // An outer call has set it for programs of glibc.
            let said = Said::by(tool(&["run", text(&program)]).env("LD_PRELOAD", library()));
            assert_eq!(said.stdout, "[]\n", "{said:?}");
        }
    }
}

#[test]
fn a_loader_that_nobody_knows() {
    let folder = Folder::new();
    let program = folder.shows_preload("odd", &["-Wl,--dynamic-linker=/bin/true"]);
    let said = run(&["--require", text(&program)]);
    assert_eq!(said.code, 4);
    one_line(&said, &["its loader /bin/true is not glibc's"]);
}

#[test]
fn programs_for_another_machine() {
    let folder = Folder::new();
    let mut bytes = std::fs::read("/bin/true").unwrap();
    // e_machine: aarch64.
    bytes[18..20].copy_from_slice(&183u16.to_le_bytes());
    let program = folder.file("aarch64", &bytes);
    let said = run(&["--require", text(&program)]);
    assert_eq!(said.code, 4);
    one_line(
        &said,
        &["a 64-bit aarch64 program, the library is 64-bit x86-64"],
    );
    // Without it: the kernel's word, unless it has an emulator registered.
    assert_ne!(run(&[text(&program)]).code, 0);
    // A 32-bit header is enough to be looked at.
    let mut short = vec![0u8; 52];
    short[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    short[16..20].copy_from_slice(&[2, 0, 3, 0]);
    short[20] = 1;
    let program = folder.file("i386", &short);
    one_line(
        &run(&["--require", text(&program)]),
        &["a 32-bit x86 program"],
    );
}

#[test]
fn programs_that_gain_privileges() {
    let folder = Folder::new();
    let program = folder.shows_preload("setuid", &[]);
    let owner = |uid| std::os::unix::fs::chown(&program, Some(uid), None).unwrap();
    // Nothing is gained where the owner is the one who runs it.
    folder.mode("setuid", 0o4755);
    let said = run(&["--require", text(&program)]);
    assert_eq!(
        said.parts(),
        (0, format!("[{}]\n", text(&library())), String::new())
    );
    owner(NOBODY);
    folder.mode("setuid", 0o4755);
    hindered(&program, "the setuid bit", "");
    // Of a script the kernel ignores it.
    let script = folder.file("script", "#!/bin/sh\necho fine\n");
    std::os::unix::fs::chown(&script, Some(NOBODY), None).unwrap();
    folder.mode("script", 0o4755);
    assert_eq!(run(&["--require", text(&script)]).stdout, "fine\n");
}

/// As nobody, with the tool and the library where nobody may read them.
fn as_nobody(folder: &Folder, arguments: &[&str]) -> Said {
    let mut command = Command::new(folder.at("cudasnap"));
    clean(&mut command);
    Said::by(
        command
            .args(arguments)
            .env_remove("CUDASNAP_LIB")
            .current_dir(&folder.path)
            .uid(NOBODY)
            .gid(NOBODY),
    )
}

#[test]
fn file_capabilities_and_programs_that_cannot_be_read() {
    let folder = Folder::new();
    folder.copy("cudasnap", &binary());
    let found = folder.copy("libcudasnap.so", &library());
    let program = folder.shows_preload("capable", &[]);
    // cap_net_raw=p.
    let mut attribute = [0u8; 20];
    attribute[3] = 2;
    attribute[5] = 0x20;
    let path = CString::new(program.as_os_str().as_bytes()).unwrap();
    // SAFETY: terminated names and a buffer of that length.
    let set = unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            attribute.as_ptr().cast(),
            attribute.len(),
            0,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    let said = as_nobody(&folder, &["run", "--require", text(&program)]);
    assert_eq!(said.code, 4, "{said:?}");
    one_line(&said, &["file capabilities"]);
    // Root has the capabilities anyway, so its loader does not mind.
    assert_eq!(run(&["--require", text(&program)]).code, 0);

    let secret = folder.shows_preload("secret", &[]);
    folder.mode("secret", 0o711);
    let said = as_nobody(&folder, &["run", text(&secret)]);
    assert_eq!(
        (said.code, said.stdout),
        (0, format!("[{}]\n", text(&found)))
    );
    let said = as_nobody(&folder, &["run", "--require", text(&secret)]);
    assert_eq!(said.code, 4);
    one_line(&said, &["it cannot be read"]);
}

#[test]
fn libraries_that_cannot_be_loaded_never_reach_the_environment() {
    let folder = Folder::new();
    let program = folder.shows_preload("program", &[]);
    let version = folder.patched_library("version.so", "GLIBC_2.34\0", "GLIBC_9.34\0");
    let needed = folder.patched_library(
        "needed.so",
        "ld-linux-x86-64.so.2\0",
        "ld-linux-x86-64.so.9\0",
    );
    let source = "int cudasnap_record; int nowhere(void); int f(void) { return nowhere(); }";
    let symbol = folder.compiled("symbol.so", source, &["-shared", "-fPIC", "-Wl,-z,now"]);
    let stranger = folder.compiled("stranger.so", "", &["-shared"]);
    let nothing = folder.file("nothing.so", "no library");
    let blank = folder.copy("bl ank.so", &library());
    for (library, why) in [
        (&version, "version `GLIBC_9.34' not found (required by"),
        (&needed, "ld-linux-x86-64.so.9 => not found"),
        (&symbol, "undefined symbol: nowhere"),
        (&stranger, "is a library, but not cudasnap's"),
        (&nothing, "is no 64-bit shared library"),
        (
            &blank,
            "a path with blanks, colons or dollar signs cannot be preloaded",
        ),
    ] {
        let said = run(&["--lib", text(library), "--", text(&program)]);
        assert_eq!((said.code, said.stdout.as_str()), (0, "[]\n"), "{said:?}");
        one_line(&said, &[why, "it runs without the library"]);
        let said = run(&["--lib", text(library), "--require", text(&program)]);
        assert_eq!((said.code, said.stdout.as_str()), (4, ""), "{said:?}");
        one_line(&said, &[why]);
    }
    // What else is preloaded stays; the broken library does not, wherever it comes from.
    let other = folder.compiled("other.so", "", &["-shared"]);
    let mut command = tool(&["run", "--lib", text(&version), text(&program)]);
    let said = Said::by(command.env("LD_PRELOAD", &other));
    assert_eq!(said.stdout, format!("[{}]\n", text(&other)));
}

#[test]
fn troubles_of_the_program_itself_are_not_the_librarys() {
    let folder = Folder::new();
    let part = folder.compiled(
        "libpart.so",
        "int part(void) { return 0; }",
        &["-shared", "-fPIC"],
    );
    let source = "int part(void); int main(void) { return part(); }";
    let program = folder.compiled("program", source, &[text(&part)]);
    std::fs::remove_file(&part).unwrap();
    let plain = Said::by(&mut Command::new(&program));
    assert_eq!(plain.code, 127);
    let under = run(&["--require", text(&program)]);
    assert_eq!(under, plain);
}

#[test]
fn no_library_anywhere() {
    let folder = Folder::new();
    let tool = folder.copy("cudasnap", &binary());
    let mut command = Command::new(&tool);
    clean(&mut command).env_remove("CUDASNAP_LIB");
    let said = Said::by(command.args(["run", "--dry-run", "true"]));
    if said.stdout.contains("\nlibrary ") {
        // This machine has one installed.
        return;
    }
    let mut command = Command::new(&tool);
    clean(&mut command).env_remove("CUDASNAP_LIB");
    let said = Said::by(command.args(["run", "printenv", "LD_PRELOAD"]));
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    one_line(
        &said,
        &[
            "libcudasnap.so is not there: looked at",
            "it runs without the library",
        ],
    );
}

#[test]
fn address_sanitizer() {
    let folder = Folder::new();
    let program = folder.shows_preload("asan", &["-fsanitize=address"]);
    let needs = Said::by(Command::new("readelf").args(["-d", text(&program)]));
    if !needs.stdout.contains("libasan") {
        // A compiler that links it statically: nothing has to come first.
        return;
    }
    hindered(&program, "libasan.so", "");
    let mut command = tool(&["run", "--require", text(&program)]);
    let said = Said::by(command.env("ASAN_OPTIONS", "verify_asan_link_order=0"));
    assert_eq!(
        said.parts(),
        (0, format!("[{}]\n", text(&library())), String::new())
    );
}
