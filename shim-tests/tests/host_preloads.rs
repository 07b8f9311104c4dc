//! Early and strange calls: who else is preloaded, in which order, what runs before any constructor, how libcuda is loaded,
//! signals at any moment. Bytes are right everywhere; where the shim cannot see the driver's request, it stays out of it.
//!
//! Needs the packages libjemalloc2, libtcmalloc-minimal4, libmimalloc2.0 and musl-tools (Debian), and two CPUs.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cudasnap_cli::process::target::{Mapping, Target};
use cudasnap_cli::record::Located;
use cudasnap_shim_tests::attack::{Attack, Outcome};
use cudasnap_shim_tests::shimmed::{compile_hostile, library, preload_list, Shimmed};
use cudasnap_shim_tests::simdriver::{repository, App, SimDriver};
use cudasnap_shim_tests::tool::{binary, Said};
use cudasnap_shim_tests::watchdog::Watchdog;
use cudasnap_wire::Step;

mod run_world;
use run_world::{clean, text, Folder};

/// A library of `shim-tests/hostile` in a folder of its own.
fn built(folder: &Folder, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let to = folder.at(name);
    let flags = [&["-shared", "-fPIC", "-ldl"][..], flags].concat();
    compile_hostile(source, &flags, &to);
    to
}

fn is_silent(stderr: &mut File) {
    let mut words = String::new();
    stderr.rewind().unwrap();
    stderr.read_to_string(&mut words).unwrap();
    assert_eq!(words, "");
}

/// `simapp`, or another build of it, with the shim among other preloads.
struct Arranged {
    // First: it is called off before the process's id is free for others.
    _watchdog: Watchdog,
    host: Shimmed,
    stderr: File,
}

impl Arranged {
    fn start(program: &Path, preloads: &str, environment: &[(&str, &str)]) -> Self {
        let driver = SimDriver::build(false);
        let folder = Folder::new();
        let words = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(folder.at("stderr"))
            .unwrap();
        // An absolute path stays as it is.
        let mut command = driver.command(text(program));
        clean(&mut command)
            .arg("48")
            .env("LD_PRELOAD", preloads)
            .envs(environment.iter().copied())
            .stderr(words.try_clone().unwrap());
        let app = App::start(&mut command);
        Arranged {
            _watchdog: Watchdog::new("an arrangement", app.pid() as i32, LONG),
            host: Shimmed::adopt(&driver, app),
            stderr: words,
        }
    }

    /// Two cycles; contents, silence and what stays behind are looked at.
    fn cycles(&mut self) {
        self.host.cycle();
        let before = self.host.growth();
        self.host.cycle();
        let after = self.host.growth();
        assert_eq!(self.host.helpers(), [""; 0]);
        assert_eq!((after.threads, after.descriptors), (0, 0), "{after:?}");
        // An allocator may take more at any time, but not a mapping per cycle.
        assert!(
            after.mappings <= before.mappings + 2,
            "{before:?} {after:?}"
        );
        is_silent(&mut self.stderr);
    }

    /// They go through the shim.
    fn goes_through(mut self) {
        self.cycles();
        let counters = self.host.record().counters;
        assert_eq!((counters.requests, counters.answered), (2, 2));
        assert_eq!(counters.phases, 4);
        for direction in ["checkpoint", "restore"] {
            let phase = self.host.last(direction);
            assert!(phase.end.is("covered") && phase.is_effective(), "{phase:?}");
        }
        assert_eq!(self.host.steps_but(&[]), []);
    }

    /// They do not come to the shim, which has counted this, if it could see it.
    fn goes_past(mut self, seen: &[(&str, u32)]) {
        self.cycles();
        let record = self.host.record();
        assert_eq!((record.counters.requests, record.counters.phases), (0, 0));
        assert_eq!(record.counters.helpers_started, 0);
        assert_eq!(self.host.steps_but(&[]), seen);
    }
}

/// For attacks that must meet a thing often.
const LONG: Duration = Duration::from_secs(180);

fn simapp() -> &'static Path {
    Path::new("simapp")
}

fn covered(outcome: &Outcome) {
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
}

// Before any constructor.

#[test]
fn mappings_before_any_constructor_are_the_kernels() {
    let outcome = Attack::new("early preinit").run();
    // Those of the preinit array did not count: the shim was not ready.
    assert_eq!(outcome.requests(), (1, 1));
    assert_eq!(outcome.steps_but(&[]), []);
    covered(&outcome);
}

