//! `cudasnap buffer` on checkpointed processes of the simulated driver, from another process.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cudasnap_shim_tests::shimmed::Shimmed;
use cudasnap_shim_tests::simdriver::{App, SimDriver};
use cudasnap_shim_tests::tool::Said;

/// MiB of device memory of the programs.
const MIB: &str = "24";
/// A word of the program's pattern (`shim-tests/sim/pattern.h`): seed 1, first piece, device 0.
const WORD: u64 = 100_000;

fn pattern_word(index: u64) -> u64 {
    let seed_and_piece = |key: u64, index: u64| {
        let mut z = key.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z ^= z >> 31;
        z = z.wrapping_add(z << 21);
        z ^= z >> 17;
        z = z.wrapping_add(z << 5);
        z ^ (z >> 29)
    };
    seed_and_piece(seed_and_piece(1, 1), index)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn word_hex() -> String {
    hex(&pattern_word(WORD).to_le_bytes())
}

/// A folder of this test's own, in which the tool runs; gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cudasnap-buf-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Files in it whose names begin so.
    fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.starts_with(prefix)
            })
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program under the shim, with the tool at hand.
struct Bench {
    host: Shimmed,
    folder: Folder,
}

impl Bench {
    fn new(name: &str) -> Self {
        Self::with(name, &[])
    }

    fn with(name: &str, environment: &[(&str, &str)]) -> Self {
        let driver = SimDriver::build(false);
        Bench {
            host: Shimmed::start(&driver, &[MIB], environment),
            folder: Folder::new(name),
        }
    }

    fn checkpointed(name: &str) -> Self {
        let bench = Self::new(name);
        bench.checkpoint();
        bench
    }

    fn checkpoint(&self) {
        self.host.must("lock");
        self.host.must("checkpoint");
    }

    fn restore(&self) {
        self.host.must("restore");
        self.host.must("unlock");
    }

    fn command(&self, arguments: &str) -> Command {
        let arguments = format!("buffer {} {arguments}", self.host.app.pid());
        let mut command = self.host.driver.tool(&arguments);
        command.current_dir(&self.folder.0);
        command
    }

    fn said(&self, arguments: &str) -> Said {
        Said::by(&mut self.command(arguments))
    }

    fn must(&self, arguments: &str) -> Said {
        let said = self.said(arguments);
        assert_eq!(said.code, 0, "{arguments}: {said:?}");
        said
    }

    /// A call that is refused with these words on stderr, and nothing on stdout.
    fn refused(&self, arguments: &str, words: &str) {
        let said = self.said(arguments);
        assert_eq!(said.code, 4, "{arguments}: {said:?}");
        assert!(
            said.stderr.starts_with("cudasnap: ") && said.stderr.contains(words),
            "{arguments}: {said:?}"
        );
    }

    /// The offset of the program's known word.
    fn offset(&self) -> u64 {
        let found = self.must(&format!("find {} --json", word_hex()));
        assert_eq!(found.json()["count"], 1, "{found:?}");
        found.json()["offsets"][0].as_u64().unwrap()
    }

    fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut command = self.command(&format!("read {offset} {length} --raw"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout.len(), length);
        output.stdout
    }
}

