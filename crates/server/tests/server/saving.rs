//! Snapshots on the disk with real servers. A saved file is loaded again, by Strand and by redis-server. A save is of
//! one moment. An error leaves the old file, and is reported.

pub use crate::aof::{Link, call, link, text};

use crate::harness::{Server, comes_true};
use std::path::{Path, PathBuf};
use strand_testkit::process::Server as Peer;
use strand_wire::client::Value;

const STRAND: &str = crate::harness::STRAND;

/// A field of INFO persistence.
pub fn info(link: &mut Link, field: &str) -> String {
    let all = call(link, &["INFO", "persistence"]);
    let line = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {all}")).to_string()
}
fn until_saved(link: &mut Link) {
    comes_true(|| info(link, "rdb_bgsave_in_progress") == "0");
}
/// A server with the working folder `folder`, which allows DEBUG DIGEST.
pub fn start(folder: &Path, more: &[&str]) -> Server {
    let dir = folder.to_str().expect("a plain path");
    let options = [&["--dir", dir, "--enable-debug-command", "yes", "--workers", "2"], more].concat();
    let server = Server::start(&options);
    let mut link = link(&server);
    comes_true(|| info(&mut link, "loading") == "0");
    server
}
/// Starts redis-server, which loads the file in `folder`.
fn redis_at(folder: &Path) -> Peer {
    Peer::redis(&["--dir", folder.to_str().expect("a plain path")], None).expect("redis-server is installed")
}
pub fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("strand-saving-").tempdir().expect("a folder")
}
/// The files in the folder, without the history of figures.
fn files(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).expect("there").flatten();
    let mut names: Vec<String> = names.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "strand-history");
    names.sort();
    names
}
/// Creates values of every type, small and large, in two databases.
fn fill(link: &mut Link) {
    let mut must = |args: &[&str]| {
        let reply = call(link, args);
        assert!(!reply.starts_with("ERR") && !reply.starts_with("WRONG"), "{args:?}: {reply}");
    };
    for i in 0..400 {
        must(&["SET", &format!("s:{i}"), &"value".repeat(i % 300)]);
        must(&["HSET", "h:large", &format!("field{i}"), &format!("value{i}")]);
        must(&["RPUSH", "l:large", &format!("element{i}{}", "x".repeat(i))]);
        must(&["SADD", "set:large", &format!("member{i}")]);
        must(&["SADD", "set:ints", &i.to_string()]);
        must(&["ZADD", "z:large", &format!("{}.5", i * 7 % 100), &format!("member{i}")]);
        must(&["XADD", "x:large", &format!("{}-1", i + 1), "field", &i.to_string()]);
        must(&["PFADD", "hll", &i.to_string()]);
    }
    must(&["XGROUP", "CREATE", "x:large", "group", "0"]);
    must(&["XREADGROUP", "GROUP", "group", "consumer", "COUNT", "7", "STREAMS", "x:large", ">"]);
    must(&["HSET", "h:small", "a", "1", "b", "two"]);
    must(&["ZADD", "z:small", "-1.5", "a", "inf", "b"]);
    must(&["SET", "number", "-42", "EX", "100000"]);
    must(&["SELECT", "5"]);
    must(&["SET", "elsewhere", "x", "EX", "100000"]);
    must(&["SELECT", "0"]);
}

#[test]
fn a_snapshot_is_loaded_here_and_by_redis_server() {
    let folder = folder();
    let server = start(folder.path(), &[]);
    let mut client = link(&server);
    fill(&mut client);
    let digest = call(&mut client, &["DEBUG", "DIGEST"]);
    assert!(info(&mut client, "rdb_changes_since_last_save").parse::<u64>().expect("a number") > 2000);
    let started: i64 = call(&mut client, &["LASTSAVE"]).parse().expect("a number");
    assert_eq!(call(&mut client, &["SAVE"]), "OK");
    assert!(call(&mut client, &["LASTSAVE"]).parse::<i64>().expect("a number") >= started);
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "0");
    assert_eq!(info(&mut client, "rdb_saves"), "1");
    let check = std::process::Command::new("redis-check-rdb").arg(folder.path().join("dump.rdb")).output();
    let check = check.expect("redis-check-rdb is installed");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));

    let redis = redis_at(folder.path());
    let mut peer = redis.connect().expect("it listens");
    assert_eq!(call(&mut peer, &["DEBUG", "DIGEST"]), digest);
    // Then the other way: redis-server adds a key and saves, and Strand loads.
    call(&mut peer, &["SET", "one", "more"]);
    let digest = call(&mut peer, &["DEBUG", "DIGEST"]);
    drop(server);
    assert_eq!(call(&mut peer, &["SAVE"]), "OK");
    let again = start(folder.path(), &[]);
    let mut client = link(&again);
    assert_eq!(call(&mut client, &["DEBUG", "DIGEST"]), digest);
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "0");
    assert_eq!(info(&mut client, "rdb_last_load_keys_expired"), "0");
    assert_eq!(call(&mut client, &["DEBUG", "RELOAD"]), "OK");
    assert_eq!(call(&mut client, &["DEBUG", "DIGEST"]), digest);
    let refused = call(&mut client, &["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH"]);
    assert_eq!(refused, "ERR Error trying to load the RDB dump");
    assert_eq!(call(&mut client, &["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH", "MERGE"]), "OK");
    assert_eq!(call(&mut client, &["DEBUG", "DIGEST"]), digest);
    assert!(call(&mut client, &["DEBUG", "RELOAD", "X"]).contains("only supports"));
}

