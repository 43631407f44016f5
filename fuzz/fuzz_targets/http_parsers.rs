//! Fuzz target; its body is a unit test too (crates/http/src/fuzzing.rs).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strand_http::fuzzing::fuzz_http_parsers(data));
