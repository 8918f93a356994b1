//! libFuzzer's way into `crashlab::gateway::fuzz::admission`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| crashlab::gateway::fuzz::admission(data));
