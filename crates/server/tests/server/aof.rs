//! Append-only files with real servers. Each server loads the other's files. A damaged file is refused and not
//! changed.

use crate::check_aof::{copy, data};
use crate::harness::{Server, comes_true, generator};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strand_testkit::process::Server as Peer;
use strand_wire::client::Value;

pub type Link = strand_testkit::client::Client;

pub fn link(server: &Server) -> Link {
    Link::connect(server.address).expect("it listens")
}
pub fn text(value: Value) -> String {
    match value {
        Value::Bulk(b) | Value::Simple(b) | Value::Error(b) | Value::Verbatim(_, b) => {
            String::from_utf8_lossy(&b).into_owned()
        }
        Value::Int(n) => n.to_string(),
        other => format!("{other:?}"),
    }
}
pub fn call(link: &mut Link, args: &[&str]) -> String {
    text(link.call(args).expect("a reply"))
}
/// A field of INFO persistence.
pub fn info(link: &mut Link, field: &str) -> String {
    let all = call(link, &["INFO", "persistence"]);
    let line = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {all}")).to_string()
}
pub fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("strand-aof-").tempdir().expect("a folder")
}
/// A server with an append-only file in `folder`.
pub fn start(folder: &Path, more: &[&str]) -> Server {
    let dir = folder.to_str().expect("a plain path");
    let options =
        [&["--dir", dir, "--enable-debug-command", "yes", "--workers", "2", "--appendonly", "yes"], more]
            .concat();
    let server = Server::start(&options);
    let mut link = link(&server);
    comes_true(|| info(&mut link, "loading") == "0");
    server
}
pub fn redis_at(folder: &Path) -> Peer {
    let dir = folder.to_str().expect("a plain path");
    let redis = Peer::redis(&["--dir", dir, "--appendonly", "yes"], None).expect("redis-server is installed");
    let mut link = redis.connect().expect("it listens");
    comes_true(|| info(&mut link, "loading") == "0");
    redis
}
/// All files below `folder`, with their contents.
pub fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("there").flatten() {
        match entry.path().is_dir() {
            true => found.extend(contents(&entry.path())),
            false => _ = found.insert(entry.path(), std::fs::read(entry.path()).expect("there")),
        }
    }
    // Ignore this file, which the server that reads the folder creates.
    found.retain(|path, _| !path.to_string_lossy().ends_with(".lock"));
    found
}
/// Removes all expiries, because data with keys that expire while files are copied would differ.
pub fn persist_all(client: &mut Link) {
    for db in 0..16 {
        call(client, &["SELECT", &db.to_string()]);
        let Value::Array(keys) = client.call(&["KEYS", "*"]).expect("a reply") else { panic!("no array") };
        for key in keys {
            let Value::Bulk(key) = key else { panic!("no key") };
            client.call(&[b"PERSIST", &key[..]]).expect("a reply");
        }
    }
}
pub fn copy_of(name: &str) -> tempfile::TempDir {
    let folder = folder();
    copy(&data(name), folder.path());
    folder
}

const REAL: [&str; 9] = [
    "redis-6.2.16-plain",
    "redis-6.2.16-rdb-base",
    "redis-7.0.15-plain",
    "redis-7.0.15-rdb-base",
    "redis-7.0.15-rdb-base-cut",
    "redis-7.2.6-rdb-base",
    "redis-7.4.1-rdb-base",
    "redis-head-plain",
    "redis-head-rdb-base",
];

#[test]
fn files_of_real_servers_are_loaded() {
    let mut compared = 0;
    for name in REAL {
        let folder = copy_of(name);
        let text = std::fs::read_to_string(folder.path().join("expected.json")).expect("there");
        let expected: serde_json::Value = serde_json::from_str(&text).expect("as it was written");
        let server = start(folder.path(), &[]);
        let mut client = link(&server);
        let keys = call(&mut client, &["INFO", "keyspace"]);
        for (db, size) in expected["dbsize"].as_object().expect("numbers by database") {
            assert!(keys.contains(&format!("db{db}:keys={size},")), "{name}: {keys}");
        }
        let functions = call(&mut client, &["FUNCTION", "LIST"]);
        for function in expected["functions"].as_array().into_iter().flatten() {
            let library = function["library"].as_str().expect("a name");
            let shown: Vec<String> = library.bytes().map(|b| b.to_string()).collect();
            assert!(functions.contains(&shown.join(", ")), "{name}: no {library} in {functions}");
        }
        // redis-server 7.0 does not load files of later versions. An RDB of 6.2 has scores of -0, which are 0 in
        // Strand.
        if expected["digest_number_format"] == "%.17g" && name != "redis-6.2.16-rdb-base" {
            assert_eq!(digest(&mut client), digest_there(&data(name)), "{name}");
            compared += 1;
        }
        // Loading the files a second time must give equal data.
        let digest = call(&mut client, &["DEBUG", "DIGEST"]);
        drop((client, server));
        let again = start(folder.path(), &[]);
        assert_eq!(call(&mut link(&again), &["DEBUG", "DIGEST"]), digest, "{name}");
    }
    assert_eq!(compared, 4);
}

