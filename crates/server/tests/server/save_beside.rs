//! SAVE during a rewrite of the append-only file, as in redis-server. SAVE and the rewrite each have a moment of
//! their own, and neither waits for the other.

use crate::aof::{call, folder, info, link, redis_at, start, text};
use crate::harness::{Server, comes_true};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const KEYS: usize = 100;
/// Delay in microseconds for saving a key, so that saving all keys takes longer than the test.
const SLOW: &str = "100000";

/// The content of a snapshot, as redis-server loads it: the number of keys, and the values of two keys.
fn in_snapshot(snapshot: &Path) -> [String; 3] {
    let other = folder();
    std::fs::copy(snapshot, other.path().join("dump.rdb")).expect("copied");
    let redis = redis_without_journal(other.path());
    let mut client = redis.connect().expect("it listens");
    [&["DBSIZE"][..], &["GET", "between"], &["GET", "late"]]
        .map(|args| text(client.call(args).expect("a reply")))
}

fn redis_without_journal(folder: &Path) -> strand_testkit::process::Server {
    let dir = folder.to_str().expect("a plain path");
    strand_testkit::process::Server::redis(&["--dir", dir], None).expect("redis-server is installed")
}

#[test]
fn save_and_rewrite_run_at_once() {
    let folder = folder();
    let server = start(folder.path(), &["--save", ""]);
    let mut client = link(&server);
    for n in 0..KEYS {
        call(&mut client, &["SET", &format!("key:{n}"), "value"]);
    }
    call(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", SLOW]);
    assert_eq!(call(&mut client, &["BGREWRITEAOF"]), "Background append only file rewriting started");
    assert_eq!(info(&mut client, "aof_rewrite_in_progress"), "1");
    assert_eq!(info(&mut client, "current_save_keys_total"), KEYS.to_string());
    call(&mut client, &["SET", "between", "1"]);
    let busy = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to \
                schedule a BGSAVE whenever possible.";
    assert_eq!(call(&mut client, &["BGSAVE"]), busy);
    let saves: u64 = info(&mut client, "rdb_saves").parse().expect("a number");
    let mut saver = link(&server);
    saver.send(&["SAVE"]).expect("sent");
    comes_true(|| info(&mut client, "rdb_saves") == (saves + 1).to_string());
    // Keys are written after the moment of both, the snapshot and the base.
    comes_true(|| info(&mut client, "current_save_keys_processed") != "0");
    assert_eq!(info(&mut client, "aof_rewrite_in_progress"), "1", "both go on");
    call(&mut client, &["SET", "late", "1"]);
    call(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    assert_eq!(text(saver.reply().expect("SAVE is answered")), "OK");
    comes_true(|| info(&mut client, "aof_rewrite_in_progress") == "0");
    assert_eq!(info(&mut client, "aof_last_bgrewrite_status"), "ok");
    let found = in_snapshot(&folder.path().join("dump.rdb"));
    assert_eq!(found, [(KEYS + 1).to_string(), "1".into(), "Null".into()]);
    let digest = call(&mut client, &["DEBUG", "DIGEST"]);
    assert!(call(&mut client, &["WAITAOF", "1", "0", "0"]).starts_with("Array([Int(1)"));
    let other = self::folder();
    crate::check_aof::copy(folder.path(), other.path());
    let redis = redis_at(other.path());
    let there = text(redis.connect().expect("it listens").call(&["DEBUG", "DIGEST"]).expect("a reply"));
    assert_eq!(there, digest);
    assert_eq!(text(redis.connect().expect("it listens").call(&["GET", "late"]).expect("a reply")), "1");
}

#[test]
fn a_snapshot_has_keys_and_functions_of_one_moment() {
    const SAVES: usize = 8;
    let folder = folder();
    let dir = folder.path().to_str().expect("a plain path");
    let server = Server::start(&["--dir", dir, "--save", ""]);
    let mut client = link(&server);
    // Definitions took long enough for many functions to be loaded between the keys and the functions of a file.
    for n in 0..60 {
        call(&mut client, &["FT.CREATE", &format!("index{n}"), "SCHEMA", "t", "TEXT"]);
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = link(&server);
            for n in (1..).take_while(|_| !ended.load(Relaxed)) {
                let code = format!("#!lua name=f{n}\nredis.register_function('f{n}', function() end)");
                other.send(&["SET", "n", &n.to_string()]).expect("sent");
                other.send(&["FUNCTION", "LOAD", &code]).expect("sent");
                (0..2).for_each(|_| drop(other.reply().expect("a reply")));
            }
        });
        for n in 0..SAVES {
            call(&mut client, &["CONFIG", "SET", "dbfilename", &format!("{n}.rdb")]);
            let before = call(&mut client, &["GET", "n"]);
            comes_true(|| call(&mut client, &["GET", "n"]) != before);
            call(&mut client, &["SAVE"]);
        }
        ended.store(true, Relaxed);
    });
    for n in 0..SAVES {
        let loaded = Server::start(&["--dir", dir, "--save", "", "--dbfilename", &format!("{n}.rdb")]);
        let mut client = link(&loaded);
        comes_true(|| info(&mut client, "loading") == "0");
        let last: u64 = call(&mut client, &["GET", "n"]).parse().unwrap_or(0);
        let mut is_loaded =
            |n: u64| call(&mut client, &["FUNCTION", "LIST", "LIBRARYNAME", &format!("f{n}")]) != "Array([])";
        assert!(!is_loaded(last + 1), "a function from after the moment of {n}.rdb");
        assert!(last < 2 || is_loaded(last - 1), "no function from before the moment of {n}.rdb");
    }
}
