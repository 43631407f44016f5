//! DUMP payloads of Redis 2.8 and later contain the values they were made of.

use crate::common::{Packing, Value, read_payload, write_payload};
use crate::manifest::{compare, data_files, lines};
use serde_json::Value as Json;
use std::path::PathBuf;
use strand_rdb::digest::ValueDigest;
use strand_rdb::{Crc64, Error, dump};

/// The bytes of each payload and its line of the manifest.
pub fn payloads() -> Vec<(Vec<u8>, Json)> {
    let files: Vec<PathBuf> =
        data_files(".jsonl").into_iter().filter(|p| name(p).starts_with("dump-")).collect();
    assert!(files.len() >= 6);
    let hex = |line: &Json| {
        let digits = line["dump_hex"].as_str().unwrap();
        (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
    };
    files.iter().flat_map(|path| lines(path)).map(|line| (hex(&line), line)).collect()
}

fn name(path: &std::path::Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// The type's name for a value that was read.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::List(_) => "list",
        Value::Set(_) => "set",
        Value::SortedSet(_) => "zset",
        Value::Hash(_) => "hash",
        Value::Stream(_) => "stream",
        Value::Module => "module",
    }
}

#[test]
fn every_payload_gives_its_value() {
    let (mut types, mut digests) = (std::collections::BTreeSet::new(), 0);
    for (payload, line) in payloads() {
        let of = format!("{}", line["dump_hex"]);
        let opened = dump::open(&payload).unwrap();
        assert_eq!(u64::from(opened.version), line["payload_rdb_version"].as_u64().unwrap());
        let read = read_payload(&payload).unwrap_or_else(|e| panic!("{of}: {e}"));
        compare(&read, type_name(&read), &line["value"], &of);
        types.insert(payload[0]);
        let scores_are_newer = opened.version > 10 && matches!(read, Value::SortedSet(_));
        if let Some(expected) = line.get("digest_value").and_then(Json::as_str).filter(|_| !scores_are_newer)
        {
            assert_eq!(read.digest(ValueDigest::new, false).unwrap().to_hex(), expected, "{of}");
            digests += 1;
        }
        for packing in [Packing::Packed, Packing::Unpacked] {
            let again = read_payload(&write_payload(&read, packing, true)).unwrap();
            // Compare without the times of consumers and the sign of zero, which the formats of redis-server 7.0
            // lack.
            let digest = |value: &Value| value.digest(ValueDigest::new, false).unwrap();
            if !of_minus_zero(&read) {
                assert_eq!(digest(&again), digest(&read), "{of}");
            }
        }
    }
    assert!(types.len() >= 18, "types {types:?}");
    assert!(digests > 150, "{digests}");
}

fn of_minus_zero(value: &Value) -> bool {
    matches!(value, Value::SortedSet(set) if set.values().any(|bits| *bits == (-0.0f64).to_bits()))
}

#[test]
fn a_payload_with_a_wrong_version_or_checksum_is_refused() {
    let good = write_payload(&Value::String(b"value".to_vec()), Packing::Packed, true);
    assert_eq!(good[0], 0);
    read_payload(&good).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(matches!(dump::open(&bad), Err(Error::Checksum { .. } | Error::Version { .. })), "byte {at}");
        assert!(dump::open(&good[..at]).is_err());
    }
    for (version, read) in
        [(0u16, true), (9, true), (12, true), (13, false), (79, false), (80, true), (81, false)]
    {
        let body = good.len() - 10;
        let mut other = [&good[..body], &version.to_le_bytes()].concat();
        other.extend_from_slice(&Crc64::of(&other).to_le_bytes());
        assert_eq!(dump::open(&other).is_ok(), read, "version {version}");
    }
}

#[test]
fn a_valkey_hash_with_expiring_fields() {
    // Type 22 of Valkey 9: fields, values and expiry times (-1: never).
    let mut payload = b"\x16\x02\x01a\x011".to_vec();
    payload.extend_from_slice(&(-1i64).to_le_bytes());
    payload.extend_from_slice(b"\x01b\x012");
    payload.extend_from_slice(&1_900_000_000_000i64.to_le_bytes());
    payload.extend_from_slice(&80u16.to_le_bytes());
    payload.extend_from_slice(&Crc64::of(&payload).to_le_bytes());
    let Value::Hash(hash) = read_payload(&payload).unwrap() else { panic!("a hash") };
    assert_eq!(hash[&b"a"[..]], (b"1".to_vec(), None));
    assert_eq!(hash[&b"b"[..]], (b"2".to_vec(), Some(1_900_000_000_000)));
}