#[test]
fn constructors_of_other_libraries_map_before_and_after_ours() {
    let folder = Folder::new();
    let pid = format!(
        "-DPID_OFFSET={}",
        std::mem::offset_of!(cudasnap_wire::Record, pid)
    );
    let other = built(&folder, "constructor.c", "constructor.so", &[&pid]);
    for (front, behind, when) in [
        (&[][..], &[&*other][..], "before"),
        (&[&*other][..], &[][..], "after"),
    ] {
        let outcome = Attack::new("early beside").between(front, behind).run();
        assert_eq!(outcome.detail, when);
        assert_eq!(outcome.requests(), (1, 1));
        assert_eq!(outcome.steps_but(&[]), []);
        covered(&outcome);
    }
}

/// Behind the shim, the loader relocates it first: then nothing of the shim is relocated when it calls.
#[test]
fn an_ifunc_resolver_copies_and_maps() {
    let folder = Folder::new();
    let flags = ["-fno-builtin", "-Wl,-z,now"];
    let other = built(&folder, "resolver.c", "resolver.so", &flags);
    for (front, behind) in [(&[][..], &[&*other][..]), (&[&*other][..], &[][..])] {
        for bind_now in ["", "1"] {
            let attack = Attack::new("early beside").between(front, behind);
            let outcome = attack.env("LD_BIND_NOW", bind_now).run();
            assert_eq!(outcome.requests(), (1, 1));
            assert_eq!(outcome.steps_but(&[]), []);
            covered(&outcome);
        }
    }
}

// Allocators and others that hook mmap.

fn debian(name: &str, package: &str) -> PathBuf {
    let places = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ];
    let found = places
        .map(|place| Path::new(place).join(name))
        .into_iter()
        .find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is missing: apt-get install {package}"))
}

/// `simapp` with a library linked in.
fn linked_with(folder: &Folder, library: &Path) -> PathBuf {
    let sources = repository().join("shim-tests/sim");
    let to = folder.at("simapp");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wl,--no-as-needed", "-o"])
        .args([&to, &sources.join("simapp.c"), library])
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    to
}

fn an_allocator(name: &str, package: &str, hooks_mmap: bool) {
    let allocator = debian(name, package);
    let behind = preload_list(&[], &[&allocator]);
    Arranged::start(simapp(), &behind, &[]).goes_through();
    let in_front = Arranged::start(simapp(), &preload_list(&[&allocator], &[]), &[]);
    if hooks_mmap {
        // It makes the system call by itself: nobody tells the shim.
        in_front.goes_past(&[]);
    } else {
        in_front.goes_through();
    }
    let folder = Folder::new();
    let linked = linked_with(&folder, &allocator);
    Arranged::start(&linked, &preload_list(&[], &[]), &[]).goes_through();
}

#[test]
fn jemalloc_in_front_behind_and_linked_in() {
    an_allocator("libjemalloc.so.2", "libjemalloc2", false);
}

#[test]
fn tcmalloc_in_front_behind_and_linked_in() {
    an_allocator("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4", true);
}

#[test]
fn mimalloc_in_front_behind_and_linked_in() {
    an_allocator("libmimalloc.so.2.0", "libmimalloc2.0", false);
}

/// `run` puts the shim in front: there it works whatever the other does.
#[test]
fn another_hook_of_mmap_behind_ours() {
    let folder = Folder::new();
    for how in ["NEXT", "JUMP", "RAW"] {
        let other = built(&folder, "mapper.c", how, &[&format!("-D{how}")]);
        Arranged::start(simapp(), &preload_list(&[], &[&other]), &[]).goes_through();
    }
}

/// What the shim does not answer goes on to the next in line, not past it to the kernel.
#[test]
fn another_hook_of_mmap_behind_ours_may_refuse_the_drivers_own_request() {
    let folder = Folder::new();
    let other = built(&folder, "mapper.c", "REFUSE", &["-DREFUSE"]);
    for mode in ["observe", "off"] {
        let attack = Attack::new("strangers refused-behind").between(&[], &[&other]);
        let outcome = attack.env("CUDASNAP", mode).run();
        assert_eq!(outcome.requests(), (1, 0));
    }
}

#[test]
fn another_hook_of_mmap_in_front_of_ours() {
    let folder = Folder::new();
    let other = |how: &str| built(&folder, "mapper.c", how, &[&format!("-D{how}")]);
    let start = |how: &str| {
        let other = other(how);
        Arranged::start(simapp(), &preload_list(&[&other], &[]), &[])
    };
    // The caller is the other library, on the driver's thread.
    start("NEXT").goes_past(&[(Step::NotUnderstood.word(), 2)]);
    start("RAW").goes_past(&[]);
    // Here libcuda itself is the caller.
    start("JUMP").goes_through();
}

