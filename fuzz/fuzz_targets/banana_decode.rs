//! Fuzz target; its body is a unit test too (bindings/banana/tests/properties.rs).
#![no_main]

#[path = "../../bindings/banana/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| common::fuzz_banana_decode(data));
