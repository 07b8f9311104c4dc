//! The world changes between load, checkpoint and restore, and in the middle of a phase: the CPUs that the program may use, what
//! its group pays for, the mode of huge pages. The next phase follows; no phase has more threads than CPUs; nothing is said.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cudasnap_shim_tests::folder::Folder;
use cudasnap_shim_tests::limits::{fake, Group};
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::SimDriver;

/// Program under the shim whose stderr is looked at afterwards.
struct Quiet {
    host: Option<Shimmed>,
    folder: Folder,
}

impl Quiet {
    fn start(size: &str, files: &[(&str, &Path)]) -> Self {
        let driver = SimDriver::build(false);
        let folder = Folder::new();
        let said = std::fs::File::create(folder.path().join("stderr")).expect("a file");
        let mut command: Command = driver.command("simapp");
        command.arg(size).stderr(Stdio::from(said));
        fake(&mut command, files);
        let host = Some(Shimmed::start_command(&driver, command));
        Quiet { host, folder }
    }

    fn host(&mut self) -> &mut Shimmed {
        self.host.as_mut().expect("it runs until it is dropped")
    }

    /// A phase's step, after which so many threads must have copied, and no helper is left.
    fn step(&mut self, action: &str, threads: u32) {
        let host = self.host();
        host.must(action);
        let phase = host.last(action);
        assert_eq!(phase.threads, threads, "{action}: {phase:?}");
        assert!(phase.end.is("covered") && phase.copied == phase.expected);
        assert!(!phase.pages.is("driver"), "{phase:?}");
        host.expect_no_helper_after(Duration::from_secs(5));
    }

    /// A checkpoint with so many threads, a restore with so many.
    fn cycle(&mut self, checkpoint: u32, restore: u32, between: impl FnOnce(u32)) {
        self.host().must("lock");
        self.step("checkpoint", checkpoint);
        let pid = self.host().app.pid();
        between(pid);
        self.step("restore", restore);
        self.host().must("unlock");
        assert_eq!(self.host().app.wrong_words(), 0);
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let Some(host) = self.host.take() else { return };
        let (steps, growth) = (host.steps_but(&[]), host.growth());
        drop(host);
        let said = std::fs::read_to_string(self.folder.path().join("stderr"));
        if !thread::panicking() {
            assert_eq!(said.expect("its stderr"), "");
            assert_eq!(steps, []);
            assert_eq!(growth.leaks(None, None), [""; 0], "{growth:?}");
        }
    }
}

/// CPUs that this test may use, by number.
fn cpus() -> Vec<usize> {
    // SAFETY: a set of zeros is an empty one; the kernel writes it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let got = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        assert_eq!(got, 0);
        set
    };
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: the number is below the set's size.
    let found: Vec<usize> = all
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect();
    assert!(found.len() > 1, "these tests need two CPUs");
    found
}

/// Threads of a phase on that many CPUs, where no option says how many.
fn most(cpus: usize) -> (u32, u32) {
    (cpus.min(16) as u32, cpus.min(10) as u32)
}

/// Lets every thread of a process run on these CPUs only.
fn pin(pid: u32, cpus: &[usize]) {
    // SAFETY: a set of zeros is an empty one; the numbers are below its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        set
    };
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads") {
        let name = task.expect("a thread").file_name();
        let tid = name
            .to_str()
            .and_then(|tid| tid.parse().ok())
            .expect("an id");
        // SAFETY: the kernel reads one set. A helper may have ended since: then nothing happens.
        unsafe { libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &raw const set) };
    }
}

#[test]
fn affinity_is_followed_from_phase_to_phase() {
    let all = cpus();
    let (checkpoint, restore) = most(all.len());
    let mut program = Quiet::start("64", &[]);
    let pid = program.host().app.pid();
    program.cycle(checkpoint, 1, |pid| pin(pid, &all[..1]));
    program.cycle(1, restore, |pid| pin(pid, &all));
    pin(pid, &all[1..2]);
    program.cycle(1, 1, |_| ());
    pin(pid, &all);
    program.cycle(checkpoint, restore, |_| ());
}

