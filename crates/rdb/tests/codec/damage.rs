//! Damaged input: cut at every byte, changed anywhere, random. Nothing panics, hangs or allocates more than the
//! input justifies.

use crate::common::{fuzz_file, fuzz_payload, read_file, read_payload};
use crate::manifest::data_files;
use crate::payloads::payloads;
use proptest::prelude::*;
use std::io::Read;
use strand_rdb::file::FileReader;
use strand_rdb::value::StreamEntries;
use strand_rdb::{Crc64, Error};

#[test]
fn payloads_cut_at_every_byte_are_refused() {
    let mut cut_at = 0;
    for (payload, _) in payloads().iter().filter(|(payload, _)| payload.len() < 1500) {
        let body = payload.len() - 10;
        for cut in 0..body {
            // The version and the checksum are correct, but the value ends too early.
            let mut short = [&payload[..cut], &payload[body..body + 2]].concat();
            short.extend_from_slice(&Crc64::of(&short).to_le_bytes());
            assert!(read_payload(&short).is_err(), "{payload:?} cut at {cut}");
            cut_at += 1;
        }
    }
    assert!(cut_at > 20_000, "{cut_at}");
}

/// A reader that returns one byte per call, with an interruption before each byte.
struct Trickle<'a>(&'a [u8], bool);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        self.0.read(&mut into[..1])
    }
}

#[test]
fn files_cut_at_every_byte_are_refused_and_pieces_do_not_matter() {
    let small = |end: &str| {
        let path = data_files(end).pop().unwrap();
        std::fs::read(path).unwrap()
    };
    for end in ["redis-2.8.24-empty.rdb", "functions-only.rdb", "redis-head-lru.rdb", "redis-2.4.18-many.rdb"]
    {
        let file = small(end);
        for cut in 0..file.len() {
            let read = read_file(&file[..cut]);
            assert!(read.is_err(), "{end} cut at {cut}");
        }
        let (whole, _) = read_file(&file).unwrap();
        let mut reader = FileReader::new(Trickle(&file, false), StreamEntries::Single).unwrap();
        let mut keys = 0;
        while let Some(event) = reader.next().unwrap() {
            keys += usize::from(matches!(event, strand_rdb::file::Event::KeyEnd));
        }
        assert_eq!((keys, reader.offset()), (whole.records.len(), file.len() as u64));
    }
}

#[test]
fn inputs_that_are_not_rdb_files() {
    for (bytes, what) in [
        (&b""[..], "ends"),
        (b"REDIS", "ends"),
        (b"*1\r\n$4\r\nPING\r\n", "not an RDB"),
        (b"REDIS001x\xff", "not an RDB"),
        (b"REDIS0000\xff", "version 0"),
        (b"REDIS0013\xff", "version 13"),
        (b"VALKEY011\xff", "version 11"),
        (b"VALKEY081\xff", "version 81"),
        (b"REDIS0080\xff", "version 80"),
        (b"REDIS0010\x1a", "ends"),
        (b"REDIS0010\x1a\x01k", "type 26"),
        (b"REDIS0010\x06\x01k", "release candidate of Redis 4.0"),
        (b"REDIS0010\xf3\x01k", "type 243"),
        (b"REDIS0010\xff\x01\x02\x03\x04\x05\x06\x07\x08", "checksum"),
    ] {
        let error = read_file(bytes).unwrap_err().to_string();
        assert!(error.contains(what), "{bytes:?}: {error}");
    }
    read_file(b"REDIS0010\xff\0\0\0\0\0\0\0\0").unwrap();
    let (read, _) = read_file(b"VALKEY080\xf3\x01x\x02\x01\x02\x05\x06\xff\0\0\0\0\0\0\0\0").unwrap();
    assert_eq!(read.slots, 2);
}

#[test]
fn a_failing_source_is_an_error_not_an_end() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::Other.into())
        }
    }
    assert!(matches!(
        FileReader::new(b"REDIS0010\xfe".chain(Broken), StreamEntries::Single).unwrap().next(),
        Err(Error::Io(_))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A real payload with a few bytes changed, inserted or removed.
    #[test]
    fn a_changed_payload_is_read_or_refused(pick in any::<prop::sample::Index>(), changes in changes(), version in 0u8..4) {
        thread_local!(static REAL: Vec<Vec<u8>> = payloads().into_iter().map(|(bytes, _)| bytes).collect());
        let payload = REAL.with(|real| real[pick.index(real.len())].clone());
        let mut data = vec![version];
        data.extend_from_slice(&payload[..payload.len() - 10]);
        change(&mut data, 1, &changes);
        fuzz_payload(&data);
    }

    /// Random bytes after each value type.
    #[test]
    fn a_random_payload_is_read_or_refused(version in 0u8..4, value_type in 0u8..32, body in prop::collection::vec(any::<u8>(), 0..64)) {
        fuzz_payload(&[&[version, value_type], &body[..]].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_file_is_read_or_refused(pick in any::<prop::sample::Index>(), changes in changes()) {
        thread_local!(static REAL: Vec<Vec<u8>> =
            data_files("many.rdb").iter().map(|path| std::fs::read(path).unwrap()).collect());
        let mut file = REAL.with(|real| real[pick.index(real.len())].clone());
        change(&mut file, 9, &changes);
        fuzz_file(&file);
        // Set the stored checksum to zero, so that the checksum does not stop the reader before the end.
        if file.ends_with(&[0; 8]) || file.len() < 8 {
            return Ok(());
        }
        let end = file.len() - 8;
        file[end..].fill(0);
        fuzz_file(&file);
    }
}

#[derive(Clone, Debug)]
enum Change {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    // Prefer bytes that have a meaning in the formats.
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![0, 1, 0x7f, 0x80, 0x81, 0xc3, 0xf0, 0xf4, 0xfe, 0xff])
    ];
    let at = any::<prop::sample::Index>;
    let change = prop_oneof![
        4 => (at(), byte.clone()).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => (at(), prop::collection::vec(byte, 1..8)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (at(), 1usize..8).prop_map(|(at, n)| Change::Remove(at, n)),
    ];
    prop::collection::vec(change, 1..4)
}

/// Applies `changes` after the first `keep` bytes.
fn change(data: &mut Vec<u8>, keep: usize, changes: &[Change]) {
    for change in changes {
        if data.len() <= keep {
            return;
        }
        let place = |index: &prop::sample::Index, len: usize| keep + index.index(len - keep);
        match change {
            Change::Set(at, byte) => {
                let at = place(at, data.len());
                data[at] = *byte;
            }
            Change::Insert(at, bytes) => {
                let at = place(at, data.len());
                data.splice(at..at, bytes.iter().copied());
            }
            Change::Remove(at, n) => {
                let at = place(at, data.len());
                let end = (at + n).min(data.len());
                data.drain(at..end);
            }
        }
    }
}