/// Values from random commands of every family, saved in the background and in the foreground, loaded by
/// redis-server, saved there and loaded again. The digests are equal at each step.
#[test]
fn snapshots_of_random_data_are_loaded_by_both_servers() {
    let now_s =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
    for seed in 1..=3 {
        let folder = folder();
        let server =
            start(folder.path(), &["--hash-max-listpack-entries", "4", "--zset-max-listpack-entries", "4"]);
        let mut client = link(&server);
        let mut generator = crate::harness::generator(seed, now_s as i64);
        for _ in 0..4000 {
            let reply = client.call(&generator.command());
            assert!(reply.is_ok(), "the connection ended");
        }
        // Remove keys that expire, because they would differ.
        let Value::Array(keys) = client.call(&["KEYS", "*"]).expect("a reply") else { panic!("no array") };
        assert!(keys.len() >= 5, "{} keys", keys.len());
        for key in keys {
            let Value::Bulk(key) = key else { panic!("no key") };
            client.call(&[b"PERSIST", &key[..]]).expect("a reply");
        }
        let digest = call(&mut client, &["DEBUG", "DIGEST"]);
        let saving: &[&str] = if seed % 2 == 0 { &["SAVE"] } else { &["BGSAVE"] };
        call(&mut client, saving);
        until_saved(&mut client);
        assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
        drop((client, server));
        let redis = redis_at(folder.path());
        let mut peer = redis.connect().expect("it listens");
        assert_eq!(call(&mut peer, &["DEBUG", "DIGEST"]), digest, "seed {seed}");
        assert_eq!(call(&mut peer, &["SAVE"]), "OK");
        drop((peer, redis));
        let again = start(folder.path(), &[]);
        assert_eq!(call(&mut link(&again), &["DEBUG", "DIGEST"]), digest, "seed {seed}");
    }
}

#[test]
fn data_that_only_strand_has_is_saved() {
    let folder = folder();
    let server = start(folder.path(), &[]);
    let mut client = link(&server);
    let container = "c".repeat(100_000);
    for (dataset, path) in [("mail", "inbox"), ("mail", "sent"), ("docs", "")] {
        assert_eq!(call(&mut client, &["IMPORT.VERSION", "SET", dataset, path, &container]), "OK");
    }
    let defining: [&[&str]; 3] = [
        &["FT.CREATE", "texts", "PREFIX", "1", "doc:", "SKIPINITIALSCAN", "SCHEMA", "body", "TEXT"],
        &["RX.INDEX", "CREATE", "grams", "PREFIX", "doc:", "FIELD", "body"],
        &["RX.SET", "tickets", "ID", "t", "ticket-[0-9]+", "NOCASE"],
    ];
    for args in defining {
        assert_eq!(call(&mut client, args), "OK");
    }
    call(&mut client, &["HSET", "doc:1", "body", "a ticket-17 for you"]);
    let asking: [&[&str]; 3] = [
        &["FT.SEARCH", "texts", "you", "NOCONTENT"],
        &["RX.INDEX", "LIST"],
        &["RX.MATCH", "tickets", "TICKET-5"],
    ];
    let answers = asking.map(|args| call(&mut client, args));
    assert!(answers[0].contains("Int(1)"), "{answers:?}");
    call(&mut client, &["SELECT", "3"]);
    assert_eq!(call(&mut client, &["IMPORT.VERSION", "SET", "mail", "elsewhere", "x"]), "OK");
    call(&mut client, &["SET", "key", "value"]);
    assert_eq!(call(&mut client, &["SAVE"]), "OK");
    drop((client, server));
    let redis = redis_at(folder.path());
    assert!(call(&mut redis.connect().expect("it listens"), &["INFO", "keyspace"]).contains("db3:keys=1,"));
    drop(redis);
    let again = start(folder.path(), &[]);
    let mut client = link(&again);
    assert_eq!(info(&mut client, "rdb_last_load_keys_loaded"), "2");
    assert_eq!(asking.map(|args| call(&mut client, args)), answers);
    for (dataset, path) in [("mail", "inbox"), ("mail", "sent"), ("docs", "")] {
        assert_eq!(call(&mut client, &["IMPORT.VERSION", "GET", dataset, path]), container);
    }
    call(&mut client, &["SELECT", "3"]);
    assert_eq!(call(&mut client, &["IMPORT.VERSION", "GET", "mail", "elsewhere"]), "x");
}

