//! Memory is short, or refused, or of another kind than usual: the answer is what the driver would have got without the shim,
//! or better. Never a kill, and never a refusal, that the same program would not have met without it.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cudasnap_shim_tests::attack::Attack;
use cudasnap_shim_tests::folder::Folder;
use cudasnap_shim_tests::limits::{fake, meminfo, set_limit, status_bytes, Group};
use cudasnap_shim_tests::machine::Machine;
use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::{App, SimDriver};
use cudasnap_wire::Step;

const MIB: u64 = 1 << 20;
/// Device memory of the programs here.
const SIZE: &str = "64";
/// More than the shim wants to leave free.
const PLENTY: u64 = 400 * MIB;

/// Length of the driver's buffer for such a program.
fn buffer_length(driver: &SimDriver) -> u64 {
    let mut host = Shimmed::start(driver, &[SIZE], &[]);
    host.cycle();
    host.last("checkpoint").expected
}

// Comparison with the driver alone

/// What a cycle came to.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// All steps done, contents right.
    Cycle,
    /// A step failed with this code, and the program lives.
    Refused(&'static str, i32),
    /// A step killed the program.
    Killed(&'static str),
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// `lift` is called when the checkpoint is over: the restore allocates the simulated device's memory, which is the machine's.
fn try_cycle(driver: &SimDriver, app: &mut App, lift: impl Fn()) -> End {
    for action in ["lock", "checkpoint", "restore", "unlock"] {
        if action == "restore" {
            lift();
        }
        let code = driver.control(action, app.pid(), &[]).code;
        if code != 0 {
            // The death of a process with much memory takes a moment.
            std::thread::sleep(Duration::from_millis(200));
            return match is_alive(app.pid()) {
                true => End::Refused(action, code),
                false => End::Killed(action),
            };
        }
    }
    assert_eq!(app.wrong_words(), 0);
    End::Cycle
}

/// Runs the same program in the same circumstances without and with the shim: its end must be the same. Whether the shim
/// answered the request with a buffer of its own.
fn same_end(driver: &SimDriver, what: &str, limit: impl Fn(u32), lift: impl Fn()) -> (End, bool) {
    let mut stock = driver.app(&[SIZE], &[]);
    limit(stock.pid());
    let expected = try_cycle(driver, &mut stock, &lift);
    drop(stock);
    let mut host = Shimmed::start(driver, &[SIZE], &[]);
    limit(host.app.pid());
    let end = try_cycle(driver, &mut host.app, &lift);
    assert_eq!(end, expected, "{what}");
    if end != End::Cycle {
        return (end, false);
    }
    let record = host.record();
    assert_eq!(record.counters.requests, 1, "{what}");
    assert_eq!(host.helpers(), [""; 0]);
    let answered = record.counters.answered == 1;
    let phase = host.last("restore");
    assert!(phase.copied == phase.expected, "{what}: {phase:?}");
    (end, answered)
}

// Control groups

#[test]
fn a_memory_group_kills_nobody_whom_it_would_not_have_killed() {
    let driver = SimDriver::build(false);
    let length = buffer_length(&driver);
    let mut kinds = [0; 3];
    for room in [-30, 2, 5, 24, 200] {
        let group = Group::new("memory");
        let limit = length.saturating_add_signed(room * MIB as i64);
        let what = format!("{room} MiB more than the buffer");
        let limited = |pid| {
            group.set("memory.limit_in_bytes", limit);
            group.take(pid);
        };
        let lift = || group.set("memory.limit_in_bytes", -1);
        let (end, answered) = same_end(&driver, &what, limited, lift);
        match (end, answered) {
            (End::Cycle, true) => kinds[0] += 1,
            (End::Cycle, false) => kinds[1] += 1,
            _ => kinds[2] += 1,
        }
    }
    // All three were seen: the shim's own buffer, the driver's own request, and a kill that is not the shim's.
    assert!(kinds.iter().all(|&seen| seen > 0), "{kinds:?}");
}

/// The driver's request goes through unchanged and is counted, and the next, when there is room, is answered.
fn expect_passed_for_want_of_memory(host: &mut Shimmed, times: u32) {
    let before = host.record().counters.answered;
    host.cycle();
    assert_eq!(host.record().counters.answered, before);
    assert_eq!(host.steps(Step::LowMemory), times);
    for direction in ["checkpoint", "restore"] {
        let phase = host.last(direction);
        assert!(
            phase.pages.is("driver") && phase.end.is("covered"),
            "{phase:?}"
        );
        assert_eq!((phase.copied, phase.threads), (phase.expected, 1));
    }
    assert_eq!(host.helpers(), [""; 0]);
}

fn expect_answered(host: &mut Shimmed) {
    let before = host.record().counters.answered;
    host.cycle();
    assert_eq!(host.record().counters.answered, before + 1);
    for direction in ["checkpoint", "restore"] {
        let phase = host.last(direction);
        assert!(
            !phase.pages.is("driver") && phase.end.is("covered"),
            "{phase:?}"
        );
        assert_eq!(phase.copied, phase.expected);
    }
    assert_eq!(host.helpers(), [""; 0]);
}

#[test]
fn the_tightest_of_nested_groups_counts() {
    let driver = SimDriver::build(false);
    let outer = Group::new("memory");
    let middle = outer.child();
    let inner = middle.child();
    let mut host = Shimmed::start(&driver, &[SIZE], &[]);
    inner.take(host.app.pid());
    expect_answered(&mut host);
    let length = host.last("checkpoint").expected;
    for (number, group) in [&outer, &middle, &inner].into_iter().enumerate() {
        let used = group.number("memory.usage_in_bytes");
        group.set("memory.limit_in_bytes", used + length + 40 * MIB);
        expect_passed_for_want_of_memory(&mut host, number as u32 + 1);
        group.set("memory.limit_in_bytes", -1);
        expect_answered(&mut host);
    }
    drop(host);
    drop(inner);
    drop(middle);
}

/// A group that has read files is full of page cache, which the kernel gives up for whoever needs memory.
#[test]
fn page_cache_is_room() {
    let driver = SimDriver::build(false);
    let length = buffer_length(&driver);
    let (group, folder) = (Group::new("memory"), Folder::new());
    // The restore allocates the simulated device's memory, which is the group's.
    let limit = 2 * length + 100 * MIB;
    group.set("memory.limit_in_bytes", limit);
    let file = folder.path().join("cache");
    let mut dd = Command::new("dd");
    dd.args([
        "if=/dev/zero",
        "bs=1M",
        "count=500",
        "conv=fsync",
        "status=none",
    ])
    .arg(format!("of={}", file.display()));
    group.holds(&mut dd);
    assert!(dd.status().expect("dd starts").success());
    let used = group.number("memory.usage_in_bytes");
    assert!(
        used > limit - 80 * MIB,
        "{used} of {limit}: the cache is not the group's"
    );
    let mut host = Shimmed::start(&driver, &[SIZE], &[]);
    group.take(host.app.pid());
    expect_answered(&mut host);
    assert_eq!(host.steps_but(&[]), []);
    drop(host);
}

/// The unified hierarchy, as a container sees it; the first one has no controller to spare here.
#[test]
fn levels_of_the_unified_hierarchy_are_understood() {
    let folder = Folder::new();
    let level = |path: &str, limit: &str, usage: u64, cache: u64| {
        folder.write(&format!("{path}/memory.max"), &format!("{limit}\n"));
        folder.write(&format!("{path}/memory.current"), &format!("{usage}\n"));
        let stat = format!("anon {usage}\ninactive_file {cache}\nactive_file 4096\n");
        folder.write(&format!("{path}/memory.stat"), &stat);
    };
    level("slice", "max", PLENTY, 0);
    level("slice/pod", "max", PLENTY, 0);
    let cgroup = Folder::new();
    let membership = cgroup.write("cgroup", "0::/slice/pod\n");
    let files: [(&str, &Path); 2] = [
        ("/proc/self/cgroup", &membership),
        ("/sys/fs/cgroup", folder.path()),
    ];
    let mut host = start_with(&files, &[]);
    expect_answered(&mut host);
    let tight = (PLENTY + 150 * MIB).to_string();
    level("slice/pod", &tight, PLENTY, 0);
    expect_passed_for_want_of_memory(&mut host, 1);
    // Some of what is used is page cache.
    level("slice/pod", &tight, PLENTY, PLENTY / 2);
    expect_answered(&mut host);
    level("slice", &tight, PLENTY, 0);
    expect_passed_for_want_of_memory(&mut host, 2);
    level("slice", "max", PLENTY, 0);
    expect_answered(&mut host);
}

/// `simapp` under the shim where the kernel's files say something else.
fn start_with(files: &[(&str, &Path)], environment: &[(&str, &str)]) -> Shimmed {
    let driver = SimDriver::build(false);
    let mut command = driver.command("simapp");
    command.arg(SIZE).envs(environment.iter().copied());
    fake(&mut command, files);
    Shimmed::start_command(&driver, command)
}

// The machine

#[test]
fn without_available_memory_the_drivers_request_goes_through() {
    let folder = Folder::new();
    let plenty = meminfo(&[("MemAvailable", 8 << 20)]);
    let file = folder.write("meminfo", &plenty);
    let mut host = start_with(&[("/proc/meminfo", &file)], &[]);
    expect_answered(&mut host);
    folder.write("meminfo", &meminfo(&[("MemAvailable", 100 << 10)]));
    expect_passed_for_want_of_memory(&mut host, 1);
    expect_passed_for_want_of_memory(&mut host, 2);
    folder.write("meminfo", &plenty);
    expect_answered(&mut host);
    assert_eq!(host.steps_but(&[Step::LowMemory]), []);
}

/// A pool of huge pages that does not serve is no way around the look at the memory.
#[test]
fn without_memory_and_without_a_pool_the_drivers_request_goes_through() {
    let folder = Folder::new();
    let file = folder.write("meminfo", &meminfo(&[("MemAvailable", 100 << 10)]));
    let mut machine = Machine::take();
    set_pool(&mut machine, 0);
    let pages = [("CUDASNAP_PAGES", "hugetlb")];
    let mut host = start_with(&[("/proc/meminfo", &file)], &pages);
    expect_passed_for_want_of_memory(&mut host, 1);
}

/// What of a kept buffer is resident needs no room; the rest does.
#[test]
fn a_kept_buffer_needs_room_for_what_is_not_there() {
    for (limit, is_whole) in [("0", true), ("16M", false)] {
        let folder = Folder::new();
        let plenty = meminfo(&[("MemAvailable", 8 << 20)]);
        let file = folder.write("meminfo", &plenty);
        let options = [("CUDASNAP_BUFFER", "keep"), ("CUDASNAP_KEEP_MAX", limit)];
        let mut host = start_with(&[("/proc/meminfo", &file)], &options);
        expect_answered(&mut host);
        assert!(host.record().buffer.state.is("kept"));
        folder.write("meminfo", &meminfo(&[("MemAvailable", 100 << 10)]));
        if is_whole {
            expect_answered(&mut host);
            assert!(host.last("checkpoint").kept);
        } else {
            expect_passed_for_want_of_memory(&mut host, 1);
            assert!(host.record().buffer.state.is("none"));
            assert!(host.growth().anonymous < 8 << 20, "{:?}", host.growth());
        }
        folder.write("meminfo", &plenty);
        expect_answered(&mut host);
    }
}

// Limits of the process

#[test]
fn limits_of_addresses_and_data_refuse_nothing_that_they_would_not_have() {
    let driver = SimDriver::build(false);
    let length = buffer_length(&driver);
    for (resource, key) in [(libc::RLIMIT_AS, "VmSize"), (libc::RLIMIT_DATA, "VmData")] {
        let mut answers = Vec::new();
        for room in [-2, 1, 3, 9, 400] {
            let what = format!("{key}: {room} MiB more than the buffer");
            let limit = |pid| {
                let most = status_bytes(pid, key) + length;
                set_limit(pid, resource, most.saturating_add_signed(room * MIB as i64));
            };
            let (end, answered) = same_end(&driver, &what, limit, || ());
            answers.push((end == End::Cycle, answered));
        }
        assert_eq!(answers.first(), Some(&(false, false)), "{key}");
        assert!(answers.contains(&(true, false)), "{key}: {answers:?}");
        assert_eq!(answers.last(), Some(&(true, true)), "{key}");
    }
}

#[test]
fn locked_memory_is_refused_only_where_it_would_have_been() {
    let outcome = Attack::new("scarce locked").run();
    assert_eq!(outcome.detail, "cycle");
    assert_eq!(outcome.requests(), (2, 2));
    assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
    let stock = Attack::new("scarce locked-out").without_shim().run_stock();
    let outcome = Attack::new("scarce locked-out").run();
    assert_eq!(
        (outcome.detail.as_str(), stock.as_str()),
        ("no buffer", "no buffer")
    );
    assert_eq!(outcome.requests(), (1, 0));
}

#[test]
#[ignore = "needs a hard RLIMIT_MEMLOCK of 512 MiB or CAP_SYS_RESOURCE"]
fn the_last_of_the_lockable_memory_is_the_drivers() {
    let mut seen = Vec::new();
    for room in ["-1", "1", "5", "6", "8", "200"] {
        let words = format!("scarce locked-within {room}");
        let stock = Attack::new(&words).without_shim().run_stock();
        let outcome = Attack::new(&words).run();
        assert_eq!(outcome.detail, stock, "{room} MiB more than the buffer");
        seen.push((stock, outcome.requests()));
    }
    assert!(seen.contains(&("no buffer".into(), (1, 0))), "{seen:?}");
    assert!(seen.contains(&("cycle".into(), (2, 0))), "{seen:?}");
    assert_eq!(seen.last(), Some(&("cycle".into(), (2, 2))));
}

#[test]
fn the_last_mappings_are_the_drivers() {
    let mut seen = Vec::new();
    for left in [0, 14, 200] {
        let words = format!("scarce mappings {left}");
        let stock = Attack::new(&words).without_shim().run_stock();
        let outcome = Attack::new(&words).run();
        // The shim's buffer lies elsewhere: that can also make one mapping less.
        let better = outcome.detail == "cycle";
        assert!(
            better || outcome.detail == stock,
            "{left}: {outcome:?}, not {stock}"
        );
        seen.push((stock, outcome.requests().1));
    }
    assert_eq!(seen.first(), Some(&("no buffer".into(), 0)), "{seen:?}");
    assert_eq!(seen.last(), Some(&("cycle".into(), 2)), "{seen:?}");
}

// Strict accounting

#[test]
fn under_strict_accounting_the_last_of_it_is_the_drivers() {
    let folder = Folder::new();
    let accounts = |left_kib: u64| {
        let charged = 4 << 20;
        let changes = [
            ("CommitLimit", charged + left_kib),
            ("Committed_AS", charged),
        ];
        folder.write("meminfo", &meminfo(&changes))
    };
    let file = accounts(2 << 20);
    let mode = folder.write("overcommit", "2\n");
    let files: [(&str, &Path); 2] = [
        ("/proc/meminfo", &file),
        ("/proc/sys/vm/overcommit_memory", &mode),
    ];
    let mut host = start_with(&files, &[]);
    expect_answered(&mut host);
    accounts(180 << 10);
    expect_passed_for_want_of_memory(&mut host, 1);
    // Without strict accounting the same figures mean nothing.
    folder.write("overcommit", "0\n");
    expect_answered(&mut host);
    folder.write("overcommit", "1\n");
    expect_answered(&mut host);
}

/// The real thing, with so high a limit that nobody else on the machine is refused anything.
#[test]
fn strict_accounting_charges_hardly_more_than_was_asked() {
    let mut machine = Machine::take();
    machine.set("/proc/sys/vm/overcommit_ratio", "1000000");
    machine.set("/proc/sys/vm/overcommit_memory", "2");
    let driver = SimDriver::build(false);
    let mut host = Shimmed::start(&driver, &[SIZE], &[]);
    host.must("lock");
    host.must("checkpoint");
    let buffer = host.record().buffer;
    assert!(host.smaps(buffer.address, "VmFlags").contains(" ac"));
    assert!(buffer.mapped <= buffer.length + 4 * MIB);
    host.must("restore");
    host.must("unlock");
    assert_eq!(host.app.wrong_words(), 0);
    assert_eq!(host.steps_but(&[]), []);
    assert_eq!(host.record().counters.answered, 1);
    assert_eq!(host.growth().leaks(None, None), [""; 0]);
}

// Kinds of pages

const MODE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const MODE_OF_SIZE: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";

#[test]
fn the_mode_of_huge_pages_is_followed() {
    let modes = [
        (
            "[always] madvise never",
            "always [inherit] madvise never",
            true,
        ),
        (
            "always [madvise] never",
            "always [inherit] madvise never",
            true,
        ),
        (
            "always madvise [never]",
            "always [inherit] madvise never",
            false,
        ),
        (
            "always [madvise] never",
            "always inherit madvise [never]",
            false,
        ),
        (
            "always madvise [never]",
            "always inherit [madvise] never",
            true,
        ),
    ];
    let folder = Folder::new();
    let write = |mode: &str, of_size: &str| {
        let mode = folder.write("mode", &format!("{mode}\n"));
        (mode, folder.write("of-size", &format!("{of_size}\n")))
    };
    let (mode, of_size) = write(modes[0].0, modes[0].1);
    let mut host = start_with(&[(MODE, &mode), (MODE_OF_SIZE, &of_size)], &[]);
    let mut refused = 0;
    for (mode, of_size, huge) in modes {
        write(mode, of_size);
        expect_answered(&mut host);
        refused += u32::from(!huge);
        let pages = if huge { "thp" } else { "4k" };
        assert!(host.last("checkpoint").pages.is(pages), "{mode}, {of_size}");
        assert_eq!(host.steps(Step::NoHugePages), refused, "{mode}, {of_size}");
    }
    assert_eq!(host.steps_but(&[Step::NoHugePages]), []);
}

/// The kernel may have pages between base pages and those of 2 MiB, by the same advice.
#[test]
fn where_2_mib_are_not_allowed_other_sizes_are_asked_for() {
    let folder = Folder::new();
    let mode = folder.write("mode", "always madvise [never]\n");
    let of_size = folder.write("of-size", "always inherit madvise [never]\n");
    let mut host = start_with(&[(MODE, &mode), (MODE_OF_SIZE, &of_size)], &[]);
    host.must("lock");
    host.must("checkpoint");
    let buffer = host.record().buffer;
    assert!(host.asks_for_huge_pages(buffer.address));
    assert!(host.last("checkpoint").pages.is("4k"));
    host.must("restore");
    host.must("unlock");
    assert_eq!(host.app.wrong_words(), 0);
    assert_eq!(host.steps_but(&[Step::NoHugePages]), []);
    // Whoever asks for base pages gets those and no others.
    let mut host = Shimmed::start(
        &SimDriver::build(false),
        &[SIZE],
        &[("CUDASNAP_PAGES", "4k")],
    );
    host.must("lock");
    host.must("checkpoint");
    let buffer = host.record().buffer;
    assert!(!host.asks_for_huge_pages(buffer.address));
    host.must("restore");
    host.must("unlock");
    assert_eq!(host.app.wrong_words(), 0);
    assert_eq!(host.steps_but(&[]), []);
}

#[test]
fn a_program_without_huge_pages_gets_none() {
    let driver = SimDriver::build(false);
    let mut command = driver.command("simapp");
    command.arg(SIZE);
    // SAFETY: between fork and exec it makes one system call. The setting is inherited.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let mut host = Shimmed::start_command(&driver, command);
    host.must("lock");
    host.must("checkpoint");
    let buffer = host.record().buffer;
    assert_eq!(host.smaps(buffer.address, "AnonHugePages"), "0 kB");
    assert!(!host.asks_for_huge_pages(buffer.address));
    assert!(host.last("checkpoint").pages.is("4k"));
    host.must("restore");
    host.must("unlock");
    assert_eq!(host.app.wrong_words(), 0);
    assert_eq!(host.steps(Step::NoHugePages), 1);
    expect_answered(&mut host);
}

const POOL: &str = "/proc/sys/vm/nr_hugepages";

fn set_pool(machine: &mut Machine, pages: u64) {
    machine.set(POOL, &pages.to_string());
    let got = std::fs::read_to_string(POOL).expect("the pool");
    assert_eq!(got.trim(), pages.to_string(), "this test needs free memory");
}

fn free_pool_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("meminfo");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("HugePages_Free:"));
    line.and_then(|line| line.trim().parse().ok())
        .expect("HugePages_Free")
}

