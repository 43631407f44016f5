//! SAVE during a rewrite of the append-only file, as in redis-server. SAVE and the rewrite each have a moment of
//! their own, and neither waits for the other.

use crate::aof::{call, folder, info, link, redis_at, start, text};
use crate::harness::comes_true;
use std::path::Path;

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
