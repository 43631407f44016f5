//! Fuzz target; its body is a unit test too (crates/aof/tests/files.rs).
#![no_main]

#[path = "../../crates/aof/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| common::fuzz(data));