#[test]
fn a_word_is_found_changed_and_put_back_and_the_program_sees_it() {
    let mut bench = Bench::checkpointed("edit");
    let offset = bench.offset();
    let found = bench.must(&format!("find --u64 {}", pattern_word(WORD)));
    let first = found.stdout.split_whitespace().next().unwrap();
    assert_eq!(u64::from_str_radix(&first[2..], 16), Ok(offset));
    assert!(found.stderr.contains("1 place in "), "{found:?}");
    assert!(found.stderr.contains("GB/s"), "{found:?}");

    let shown = bench.must(&format!("write {offset} --u64 42"));
    assert!(shown.stdout.contains("->  2a 00 00 00"), "{shown:?}");
    assert!(shown.stderr.contains("nothing was written: --yes"));
    assert_eq!(bench.bytes(offset, 8), pattern_word(WORD).to_le_bytes());
    assert!(bench.folder.files("cudasnap-undo").is_empty());

    let written = bench.must(&format!("write {offset} --u64 42 --yes"));
    assert!(written
        .stderr
        .contains("the old bytes are in cudasnap-undo-"));
    assert!(written.stderr.contains(" --yes puts them back"));
    assert_eq!(bench.bytes(offset, 8), 42u64.to_le_bytes());
    let undo = bench.folder.files("cudasnap-undo");
    assert_eq!(undo.len(), 1);
    let mode = std::fs::metadata(&undo[0]).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    bench.restore();
    assert_eq!(bench.host.app.wrong_words(), 1);

    bench.checkpoint();
    let undo = undo[0].display();
    let dry = bench.must(&format!("undo {undo}"));
    assert!(dry.stderr.contains("nothing was written"), "{dry:?}");
    assert_eq!(bench.bytes(offset, 8), 42u64.to_le_bytes());
    bench.must(&format!("undo {undo} --yes"));
    let again = bench.must(&format!("undo {undo} --yes"));
    assert!(again.stderr.contains("nothing to do"), "{again:?}");
    bench.restore();
    assert_eq!(bench.host.app.wrong_words(), 0);
    assert_eq!(bench.host.steps_but(&[]), []);
}

#[test]
fn undo_refuses_what_is_not_as_it_was_left() {
    let bench = Bench::checkpointed("undo");
    let offset = bench.offset();
    bench.must(&format!("write {offset} 0102 --yes --undo one"));
    bench.must(&format!("write {offset} 0304 --yes --undo two"));
    bench.refused("undo one --yes", "not those that were written");
    assert_eq!(bench.bytes(offset, 2), [3, 4]);
    // The same id with another start: another process.
    let text = std::fs::read_to_string(bench.folder.file("two")).unwrap();
    let at = text.find("\"started\": ").unwrap() + 11;
    let reused = format!("{}9{}", &text[..at], &text[at..]);
    std::fs::write(bench.folder.file("reused"), reused).unwrap();
    bench.refused("undo reused --yes", "had the same id");
    bench.refused("undo nowhere --yes", "No such file or directory");
    std::fs::write(bench.folder.file("junk"), "{\"kind\":1}").unwrap();
    bench.refused("undo junk --yes", "no undo file");
    let length = text.replace("\"buffer_length\": ", "\"buffer_length\": 1");
    std::fs::write(bench.folder.file("length"), length).unwrap();
    bench.refused("undo length --yes", "it was made for a buffer of");
    assert_eq!(bench.bytes(offset, 2), [3, 4]);
    bench.must("undo reused --yes --other-process");
    bench.must("undo one --yes");
    assert_eq!(bench.bytes(offset, 8), pattern_word(WORD).to_le_bytes());
}

#[test]
fn a_write_that_was_cut_off_can_be_undone() {
    let bench = Bench::checkpointed("cut-off");
    let offset = bench.offset();
    let before = pattern_word(WORD).to_le_bytes();
    let new = before.map(|byte| byte ^ 0xff);
    bench.must(&format!("write {offset} {} --yes --undo all", hex(&new)));
    // As a tool that is killed in the middle of a write leaves it.
    bench.must(&format!(
        "write {offset} {} --yes --undo half",
        hex(&before[..3])
    ));
    bench.must("undo all --yes");
    assert_eq!(bench.bytes(offset, 8), before);
}

