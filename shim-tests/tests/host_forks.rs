//! Forks, vforks and spawns while the driver copies, and ordinary programs, for which the library is nothing but one argument
//! test per mmap: no thread, no descriptor, not one byte of output more, the same exit status.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cudasnap_shim_tests::attack::Attack;
use cudasnap_shim_tests::shimmed::{hostile, library, Shimmed};
use cudasnap_shim_tests::simdriver::SimDriver;
use cudasnap_shim_tests::tool::Said;
use cudasnap_shim_tests::watchdog::Watchdog;
use cudasnap_wire::Step;

mod run_world;
use run_world::{clean, Folder};

/// Children that are made while a copy runs.
const CHILDREN: u32 = 1000;
/// Half a minute on two idle CPUs, a multiple of that where others build.
const LIMIT: Duration = Duration::from_secs(600);

fn children(how: &str) {
    let attack = Attack::new(&format!("forks {how} {CHILDREN}")).limit(LIMIT);
    let outcome = attack.run();
    // Each cycle went through the shim, and nothing had to step down. Requests of children are their own record's.
    let cycles = outcome.number() as u64;
    assert!(cycles > 5, "{cycles}");
    assert_eq!(outcome.requests(), (cycles, cycles));
    assert_eq!(outcome.record.counters.phases, 2 * cycles);
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    // A helper may find no CPU for longer than the end of a phase waits, on a busy machine.
    assert_eq!(outcome.steps_but(&[Step::HelperLate]), []);
}

#[test]
fn a_thousand_forks_while_copies_run() {
    children("fork");
}

#[test]
fn a_thousand_vforks_while_copies_run() {
    children("vfork");
}

#[test]
fn a_thousand_spawns_while_copies_run() {
    children("spawn");
}

/// What the storm beside `simapp` has counted: forks, vforks, spawns, bad ones.
fn storm_count(out: &Path) -> [u64; 4] {
    let text = std::fs::read_to_string(out).unwrap_or_default();
    let mut numbers = text.split(' ').filter_map(|word| word.trim().parse().ok());
    [(); 4].map(|()| numbers.next().unwrap_or(0))
}

#[test]
fn a_storm_of_children_beside_the_simulated_driver() {
    let driver = SimDriver::build(false);
    let folder = Folder::new();
    let storm = hostile(&driver, "forkstorm.c", &["-shared", "-fPIC"]);
    let out = folder.at("counts");
    let environment = [
        ("LD_PRELOAD", storm.to_str().unwrap()),
        ("FORKSTORM_OUT", out.to_str().unwrap()),
    ];
    let mut host = Shimmed::start(&driver, &["96"], &environment);
    let watchdog = Watchdog::new("a storm", host.app.pid() as i32, LIMIT);
    let mut during = [0; 3];
    let mut cycles = 0;
    while during.iter().sum::<u64>() < 1000 || cycles < 3 {
        host.must("lock");
        // A slow DMA gives the storm time.
        for action in ["checkpoint", "restore"] {
            let before = storm_count(&out);
            let done = host
                .driver
                .control(action, host.app.pid(), &[("CUDASIM_DMA_GBPS", "0.2")]);
            assert_eq!(done.code, 0, "{action}: {}", done.stderr);
            let after = storm_count(&out);
            for ((sum, before), after) in during.iter_mut().zip(before).zip(after) {
                *sum += after - before;
            }
        }
        host.must("unlock");
        cycles += 1;
        assert_eq!(host.app.wrong_words(), 0);
        for direction in ["checkpoint", "restore"] {
            let phase = host.last(direction);
            // A crew may leave in a long pause of the DMA; the copies are the shim's all the same.
            assert!(
                phase.copied == phase.expected && phase.is_effective(),
                "{phase:?}"
            );
        }
        assert!(cycles < 60, "{during:?} children in {cycles} cycles");
    }
    assert!(during.iter().all(|kind| *kind > 100), "{during:?}");
    assert_eq!(
        storm_count(&out)[3],
        0,
        "{}",
        std::fs::read_to_string(&out).unwrap()
    );
    assert_eq!(host.helpers(), [""; 0]);
    let counters = host.record().counters;
    assert_eq!((counters.requests, counters.answered), (cycles, cycles));
    assert_eq!(host.steps_but(&[Step::HelperLate]), []);
    drop(watchdog);
    drop(host);
    std::fs::remove_file(&storm).unwrap();
}

// Ordinary programs.

