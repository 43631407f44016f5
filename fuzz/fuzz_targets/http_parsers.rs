//! Fuzz target; its body is a test too (crates/http/tests/parsers.rs).
#![no_main]

#[path = "../../crates/http/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| common::fuzz_http_parsers(data));