#[test]
fn an_undo_file_that_is_there_is_not_overwritten_and_nothing_is_written() {
    let bench = Bench::checkpointed("undo-there");
    let offset = bench.offset();
    std::fs::write(bench.folder.file("here"), "mine").unwrap();
    bench.refused(
        &format!("write {offset} 00 --yes --undo here"),
        "is not overwritten",
    );
    bench.refused(
        &format!("write {offset} 00 --yes --undo no/such/folder"),
        "No such file or directory",
    );
    assert_eq!(std::fs::read(bench.folder.file("here")).unwrap(), b"mine");
    assert_eq!(bench.bytes(offset, 8), pattern_word(WORD).to_le_bytes());
}

#[test]
fn a_process_that_runs_is_listed_and_refused() {
    let bench = Bench::new("runs");
    let listed = bench.must("");
    assert!(listed.stdout.contains("not checkpointed"), "{listed:?}");
    assert_eq!(
        bench.must("list --json").json()["buffers"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    bench.host.must("lock");
    for action in [
        "read 0 16",
        "find 00",
        "write 0 00 --yes",
        "undo x --yes",
        "save x",
        "load x --yes",
        "read 0 16 --at 7f0000000000",
    ] {
        bench.refused(action, "is not checkpointed");
    }
    assert!(bench.folder.files("").is_empty());
}

#[test]
fn the_list_tells_place_length_and_pages() {
    let bench = Bench::checkpointed("list");
    let buffer = bench.host.record().buffer;
    let json = bench.must("list --json").json();
    assert_eq!(
        (&json["schema"], &json["state"]),
        (&1.into(), &"checkpointed".into())
    );
    assert_eq!(json["found_by"], "record");
    let row = &json["buffers"][0];
    assert_eq!(row["kind"], "buffer");
    assert_eq!(row["address"].as_u64(), Some(buffer.address));
    assert_eq!(row["length"].as_u64(), Some(buffer.length));
    assert!(row["resident"].as_u64().unwrap() >= buffer.length);
    let text = bench.must("").stdout;
    assert!(text.contains(&format!("{:#x}-", buffer.address)), "{text}");
    assert!(text.contains(&buffer.length.to_string()), "{text}");
}

#[test]
fn a_kept_buffer_is_listed_as_such_and_not_touched() {
    let bench = Bench::with("kept", &[("CUDASNAP_BUFFER", "keep")]);
    bench.checkpoint();
    bench.restore();
    let json = bench.must("list --json").json();
    assert_eq!(json["state"], "not checkpointed");
    assert_eq!(json["buffers"][0]["kind"], "kept");
    bench.refused("read 0 16", "keeps for its next checkpoint");
}

#[test]
fn an_observed_buffer_is_the_drivers_own() {
    let bench = Bench::with("observe", &[("CUDASNAP", "observe")]);
    bench.checkpoint();
    assert!(bench.host.record().buffer.state.is("observed"));
    let offset = bench.offset();
    assert_eq!(bench.bytes(offset, 8), pattern_word(WORD).to_le_bytes());
    bench.restore();
    bench.refused("read 0 16", "is not checkpointed");
}

#[test]
fn a_library_that_cannot_see_is_no_witness() {
    for (relro, environment) in [(true, [("CUDASNAP", "on")]), (false, [("CUDASNAP", "off")])] {
        let folder = Folder::new(&format!("blind-{relro}"));
        let driver = SimDriver::build(relro);
        let host = Shimmed::start(&driver, &[MIB], &environment);
        let before = folder.file("before");
        std::fs::copy(format!("/proc/{}/maps", host.app.pid()), &before).unwrap();
        host.must("lock");
        host.must("checkpoint");
        let said = |arguments: &str| driver.said(&format!("buffer {} {arguments}", host.app.pid()));
        let listed = said("list --json").json();
        assert_eq!(listed["state"], "unknown", "{listed}");
        let refused = said("read 0 16");
        assert!(
            refused.code == 4 && refused.stderr.contains("--before FILE"),
            "{refused:?}"
        );
        let found = said(&format!(
            "find {} --json --before {}",
            word_hex(),
            before.display()
        ));
        assert_eq!(found.json()["count"], 1, "{found:?}");
    }
}

#[test]
fn hexdump_raw_and_ranges() {
    let bench = Bench::checkpointed("read");
    let offset = bench.offset();
    let dump = bench.must(&format!("read {offset:#x} 24")).stdout;
    assert_eq!(dump.lines().count(), 2, "{dump}");
    let spaced: Vec<String> = pattern_word(WORD)
        .to_le_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(
        dump.starts_with(&format!("0x{offset:08x}  {}", spaced.join(" "))),
        "{dump}"
    );
    assert_eq!(
        bench.must("read 0").stdout.lines().last().map(str::len),
        dump.lines().next().map(str::len)
    );
    let length = bench.host.record().buffer.length;
    assert_eq!(bench.bytes(length - 3, 3).len(), 3);
    assert_eq!(bench.must(&format!("read {length} 0")).stdout, "");
    let told = format!("which has {length} bytes");
    for range in [
        format!("{length} 1"),
        "0 1T".into(),
        format!("0 {}", length + 1),
        "18446744073709551615 1".into(),
        "1 0xffffffffffffffff".into(),
        "0xffffffffffffffff 0xffffffffffffffff".into(),
    ] {
        bench.refused(&format!("read {range}"), &told);
    }
    bench.refused("write 0xffffffffffffffff 00 --yes", &told);
    bench.refused(&format!("write {} 0000 --yes", length - 1), &told);
    assert!(bench.folder.files("").is_empty());
}

#[test]
fn words_that_are_not_understood_are_usage_errors() {
    let bench = Bench::checkpointed("usage");
    for line in [
        "read x 1",
        "read -1 1",
        "read 99999999999999999999 1",
        "find",
        "find 0",
        "find xx",
        "find 0x2a",
        "find 00 --text x",
        "find --u32 4294967296",
        "write 0",
        "write 0 --f32 x",
        "read 0 --at zz",
        "read 0 --at 10 --before x",
        "nonsense",
    ] {
        let said = bench.said(line);
        assert_eq!(said.code, 2, "{line}: {said:?}");
        assert!(!said.stderr.is_empty());
    }
}

#[test]
fn finding_nothing_is_status_one_and_more_than_the_limit_is_told() {
    let bench = Bench::checkpointed("find");
    let nothing = bench.said("find --text this-is-not-in-there-4711");
    assert_eq!((nothing.code, nothing.stdout.as_str()), (1, ""));
    assert!(nothing.stderr.contains("not found"), "{nothing:?}");
    let many = bench.must("find 00 --limit 3");
    assert_eq!(many.stdout.lines().count(), 3);
    assert!(many.stderr.contains("the first 3 shown"), "{many:?}");
    let spaced = word_hex()
        .as_bytes()
        .chunks(2)
        .map(|pair| String::from_utf8_lossy(pair).into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    assert_eq!(
        bench.must(&format!("find {spaced}")).stdout.lines().count(),
        1
    );
}

#[test]
fn a_reader_of_stdout_that_goes_is_no_failure() {
    let bench = Bench::checkpointed("pipe");
    for line in [
        "read 0 20M --all",
        "read 0 20M --raw",
        "find 00 --limit 100000",
    ] {
        let mut child = bench
            .command(line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut some = [0; 10];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut some).unwrap();
        drop(stdout);
        let said = Said::from(child.wait_with_output().unwrap());
        assert_eq!(said.code, 0, "{line}: {said:?}");
        assert!(!said.stderr.contains("panicked"), "{said:?}");
    }
}

#[test]
fn a_saved_buffer_is_put_back() {
    let mut bench = Bench::checkpointed("save");
    let offset = bench.offset();
    let length = bench.host.record().buffer.length;
    let saved = bench.must("save all");
    assert!(saved.stderr.contains("blake3"), "{saved:?}");
    bench.must("save raw --raw");
    let file = std::fs::read(bench.folder.file("all")).unwrap();
    let raw = std::fs::read(bench.folder.file("raw")).unwrap();
    assert_eq!(
        (file.len() as u64, raw.len() as u64),
        (length + 4096, length)
    );
    assert!(file[4096..] == raw[..]);
    let head = String::from_utf8_lossy(&file[..4096]);
    assert!(head.starts_with("CUDASNAPBUF 1\n{\"length\""), "{head}");
    let mode = std::fs::metadata(bench.folder.file("all"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let same = bench.must("load all --yes");
    assert!(same.stdout.contains(": 0 of ") && same.stderr.contains("nothing to do"));
    bench.must(&format!("write {offset} ffffffffffffffff --yes"));
    bench.must("write 0 --text changed --yes");
    let dry = bench.must("load all");
    assert!(dry.stdout.contains("in 2 of "), "{dry:?}");
    assert!(dry.stderr.contains("nothing was written"));
    assert_eq!(bench.bytes(offset, 8), [0xff; 8]);
    let huge = bench
        .host
        .smaps(bench.host.record().buffer.address, "AnonHugePages");
    let loaded = bench.must("load all --yes");
    assert!(loaded.stderr.contains("loaded"), "{loaded:?}");
    assert_eq!(
        bench
            .host
            .smaps(bench.host.record().buffer.address, "AnonHugePages"),
        huge
    );
    assert_eq!(bench.bytes(offset, 8), pattern_word(WORD).to_le_bytes());
    bench.restore();
    assert_eq!(bench.host.app.wrong_words(), 0);
}

#[test]
fn files_that_do_not_fit_are_refused_and_nothing_is_written() {
    let bench = Bench::checkpointed("unfit");
    let offset = bench.offset();
    bench.must("save all");
    bench.must(&format!("write {offset} 00 --yes"));
    let good = std::fs::read(bench.folder.file("all")).unwrap();
    let altered = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        std::fs::write(bench.folder.file(name), bytes).unwrap();
    };
    altered("bit", &|bytes| bytes[5_000_000] ^= 1);
    altered("short", &|bytes| bytes.truncate(5_000_000));
    altered("long", &|bytes| bytes.push(0));
    altered("head", &|bytes| bytes[20] = b'x');
    altered("unfinished", &|bytes| bytes[..4096].fill(0));
    altered("empty", &|bytes| bytes.clear());
    for (name, words) in [
        ("bit", "do not have the fingerprint"),
        ("short", "damaged: its head tells of"),
        ("long", "damaged: its head tells of"),
        ("head", "its head is damaged"),
        ("unfinished", "no buffer that `save` finished"),
        ("empty", "no buffer that `save` finished"),
        (".", "no regular file"),
        ("nowhere", "No such file"),
    ] {
        bench.refused(&format!("load {name} --yes"), words);
    }
    bench.refused("save all", "is not overwritten");
    assert_eq!(std::fs::read(bench.folder.file("all")).unwrap(), good);
    bench.refused("save no/such/folder", "No such file");

    // Another process: its buffer is as long, but it is not this one. And one whose buffer is longer.
    let driver = &bench.host.driver;
    let other = Shimmed::start(driver, &[MIB], &[]);
    let longer = Shimmed::start(driver, &["32"], &[]);
    for host in [&other, &longer] {
        host.must("lock");
        host.must("checkpoint");
    }
    let all = bench.folder.file("all");
    let load = |host: &Shimmed, more: &str| {
        driver.said(&format!(
            "buffer {} load {} {more}",
            host.app.pid(),
            all.display()
        ))
    };
    let said = load(&other, "--yes");
    assert!(
        said.code == 4 && said.stderr.contains("is of another process"),
        "{said:?}"
    );
    let said = load(&longer, "--yes --other-process");
    assert!(
        said.code == 4 && said.stderr.contains("the buffer of process"),
        "{said:?}"
    );
    let said = load(&other, "--yes --other-process");
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(bench.bytes(offset, 1), [0]);
}

/// A program without the shim, and a copy of its maps from before its checkpoint.
fn stock(driver: &SimDriver, folder: &Folder) -> (App, PathBuf) {
    let app = driver.app(&[MIB], &[]);
    let before = folder.file("before");
    std::fs::copy(format!("/proc/{}/maps", app.pid()), &before).unwrap();
    (app, before)
}

fn control(driver: &SimDriver, app: &App, actions: &[&str]) {
    for action in actions {
        let done = driver.control(action, app.pid(), &[]);
        assert_eq!(done.code, 0, "{action}: {}", done.stderr);
    }
}

#[test]
fn without_the_shim_the_buffer_is_what_appeared() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("stock");
    let (mut app, before) = stock(&driver, &folder);
    let pid = app.pid();
    let said = |arguments: &str| {
        let mut command = driver.tool(&format!("buffer {pid} {arguments}"));
        Said::by(command.current_dir(&folder.0))
    };
    let since = format!("--before {}", before.display());
    // Not checkpointed: nothing appeared.
    let none = said(&format!("read 0 16 {since}"));
    assert!(
        none.code == 4 && none.stderr.contains("no large private memory appeared"),
        "{none:?}"
    );
    control(&driver, &app, &["lock", "checkpoint"]);
    let unknown = said("read 0 16");
    assert!(
        unknown.code == 4 && unknown.stderr.contains("--before FILE"),
        "{unknown:?}"
    );
    let listed = said("list --json").json();
    assert_eq!(listed["state"], "unknown");
    let candidates = listed["buffers"].as_array().unwrap().clone();
    assert!(candidates.iter().all(|row| row["kind"] == "candidate") && !candidates.is_empty());

    let found = said(&format!("find {} --json {since}", word_hex()));
    assert_eq!(found.code, 0, "{found:?}");
    assert!(
        found.stderr.contains("taken from the command line"),
        "{found:?}"
    );
    let offset = found.json()["offsets"][0].as_u64().unwrap();
    let listed = said(&format!("list --json {since}")).json();
    let row = &listed["buffers"][0];
    assert_eq!(
        (&listed["found_by"], &row["kind"]),
        (&"command line".into(), &"buffer".into())
    );
    let address = row["address"].as_u64().unwrap();
    assert!(candidates.iter().any(|one| one["address"] == address));
    let by_address = said(&format!("find {} --json --at {address:x}", word_hex()));
    assert_eq!(by_address.json()["offsets"][0].as_u64(), Some(offset));
    let length = row["length"].as_u64().unwrap();
    let range = said(&format!(
        "read 0 {length} --raw --at {address:x}-{:x}",
        address + 4096
    ));
    assert!(
        range.code == 4 && range.stderr.contains("which has 4096 bytes"),
        "{range:?}"
    );

    let written = said(&format!("write {offset} 00 --yes --undo undo {since}"));
    assert_eq!(written.code, 0, "{written:?}");
    control(&driver, &app, &["restore", "unlock"]);
    assert_eq!(app.wrong_words(), 1);
    // Restored: what appeared is gone again.
    let gone = said(&format!("write {offset} 00 --yes {since}"));
    assert!(
        gone.code == 4 && gone.stderr.contains("no large private memory appeared"),
        "{gone:?}"
    );
    control(&driver, &app, &["lock", "checkpoint"]);
    let undone = said(&format!("undo undo --yes {since}"));
    assert_eq!(undone.code, 0, "{undone:?}");
    control(&driver, &app, &["restore", "unlock"]);
    assert_eq!(app.wrong_words(), 0);
}

#[test]
fn places_that_cannot_be_the_buffer_are_refused() {
    let driver = SimDriver::build(false);
    let folder = Folder::new("places");
    let (app, before) = stock(&driver, &folder);
    control(&driver, &app, &["lock", "checkpoint"]);
    let pid = app.pid();
    let own = std::process::id();
    std::fs::write(folder.file("junk"), "hello\n").unwrap();
    // Of another program: no file of it is mapped where the program has one.
    std::fs::copy("/proc/self/maps", folder.file("other")).unwrap();
    let maps = std::fs::read_to_string(&before).unwrap();
    let text = maps.lines().find(|line| line.contains("r-xp")).unwrap();
    let text = text.split('-').next().unwrap();
    for (line, words) in [
        (format!("{pid} read 0 --at 10"), "nothing is mapped at 0x10"),
        (
            format!("{pid} read 0 --at {text}"),
            "no private writable memory all over",
        ),
        (
            format!("{pid} read 0 --before {}", folder.file("junk").display()),
            "no line of it",
        ),
        (
            format!("{pid} read 0 --before {}", folder.file("other").display()),
            "another process's maps",
        ),
        (format!("{own} read 0 --at 10"), "does not use CUDA"),
        (format!("{own} read 0"), "does not use CUDA"),
    ] {
        let said = driver.said(&format!("buffer {line}"));
        assert!(
            said.code == 4 && said.stderr.contains(words),
            "{line}: {said:?}"
        );
    }
}

#[test]
fn pids_that_are_none_change_nothing() {
    let bench = Bench::checkpointed("pids");
    let restore_thread = std::fs::read_dir(format!("/proc/{}/task", bench.host.app.pid()))
        .unwrap()
        .filter_map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_string_lossy()
                .parse::<u32>()
                .ok()
        })
        .find(|tid| *tid != bench.host.app.pid())
        .unwrap();
    for (pid, words) in [
        (
            "2147483646".to_string(),
            "no process has the id".to_string(),
        ),
        (
            restore_thread.to_string(),
            format!("give the process's id, {}", bench.host.app.pid()),
        ),
    ] {
        for action in ["", "write 0 00 --yes", "save x"] {
            let said = bench.host.driver.said(&format!("buffer {pid} {action}"));
            assert!(
                said.code == 1 && said.stderr.contains(&words),
                "{pid} {action}: {said:?}"
            );
        }
    }
    for pid in ["0", "-1", "x", "99999999999"] {
        assert_eq!(
            bench.host.driver.said(&format!("buffer {pid} list")).code,
            2,
            "{pid}"
        );
    }
}

#[test]
fn another_users_process_is_refused_with_the_right_that_is_missing() {
    let bench = Bench::checkpointed("user");
    // The binary and the folder must be within the other user's reach.
    let tool = bench.folder.file("tool");
    std::fs::copy(cudasnap_shim_tests::tool::binary(), &tool).unwrap();
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&bench.folder.0, PermissionsExt::from_mode(0o777)).unwrap();
    let pid = bench.host.app.pid().to_string();
    for action in [
        &["list"][..],
        &["read", "0"],
        &["write", "0", "00", "--yes"],
        &["save", "x"],
    ] {
        let mut command = Command::new(&tool);
        command
            .args(["buffer", &pid])
            .args(action)
            .current_dir(&bench.folder.0)
            .uid(65534);
        let said = Said::by(&mut command);
        assert_eq!(said.code, 4, "{action:?}: {said:?}");
        assert!(
            said.stderr
                .contains("it belongs to user 0 and this is user 65534"),
            "{said:?}"
        );
    }
    assert!(!bench.folder.file("x").exists());
}

