//! The order, sizes, offsets and flags of the simulated driver's calls are those of the recorded traces of the real one: the plan
//! for all eight recorded processes, and what a preloaded logger sees of running ones.

use std::collections::HashMap;
use std::path::Path;

use cudasnap_shim_tests::simdriver::{repository, SimDriver};

/// The recorded context: what `CUDASIM_CONTEXT_MIB` has to be.
const CONTEXT_MIB: &str = "528";
/// Driver memory with a fixed place lies below; what the kernel places lies above.
const FIXED_BELOW: u64 = 0x3_0000_0000;

const PREFIX: &str = "h200-580.159.04-";
const TRACES: [&str; 8] = [
    "1gpu-2GiB",
    "1gpu-8GiB",
    "2gpu-2GiB-each",
    "1of2gpu-512MiB",
    "1of2gpu-1024MiB",
    "1of2gpu-3000MiB",
    "2gpu-700MiB-each",
    "2gpu-3072MiB-each",
];

#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    name: String,
    direction: String,
    address: String,
    offset: String,
    bytes: u64,
    protection: String,
    flags: String,
}

impl Call {
    /// A reservation that found its address taken, and its removal: made anywhere.
    fn is_probe(&self, next: Option<&Call>) -> bool {
        self.flags == "0x22"
            && next.is_some_and(|n| {
                n.name == "munmap" && n.address == self.address && n.bytes == self.bytes
            })
    }

    fn fixed_address(&self) -> Option<u64> {
        let digits = self.address.strip_prefix("0x")?;
        let address = u64::from_str_radix(digits, 16).ok()?;
        (address < FIXED_BELOW).then_some(address)
    }
}

/// Reads CSV with the columns of the recorded traces (`t_us` first) or of the trimmed ones (`call` first).
fn read_calls(text: &str) -> Vec<Call> {
    let mut lines = text.lines();
    let skipped = if lines.next().is_some_and(|l| l.starts_with("t_us")) {
        2
    } else {
        0
    };
    let mut calls = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').skip(skipped).collect();
        let call = Call {
            name: fields[0].into(),
            direction: fields[1].into(),
            address: fields[2].into(),
            offset: fields[3].into(),
            bytes: fields[4].parse().expect("bytes"),
            protection: fields[5].into(),
            flags: fields[6].into(),
        };
        let repeat: u64 = fields.get(7).map_or(1, |f| f.parse().expect("repeat"));
        for i in 0..repeat {
            let mut copy = call.clone();
            if i > 0 {
                let first: u64 = call.offset.parse().expect("offset");
                copy.offset = (first + i * call.bytes).to_string();
                copy.address = fields[if i % 2 == 0 { 2 } else { 8 }].into();
            }
            calls.push(copy);
        }
    }
    calls
}

/// Equal but for the addresses that a kernel chose: those must correspond one to one.
fn assert_same(expected: &[Call], found: &[Call]) {
    let mut there: HashMap<&str, &str> = HashMap::new();
    let mut back: HashMap<&str, &str> = HashMap::new();
    let mut probe_ends = false;
    for (i, (e, f)) in expected.iter().zip(found).enumerate() {
        let same = e.name == f.name
            && e.direction == f.direction
            && e.offset == f.offset
            && e.bytes == f.bytes
            && e.protection == f.protection
            && e.flags == f.flags;
        assert!(same, "call {i}: expected {e:?}, found {f:?}");
        let probe = e.is_probe(expected.get(i + 1));
        assert_eq!(probe, f.is_probe(found.get(i + 1)), "call {i}");
        if probe || std::mem::replace(&mut probe_ends, probe) {
            probe_ends = probe;
            continue;
        }
        match e.fixed_address() {
            Some(address) => assert_eq!(Some(address), f.fixed_address(), "call {i}: {f:?}"),
            None => {
                assert_eq!(
                    *there.entry(&e.address).or_insert(&f.address),
                    f.address,
                    "call {i}"
                );
                assert_eq!(
                    *back.entry(&f.address).or_insert(&e.address),
                    e.address,
                    "call {i}"
                );
            }
        }
    }
    assert_eq!(expected.len(), found.len());
}

fn recorded(name: &str) -> Vec<Call> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("traces")
        .join(name);
    read_calls(&std::fs::read_to_string(path).expect("trimmed trace"))
}

/// What `simapp` allocates on a device: pieces of 1 GiB, the rest but for 8 MiB, and one of an odd size.
fn simapp_device(mib: u64) -> String {
    assert!(mib > 8);
    let full = (mib - 1) / 1024;
    let mut sizes = vec!["1024".to_string(); usize::try_from(full).expect("small")];
    let rest = mib - 1024 * full;
    if rest > 8 {
        sizes.push((rest - 8).to_string());
    }
    sizes.push(format!("{}b", (6 << 20) + 1000));
    sizes.join(",")
}

/// The processes of the three older traces held 2 MiB more per device than their contexts and `mib`: whether small allocations
/// of theirs, packed into one block, or something that simapp does not use, is not known.
fn older_device(mib: u64) -> String {
    format!("{mib},2")
}

/// A device that the process sees and has no context on.
fn idle_device() -> String {
    "-".to_string()
}

