//! Strand's files are loaded by Strand and by redis-server, and redis-server's files by Strand, with equal digests.
//! Damaged files are refused.

use super::{Loaded, Loading, NotLoaded, RdbProblem, Saving, load, save};
use crate::fixture::{Fixture, START_MS};
use crate::serial::dataset_digest;
use std::path::PathBuf;
use strand_keyspace::Keyspace;
use strand_testkit::process::Server;
use strand_wire::client::Value as Reply;

const SAVING: Saving<'static> = Saving {
    aux: &[],
    functions: &[],
    commands: &[],
    compress: true,
    checksum: true,
    lru: false,
    expiry_ms: START_MS,
    clock_ms: &|| START_MS,
    pause: &|| {},
    progress: &|_| Ok(()),
};

fn snapshot(keyspace: &Keyspace) -> strand_keyspace::Snapshot<'_> {
    keyspace.snapshot(1 << 20, Default::default())
}
const LOADING: Loading = Loading {
    now_ms: START_MS,
    keep_expired: false,
    replace: false,
    file_bytes: u64::MAX,
    verify_checksum: true,
};

fn saved(keyspace: &Keyspace, saving: &Saving<'_>) -> Vec<u8> {
    let mut file = Vec::new();
    let keys = save(Some(snapshot(keyspace)), saving, &mut file).unwrap();
    assert_eq!(keys, (0..keyspace.databases()).map(|db| keyspace.len(db) as u64).sum::<u64>());
    file
}

fn loaded(file: &[u8], keyspace: &Keyspace, loading: Loading) -> Result<Loaded, NotLoaded> {
    load(file, keyspace, loading, &mut |_| {}, &mut |batch| batch.put(keyspace))
}

/// A keyspace with several databases and values of every type, small and large, with and without an expiry.
fn filled() -> Fixture {
    let mut f = Fixture::new();
    for i in 0..2000 {
        f.run(&format!("SET key:{i} value{i}"));
    }
    f.run(&format!("SET long {}", "abcdefgh".repeat(30_000)));
    let mut many = vec!["HSET".to_string(), "many".into()];
    (0..3000).for_each(|i| many.extend([format!("field{i}"), format!("value{i}")]));
    f.run_args(&many);
    f.script(&[("HSET few a 1 b two", ":2|"), ("SET soon x PX 3600000", "+OK|"), ("SET number -42", "+OK|")]);
    f.db = 5;
    f.script(&[("SET other y EX 86400", "+OK|"), ("HSET h '' x", ":1|")]);
    f.db = 0;
    f
}

#[test]
fn a_save_is_loaded_again() {
    let f = filled();
    let digest = dataset_digest(&f.keyspace, START_MS);
    let functions = vec![b"#!lua name=lib\nreturn 1".to_vec()];
    for (compress, checksum) in [(true, true), (false, false)] {
        let aux = [("redis-ver", "7.0.15".to_string())];
        let saving = Saving { aux: &aux, functions: &functions, compress, checksum, lru: compress, ..SAVING };
        let file = saved(&f.keyspace, &saving);
        let again = Keyspace::new(2, 16, [5, 6, 7, 8]);
        let had = loaded(&file, &again, LOADING).unwrap();
        assert_eq!((had.keys, had.expired, had.empty), (2007, 0, 0));
        assert_eq!((had.functions, had.checksum_verified), (functions.clone(), checksum));
        assert_eq!(dataset_digest(&again, START_MS), digest);
        let twice = loaded(&file, &again, LOADING).unwrap_err();
        assert!(matches!(twice.problem, RdbProblem::Duplicate(_)), "{twice}");
        let few = Keyspace::new(2, 5, [5, 6, 7, 8]);
        let text = loaded(&file, &few, LOADING).unwrap_err().to_string();
        assert!(
            text.ends_with("database 5 does not exist; the server has 5 (option \"databases\")"),
            "{text}"
        );
    }
}

#[test]
fn expired_keys_are_skipped_unless_commands_follow() {
    let f = filled();
    let file = saved(&f.keyspace, &SAVING);
    let late = START_MS + 3_600_000;
    let passed = Keyspace::new(2, 16, [5, 6, 7, 8]);
    let had = loaded(&file, &passed, Loading { now_ms: late, ..LOADING }).unwrap();
    assert_eq!((had.keys, had.expired), (2006, 1));
    let kept = Keyspace::new(2, 16, [5, 6, 7, 8]);
    let had = loaded(&file, &kept, Loading { now_ms: late, keep_expired: true, ..LOADING }).unwrap();
    assert_eq!((had.keys, had.expired, kept.len(0)), (2007, 0, 2005));
}

