#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| cudasnap_cli::fuzz::images(data));