#[test]
fn a_single_file_of_redis_6_is_moved_into_the_folder() {
    let folder = copy_of("redis-6.2.16-rdb-base");
    let server = start(folder.path(), &[]);
    let keys = call(&mut link(&server), &["INFO", "keyspace"]);
    assert!(keys.contains("db0:keys=43,"), "{keys}");
    assert!(!folder.path().join("appendonly.aof").exists());
    let manifest = std::fs::read_to_string(folder.path().join("appendonlydir/appendonly.aof.manifest"));
    assert_eq!(
        manifest.expect("there"),
        "file appendonly.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n"
    );
    drop(server);
    // redis-server continues with the files.
    let redis = redis_at(folder.path());
    assert!(call(&mut redis.connect().expect("it listens"), &["INFO", "keyspace"]).contains("db0:keys=43,"));
}

/// redis-server leaves a file with another database selected. Commands appended here still go to database 0.
#[test]
fn a_file_that_ends_in_another_database_is_continued_in_database_0() {
    let folder = folder();
    let redis = redis_at(folder.path());
    let mut peer = redis.connect().expect("it listens");
    call(&mut peer, &["SELECT", "3"]);
    call(&mut peer, &["SET", "theirs", "1"]);
    drop(peer);
    redis.shut_down().expect("it ends");
    let server = start(folder.path(), &["--appendfsync", "always"]);
    assert_eq!(call(&mut link(&server), &["SET", "ours", "1"]), "OK");
    drop(server);
    let keys = |client: &mut Link| {
        let all = call(client, &["INFO", "keyspace"]);
        ["db0:keys=1,", "db3:keys=1,"].iter().all(|db| all.contains(db))
    };
    let server = start(folder.path(), &[]);
    assert!(keys(&mut link(&server)));
    drop(server);
    assert!(keys(&mut redis_at(folder.path()).connect().expect("it listens")));
}

#[test]
fn files_of_redis_server_after_random_commands_are_loaded() {
    let now_s =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
    for (seed, options) in [
        (11, &["--aof-use-rdb-preamble", "no"][..]),
        (12, &["--aof-timestamp-enabled", "yes"]),
        (13, &["--appenddirname", "elsewhere", "--appendfilename", "odd name.aof"]),
    ] {
        let folder = folder();
        let dir = folder.path().to_str().expect("a plain path");
        let all = [&["--dir", dir, "--appendonly", "yes"], options].concat();
        let redis = Peer::redis(&all, None).expect("redis-server is installed");
        let mut peer = redis.connect().expect("it listens");
        let mut generator = generator(seed, now_s as i64);
        for n in 0..6000 {
            peer.call(&generator.command()).expect("a reply");
            if n == 3000 {
                call(&mut peer, &["BGREWRITEAOF"]);
                comes_true(|| info(&mut peer, "aof_rewrite_in_progress") == "0");
            }
        }
        call(
            &mut peer,
            &["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 7 end)"],
        );
        persist_all(&mut peer);
        let digest = call(&mut peer, &["DEBUG", "DIGEST"]);
        drop(peer);
        redis.shut_down().expect("it ends");
        let server = start(folder.path(), options);
        let mut client = link(&server);
        assert_eq!(call(&mut client, &["DEBUG", "DIGEST"]), digest, "seed {seed}");
        assert_eq!(call(&mut client, &["FCALL", "f", "0"]), "7");
        let log = server.folder.log_text();
        assert!(!log.contains("CRITICAL"), "{log}");
    }
}