/// A later command of the file may keep a field whose expiry has passed. The file has the usage of the keys.
#[test]
fn expired_fields_are_kept_when_commands_follow() {
    let mut f = Fixture::new();
    f.script(&[("HSET h f v g w", ":2|"), ("HPEXPIRE h 100 FIELDS 1 f", "*1|:1|")]);
    f.script(&[("HSET only f v", ":1|"), ("HPEXPIRE only 100 FIELDS 1 f", "*1|:1|")]);
    let file = saved(&f.keyspace, &Saving { lru: true, ..SAVING });
    let kept = Keyspace::new(2, 16, [5, 6, 7, 8]);
    let late = START_MS + 1000;
    loaded(&file, &kept, Loading { now_ms: late, keep_expired: true, ..LOADING }).unwrap();
    let mut txn = kept.lock_all(late);
    txn.set_replaying();
    for (key, fields) in [(&b"h"[..], 2), (b"only", 1)] {
        let found = txn.db(0).peek(&kept.key(key)).map(|record| record.value().elements());
        assert_eq!(found, Some(fields), "{}", key.escape_ascii());
    }
}

#[test]
fn announced_keys_take_no_memory_that_the_file_does_not_justify() {
    let mut writer = strand_rdb::write::Writer::new(false);
    writer.header(strand_rdb::VERSION_WRITTEN);
    writer.select_db(0, u64::MAX, 0);
    writer.eof(true);
    let (file, f) = (writer.take(), Fixture::new());
    let before = f.keyspace.data_bytes();
    loaded(&file, &f.keyspace, Loading { file_bytes: file.len() as u64, ..LOADING }).unwrap();
    assert_eq!(f.keyspace.data_bytes(), before);
    loaded(&file, &f.keyspace, Loading { file_bytes: 4_000_000, ..LOADING }).unwrap();
    let more = f.keyspace.data_bytes() - before;
    assert!(more > 0 && more < 1_000_000, "{more} bytes for a file of 4 MB");
}

#[test]
fn error_for_a_damaged_file_names_the_offset() {
    let mut f = Fixture::new();
    f.script(&[("SET a 1", "+OK|"), ("HSET h f v g w", ":2|"), ("SET c x PX 100000", "+OK|")]);
    let file = saved(&f.keyspace, &SAVING);
    for cut in 0..file.len() {
        let error = loaded(&file[..cut], &Keyspace::new(1, 16, [1; 4]), LOADING).unwrap_err();
        assert!(error.offset <= cut as u64 && matches!(error.problem, RdbProblem::File(_)), "{error}");
    }
    for at in 9..file.len() {
        let mut bad = file.clone();
        bad[at] ^= 0x55;
        let loaded = loaded(&bad, &Keyspace::new(1, 16, [1; 4]), LOADING);
        assert!(loaded.is_err(), "byte {at}");
    }
    let head = |body: &[u8]| [b"REDIS0010\xfe\0", body, b"\xff\0\0\0\0\0\0\0\0"].concat();
    for (body, text) in [
        (&b"\x04\x01h\0"[..], None),
        (b"\x04\x01h\x02\x01a\x011\x01a\x012", Some("key \"h\": the hash has a field twice")),
        (b"\x00\x01a\x011\x00\x01a\x012", Some("key \"a\" exists already")),
        (
            b"\x07\x01m\x81\x00\x00\x00\x00\x00\x00\x00\x00\x00",
            Some("has a value of the Redis module AAAAAAAAA (version 0)"),
        ),
        (b"\x1a\x01s", Some("value type 26 is unknown")),
    ] {
        let result = loaded(&head(body), &Keyspace::new(1, 16, [1; 4]), LOADING);
        match text {
            None => assert_eq!(result.unwrap().empty, 1),
            Some(text) => {
                let error = result.unwrap_err().to_string();
                assert!(error.contains(text), "{error}");
            }
        }
    }
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let f = filled();
    let size = saved(&f.keyspace, &SAVING).len();
    for room in [0, 1000, size / 2, size - 1] {
        assert_eq!(
            save(Some(snapshot(&f.keyspace)), &SAVING, &mut Full(room)).unwrap_err().kind(),
            std::io::ErrorKind::StorageFull
        );
    }
    save(Some(snapshot(&f.keyspace)), &SAVING, &mut Full(size)).unwrap();
}

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(bytes) | Reply::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn files_are_exchanged_with_redis_server() {
    let server = Server::redis(&["--enable-debug-command", "yes"], None).expect("redis-server");
    let mut redis = server.connect().expect("a connection");
    let Reply::Array(dir) = redis.call(&["CONFIG", "GET", "dir"]).unwrap() else { panic!("a pair") };
    let dump = PathBuf::from(text(dir.into_iter().nth(1).expect("a folder"))).join("dump.rdb");
    let mut f = filled();
    // redis-server has another clock, so the expiries are years ahead.
    for (db, key) in [(0, "soon"), (5, "other")] {
        f.db = db;
        assert_eq!(f.run(&format!("PEXPIREAT {key} 4000000000000")), ":1|");
    }
    let digest = dataset_digest(&f.keyspace, START_MS).to_hex();
    std::fs::write(&dump, saved(&f.keyspace, &SAVING)).unwrap();
    assert_eq!(text(redis.call(&["DEBUG", "RELOAD", "NOSAVE"]).unwrap()), "OK");
    assert_eq!(text(redis.call(&["DEBUG", "DIGEST"]).unwrap()), digest);
    redis.call(&["SET", "one", "more"]).unwrap();
    let digest = text(redis.call(&["DEBUG", "DIGEST"]).unwrap());
    assert_eq!(text(redis.call(&["SAVE"]).unwrap()), "OK");
    let file = std::fs::read(&dump).unwrap();
    let again = Keyspace::new(4, 16, [5, 6, 7, 8]);
    let had = loaded(&file, &again, LOADING).unwrap();
    assert!(had.checksum_verified && had.keys == 2008);
    assert_eq!(dataset_digest(&again, START_MS).to_hex(), digest);
    let (ours, theirs) = (saved(&again, &SAVING).len(), file.len());
    assert!(ours * 100 < theirs * 103, "{ours} bytes, redis-server writes {theirs}");
}