fn planned(context_mib: &str, devices: &[String]) -> Vec<Call> {
    let driver = SimDriver::build(false);
    let mut calls = Vec::new();
    for direction in ["checkpoint", "restore"] {
        let output = driver
            .command("simplan")
            .args([direction, context_mib])
            .args(devices)
            .output()
            .expect("simplan starts");
        assert!(output.status.success(), "{output:?}");
        calls.extend(read_calls(&String::from_utf8_lossy(&output.stdout)));
    }
    calls
}

/// A cycle of a running process under the logger.
fn traced(context_mib: &str, arguments: &[&str], devices: &str) -> Vec<Call> {
    let driver = SimDriver::build(false);
    let tracer = driver.programs.join("libsimtracer.so");
    let out = std::env::temp_dir().join(format!("simtrace-{}-{devices}.csv", std::process::id()));
    let mut app = driver.app(
        arguments,
        &[
            ("CUDASIM_CONTEXT_MIB", context_mib),
            ("CUDASIM_DEVICES", devices),
            ("LD_PRELOAD", tracer.to_str().expect("text")),
            ("SIMTRACER_OUT", out.to_str().expect("text")),
        ],
    );
    let cycle = driver.control("cycle", app.pid(), &[]);
    assert_eq!(cycle.code, 0, "{}", cycle.stderr);
    assert_eq!(app.wrong_words(), 0);
    let calls = read_calls(&std::fs::read_to_string(&out).expect("the logger wrote"));
    std::fs::remove_file(&out).expect("removable");
    calls
}

/// The copies cover LEN exactly, each byte once, in both directions.
fn assert_covers(calls: &[Call]) {
    for direction in ["to_buffer", "from_buffer"] {
        let mut parts: Vec<(u64, u64)> = calls
            .iter()
            .filter(|c| c.direction == direction)
            .map(|c| (c.offset.parse().expect("offset"), c.bytes))
            .collect();
        parts.sort_unstable();
        let end = parts.iter().fold(0, |end, (offset, bytes)| {
            assert_eq!(end, *offset);
            end + bytes
        });
        assert_eq!(end, calls[0].bytes);
    }
}

fn assert_plan_is_the_recording(name: &str, devices: &[String]) {
    let recorded = recorded(&format!("{PREFIX}{name}.csv"));
    assert_covers(&recorded);
    assert_same(&recorded, &planned(CONTEXT_MIB, devices));
}

#[test]
fn plan_is_the_recorded_trace_of_2_gib() {
    assert_plan_is_the_recording("1gpu-2GiB", &[older_device(2048)]);
}

#[test]
fn plan_is_the_recorded_trace_of_8_gib() {
    assert_plan_is_the_recording("1gpu-8GiB", &[older_device(8192)]);
}

#[test]
fn plan_is_the_recorded_trace_of_2_gib_on_each_of_two_gpus() {
    assert_plan_is_the_recording("2gpu-2GiB-each", &[older_device(2048), older_device(2048)]);
}

#[test]
fn plan_is_the_recorded_trace_of_512_mib_on_one_of_two_gpus() {
    assert_plan_is_the_recording("1of2gpu-512MiB", &[simapp_device(512), idle_device()]);
}

#[test]
fn plan_is_the_recorded_trace_of_1024_mib_on_one_of_two_gpus() {
    assert_plan_is_the_recording("1of2gpu-1024MiB", &[simapp_device(1024), idle_device()]);
}

#[test]
fn plan_is_the_recorded_trace_of_3000_mib_on_one_of_two_gpus() {
    assert_plan_is_the_recording("1of2gpu-3000MiB", &[simapp_device(3000), idle_device()]);
}

#[test]
fn plan_is_the_recorded_trace_of_700_mib_on_each_of_two_gpus() {
    assert_plan_is_the_recording(
        "2gpu-700MiB-each",
        &[simapp_device(700), simapp_device(700)],
    );
}

#[test]
fn plan_is_the_recorded_trace_of_3072_mib_on_each_of_two_gpus() {
    assert_plan_is_the_recording(
        "2gpu-3072MiB-each",
        &[simapp_device(3072), simapp_device(3072)],
    );
}

/// The trimmed traces say what the originals say, where those are at hand.
#[test]
fn trimmed_traces_are_the_originals() {
    let originals = repository().join("..").join("shared").join("traces");
    for name in TRACES {
        let name = format!("{PREFIX}{name}.csv");
        let trimmed = recorded(&name);
        assert_eq!(trimmed[0].flags, "0x8022");
        let Ok(text) = std::fs::read_to_string(originals.join(&name)) else {
            continue;
        };
        let original = read_calls(&text);
        assert!(original.len() - trimmed.len() <= 1, "{name}");
        assert_eq!(trimmed, original[..trimmed.len()], "{name}");
    }
}

/// The same program, on the real driver and on this one.
#[test]
fn running_process_makes_the_recorded_calls() {
    let calls = traced(CONTEXT_MIB, &["512"], "2");
    assert_covers(&calls);
    assert_same(&recorded(&format!("{PREFIX}1of2gpu-512MiB.csv")), &calls);
}

#[test]
fn running_process_with_two_devices_follows_the_plan() {
    let arguments = ["64", "--devices", "2", "--pinned", "8"];
    let calls = traced("100", &arguments, "3");
    assert_covers(&calls);
    let devices = [simapp_device(64), simapp_device(64), idle_device()];
    assert_same(&planned("100", &devices), &calls);
}