#[test]
fn a_process_that_ends_is_an_error_value() {
    let bench = Bench::checkpointed("ends");
    let pid = bench.host.app.pid();
    let Bench { host, folder } = bench;
    let driver = host.driver.clone();
    drop(host);
    let said = Said::by(
        driver
            .tool(&format!("buffer {pid} save x"))
            .current_dir(&folder.0),
    );
    assert!(
        said.code == 1 && said.stderr.contains("no process has the id"),
        "{said:?}"
    );
    assert!(folder.files("").is_empty());
}

/// Waits until it is so.
fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_buffer_that_vanishes_in_the_middle_is_told_and_no_file_stays() {
    let bench = Bench::checkpointed("vanish");
    // The tool writes into a pipe that nobody empties yet, so it stands in the middle of its reading.
    let mut child = bench
        .command("read 0 60M --raw")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0];
    stdout.read_exact(&mut first).unwrap();
    bench.restore();
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    drop(stdout);
    let said = Said::from(child.wait_with_output().unwrap());
    assert!(
        said.code == 1 && said.stderr.contains("was restored meanwhile"),
        "{said:?}"
    );

    // A save that loses its buffer.
    let said = interrupted_save(&bench, |child| {
        bench.restore();
        signal(child, libc::SIGCONT);
    });
    assert!(
        said.code == 1 && said.stderr.contains("was restored meanwhile"),
        "{said:?}"
    );
    assert!(!bench.folder.file("x").exists());
}