/// Writers set pairs of keys by MULTI during repeated snapshots. In each file both keys of a pair have one value,
/// and growing numbers are not lower than in the file before.
#[test]
fn a_background_save_has_the_data_of_one_moment() {
    let folder = folder();
    let server = start(folder.path(), &["--snapshot-memory-budget", "65536"]);
    let mut client = link(&server);
    const PAIRS: usize = 500;
    for i in 0..20_000 {
        client.send(&["SET", &format!("filler:{i}"), &"v".repeat(100)]).expect("sent");
    }
    (0..20_000).for_each(|_| _ = client.reply().expect("a reply"));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let is_over = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let mut least = vec![0u64; PAIRS];
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                let mut link = link(server);
                let mut rng = fastrand::Rng::with_seed(writer);
                for n in 1u64.. {
                    if is_over() {
                        return;
                    }
                    let pair = rng.usize(..PAIRS / 2) * 2 + writer as usize;
                    let (a, b) = (format!("a:{pair}"), format!("b:{pair}"));
                    let value = format!("{n}{}", " ".repeat(200));
                    for args in [&["MULTI"][..], &["SET", &a, &value], &["HSET", &b, "f", &value], &["EXEC"]]
                    {
                        link.send(args).expect("sent");
                    }
                    (0..4).for_each(|_| _ = link.reply().expect("a reply"));
                    if n.is_multiple_of(50) {
                        call(&mut link, &["SET", &format!("filler:{}", rng.usize(..20_000)), "other"]);
                        call(&mut link, &["DEL", &format!("filler:{}", rng.usize(..20_000))]);
                    }
                }
            });
        }
        for round in 0..6 {
            assert_eq!(call(&mut client, &["BGSAVE"]), "Background saving started");
            until_saved(&mut client);
            assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
            let redis = redis_at(folder.path());
            let mut peer = redis.connect().expect("it listens");
            let mut whole = 0;
            for (pair, least) in least.iter_mut().enumerate() {
                let a = call(&mut peer, &["GET", &format!("a:{pair}")]);
                let b = call(&mut peer, &["HGET", &format!("b:{pair}"), "f"]);
                assert_eq!(a, b, "pair {pair} in round {round}");
                let n = a.trim().parse().unwrap_or(0);
                assert!(n >= *least, "pair {pair} in round {round}: {n} after {least}");
                *least = n;
                whole += usize::from(n > 0);
            }
            assert!(whole > 0 || round == 0, "nothing was written");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(info(&mut client, "rdb_saves"), "6");
    assert_eq!(files(folder.path()), ["dump.rdb", "dump.rdb.lock"]);
}

