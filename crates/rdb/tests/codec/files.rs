//! Files of Redis 2.4 to 8.0-m01 and of Valkey contain the data of their servers.

use crate::common::{Dataset, Packing, Record, Value, read_file, write_file};
use crate::manifest::{bytes, compare, data_files, lines, value};
use serde_json::Value as Json;
use strand_rdb::check::check;
use strand_rdb::digest::{DatasetDigest, ValueDigest};
use strand_rdb::{Error, VERSION_WRITTEN};

/// DEBUG DIGEST of a server that has loaded the file.
pub fn digest(records: &[Record]) -> String {
    let mut digest = DatasetDigest::default();
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|record| record.db);
    for of_db in sorted.chunk_by(|a, b| a.db == b.db) {
        digest.database(of_db[0].db as u32);
        for record in of_db {
            let of_key = |of| ValueDigest::of_key(&record.key, of);
            digest.key(record.value.digest(of_key, record.expires_at_ms.is_some()).expect("no module"));
        }
    }
    digest.finish().to_hex()
}

#[test]
fn every_file_contains_its_servers_data() {
    let (mut files, mut keys, mut compared) = (0, 0, 0);
    for path in data_files(".rdb") {
        let file = std::fs::read(&path).unwrap();
        let manifest = lines(&path.with_extension("jsonl"));
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name == "redis-7.0-rc1-functions-only" {
            assert!(matches!(read_file(&file), Err(Error::PreReleaseFunction)));
            continue;
        }
        let (read, rest) = read_file(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(rest.is_empty(), "{name}");
        check_head(&read, &manifest[0], &name);
        for expected in &manifest[1..] {
            let (db, key) = (expected["db"].as_u64().unwrap(), bytes(&expected["key"]));
            let found = read.records.iter().find(|r| r.db == db && r.key == key);
            let record = found.unwrap_or_else(|| panic!("{name}: no key {key:?}"));
            let of = format!("{name}: {}", String::from_utf8_lossy(&key));
            compare(&record.value, expected["type"].as_str().unwrap(), &expected["value"], &of);
            assert_eq!(record.expires_at_ms.unwrap_or(-1), expected["expire_ms"].as_i64().unwrap(), "{of}");
            if let Some(freq) = expected.get("freq").and_then(Json::as_u64) {
                assert!(record.freq.is_none_or(|read| u64::from(read) >= freq), "{of}");
            }
            compared += 1;
        }
        files += 1;
        keys += read.records.len();
    }
    assert!(files >= 40 && keys > 3000 && compared > 1500, "{files} files, {keys} keys, {compared} compared");
}

fn check_head(read: &Dataset, head: &Json, name: &str) {
    assert_eq!(u64::from(read.version), head["rdb_version"].as_u64().unwrap(), "{name}");
    let stored = head["crc_footer_hex"].as_str().unwrap();
    assert_eq!(read.checksum_verified, !matches!(stored, "" | "0000000000000000"), "{name}");
    let aux = head["aux"].as_array().unwrap();
    assert_eq!(read.aux.len(), aux.len(), "{name}");
    for ((key, text), expected) in read.aux.iter().zip(aux) {
        assert_eq!((key, text), (&bytes(&expected[0]), &bytes(&expected[1])), "{name}");
    }
    for (db, n) in head["dbsize"].as_object().unwrap() {
        let db: u64 = db.parse().unwrap();
        assert_eq!(read.records.iter().filter(|r| r.db == db).count() as u64, n.as_u64().unwrap(), "{name}");
    }
    for function in head.get("functions").and_then(Json::as_array).into_iter().flatten() {
        assert!(read.functions.contains(&bytes(&function["code"])), "{name}");
    }
    if name.contains("cluster") {
        assert!(read.slots > 50, "{name}");
    }
    if head["digest_number_format"] == "%.17g" {
        assert_eq!(digest(&read.records), head["digest"].as_str().unwrap(), "{name}");
    }
}

#[test]
fn digests_equal_the_servers_digests() {
    let mut compared = 0;
    for path in data_files(".rdb") {
        let manifest = lines(&path.with_extension("jsonl"));
        let old_scores = manifest[0]["digest_number_format"] == "%.17g";
        for key in &manifest[1..] {
            let of_type = key["type"].as_str().unwrap();
            let Some(expected) = key.get("digest_value").and_then(Json::as_str) else { continue };
            if of_type != "zset" || old_scores {
                let expires = key["expire_ms"] != -1;
                let digest = value(of_type, &key["value"]).digest(ValueDigest::new, expires).unwrap();
                assert_eq!(digest.to_hex(), expected, "{}: {}", path.display(), key["key"]);
                compared += 1;
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}

#[test]
fn a_file_before_commands_ends_where_they_begin() {
    let [path] = &data_files("preamble.aof")[..] else { panic!("one file") };
    let (read, rest) = read_file(&std::fs::read(path).unwrap()).unwrap();
    assert!(read.checksum_verified && read.records.len() > 50);
    assert!(rest.starts_with(b"*2\r\n$6\r\nSELECT\r\n"), "{:?}", &rest[..rest.len().min(40)]);
}

#[test]
fn written_values_read_back() {
    let mut sizes = (0, 0);
    for path in data_files(".rdb") {
        let file = std::fs::read(&path).unwrap();
        let Ok((mut read, _)) = read_file(&file) else { continue };
        for packing in [Packing::Packed, Packing::Unpacked] {
            for compress in [true, false] {
                let written = write_file(&read.records, packing, compress);
                let (again, rest) = read_file(&written).unwrap();
                assert!(rest.is_empty() && again.checksum_verified && again.version == VERSION_WRITTEN);
                for (record, again) in read.records.iter_mut().zip(&again.records) {
                    crate::common::normalize(&mut record.value);
                    if packing == Packing::Packed {
                        minus_zero_is_zero(&mut record.value);
                    }
                    assert_eq!(record, again, "{}", path.display());
                }
                if packing == Packing::Packed && compress && read.version == VERSION_WRITTEN {
                    sizes = (sizes.0 + written.len(), sizes.1 + file.len());
                }
            }
        }
    }
    // Strand's files are about as small as those of redis-server 7.0, whose limits for packing differ: this test
    // packs everything.
    assert!(sizes.0 * 100 < sizes.1 * 105, "{} bytes instead of {}", sizes.0, sizes.1);
}

/// Replaces minus zero by zero, because packed sorted sets lose the sign of zero.
fn minus_zero_is_zero(value: &mut Value) {
    if let Value::SortedSet(set) = value {
        set.values_mut().filter(|bits| **bits == (-0.0f64).to_bits()).for_each(|bits| *bits = 0);
    }
}

#[test]
fn a_check_counts_the_contents() {
    for path in data_files(".rdb") {
        let file = std::fs::read(&path).unwrap();
        let manifest = lines(&path.with_extension("jsonl"));
        let (report, done) = check(&file[..], i64::MIN, &mut |_| {});
        if done.is_err() {
            assert!(path.to_string_lossy().contains("7.0-rc1-functions"), "{}", path.display());
            continue;
        }
        let sizes = manifest[0]["dbsize"].as_object().unwrap();
        let counted = report.databases.iter().map(|(db, (keys, _))| (db.to_string(), *keys));
        assert_eq!(
            counted.collect::<Vec<_>>(),
            sizes
                .iter()
                .map(|(db, n)| (db.clone(), n.as_u64().unwrap()))
                .collect::<std::collections::BTreeMap<_, _>>()
                .into_iter()
                .collect::<Vec<_>>(),
        );
        assert_eq!((report.bytes, report.key), (file.len() as u64, None));
        assert_eq!(
            report.types.values().map(|(keys, _)| keys).sum::<u64>(),
            report.databases.values().map(|(keys, _)| keys).sum::<u64>()
        );
        assert!(report.types.values().all(|(keys, elements)| elements >= keys), "{:?}", report.types);
    }
}

#[test]
fn a_check_says_where_a_file_breaks() {
    let whole = write_file(
        &[
            Record {
                db: 0,
                key: b"first".to_vec(),
                expires_at_ms: None,
                idle_s: None,
                freq: None,
                value: Value::String(b"x".repeat(10)),
            },
            Record {
                db: 0,
                key: b"se\nc".to_vec(),
                expires_at_ms: Some(1),
                idle_s: None,
                freq: None,
                value: Value::List(vec![b"y".repeat(10)]),
            },
        ],
        Packing::Packed,
        false,
    );
    let (report, done) = check(&whole[..], i64::MIN, &mut |_| {});
    done.unwrap();
    assert_eq!((report.version, report.databases[&0], report.types["list"]), (10, (2, 1), (1, 1)));
    let (report, done) = check(&whole[..whole.len() - 12], i64::MIN, &mut |_| {});
    assert!(matches!(done, Err(Error::Truncated)));
    assert_eq!(report.key.as_deref(), Some("se\\nc"));
    let (report, done) = check(&b"*1\r\n$4\r\nPING\r\n"[..], i64::MIN, &mut |_| {});
    assert!(matches!(done, Err(Error::NotRdb)) && report.version == 0);
    for (start, is_rdb) in [("", true), ("RED", true), ("VALKEY08", true), ("*1", false), ("REDO", false)] {
        let (_, done) = check(start.as_bytes(), i64::MIN, &mut |_| {});
        let expected =
            if is_rdb { matches!(done, Err(Error::Truncated)) } else { matches!(done, Err(Error::NotRdb)) };
        assert!(expected, "{start}: {done:?}");
    }
}

#[test]
fn a_check_finds_a_key_that_stands_twice() {
    let now_ms = 1_700_000_000_000;
    let key = |name: &str, db, expires_at_ms, value| Record {
        db,
        key: name.into(),
        expires_at_ms,
        idle_s: None,
        freq: None,
        value,
    };
    let text = || Value::String(b"x".to_vec());
    let checked = |records: &[Record], now_ms| {
        let file = write_file(records, Packing::Packed, false);
        check(&file[..], now_ms, &mut |_| {})
    };
    let twice = [key("a", 0, None, text()), key("b", 0, None, text()), key("a", 0, Some(now_ms + 1), text())];
    let (report, done) = checked(&twice, now_ms);
    assert!(matches!(done, Err(Error::DuplicateKey)), "{done:?}");
    assert_eq!((report.key.as_deref(), report.databases[&0]), (Some("a"), (3, 1)));
    // The same name in two databases is two keys.
    let apart = [key("a", 0, None, text()), key("a", 1, None, text())];
    assert!(checked(&apart, now_ms).1.is_ok());
    // A server skips an expired key in a snapshot, but loads an expired key in the base of an append-only file.
    let expired = [key("a", 0, Some(now_ms), text()), key("a", 0, None, text())];
    assert!(checked(&expired, now_ms).1.is_ok());
    assert!(matches!(checked(&expired, i64::MIN).1, Err(Error::DuplicateKey)));
    let empty = [key("a", 0, None, Value::List(Vec::new())), key("a", 0, None, text())];
    assert!(checked(&empty, now_ms).1.is_ok());
}