/// A key that is twice in a file, near and far apart. redis-server does not start with such a file, and we do not load
/// it. Where keys are replaced, the last one stays.
#[test]
fn duplicate_key_is_refused_as_by_redis_server() {
    for between in [0, 3, 10_000] {
        let mut file = b"REDIS0010\xfe\0\0\x03key\x03one".to_vec();
        for n in 0..between {
            file.extend(format!("\0\x08b{n:07}\x01v").bytes());
        }
        file.extend(b"\0\x03key\x03two");
        let offset = file.len() as u64;
        file.extend(b"\xff\0\0\0\0\0\0\0\0");
        let keyspace = || Keyspace::new(16, 16, [1, 2, 3, 4]);
        let refused = loaded(&file, &keyspace(), LOADING).unwrap_err();
        assert!(
            matches!(&refused.problem, RdbProblem::Duplicate(key) if key == "key")
                && refused.offset == offset,
            "{refused}"
        );
        let replaced = keyspace();
        loaded(&file, &replaced, Loading { replace: true, ..LOADING }).unwrap();
        assert_eq!(replaced.len(0), between + 1);
        let key = replaced.key(b"key");
        let mut txn = replaced.lock(&[key.hash], START_MS);
        let found = txn.db(0).peek(&key).and_then(|record| match record.value() {
            strand_keyspace::ValueRef::Str(value) => Some(value.to_blob().to_vec()),
            _ => None,
        });
        assert_eq!(found.as_deref(), Some(&b"two"[..]));
    }
    // The file is in the server's folder. Both are removed when `server` is dropped.
    let server = Server::redis(&["--enable-debug-command", "yes"], None).expect("redis-server");
    let mut client = server.connect().expect("it listens");
    let Ok(Reply::Array(dir)) = client.call(&["CONFIG", "GET", "dir"]) else { panic!("no array") };
    let folder = PathBuf::from(text(dir.into_iter().nth(1).expect("a folder")));
    let file = b"REDIS0010\xfe\0\0\x01k\x011\0\x01k\x012\xff\0\0\0\0\0\0\0\0";
    std::fs::write(folder.join("twice.rdb"), file).expect("ours");
    let mut redis = std::process::Command::new("timeout");
    redis.args([
        "60",
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        "twice.sock",
        "--crash-log-enabled",
        "no",
    ]);
    redis.args(["--dbfilename", "twice.rdb", "--dir"]).arg(&folder);
    let ended = redis.output().expect("redis-server is installed");
    assert!(!ended.status.success());
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(told.contains("RDB has duplicated key 'k' in DB 0"), "{told}");
}
