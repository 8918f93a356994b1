//! libFuzzer's way into `crashlab::gateway::fuzz::mcp`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| crashlab::gateway::fuzz::mcp(data));