/// A save to `x` to which something happens while it is stopped in its middle. One that was through before it could be
/// stopped is made again.
fn interrupted_save(bench: &Bench, happens: impl Fn(&Child)) -> Said {
    let path = bench.folder.file("x");
    for _ in 0..50 {
        if bench.host.record().buffer.state.is("none") {
            bench.checkpoint();
        }
        let mut child = bench
            .command("save x")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for("the file", || path.exists());
        signal(&child, libc::SIGSTOP);
        happens(&child);
        let said = ended(&mut child);
        if said.code != 0 {
            return said;
        }
        std::fs::remove_file(&path).unwrap();
    }
    panic!("no save could be stopped in its middle");
}

fn signal(child: &Child, number: i32) {
    // SAFETY: takes two numbers; the child has not been waited for, so its id is its own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, number) }, 0);
}

fn ended(child: &mut Child) -> Said {
    let mut stderr = String::new();
    let mut from = child.stderr.take().unwrap();
    from.read_to_string(&mut stderr).unwrap();
    let status = child.wait().unwrap();
    Said {
        code: status.code().unwrap_or(-1),
        stdout: String::new(),
        stderr,
    }
}

#[test]
fn an_interrupted_save_leaves_no_file() {
    let bench = Bench::checkpointed("interrupt");
    for number in [libc::SIGINT, libc::SIGTERM] {
        let said = interrupted_save(&bench, |child| {
            signal(child, number);
            signal(child, libc::SIGCONT);
        });
        assert_eq!(said.code, 128 + number, "{said:?}");
        assert!(said.stderr.contains("was removed again"), "{said:?}");
        assert!(!bench.folder.file("x").exists());
    }
    bench.must("save x");
}

