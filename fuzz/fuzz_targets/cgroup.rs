#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| cudasnap::fuzz::cgroup(data));