/// A group of the first hierarchy whose CPUs are the machine's.
fn cpuset(cpus: &str) -> Group {
    let group = Group::new("cpuset");
    let nodes = std::fs::read_to_string("/sys/fs/cgroup/cpuset/cpuset.mems").expect("nodes");
    group.set("cpuset.mems", nodes.trim());
    group.set("cpuset.cpus", cpus);
    group
}

fn list(cpus: &[usize]) -> String {
    let numbers: Vec<String> = cpus.iter().map(usize::to_string).collect();
    numbers.join(",")
}

#[test]
fn the_set_of_cpus_of_a_group_is_followed() {
    let all = cpus();
    let (checkpoint, restore) = most(all.len());
    let group = cpuset(&list(&all));
    let mut program = Quiet::start("64", &[]);
    group.take(program.host().app.pid());
    program.cycle(checkpoint, 1, |_| group.set("cpuset.cpus", list(&all[..1])));
    program.cycle(1, restore, |_| group.set("cpuset.cpus", list(&all)));
    drop(program);
}

#[test]
fn the_quota_of_a_group_is_followed_at_every_level() {
    let (checkpoint, restore) = most(cpus().len());
    let outer = Group::new("cpu");
    let inner = outer.child();
    let quota = |group: &Group, cpus: f64| {
        group.set("cpu.cfs_quota_us", (cpus * 100_000.0) as i64);
    };
    let mut program = Quiet::start("64", &[]);
    inner.take(program.host().app.pid());
    program.cycle(checkpoint, 1, |_| quota(&inner, 0.5));
    // Rounded up: one CPU and a half are two threads.
    program.cycle(1, 2.min(restore), |_| quota(&inner, 1.5));
    quota(&inner, 16.0);
    program.cycle(checkpoint, restore, |_| ());
    inner.set("cpu.cfs_quota_us", -1);
    program.cycle(checkpoint, 1, |_| quota(&outer, 1.0));
    outer.set("cpu.cfs_quota_us", -1);
    program.cycle(checkpoint, restore, |_| ());
    drop(program);
    drop(inner);
}

/// As a container sees the unified hierarchy; here no controller is left for a real one.
#[test]
fn the_quota_of_the_unified_hierarchy_is_followed() {
    let (checkpoint, restore) = most(cpus().len());
    let folder = Folder::new();
    let level = |path: &str, text: &str| folder.write(&format!("{path}/cpu.max"), text);
    level("slice", "max 100000\n");
    level("slice/pod", "max 100000\n");
    let other = Folder::new();
    let membership = other.write("cgroup", "0::/slice/pod\n");
    let files: [(&str, &Path); 2] = [
        ("/proc/self/cgroup", &membership),
        ("/sys/fs/cgroup", folder.path()),
    ];
    let mut program = Quiet::start("64", &files);
    program.cycle(checkpoint, 1, |_| {
        level("slice/pod", "100000 100000\n");
    });
    program.cycle(1, restore, |_| {
        level("slice/pod", "max 100000\n");
    });
    level("slice", "20000 100000\n");
    program.cycle(1, 1, |_| ());
    // The program has moved on to a group that cannot be seen: every level that can counts.
    other.write("cgroup", "0::/elsewhere\n");
    program.cycle(checkpoint, restore, |_| ());
}

#[test]
fn the_mode_of_huge_pages_is_followed_between_the_phases() {
    let folder = Folder::new();
    let mode = folder.write("mode", "always [madvise] never\n");
    let of_size = folder.write("of-size", "always [inherit] madvise never\n");
    let thp = "/sys/kernel/mm/transparent_hugepage";
    let (place, place_of_size) = (
        format!("{thp}/enabled"),
        format!("{thp}/hugepages-2048kB/enabled"),
    );
    let files: [(&str, &Path); 2] = [(&place, &mode), (&place_of_size, &of_size)];
    let (checkpoint, restore) = most(cpus().len());
    let mut program = Quiet::start("64", &files);
    // Changed when the buffer is there: its pages stay what they are, and so does what the record says of them.
    program.cycle(checkpoint, restore, |_| {
        folder.write("mode", "always madvise [never]\n");
    });
    assert!(program.host().last("restore").pages.is("thp"));
    folder.write("mode", "[always] madvise never\n");
    program.cycle(checkpoint, restore, |_| ());
    assert!(program.host().last("checkpoint").pages.is("thp"));
}

