//! Passes libFuzzer's inputs to the target of this name in `crates/fuzz-targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    harvester_lb_fuzz_targets::dhcp::run(data);
});