/// redis-server reads the padding that fills the hole after a panic, at any length of the hole.
#[test]
fn padding_is_read_by_redis_server() {
    let folder = folder();
    let dir = folder.path().join("appendonlydir");
    std::fs::create_dir(&dir).expect("made");
    let (mut file, mut sets) = (b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n".to_vec(), 0);
    for len in (17..300).chain(990..1_030).chain(10_010..10_030) {
        file.extend(strand_keyspace::journal::padding(len));
        file.extend(format!("*3\r\n$3\r\nSET\r\n$5\r\n{len:05}\r\n$1\r\nx\r\n").bytes());
        sets += 1;
    }
    std::fs::write(dir.join("appendonly.aof.1.incr.aof"), &file).expect("written");
    let manifest = dir.join("appendonly.aof.manifest");
    std::fs::write(&manifest, "file appendonly.aof.1.incr.aof seq 1 type i\n").expect("written");
    let checked = std::process::Command::new("redis-check-aof").arg(&manifest).output().expect("installed");
    let told = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success() && told.contains("All AOF files and manifest are valid"), "{told}");
    for option in ["yes", "no"] {
        let options = ["--aof-load-truncated", option];
        let server = start(folder.path(), &options);
        assert_eq!(call(&mut link(&server), &["DBSIZE"]), sets.to_string());
    }
    let redis = redis_at(folder.path());
    assert_eq!(call(&mut redis.connect().expect("it listens"), &["DBSIZE"]), sets.to_string());
}