// How libcuda is loaded, and how often.

#[test]
fn slots_that_are_bound_at_once_are_held_all_the_same() {
    Arranged::start(simapp(), &preload_list(&[], &[]), &[("LD_BIND_NOW", "1")]).goes_through();
}

#[test]
fn libcuda_that_binds_past_every_preload_is_not_touched() {
    let folder = Folder::new();
    let opener = built(&folder, "opener.c", "opener.so", &[]);
    for how in ["deepbind", "namespace"] {
        Arranged::start(simapp(), &preload_list(&[], &[&opener]), &[("OPENER", how)])
            .goes_past(&[]);
    }
}

/// Requests that were answered by each copy of the shim in a process, sorted.
fn answered_by_each_copy(target: Target) -> Vec<u64> {
    let mappings = target.mappings().unwrap();
    let ours: Vec<Mapping> = mappings
        .into_iter()
        .filter(|mapping| Path::new(&mapping.path) == library())
        .collect();
    // Each copy begins with the file's beginning.
    let copies = ours.chunk_by(|_, next| !next.is_image());
    let read = |copy: &[Mapping]| Located::find_in(target, copy).unwrap().read().unwrap();
    let mut answered: Vec<u64> = copies.map(|copy| read(copy).counters.answered).collect();
    answered.sort_unstable();
    answered
}

/// Each copy has its own record; which of them the tool finds depends on where they lie.
#[test]
fn a_second_copy_of_the_shim_serves_the_libcuda_of_its_namespace() {
    let outcome = Attack::new("namespaces both").run();
    assert_eq!(outcome.detail, "3 2");
    assert!([(3, 3), (2, 2)].contains(&outcome.requests()));
    assert_eq!(outcome.steps_but(&[]), []);
    covered(&outcome);
    let folder = Folder::new();
    let opener = built(&folder, "opener.c", "opener.so", &[]);
    let path = library();
    let environment = [
        ("OPENER", "shimmed-namespace"),
        ("OPENER_LIBRARY", text(&path)),
    ];
    let mut app = Arranged::start(simapp(), &preload_list(&[], &[&opener]), &environment);
    app.cycles();
    assert_eq!(answered_by_each_copy(app.host.target()), [0, 2]);
}

#[test]
fn a_second_libcuda_of_the_same_name() {
    let outcome = Attack::new("namespaces second").run();
    assert_eq!(outcome.requests(), (8, 8));
    // The first one's slots stay held while its buffer lives: the other gets its buffer without them.
    assert_eq!(outcome.steps(Step::SecondBuffer), 1);
    covered(&outcome);
    let folder = Folder::new();
    let opener = built(&folder, "opener.c", "opener.so", &[]);
    let second = built(
        &folder,
        "fakecuda.c",
        "libcuda.so.1",
        &["-Wl,-soname,libcuda.so.1"],
    );
    let environment = [("OPENER", "second"), ("OPENER_LIBRARY", text(&second))];
    Arranged::start(simapp(), &preload_list(&[], &[&opener]), &environment).goes_through();
}

#[test]
fn the_shim_is_closed_while_its_helpers_and_slots_live() {
    let outcome = Attack::new("namespaces close").run();
    // Each round leaves a copy behind, and each copy, the first one too, has answered one request.
    assert_eq!(outcome.detail, "served");
    assert_eq!(outcome.requests(), (1, 1));
    assert_eq!(outcome.steps_but(&[]), []);
}

#[test]
fn opening_and_closing_the_library_changes_nothing() {
    let outcome = Attack::new("namespaces again").run();
    assert_eq!(outcome.requests(), (2, 2));
    assert_eq!(outcome.steps_but(&[]), []);
    covered(&outcome);
}

// Signals.

#[test]
fn a_timers_handler_maps_and_copies_at_any_moment() {
    let outcome = Attack::new("interrupts timer").limit(LONG).run();
    assert!(outcome.number() >= 9.0);
    // Copies of the handler inside a copy are made alone, and its mappings are nobody's buffer.
    assert!(
        outcome.steps(Step::CrewBusy) >= 10,
        "{:?}",
        outcome.steps_but(&[])
    );
    assert_eq!(
        outcome.requests(),
        (outcome.number() as u64, outcome.number() as u64)
    );
    covered(&outcome);
}