#[test]
fn a_killed_server_leaves_the_old_file_and_the_next_removes_leftovers() {
    let folder = folder();
    let mut server = start(folder.path(), &["--rdb-key-save-delay", "100000"]);
    let mut client = link(&server);
    assert_eq!(call(&mut client, &["SAVE"]), "OK");
    for i in 0..100 {
        call(&mut client, &["SET", &format!("key:{i}"), "value"]);
    }
    let before = std::fs::read(folder.path().join("dump.rdb")).expect("there");
    assert_eq!(call(&mut client, &["BGSAVE"]), "Background saving started");
    assert_eq!(call(&mut client, &["BGSAVE"]), "ERR Background save already in progress");
    assert_eq!(call(&mut client, &["SAVE"]), "ERR Background save already in progress");
    comes_true(|| files(folder.path()).iter().any(|name| name.ends_with(".tmp")));
    server.signal(rustix::process::Signal::KILL);
    server.end();
    assert_eq!(std::fs::read(folder.path().join("dump.rdb")).expect("there"), before);
    let next = start(folder.path(), &["--save", "3600 1"]);
    assert_eq!(files(folder.path()), ["dump.rdb", "dump.rdb.lock"]);
    let mut client = link(&next);
    assert_eq!(call(&mut client, &["DBSIZE"]), "0");
    // Another server may not save in this folder, and does not start with save points.
    let dir = folder.path().to_str().expect("a plain path");
    let args =
        ["serve", "--http-port", "0", "--port", "0", "--bind", "127.0.0.1", "--dir", dir, "--save", "60 1"];
    let other = std::process::Command::new(STRAND).args(args).output().expect("the built binary starts");
    let told = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(!other.status.success() && told.contains("another server (process"), "{told}");
    let quiet = start(folder.path(), &[]);
    assert_eq!(call(&mut link(&quiet), &["SAVE"]), "ERR");
}

/// Like redis-server, a server without save options saves by default rules, and at the end. A second server in the
/// folder leaves the file to the first.
#[test]
fn without_save_options_redis_server_s_defaults_apply() {
    let folder = folder();
    let dir = folder.path().to_str().expect("a plain path");
    let args = ["--http-port", "0", "--port", "0", "--bind", "127.0.0.1", "--dir", dir];
    let points = |server: &Server| call(&mut link(server), &["CONFIG", "GET", "save"]);
    let given = |points: &str| {
        let words = [&b"save"[..], points.as_bytes()].map(|word| Value::Bulk(word.to_vec()));
        format!("{:?}", Value::Array(words.to_vec()))
    };
    let mut first = Server::start_as(&args, "");
    assert_eq!(points(&first), given("3600 1 300 100 60 10000"));
    let mut second = Server::start_as(&args, "");
    assert_eq!(points(&second), given(""));
    assert_eq!(call(&mut link(&second), &["SET", "key", "second"]), "OK");
    assert_eq!(call(&mut link(&first), &["SET", "key", "first"]), "OK");
    for server in [&mut first, &mut second] {
        server.signal(rustix::process::Signal::TERM);
        server.end();
    }
    let third = Server::start_as(&args, "");
    let mut client = link(&third);
    comes_true(|| info(&mut client, "loading") == "0");
    assert_eq!(call(&mut client, &["GET", "key"]), "first");
}

#[test]
fn a_save_can_be_cancelled_and_scheduled() {
    let folder = folder();
    let server = start(folder.path(), &["--rdb-key-save-delay", "100000"]);
    let mut client = link(&server);
    let none = "ERR Background saving is currently not in progress or scheduled";
    assert_eq!(call(&mut client, &["BGSAVE", "CANCEL"]), none);
    for i in 0..100 {
        call(&mut client, &["SET", &format!("key:{i}"), "value"]);
    }
    assert_eq!(call(&mut client, &["BGSAVE", "SCHEDULE"]), "Background saving started");
    assert_eq!(info(&mut client, "rdb_bgsave_in_progress"), "1");
    assert_eq!(call(&mut client, &["BGSAVE", "CANCEL"]), "Background saving cancelled");
    until_saved(&mut client);
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "100");
    assert_eq!(files(folder.path()), ["dump.rdb.lock"]);
    assert_eq!(call(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]), "OK");
    for (args, reply) in [
        (&["BGSAVE", "x"][..], "ERR syntax error"),
        (&["BGSAVE", "SCHEDULE", "x"], "ERR syntax error"),
        (&["MULTI"], "OK"),
        (&["SAVE"], "ERR Command not allowed inside a transaction"),
        (&["DISCARD"], "OK"),
        (&["MULTI"], "OK"),
        (&["BGSAVE"], "QUEUED"),
    ] {
        assert_eq!(call(&mut client, args), reply, "{args:?}");
    }
    assert!(call(&mut client, &["EXEC"]).contains("Array"));
    comes_true(|| {
        info(&mut client, "rdb_saves") == "2" && info(&mut client, "rdb_bgsave_in_progress") == "0"
    });
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "0");
}