/// Scripts in a file, as redis-server before 5 wrote them, run on both servers.
#[test]
fn scripts_in_a_file_are_run() {
    fn add(file: &mut Vec<u8>, words: &[&str]) {
        file.extend(format!("*{}\r\n", words.len()).bytes());
        words.iter().for_each(|word| file.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    }
    let library = "#!lua name=lib\nredis.register_function('put', function(keys, args) \
                   return redis.call('rpush', keys[1], unpack(args)) end)";
    let long = "for i = 1, 20000 do redis.call('incr', KEYS[1]) end return 1";
    let mut file = Vec::new();
    for words in [
        &["SELECT", "3"][..],
        &[
            "EVAL",
            "redis.call('set', KEYS[1], ARGV[1]) return redis.call('set', 'undeclared', 'u')",
            "1",
            "a",
            "v",
        ],
        &["EVAL", "redis.call('select', 5) redis.call('set', 'five', 1)", "0"],
        &["SET", "three", "1"],
        &["EVAL", long, "1", "counter"],
        &["FUNCTION", "LOAD", library],
        &["FCALL", "put", "1", "list", "1", "2"],
        &["MULTI"],
        &["EVAL", "return redis.call('append', KEYS[1], 'x')", "1", "a"],
        &["FCALL", "put", "1", "list", "3"],
        &["EXEC"],
        &["SET", "gone", "1", "PXAT", "1000"],
        &["EVAL", "return redis.call('append', 'gone', '2')", "0"],
        &["PERSIST", "gone"],
        &["EVAL", "return redis.call('incr', 'a')", "0"],
    ] {
        add(&mut file, words);
    }
    let made = || {
        let folder = folder();
        std::fs::write(folder.path().join("appendonly.aof"), &file).expect("written");
        folder
    };
    let seen = |client: &mut Link| -> Vec<String> {
        let lines: [&[&str]; 8] = [
            &["INFO", "keyspace"],
            &["SELECT", "3"],
            &["MGET", "a", "undeclared", "counter", "gone", "three"],
            &["LRANGE", "list", "0", "-1"],
            &["FUNCTION", "LIST"],
            &["SELECT", "5"],
            &["GET", "five"],
            &["DEBUG", "DIGEST"],
        ];
        lines.iter().map(|line| call(client, line)).collect()
    };
    let there = made();
    let redis = redis_at(there.path());
    let expected = seen(&mut redis.connect().expect("it listens"));
    let here = made();
    // The memory limit does not apply to loading.
    let server = start(here.path(), &["--maxmemory", "1mb"]);
    let found = seen(&mut link(&server));
    assert_eq!(found[1..], expected[1..]);
    assert!(found[2].contains(&format!("{:?}", b"20000")), "{}", found[2]);
}

pub fn digest(link: &mut Link) -> String {
    call(link, &["DEBUG", "DIGEST"])
}
/// The digest of the data that redis-server loads from a copy of `folder`.
pub fn digest_there(folder: &Path) -> String {
    let other = self::folder();
    copy(folder, other.path());
    let redis = redis_at(other.path());
    digest(&mut redis.connect().expect("it listens"))
}
/// The digest of the data that a new server loads from a copy of `folder`.
pub fn digest_here(folder: &Path) -> String {
    let other = self::folder();
    copy(folder, other.path());
    digest(&mut link(&start(other.path(), &[])))
}
pub fn until_rewritten(link: &mut Link) {
    comes_true(|| info(link, "aof_rewrite_in_progress") == "0" && info(link, "aof_rewrite_scheduled") == "0");
}
pub fn shut_down(mut server: Server) {
    let mut client = link(&server);
    client.send(&["SHUTDOWN"]).expect("sent");
    assert!(server.end().success());
}

#[test]
fn a_written_file_restores_the_data_here_and_in_redis_server() {
    let folder = folder();
    let server = start(folder.path(), &[]);
    let mut client = link(&server);
    let must = |client: &mut Link, args: &[&str]| {
        let reply = call(client, args);
        assert!(!reply.starts_with("ERR") && !reply.starts_with("WRONG"), "{args:?}: {reply}");
    };
    for n in 0..200 {
        let n = n.to_string();
        must(&mut client, &["SET", &format!("s:{n}"), &n, "EX", "100000"]);
        must(&mut client, &["RPUSH", "l", &n]);
        must(&mut client, &["SADD", "set", &n]);
        must(&mut client, &["ZADD", "z", &n, &n]);
        must(&mut client, &["HSET", "h", &n, &"v".repeat(200)]);
        must(&mut client, &["XADD", "x", "*", "f", &n]);
    }
    for args in [
        &["SPOP", "set", "50"][..],
        &["INCRBYFLOAT", "s:7", "0.25"],
        &["SELECT", "3"],
        &["MULTI"],
        &["SET", "a", "1"],
        &["INCR", "a"],
        &["EXEC"],
        &[
            "EVAL",
            "for i = 1, 20 do redis.call('RPUSH', KEYS[1], i) end return redis.call('LPOP', KEYS[1])",
            "1",
            "scripted",
        ],
        &["SET", "large", &"x".repeat(100_000)],
        &["APPEND", "large", "y"],
        &["SELECT", "0"],
        &["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 7 end)"],
        &["XGROUP", "CREATE", "x", "g", "0"],
        &["XREADGROUP", "GROUP", "g", "c", "COUNT", "9", "STREAMS", "x", ">"],
        &["RENAME", "l", "list"],
        &["MOVE", "list", "4"],
        &["SWAPDB", "4", "5"],
        // redis-server 7.0 knows none of these.
        &["SET", "bits", "abc"],
        &["BITOP", "DIFF", "bits:diff", "bits", "s:1"],
        &["BITOP", "ONE", "bits:one", "bits", "s:1", "s:2"],
        &["BITOP", "ANDOR", "bits:one", "none", "none"],
        &["ZUNIONSTORE", "z:count", "2", "z", "set", "AGGREGATE", "COUNT"],
        &["ZINTERSTORE", "z:none", "2", "z", "none", "AGGREGATE", "COUNT"],
        &["FT.CREATE", "kept", "PREFIX", "1", "h", "SCHEMA", "t", "TEXT"],
        &["FT.CREATE", "dropped", "SCHEMA", "t", "TEXT"],
        &["FT.DROPINDEX", "dropped"],
        &["HSET", "doc:1", "t", "dropped with its index"],
        &["FT.CREATE", "of-docs", "PREFIX", "1", "doc:", "SCHEMA", "t", "TEXT"],
        &["FT.DROPINDEX", "of-docs", "DD"],
        &["RX.SET", "kept", "ID", "1", "a+"],
        &["RX.SET", "dropped", "ID", "1", "a+"],
        &["RX.DEL", "dropped"],
        &["RX.INDEX", "CREATE", "kept", "PREFIX", "s:"],
        &["RX.INDEX", "CREATE", "dropped", "PREFIX", "s:"],
        &["RX.INDEX", "DROP", "dropped"],
    ] {
        must(&mut client, args);
    }
    let before = digest(&mut client);
    assert_eq!(info(&mut client, "aof_enabled"), "1");
    shut_down(server);
    assert_eq!(digest_there(folder.path()), before);
    let again = start(folder.path(), &["--aof-use-rdb-preamble", "no"]);
    let mut client = link(&again);
    assert_eq!(digest(&mut client), before);
    assert_eq!(call(&mut client, &["FCALL", "f", "0"]), "7");
    for list in [&["FT._LIST"][..], &["RX.LIST"], &["RX.INDEX", "LIST"]] {
        let names = client.call(list).expect("a reply");
        assert_eq!(names, Value::Array(vec![Value::Bulk(b"kept".to_vec())]), "{list:?}");
    }
    assert!(call(&mut client, &["XPENDING", "x", "g"]).starts_with("Array([Int(9)"));
    // Rewrite the file first as commands, then as an RDB.
    for preamble in ["no", "yes"] {
        must(&mut client, &["CONFIG", "SET", "aof-use-rdb-preamble", preamble]);
        assert_eq!(call(&mut client, &["BGREWRITEAOF"]), "Background append only file rewriting started");
        until_rewritten(&mut client);
        assert_eq!(info(&mut client, "aof_last_bgrewrite_status"), "ok");
        must(&mut client, &["SET", "after", preamble]);
        let before = digest(&mut client);
        must(&mut client, &["WAITAOF", "1", "0", "0"]);
        assert_eq!(digest_here(folder.path()), before);
        assert_eq!(digest_there(folder.path()), before);
    }
    let names: Vec<String> =
        contents(folder.path()).keys().map(|path| path.to_string_lossy().into_owned()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().any(|name| name.ends_with(".3.base.rdb")), "{names:?}");
}

/// The append-only file is switched off at any moment of its first base.
#[test]
fn appendonly_is_off_when_it_is_switched_off_during_the_first_base() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &["--appendonly", "no", "--save", "", "--appendfsync", "always"]);
    let mut client = link(&server);
    let mut rng = fastrand::Rng::with_seed(23);
    for round in 0..100 {
        assert_eq!(call(&mut client, &["CONFIG", "SET", "appendonly", "yes"]), "OK");
        (0..rng.usize(0..80)).for_each(|_| assert_eq!(call(&mut client, &["PING"]), "PONG"));
        assert_eq!(call(&mut client, &["CONFIG", "SET", "appendonly", "no"]), "OK");
        let reply = client.call(&["WAITAOF", "1", "0", "0"]).expect("a reply");
        assert!(matches!(reply, Value::Error(_)), "{round}: {reply:?}");
        assert_eq!(call(&mut client, &["SET", "k", &round.to_string()]), "OK");
    }
    call(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    call(&mut client, &["SET", "k", "last"]);
    assert_eq!(
        client.call(&["WAITAOF", "1", "0", "0"]).expect("a reply"),
        Value::Array(vec![Value::Int(1), Value::Int(0)])
    );
    drop(server);
    let again = start(folder.path(), &["--save", ""]);
    assert_eq!(call(&mut link(&again), &["GET", "k"]), "last");
}