/// Whatever the handler finds the shim at, it gets a buffer: the shim's, or the driver's own.
#[test]
fn a_timers_handler_asks_for_buffers_at_any_moment() {
    let outcome = Attack::new("interrupts timer-requests").limit(LONG).run();
    let (requests, answered) = outcome.requests();
    assert!(requests > outcome.number() as u64 && answered > 10);
    assert!(
        outcome.steps(Step::SecondBuffer) >= 1,
        "{:?}",
        outcome.steps_but(&[])
    );
    covered(&outcome);
}

#[test]
fn a_storm_of_signals_reaches_the_programs_threads_only() {
    let outcome = Attack::new("interrupts storm")
        .env("CUDASNAP_THREADS", "4")
        .run();
    let cycles = outcome.number() as u64;
    assert_eq!(outcome.requests(), (cycles, cycles));
    assert!(outcome.record.counters.helpers_started >= 20);
    assert_eq!(outcome.steps_but(&[]), []);
    covered(&outcome);
}

// Environment, and programs in which the library cannot be.

#[test]
fn rust_variables_of_the_environment_make_no_noise() {
    let environment = [
        ("RUST_BACKTRACE", "full"),
        ("RUST_LOG", "trace"),
        ("RUST_MIN_STACK", "1"),
    ];
    Arranged::start(simapp(), &preload_list(&[], &[]), &environment).goes_through();
}

fn sanitized(folder: &Folder) -> (PathBuf, PathBuf) {
    let program = linked_with_flags(folder);
    let said = Said::by(Command::new("cc").args(["-print-file-name=libasan.so"]));
    let runtime = Path::new(said.stdout.trim()).canonicalize();
    (
        program,
        runtime.expect("libasan: apt-get install libgcc-12-dev"),
    )
}

/// `simapp` under AddressSanitizer.
fn linked_with_flags(folder: &Folder) -> PathBuf {
    let sources = repository().join("shim-tests/sim");
    let to = folder.at("simapp");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-fsanitize=address", "-o"])
        .args([&to, &sources.join("simapp.c")])
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    to
}

/// It must come first. Its mmap, then in front of ours, goes on to ours by a jump: libcuda is the caller (gcc 12).
#[test]
fn a_sanitized_program_with_the_sanitizer_in_front() {
    let folder = Folder::new();
    let (program, runtime) = sanitized(&folder);
    Arranged::start(&program, &preload_list(&[&runtime], &[]), &[]).goes_through();
    // Told that the order is right, it lets the shim be first.
    let order = [("ASAN_OPTIONS", "verify_asan_link_order=0")];
    Arranged::start(&program, &preload_list(&[], &[]), &order).goes_through();
}

/// What the loader of each makes of it is the tool's to say; the program runs.
#[test]
fn musl_and_static_programs_run_through_the_tool_and_their_children_have_the_library() {
    let folder = Folder::new();
    let source = folder.file(
        "program.c",
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
         int main(int n, char **a) {\n\
         char *m = mmap(0, 64 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);\n\
         memset(m, n, 64 << 20); printf(\"%d\\n\", m[5]); fflush(stdout);\n\
         if (n > 1) execv(a[1], a + 1);\n return 3; }\n",
    );
    let build = |compiler: &str, flags: &[&str], name: &str| {
        let output = Command::new(compiler)
            .args(flags)
            .arg("-o")
            .args([&folder.at(name), &source])
            .output();
        let output = output
            .unwrap_or_else(|error| panic!("{compiler}: {error}: apt-get install musl-tools"));
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        folder.at(name)
    };
    let glibc = build("cc", &[], "glibc");
    for (program, why) in [
        (build("musl-gcc", &[], "musl"), "built for musl"),
        (
            build("musl-gcc", &["-static"], "musl-static"),
            "statically linked",
        ),
        (build("cc", &["-static"], "static"), "statically linked"),
    ] {
        let plain = Said::by(clean(Command::new(&program).arg(&glibc)));
        assert_eq!((plain.code, plain.stdout.as_str()), (3, "2\n1\n"));
        let mut command = Command::new(binary());
        let under = Said::by(clean(command.arg("run").args([&program, &glibc])));
        assert_eq!((under.code, &under.stdout), (3, &plain.stdout));
        assert!(under.stderr.contains(why), "{under:?}");
        assert_eq!(under.stderr.lines().count(), 1, "{under:?}");
    }
}
