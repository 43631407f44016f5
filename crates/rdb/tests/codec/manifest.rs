//! The expected contents of the files and payloads of `data/`, as described in `data/README.md`.

use crate::common::{Bytes, Stream, Value};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use strand_rdb::value::StreamId;

/// The files of `data/` whose names end with `end`, sorted. At least one.
pub fn data_files(end: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder of test data")
        .map(|entry| entry.expect("a folder entry").path())
        .filter(|path| path.to_string_lossy().ends_with(end))
        .collect();
    assert!(!all.is_empty(), "no {end} in the test data");
    all.sort();
    all
}

/// The lines of a `.jsonl` file.
pub fn lines(path: &Path) -> Vec<Json> {
    let text = std::fs::read_to_string(path).expect("a file of test data");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// A byte string in the manifest: one byte per character. Long strings are `{"rep":[unit,times,tail]}` or
/// `{"b64":...}`.
pub fn bytes(json: &Json) -> Bytes {
    match json {
        Json::String(text) => latin(text),
        Json::Object(long) => match (&long.get("rep"), long.get("b64")) {
            (Some(Json::Array(rep)), None) => {
                let mut all = bytes(&rep[0]).repeat(rep[1].as_u64().unwrap() as usize);
                all.extend(bytes(&rep[2]));
                all
            }
            (None, Some(Json::String(text))) => base64(text),
            _ => panic!("no byte string: {json}"),
        },
        _ => panic!("no byte string: {json}"),
    }
}

fn latin(text: &str) -> Bytes {
    text.chars().map(|c| u8::try_from(u32::from(c)).expect("a character is a byte")).collect()
}

fn base64(text: &str) -> Bytes {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let value = ALPHABET.iter().position(|x| *x == c).expect("base 64") as u32;
        bits = bits << 6 | value;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

fn all(json: &Json) -> &[Json] {
    json.as_array().expect("an array")
}

pub fn id(json: &Json) -> StreamId {
    let (ms, seq) = json.as_str().and_then(|text| text.split_once('-')).expect("an ID");
    StreamId { ms: ms.parse().unwrap(), seq: seq.parse().unwrap() }
}

/// The value in the manifest, as far as digests depend on it: a stream has neither state nor groups.
pub fn value(of_type: &str, json: &Json) -> Value {
    match of_type {
        "string" => Value::String(bytes(json)),
        "list" => Value::List(all(json).iter().map(bytes).collect()),
        "set" => Value::Set(all(json).iter().map(bytes).collect()),
        "zset" => Value::SortedSet(
            all(json)
                .iter()
                .map(|pair| (bytes(&pair[0]), pair[1].as_str().unwrap().parse::<f64>().unwrap().to_bits()))
                .collect(),
        ),
        "hash" => Value::Hash(
            all(json)
                .iter()
                .map(|f| (bytes(&f[0]), (bytes(&f[1]), f.get(2).and_then(Json::as_i64))))
                .collect(),
        ),
        "stream" => Value::Stream(Stream {
            entries: all(&json["entries"])
                .iter()
                .map(|entry| {
                    let fields = all(&entry[1]).chunks(2).map(|pair| (bytes(&pair[0]), bytes(&pair[1])));
                    (id(&entry[0]), fields.collect())
                })
                .collect(),
            ..Stream::default()
        }),
        other => panic!("no type: {other}"),
    }
}

/// Compares what was read with the manifest, including times and groups of streams.
pub fn compare(read: &Value, of_type: &str, json: &Json, of: &str) {
    let Value::Stream(stream) = read else {
        return assert_eq!(*read, value(of_type, json), "{of}");
    };
    let Value::Stream(expected) = value(of_type, json) else { panic!("{of}: a stream instead of {of_type}") };
    assert_eq!(stream.entries, expected.entries, "{of}");
    let state = stream.state.expect("a stream's state");
    assert_eq!(state.length, json["length"].as_u64().unwrap(), "{of}");
    assert_eq!(state.last_id, id(&json["last_id"]), "{of}");
    if json["max_deleted_entry_id"].is_string() {
        assert_eq!(state.max_deleted_id, id(&json["max_deleted_entry_id"]), "{of}");
        assert_eq!(state.first_id, id(&json["recorded_first_entry_id"]), "{of}");
        assert_eq!(state.entries_added, json["entries_added"].as_u64().unwrap(), "{of}");
    }
    let groups = all(&json["groups"]);
    assert_eq!(stream.groups.len(), groups.len(), "{of}");
    for group in &stream.groups {
        let expected = named(groups, &group.name, of);
        assert_eq!(group.last_id, id(&expected["last_id"]), "{of}");
        if json["max_deleted_entry_id"].is_string() {
            assert_eq!(group.entries_read, expected["entries_read"].as_u64(), "{of}");
        }
        let pel = all(&expected["pel"]);
        assert_eq!(group.pending.len(), pel.len(), "{of}");
        for ((read_id, at_ms, count), expected) in group.pending.iter().zip(pel) {
            assert_eq!(*read_id, id(&expected[0]), "{of}");
            let owner = group.consumers.iter().find(|c| c.pending.contains(read_id)).expect("an owner");
            assert_eq!(owner.name, latin(expected[1].as_str().unwrap()), "{of}");
            // Skip the time when it is missing, because Redis 5.0 does not record times.
            if let Some(expected_ms) = expected[2].as_i64() {
                assert_eq!((*at_ms, Some(*count)), (expected_ms, expected[3].as_u64()), "{of}");
            }
        }
        let consumers = all(&expected["consumers"]);
        assert_eq!(group.consumers.len(), consumers.len(), "{of}");
        for consumer in &group.consumers {
            let expected = named(consumers, &consumer.name, of);
            let pel: Vec<StreamId> = all(&expected["pel"]).iter().map(id).collect();
            assert_eq!(consumer.pending, pel, "{of}");
            if let Some(seen) = expected["seen_ms"].as_i64() {
                assert_eq!(consumer.seen_at_ms, seen, "{of}");
            }
            if let Some(active) = expected["active_ms"].as_i64() {
                assert_eq!(consumer.active_at_ms, Some(active).filter(|at| *at >= 0), "{of}");
            }
        }
    }
}

fn named<'a>(all: &'a [Json], name: &[u8], of: &str) -> &'a Json {
    let is = |json: &&Json| latin(json["name"].as_str().unwrap()) == name;
    all.iter().find(is).unwrap_or_else(|| panic!("{of}: {name:?} is not expected"))
}
