//! The library as a file, and in programs that have nothing to do with CUDA.

use std::process::{Command, Output};

use cudasnap_shim_tests::elf::Facts;
use cudasnap_shim_tests::shimmed::library;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{elf, Endianness, Object, ObjectSection, ObjectSymbol};

/// The newest version of glibc that the library may need when it is built where this runs (Debian 12: 2.36). Releases are
/// built with a lower floor (packages.rs).
const GLIBC_FLOOR: (u32, u32) = (2, 36);
const EXPORTS: [&str; 3] = ["cudasnap_record", "mmap", "mmap64"];
const NEEDED: [&str; 2] = ["ld-linux-x86-64.so.2", "libc.so.6"];

#[test]
fn it_exports_what_is_written_down_and_needs_no_more() {
    let facts = Facts::of(&library());
    assert_eq!(facts.exports, EXPORTS);
    assert_eq!(facts.needed, NEEDED);
    // Never unloaded: helpers run its text and libcuda's slots point to it.
    assert_ne!(facts.flags & u64::from(elf::DF_1_NODELETE), 0);
    let bytes = std::fs::read(library()).unwrap();
    let header = elf::FileHeader64::<Endianness>::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let headers = header.program_headers(endian, &*bytes).unwrap();
    assert!(headers
        .iter()
        .any(|header| header.p_type(endian) == elf::PT_GNU_RELRO));
}

#[test]
fn it_needs_no_newer_glibc_than_is_written_down() {
    let facts = Facts::of(&library());
    assert!(facts.glibc() <= GLIBC_FLOOR, "{:?}", facts.versions);
}

/// An executable or library that exported `mmap` by mistake would interpose itself.
#[test]
fn nothing_else_that_is_built_exports_mmap() {
    let folder = library().parent().unwrap().to_path_buf();
    let mut looked = 0;
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        let path = entry.path();
        let Ok(bytes) = std::fs::read(&path) else {
            continue;
        };
        if !bytes.starts_with(b"\x7fELF") || path.file_name() == library().file_name() {
            continue;
        }
        assert!(
            !Facts::of(&path).exports.iter().any(|name| name == "mmap"),
            "{}",
            path.display()
        );
        looked += 1;
    }
    assert!(looked >= 1, "no other program in {}", folder.display());
}

fn run(script: &str, preload: bool) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env_remove("LD_PRELOAD");
    if preload {
        command.env("LD_PRELOAD", library());
    }
    command.output().unwrap()
}

#[test]
fn programs_without_cuda_behave_as_before() {
    let scripts = [
        "echo out; echo err >&2; exit 3",
        "python3 -c 'import threading,mmap; m=mmap.mmap(-1, 1<<26); m[5]=7; print(m[5]); t=threading.Thread(target=print, args=(1,)); t.start(); t.join()'",
        "python3 -c 'import multiprocessing as m; p=m.get_context(\"fork\").Pool(2); print(p.map(abs, [-1,-2]))'",
        "echo 'int main(void){return 4;}' >/tmp/cudasnap-c-$$.c && cc -o /tmp/cudasnap-c-$$ /tmp/cudasnap-c-$$.c; /tmp/cudasnap-c-$$; s=$?; rm -f /tmp/cudasnap-c-$$*; exit $s",
        "git --version; perl -e 'print \"x\\n\"'; env | grep -c PATH",
        "nvidia-smi-that-is-not-there",
    ];
    for script in scripts {
        let (plain, shimmed) = (run(script, false), run(script, true));
        assert_eq!(plain.status.code(), shimmed.status.code(), "{script}");
        assert_eq!(plain.stdout, shimmed.stdout, "{script}");
        assert_eq!(plain.stderr, shimmed.stderr, "{script}");
    }
}

#[test]
fn a_program_without_cuda_has_no_thread_and_no_descriptor_of_ours() {
    let script = "ls /proc/self/task | wc -l; ls /proc/self/fd | wc -l";
    assert_eq!(run(script, true).stdout, run(script, false).stdout);
}

/// Address space that the library takes in an idle program: its own segments, nothing reserved.
#[test]
fn the_idle_footprint_is_small() {
    let script = "sed -n 's/^VmSize:[^0-9]*\\([0-9]*\\) kB/\\1/p' /proc/self/status";
    let size = |preload| -> i64 {
        String::from_utf8(run(script, preload).stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    };
    let taken = size(true) - size(false);
    assert!(taken < 16 << 10, "{taken} KiB");
}

/// A target may be write-combining memory of a device: what is stored there waits in a core's buffers until a fence. Nothing that runs on
/// ordinary memory can show that it is missing, so the text is looked at.
#[test]
#[cfg(target_arch = "x86_64")]
fn every_copy_loop_ends_with_a_fence() {
    const SFENCE: [u8; 3] = [0x0f, 0xae, 0xf8];
    let bytes = std::fs::read(library()).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let is_loop = |name: &str| {
        let loops = ["6stream", "5store", "5plain"];
        name.contains("6kernel3x86") && loops.iter().any(|word| name.contains(word))
    };
    let mut found = Vec::new();
    for symbol in file.symbols().filter(|symbol| symbol.size() > 0) {
        let Ok(name) = symbol.name() else { continue };
        if !is_loop(name) {
            continue;
        }
        let index = symbol.section_index().unwrap();
        let section = file.section_by_index(index).unwrap();
        let text = section
            .data_range(symbol.address(), symbol.size())
            .unwrap()
            .unwrap();
        assert!(text.windows(3).any(|three| three == SFENCE), "{name}");
        found.push(name);
    }
    // Of three instruction sets one loop of ordinary stores and one for each fate of the source's lines; and `plain`.
    assert!(found.len() >= 3 * 5, "{found:?}");
}