#[test]
fn a_hugetlb_pool_is_used_as_far_as_it_goes() {
    let mut machine = Machine::take();
    set_pool(&mut machine, 120);
    let driver = SimDriver::build(false);
    let start = |size: &str| Shimmed::start(&driver, &[size], &[("CUDASNAP_PAGES", "hugetlb")]);
    let mut host = start("100");
    for _ in 0..2 {
        host.must("lock");
        host.must("checkpoint");
        assert!(free_pool_pages() < 40);
        host.must("restore");
        host.must("unlock");
        assert_eq!(host.app.wrong_words(), 0);
        assert!(host.last("checkpoint").pages.is("hugetlb"));
        expect_whole_pool(120);
    }
    assert_eq!(host.steps_but(&[]), []);
    // Not the restore thread alone has taken them: there were helpers before those of either phase.
    let phases = host.record().counters.phases;
    assert!(host.record().counters.helpers_started > phases);
    // The pool has no room for this one.
    let mut host = start("400");
    expect_answered(&mut host);
    assert_eq!(host.steps(Step::NoHugetlb), 1);
    assert!(host.last("checkpoint").pages.is("thp"));
}

/// What is done to the helpers that take the pages, by another process (`shim-tests/hostile/pool.c`): the pages are there when the driver
/// has the address, and in the pool again afterwards.
#[test]
fn pages_of_a_pool_are_all_taken_though_helpers_are_stopped_or_killed() {
    let mut machine = Machine::take();
    set_pool(&mut machine, 120);
    for fate in ["held", "held-for-a-while", "killed"] {
        let outcome = Attack::new(&format!("pool {fate}"))
            .env("CUDASNAP_PAGES", "hugetlb")
            .env("CUDASNAP_THREADS", "2")
            .run();
        assert!(outcome.number() >= 1.0, "{fate}: nobody was met");
        // What is held for a while may be back in time: twice 200 ms are waited.
        if fate != "held-for-a-while" {
            let late = outcome.steps(Step::HelperLate);
            assert_eq!(late > 0, fate == "held", "{fate}: {late}");
        }
        assert_eq!(outcome.steps_but(&[Step::HelperLate]), [], "{fate}");
        assert!(outcome.is_covered("checkpoint") && outcome.is_covered("restore"));
        let last = outcome.record.last("checkpoint").expect("a checkpoint");
        assert!(last.pages.is("hugetlb"), "{fate}");
        expect_whole_pool(120);
    }
}