#[test]
fn save_points_begin_saves_and_a_failed_one_stops_writes() {
    let folder = folder();
    let server = start(folder.path(), &[]);
    let mut client = link(&server);
    call(&mut client, &["SET", "key", "value"]);
    assert_eq!(call(&mut client, &["CONFIG", "SET", "save", "1 1"]), "OK");
    comes_true(|| info(&mut client, "rdb_changes_since_last_save") == "0");
    assert!(files(folder.path()).contains(&"dump.rdb".to_string()));
    // Put a folder in the place of the file, because a folder cannot be replaced.
    assert_eq!(call(&mut client, &["CONFIG", "SET", "save", ""]), "OK");
    std::fs::remove_file(folder.path().join("dump.rdb")).expect("there");
    std::fs::create_dir_all(folder.path().join("dump.rdb/in")).expect("ours");
    assert_eq!(call(&mut client, &["SAVE"]), "ERR");
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
    call(&mut client, &["BGSAVE"]);
    comes_true(|| info(&mut client, "rdb_last_bgsave_status") == "err");
    assert_eq!(call(&mut client, &["SET", "key", "other"]), "OK");
    assert_eq!(call(&mut client, &["CONFIG", "SET", "save", "3600 1"]), "OK");
    for args in [&["SET", "key", "x"][..], &["PING"], &["DEL", "key"]] {
        assert!(
            call(&mut client, args).starts_with("MISCONF Redis is configured to save RDB snapshots"),
            "{args:?}"
        );
    }
    assert_eq!(call(&mut client, &["GET", "key"]), "other");
    assert_eq!(call(&mut client, &["MULTI"]), "OK");
    assert!(call(&mut client, &["SET", "key", "x"]).starts_with("MISCONF"));
    assert!(call(&mut client, &["EXEC"]).starts_with("EXECABORT"));
    let refused = call(&mut client, &["SHUTDOWN", "SAVE"]);
    assert_eq!(refused, "ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(call(&mut client, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]), "OK");
    assert_eq!(call(&mut client, &["SET", "key", "x"]), "OK");
    assert_eq!(call(&mut client, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]), "OK");
    assert!(call(&mut client, &["SET", "key", "x"]).starts_with("MISCONF"));
    std::fs::remove_dir_all(folder.path().join("dump.rdb")).expect("ours");
    call(&mut client, &["BGSAVE"]);
    comes_true(|| call(&mut client, &["SET", "key", "y"]) == "OK");
}

#[test]
fn shutdown_saves_according_to_its_options() {
    let signal = |server: &mut Server| server.signal(rustix::process::Signal::TERM);
    let ask =
        |args: &'static [&'static str]| move |server: &mut Server| link(server).send(args).expect("sent");
    type End = Box<dyn Fn(&mut Server)>;
    let ends: Vec<(&[&str], End, bool)> = vec![
        (&["--save", "3600 1000"], Box::new(signal), true),
        (&["--save", ""], Box::new(signal), false),
        (&["--save", "", "--shutdown-on-sigterm", "save"], Box::new(signal), true),
        (&["--save", "3600 1000"], Box::new(ask(&["SHUTDOWN"])), true),
        (&["--save", "3600 1000"], Box::new(ask(&["SHUTDOWN", "NOSAVE"])), false),
        (&["--save", ""], Box::new(ask(&["SHUTDOWN", "SAVE"])), true),
        (&["--save", ""], Box::new(ask(&["SHUTDOWN"])), false),
    ];
    for (options, end, saves) in ends {
        let folder = folder();
        let mut server = start(folder.path(), options);
        let mut client = link(&server);
        // Commands in progress: every answered write is in the file.
        for i in 0..1000 {
            client.send(&["INCR", &format!("key:{}", i % 7)]).expect("sent");
        }
        assert_eq!(text(client.reply().expect("a reply")), "1");
        end(&mut server);
        let mut answered = 1;
        while let Ok(Value::Int(_)) = client.reply() {
            answered += 1;
        }
        assert_eq!(server.end().code(), Some(0));
        let want: &[&str] = if saves { &["dump.rdb"] } else { &[] };
        assert_eq!(files(folder.path()), want, "{options:?}");
        if saves {
            let again = start(folder.path(), &["--save", ""]);
            let mut client = link(&again);
            let sum: i64 =
                (0..7).map(|i| call(&mut client, &["GET", &format!("key:{i}")]).parse().unwrap_or(0)).sum();
            assert!(sum >= answered, "{answered} were answered, {sum} are there: {options:?}");
        }
    }
}