/// Clients write at random on several connections during repeated rewrites.
#[test]
fn random_commands_of_many_clients_survive_rewrites() {
    let now_s =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
    for (seed, fsync) in [(1, "everysec"), (2, "always"), (3, "no")] {
        let folder = folder();
        let server = start(folder.path(), &["--appendfsync", fsync, "--aof-timestamp-enabled", "yes"]);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let mut client = link(&server);
                scope.spawn(move || {
                    let mut generator = generator(seed * 10 + thread, now_s as i64);
                    for _ in 0..1500 {
                        client.call(&generator.command()).expect("a reply");
                    }
                });
            }
            let mut client = link(&server);
            for _ in 0..4 {
                call(&mut client, &["BGREWRITEAOF"]);
                until_rewritten(&mut client);
                assert_eq!(info(&mut client, "aof_last_bgrewrite_status"), "ok");
            }
        });
        let mut client = link(&server);
        persist_all(&mut client);
        let before = digest(&mut client);
        shut_down(server);
        assert_eq!(digest_here(folder.path()), before, "{fsync}");
        assert_eq!(digest_there(folder.path()), before, "{fsync}");
    }
}

#[test]
fn a_panicking_command_leaves_no_lock_and_no_effect_and_closes_one_connection() {
    let folder = folder();
    let server = start(folder.path(), &["--workers", "1"]);
    let (mut one, mut other) = (link(&server), link(&server));
    if std::env::var_os("STRAND_BINARY").is_some() {
        // Stop here, because a release build does not have this command.
        return;
    }
    assert_eq!(call(&mut one, &["SET", "before", "1"]), "OK");
    assert!(one.call(&["DEBUG", "PANIC", "HALF-WAY", "k"]).is_err(), "its connection is closed");
    for _ in 0..3 {
        // The worker continues, and no shard stays locked.
        call(&mut other, &["INCR", "after"]);
        assert_eq!(call(&mut other, &["SET", "k", "whole"]), "OK");
        assert_eq!(call(&mut other, &["DBSIZE"]), "3");
        assert!(link(&server).call(&["DEBUG", "PANIC", "HALF-WAY", "k"]).is_err());
    }
    assert_eq!(call(&mut other, &["DEL", "k"]), "1");
    assert!(link(&server).call(&["DEBUG", "PANIC", "HALF-WAY", "k"]).is_err());
    shut_down(server);
    // The command that panicked is in no file, and redis-server does not read it.
    let there = redis_at(folder.path());
    let mut client = there.connect().expect("it listens");
    let found = ["before", "after", "k"].map(|key| call(&mut client, &["GET", key]));
    assert_eq!(found, ["1", "3", "Null"]);
}