#[test]
fn a_full_disk_is_seen_before_and_in_the_middle() {
    let bench = Bench::checkpointed("full");
    let disk = bench.folder.file("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = |size: &str| {
        Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(&disk)
            .status()
            .is_ok_and(|status| status.success())
    };
    // Where nothing can be mounted (a container without the right), a file limit stands for the full disk alone.
    if mount("8m") {
        let said = bench.said("save disk/x");
        let _ = Command::new("umount").arg(&disk).status();
        assert!(
            said.code == 4 && said.stderr.contains("are free on this disk"),
            "{said:?}"
        );
    }
    let mut command = bench.command("save y");
    // SAFETY: setrlimit and signal are async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 8 << 20,
                rlim_max: 8 << 20,
            };
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        })
    };
    let said = Said::by(&mut command);
    assert!(
        said.code == 1 && said.stderr.contains("was removed again"),
        "{said:?}"
    );
    assert!(!Path::new(&bench.folder.file("y")).exists());
}

#[test]
fn help_names_every_action() {
    let driver = SimDriver::build(false);
    let help = driver.must_say("buffer --help");
    for action in [
        "list", "read", "find", "write", "undo", "save", "load", "--before", "--at",
    ] {
        assert!(help.contains(action), "{action}: {help}");
    }
}