/// Most helpers that were seen to run at once, and how often something was changed, while a step went on.
fn while_it_runs(
    program: &mut Quiet,
    action: &str,
    limits: impl Fn(u32, usize) + Sync,
) -> (usize, usize) {
    let host = program.host();
    let pid = host.app.pid();
    let slow = [("CUDASIM_DMA_GBPS", "0.25")];
    thread::scope(|scope| {
        let step = scope.spawn(|| host.driver.control(action, pid, &slow));
        let (mut helpers, mut turns) = (0, 0);
        while !step.is_finished() {
            limits(pid, turns);
            turns += 1;
            let pause = Instant::now() + Duration::from_millis(8);
            while Instant::now() < pause {
                helpers = helpers.max(host.helpers().len());
                thread::sleep(Duration::from_millis(1));
            }
        }
        let done = step.join().expect("the step");
        assert_eq!(done.code, 0, "{action}: {}", done.stderr);
        (helpers, turns)
    })
}

/// Back and forth in the middle of both phases.
fn changed_without_pause(program: &mut Quiet, limits: impl Fn(u32, usize) + Sync) {
    let cpus = cpus().len();
    for _ in 0..2 {
        program.host().must("lock");
        for action in ["checkpoint", "restore"] {
            let (helpers, turns) = while_it_runs(program, action, &limits);
            assert!(turns > 3, "{action} was over before anything changed");
            assert!(
                helpers < cpus,
                "{helpers} helpers beside the driver on {cpus} CPUs"
            );
            let phase = program.host().last(action);
            assert!(
                phase.copied == phase.expected && phase.end.is("covered"),
                "{phase:?}"
            );
            assert!(phase.threads as usize <= cpus, "{phase:?}");
            program
                .host()
                .expect_no_helper_after(Duration::from_secs(5));
        }
        program.host().must("unlock");
        assert_eq!(program.host().app.wrong_words(), 0);
    }
}

#[test]
fn affinity_that_changes_in_the_middle_does_no_harm() {
    let all = cpus();
    let mut program = Quiet::start("64", &[]);
    changed_without_pause(&mut program, |pid, turn| match turn % 3 {
        0 => pin(pid, &all[..1]),
        1 => pin(pid, &all[1..2]),
        _ => pin(pid, &all),
    });
    let pid = program.host().app.pid();
    pin(pid, &all);
    let (checkpoint, restore) = most(all.len());
    program.cycle(checkpoint, restore, |_| ());
}

#[test]
fn a_set_of_cpus_that_changes_in_the_middle_does_no_harm() {
    let all = cpus();
    let group = cpuset(&list(&all));
    let mut program = Quiet::start("64", &[]);
    group.take(program.host().app.pid());
    changed_without_pause(&mut program, |_, turn| match turn % 3 {
        0 => group.set("cpuset.cpus", list(&all[..1])),
        1 => group.set("cpuset.cpus", list(&all[1..2])),
        _ => group.set("cpuset.cpus", list(&all)),
    });
    drop(program);
}

#[test]
fn a_quota_that_changes_in_the_middle_does_no_harm() {
    let group = Group::new("cpu");
    let mut program = Quiet::start("64", &[]);
    group.take(program.host().app.pid());
    changed_without_pause(&mut program, |_, turn| {
        let quota = if turn % 2 == 0 { 50_000 } else { -1 };
        group.set("cpu.cfs_quota_us", quota);
    });
    drop(program);
}

#[test]
fn a_memory_limit_that_appears_in_the_middle_does_no_harm() {
    let group = Group::new("memory");
    let mut program = Quiet::start("64", &[]);
    group.take(program.host().app.pid());
    // Far above what is used: the kernel kills nobody, and the shim has looked before.
    changed_without_pause(&mut program, |_, turn| {
        let limit = if turn % 2 == 0 { 2i64 << 30 } else { -1 };
        group.set("memory.limit_in_bytes", limit);
    });
    drop(program);
}
