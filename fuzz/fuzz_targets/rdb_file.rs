//! Fuzz target; its body is a unit test too (crates/rdb/tests/codec/damage.rs).
#![no_main]

#[path = "../../crates/rdb/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| common::fuzz_file(data));