#[test]
fn appendonly_is_switched_on_and_off_at_run_time() {
    let folder = folder();
    let server = start(folder.path(), &["--appendonly", "no"]);
    let mut client = link(&server);
    assert_eq!(info(&mut client, "aof_enabled"), "0");
    call(&mut client, &["SET", "before", "1"]);
    assert_eq!(
        call(&mut client, &["WAITAOF", "1", "0", "0"]),
        "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
    );
    assert_eq!(call(&mut client, &["CONFIG", "SET", "appendonly", "yes"]), "OK");
    assert_eq!(info(&mut client, "aof_enabled"), "1");
    until_rewritten(&mut client);
    call(&mut client, &["SET", "during", "1"]);
    assert_eq!(call(&mut client, &["WAITAOF", "1", "0", "0"]), "Array([Int(1), Int(0)])");
    let on = digest(&mut client);
    assert_eq!(digest_there(folder.path()), on);
    assert_eq!(call(&mut client, &["CONFIG", "SET", "appendonly", "no"]), "OK");
    call(&mut client, &["SET", "between", "1"]);
    assert_eq!(digest_there(folder.path()), on);
    // Writes made while the append-only file was off are in the new base.
    assert_eq!(call(&mut client, &["CONFIG", "SET", "appendonly", "yes"]), "OK");
    until_rewritten(&mut client);
    comes_true(|| contents(folder.path()).keys().any(|path| path.to_string_lossy().contains(".2.base")));
    call(&mut client, &["SET", "after", "1"]);
    call(&mut client, &["WAITAOF", "1", "0", "0"]);
    let on = digest(&mut client);
    assert_eq!(digest_here(folder.path()), on);
    assert_eq!(digest_there(folder.path()), on);
}

#[test]
fn the_append_only_file_is_rewritten_when_it_has_grown() {
    let folder = folder();
    let options = ["--auto-aof-rewrite-min-size", "64kb", "--auto-aof-rewrite-percentage", "50"];
    let server = start(folder.path(), &options);
    let mut client = link(&server);
    let value = "v".repeat(1000);
    comes_true(|| {
        (0..50).for_each(|n| _ = call(&mut client, &["SET", &format!("key:{n}"), &value]));
        info(&mut client, "aof_rewrites").parse::<u64>().expect("a number") >= 2
    });
    until_rewritten(&mut client);
    assert_eq!(info(&mut client, "aof_last_bgrewrite_status"), "ok");
    let before = digest(&mut client);
    shut_down(server);
    assert_eq!(digest_there(folder.path()), before);
}

/// A single file of an older Redis in the folder is not touched when the option is switched on later.
#[test]
fn switching_appendonly_on_keeps_an_old_file() {
    let folder = folder();
    let old = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";
    let path = folder.path().join("appendonly.aof");
    std::fs::write(&path, old).expect("written");
    let server = start(folder.path(), &["--appendonly", "no"]);
    let mut client = link(&server);
    assert_eq!(call(&mut client, &["BGREWRITEAOF"]), "Background append only file rewriting started");
    until_rewritten(&mut client);
    for on in ["yes", "no", "yes"] {
        assert_eq!(call(&mut client, &["CONFIG", "SET", "appendonly", on]), "OK");
    }
    until_rewritten(&mut client);
    assert_eq!(std::fs::read_to_string(&path).expect("there"), old);
    assert_eq!(call(&mut client, &["DBSIZE"]), "0");
}
