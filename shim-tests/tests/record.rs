//! The record is found, read and steered in a process of its own, whatever became of the library's file.

mod common;

use std::time::Duration;

use common::{fresh_record, library_with_record};
use cudasnap_cli::process::observe::Holdings;
use cudasnap_cli::process::target::{MemoryError, Target};
use cudasnap_cli::record::{Control, Located, RecordError};
use cudasnap_shim_tests::host::{Host, HostSpec};
use cudasnap_wire::{Mode, Record};

const PATIENCE: Duration = Duration::from_secs(10);

fn host_with(library: &common::Fake) -> Host {
    let spec = HostSpec::new("sh", ["-c", "echo ready $$; read line"]).with_shim(&library.path);
    Host::start(&spec, PATIENCE).unwrap()
}

fn found(bytes: &[u8]) -> Result<Located, RecordError> {
    let library = library_with_record(bytes, "");
    let host = host_with(&library);
    Located::find(Target::new(host.pid()))
}

#[test]
fn a_record_is_found_and_steered_even_when_the_file_is_gone() {
    let library = library_with_record(&fresh_record(), "");
    let host = host_with(&library);
    let path = library.path.clone();
    drop(library);
    let record = Located::find(Target::new(host.pid())).unwrap();
    assert!(record.library().starts_with(path.to_str().unwrap()));
    assert_eq!(record.read().unwrap().library_version, "0.1.0");
    record.write(Control::Mode(Mode::Off)).unwrap();
    record.write(Control::ThreadCap(3)).unwrap();
    let view = record.read().unwrap();
    assert!(view.mode.is("off"));
    assert_eq!((view.thread_cap, view.drop), (3, 0));
}

#[test]
fn a_newer_and_longer_record_is_read_a_shorter_one_is_not() {
    let mut longer = fresh_record();
    let size = (longer.len() + 256) as u32;
    longer[12..16].copy_from_slice(&size.to_le_bytes());
    longer.resize(size as usize, 7);
    found(&longer).unwrap();
    let shorter = &fresh_record()[..size_of::<Record>() - 64];
    assert!(matches!(found(shorter), Err(RecordError::Size(_))));
}

#[test]
fn what_is_no_record_is_refused() {
    let mut record = fresh_record();
    record[8] = 9;
    assert_eq!(found(&record).unwrap_err(), RecordError::Version(9));
    record[0] = 0;
    assert_eq!(found(&record).unwrap_err(), RecordError::NotARecord);
}

#[test]
fn a_record_that_is_always_being_written_is_busy() {
    let mut record = fresh_record();
    // The counter of the block after the control words: odd.
    record[std::mem::offset_of!(Record, options)] = 1;
    let library = library_with_record(&record, "");
    let host = host_with(&library);
    let located = Located::find(Target::new(host.pid())).unwrap();
    assert_eq!(located.read().unwrap_err(), RecordError::Busy);
}

#[test]
fn a_target_that_ends_is_an_error_value_at_every_step() {
    let library = library_with_record(&fresh_record(), "");
    let host = host_with(&library);
    let target = Target::new(host.pid());
    let located = Located::find(target).unwrap();
    drop(host);
    let gone = RecordError::Memory(MemoryError::Gone);
    assert_eq!(located.read().unwrap_err(), gone);
    assert_eq!(located.write(Control::Drop).unwrap_err(), gone);
    assert_eq!(Located::find(target).unwrap_err(), gone);
    assert_eq!(Holdings::of(target).unwrap_err(), MemoryError::Gone);
}

#[test]
fn reading_a_target_that_is_killed_meanwhile_never_panics() {
    let library = library_with_record(&fresh_record(), "");
    for delay in 0..20 {
        let host = host_with(&library);
        let target = Target::new(host.pid());
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(delay * 100));
            // SAFETY: kill takes two numbers; the child has not been waited for, so its id is its own.
            unsafe { libc::kill(target.pid(), libc::SIGKILL) };
        });
        while Located::find(target)
            .and_then(|located| located.read())
            .is_ok()
        {}
        killer.join().unwrap();
        let end = Located::find(target).unwrap_err();
        assert_eq!(end, RecordError::Memory(MemoryError::Gone));
        drop(host);
    }
}
