//! The simulated NVML lists processes as the real one does: what the tool's tests rest on.

use cudasnap_cli::gpus::Gpus;
use cudasnap_shim_tests::simdriver::SimDriver;

#[test]
fn a_process_is_listed_while_it_is_on_the_gpu() {
    const MIB: u64 = 1 << 20;
    let driver = SimDriver::build(false);
    let library = driver.library.join("libnvidia-ml.so.1");
    let app = driver.app(&["48"], &[]);
    let pid = app.pid() as i32;
    let used = || {
        let gpus = Gpus::look_with(library.as_os_str()).expect("the simulated NVML");
        assert_eq!((gpus.driver.as_str(), gpus.gpus.len()), ("580.159.04", 1));
        let gpu = &gpus.gpus[0];
        assert_eq!(
            (gpu.total, gpu.persistence, gpu.mig),
            (65536 * MIB, Some(true), None)
        );
        assert!(gpu.free < gpu.total);
        assert!(gpu.uuid.starts_with("GPU-") && gpu.name.starts_with("cudasim"));
        gpus.used_by(pid)
    };
    // 48 MiB of its own, and the context's.
    let before = used().expect("listed");
    assert!((48 * MIB..256 * MIB).contains(&before), "{before}");
    for action in ["lock", "checkpoint"] {
        assert_eq!(driver.control(action, app.pid(), &[]).code, 0, "{action}");
    }
    let library_path = library.as_os_str();
    assert_eq!(Gpus::look_with(library_path).unwrap().used_by(pid), None);
    assert_eq!(driver.control("restore", app.pid(), &[]).code, 0);
    gpus_restored(before, used().expect("listed again"));
}

/// The backing file may have a few pages more or less after a cycle.
fn gpus_restored(before: u64, after: u64) {
    assert!(after.abs_diff(before) < 16 << 20, "{before} {after}");
}