/// Runs a script with and without the library; it must say and do the same. Returns what it said.
fn behaves_the_same(script: &str) -> String {
    let run = |preload: bool| {
        let mut command = Command::new("bash");
        clean(command.args(["-c", script])).current_dir("/");
        if preload {
            command.env("LD_PRELOAD", library());
        }
        Said::by(&mut command)
    };
    let (plain, under) = (run(false), run(true));
    assert_eq!(plain, under, "{script}");
    plain.stdout
}

/// Threads and descriptors that a program has, and whether the library is in it if it should be.
const LOOK: &str = r#"import os, time
def look(*_):
    maps = open('/proc/self/maps').read()
    # A thread that was joined may need a moment to be gone.
    for _ in range(1000):
        if len(os.listdir('/proc/self/task')) == 1:
            break
        time.sleep(0.002)
    return len(os.listdir('/proc/self/task')), sorted(os.listdir('/proc/self/fd')), os.environ.get('LD_PRELOAD', '') in maps
"#;

#[test]
fn shells_and_small_programs() {
    for script in [
        "sh -c 'echo out; echo err >&2; exit 3'",
        "sh -c 'kill -TERM $$'",
        "sh -c 'ls /proc/self/task | wc -l; ls /proc/self/fd'; exec ls /proc/self/fd 7>/dev/null",
        "for i in 1 2 3; do (sh -c 'exit 5'); echo $?; done; sh -c 'nosuchtool'",
        "env -i /bin/echo x; env A=b sh -c 'echo $A'; env nosuchtool",
        "sh -c 'trap \"echo caught\" TERM; kill -TERM $$; echo on'",
        "seq 100000 | sort -n | tail -1; yes | head -1",
        "perl -e 'print STDERR qq(e\\n); opendir D, q(/proc/self/fd); print join(q( ), sort readdir D), qq(\\n); exit 5'",
        "perl -e 'my $p = fork; if (!$p) { exec q(true) } waitpid $p, 0; print qq($?\\n)'",
    ] {
        let said = behaves_the_same(script);
        assert!(!said.is_empty() || script.contains("kill -TERM $$'"), "{script}");
    }
}

#[test]
fn git_makes_commits_and_compilers_compile() {
    behaves_the_same(
        "d=$(mktemp -d); cd $d; export HOME=$d GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE=@1 GIT_COMMITTER_DATE=@1
         git -c init.defaultBranch=m init -q . && echo text >file && git add file
         git -c user.name=n -c user.email=e commit -qm first; git log --format=%H; git status --short; git gc -q; git fsck
         git log nothing; s=$?; rm -rf $d; exit $s",
    );
    behaves_the_same(
        "d=$(mktemp -d); cd $d
         printf '#include <stdio.h>\\nint main(void){puts(\"compiled\");return 4;}\\n' >a.c
         gcc -O2 -Wall -o a a.c && ./a; s=$?; gcc -O2 -c -o a.o a.c; objdump -d a.o | sha256sum
         printf 'int main(void){return x;}\\n' >b.c; gcc -o b b.c; rm -r $d; exit $s",
    );
}

/// Forked, executed anew, and forked by a server that was executed anew.
#[test]
fn python_with_multiprocessing_in_all_its_ways() {
    for way in ["fork", "spawn", "forkserver"] {
        let folder = Folder::new();
        let program = format!(
            "{LOOK}
def work(number):
    import mmap, threading
    m = mmap.mmap(-1, 1 << 26)
    m[5] = number
    t = threading.Thread(target=lambda: None)
    t.start()
    t.join()
    return number * number, m[5], look()[0], look()[2]

if __name__ == '__main__':
    import multiprocessing as mp, sys
    context = mp.get_context('{way}')
    with context.Pool(3) as pool:
        print(pool.map(work, range(12)))
    p = context.Process(target=sys.exit, args=(9,))
    p.start()
    p.join()
    print(p.exitcode, look())
    sys.exit(4)
"
        );
        let file = folder.file("program.py", program);
        let said = behaves_the_same(&format!("python3 {}", file.display()));
        assert!(
            said.contains("(121, 11, 1, True)") && said.contains("\n9 (1, "),
            "{way}: {said}"
        );
    }
}

/// The loader's and the program's own calls, without the library's: what the kernel sees is the same but for the library's
/// own loading.
#[test]
fn a_program_has_no_thread_and_no_descriptor_of_ours() {
    let folder = Folder::new();
    let file = folder.file("look.py", format!("{LOOK}print(look())"));
    let said = behaves_the_same(&format!("python3 {0}; python3 -c 'import subprocess, sys; subprocess.run([sys.executable, \"{0}\"])'", file.display()));
    assert_eq!(said.matches("(1, ").count(), 2, "{said}");
    assert_eq!(said.matches("True").count(), 2, "{said}");
}