/// The buffer is the driver's own from then on, but the kernel unmaps no odd length of such pages: its munmap still comes to the shim.
#[test]
fn pages_of_a_pool_are_back_after_a_jump_out_of_a_copy() {
    let mut machine = Machine::take();
    set_pool(&mut machine, 260);
    let outcome = Attack::new("threads jump")
        .env("CUDASNAP_PAGES", "hugetlb")
        .run();
    assert_eq!(outcome.requests(), (3, 3));
    let steps = outcome.steps_but(&[]);
    assert_eq!(steps, [("disturbed", 1), ("not-effective", 1)]);
    expect_whole_pool(260);
}

/// All pages are back. Another program of the machine may have tried the pool while it was there.
fn expect_whole_pool(pages: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while free_pool_pages() != pages {
        assert!(
            Instant::now() < deadline,
            "{} of {pages}",
            free_pool_pages()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A mount of a controller that nobody uses, for as long as a test needs it.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn controller(name: &str, at: &'a Path) -> Self {
        let mount = Command::new("mount")
            .args(["-t", "cgroup", "-o", name, "none"])
            .arg(at)
            .status()
            .expect("mount");
        assert!(mount.success(), "the {name} controller cannot be mounted");
        Mount(at)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // What is left of it is told by the folder that cannot be removed.
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// mmap reserves the pages, and the group refuses them one by one when they are touched: for the driver a SIGBUS.
#[test]
fn hugetlb_pages_that_are_refused_at_the_touch_are_no_signal() {
    let mut machine = Machine::take();
    set_pool(&mut machine, 120);
    let folder = Folder::new();
    let mount = Mount::controller("hugetlb", folder.path());
    let group = Group::below(folder.path());
    group.set("hugetlb.2MB.limit_in_bytes", 40 * MIB);
    let driver = SimDriver::build(false);
    let mut host = Shimmed::start(&driver, &[SIZE], &[("CUDASNAP_PAGES", "hugetlb")]);
    group.take(host.app.pid());
    for cycle in 1..=2 {
        expect_answered(&mut host);
        assert_eq!(host.steps(Step::NoHugetlb), cycle);
        assert!(host.last("checkpoint").pages.is("thp"));
    }
    expect_whole_pool(120);
    assert!(group.number("hugetlb.2MB.failcnt") > 0);
    drop(host);
    drop(group);
    drop(mount);
}

// Fork

/// A child gets the buffer like all other memory, as it gets the driver's own; in a group that the buffer nearly fills.
#[test]
fn children_while_the_buffer_takes_most_of_the_memory() {
    const BUFFER: u64 = 300;
    let run = |shim: bool| {
        let group = Group::new("memory");
        group.set("memory.limit_in_bytes", (BUFFER + 90) * MIB);
        let mut attack = Attack::new(&format!("scarce forks {BUFFER}"));
        group.holds(attack.command());
        if shim {
            let outcome = attack.run();
            assert_eq!(outcome.requests(), (1, 1));
            assert!(outcome.is_covered("checkpoint"));
            outcome.detail
        } else {
            attack.without_shim().run_stock()
        }
    };
    assert_eq!(run(false), "cycle");
    assert_eq!(run(true), "cycle");
}