/// Every real file in the tree is loaded, or refused if no released server loads it. No file is overwritten.
#[test]
fn files_of_every_version_are_loaded_or_refused() {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../rdb/tests/data");
    let mut loaded = 0;
    for name in files(&data).iter().filter(|name| name.ends_with(".rdb")) {
        let folder = folder();
        std::fs::copy(data.join(name), folder.path().join("dump.rdb")).expect("copied");
        if name == "redis-7.0-rc1-functions-only.rdb" {
            assert_refused(folder.path(), name);
            continue;
        }
        loaded += 1;
        let server = start(folder.path(), &[]);
        let mut client = link(&server);
        let report = std::process::Command::new(STRAND).args(["check", "rdb"]).arg(data.join(name)).output();
        let report = String::from_utf8(report.expect("it runs").stdout).expect("text");
        let keys = report
            .lines()
            .filter_map(|line| line.strip_prefix("database ")?.split(' ').nth(1)?.parse::<u64>().ok());
        let keys: u64 = keys.sum();
        let there = info(&mut client, "rdb_last_load_keys_loaded").parse::<u64>().expect("a number");
        let expired = info(&mut client, "rdb_last_load_keys_expired").parse::<u64>().expect("a number");
        assert_eq!(there + expired, keys, "{name}");
        let digest = call(&mut client, &["DEBUG", "DIGEST"]);
        assert_eq!(call(&mut client, &["DEBUG", "RELOAD"]), "OK", "{name}");
        assert_eq!(call(&mut client, &["DEBUG", "DIGEST"]), digest, "{name}");
    }
    assert!(loaded >= 30, "{loaded} files");
}

/// Asserts that a server which finds this file ends, names the error, its place and a remedy, and leaves the file
/// unchanged.
fn assert_refused(folder: &Path, name: &str) -> String {
    let before = std::fs::read(folder.join("dump.rdb")).expect("there");
    let dir = folder.to_str().expect("a plain path");
    let args =
        ["serve", "--http-port", "0", "--port", "0", "--bind", "127.0.0.1", "--dir", dir, "--save", "60 1"];
    // Use `timeout`, because a server that accepts the file would run forever.
    let mut command = std::process::Command::new("timeout");
    let refused = command.arg("60").arg(STRAND).args(args).output().expect("the built binary starts");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{name}: {told}");
    for part in ["cannot load the snapshot dump.rdb: at offset ", "`strand check rdb dump.rdb`"] {
        assert!(told.contains(part), "{name}: {told}");
    }
    assert_eq!(std::fs::read(folder.join("dump.rdb")).expect("there"), before, "{name}");
    told
}

#[test]
fn a_damaged_file_is_refused_and_unchanged() {
    let folder = folder();
    let server = start(folder.path(), &[]);
    let mut client = link(&server);
    call(&mut client, &["SET", "key", "value"]);
    assert_eq!(call(&mut client, &["SAVE"]), "OK");
    drop((client, server));
    let path = folder.path().join("dump.rdb");
    let good = std::fs::read(&path).expect("there");
    let of = |body: &[u8]| [b"REDIS0010\xfe\0", body, b"\xff\0\0\0\0\0\0\0\0"].concat();
    for (what, bytes, expected) in [
        ("cut", good[..good.len() - 9].to_vec(), "the input ends too early"),
        (
            "another program's",
            b"#!/bin/sh\nexit 0\n".to_vec(),
            "at offset 0: this is not an RDB file: expected REDIS or VALKEY",
        ),
        ("empty", Vec::new(), "at offset 0: the input ends too early"),
        (
            "a newer version's",
            [b"REDIS0099", &good[9..]].concat(),
            "RDB version 99 is not supported: expected 1 to ",
        ),
        (
            "checksum",
            [&good[..good.len() - 1], &[good[good.len() - 1] ^ 1]].concat(),
            "wrong checksum: the bytes have ",
        ),
        ("an unknown type", of(b"\x63\x01k\x01v"), "at offset 14: value type 99 is unknown"),
        ("a key twice", of(b"\0\x01k\x011\0\x01k\x012"), "at offset 21: key \"k\" exists already"),
        (
            "a database that is not there",
            of(b"\xfe\x20"),
            "at offset 13: database 32 does not exist; the server has 16",
        ),
        (
            "a string that is too long",
            of(b"\0\x81\x7f\xff\xff\xff\xff\xff\xff\xff"),
            "expected at most 68719476736",
        ),
    ] {
        std::fs::write(&path, bytes).expect("ours");
        let told = assert_refused(folder.path(), what);
        assert!(told.contains(expected), "{what}: no {expected:?} in {told}");
    }
}
