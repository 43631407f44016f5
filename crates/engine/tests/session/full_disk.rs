//! A disk without room: what is written, what is refused, and when the server may end.

use crate::disk::Disk;
use crate::durable::open;
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn effects_are_written_once_a_full_disk_has_room_again() {
    let disk = Disk::default();
    let mut server = open(&disk, "appendfsync everysec");
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "SET a 1"), "+OK|");
    server.engine.write_aof(false);
    disk.set_room(Some(10));
    assert_eq!(peer.run(&server, "SET b 2"), "+OK|");
    server.engine.write_aof(false);
    let refused = "-MISCONF Errors writing to the AOF file: No space left on device|";
    for (line, reply) in [("SET c 3", refused), ("PING", refused), ("GET b", "$1|2|")] {
        assert_eq!(peer.run(&server, line), reply, "{line}");
    }
    // The writes of scripts are refused, too, also within EXEC. A script that declares its flags does not start.
    let set = "EVAL \"return redis.call('set', 'c', 3)\" 0";
    assert!(peer.run(&server, set).starts_with(refused.trim_end_matches('|')));
    assert!(peer.run(&server, "EVAL \"return redis.pcall('set', 'c', 3)['err']\" 0").contains("MISCONF"));
    assert_eq!(peer.run(&server, "EVAL \"#!lua\nreturn 1\" 0"), refused);
    assert_eq!(peer.run(&server, "EVAL \"return redis.call('get', 'b')\" 0"), "$1|2|");
    peer.run(&server, "MULTI");
    peer.run(&server, set);
    assert!(peer.run(&server, "EXEC").starts_with("*1|-MISCONF"));
    assert_eq!(peer.run(&server, "EXISTS c"), ":0|");
    assert!(peer.run(&server, "INFO persistence").contains("aof_last_write_status:err"));
    disk.set_room(None);
    server.step_us.store(2_000_000, Relaxed);
    // The clock has moved since the last turn read it.
    server.engine.write_aof(false);
    server.engine.write_aof(false);
    assert_eq!(peer.run(&server, "SET c 3"), "+OK|");
    assert!(peer.run(&server, "INFO persistence").contains("aof_last_write_status:ok"));
    server.engine.write_aof(true);
    let mut again = open(&disk, "");
    let mut peer = again.connect();
    assert_eq!(peer.run(&again, "MGET a b c"), "*3|$1|1|$1|2|$1|3|");
    // With `always` no client may get a reply, so the process ends.
    let mut server = open(&disk, "appendfsync always");
    let mut peer = server.connect();
    disk.set_room(Some(10));
    assert_eq!(peer.run(&server, "SET d 4"), "");
    server.engine.write_aof(false);
    peer.drive(&server);
    assert_eq!(peer.replies(), "");
    assert!(server.died.lock().as_deref().is_some_and(|text| text.contains("'always'. Exiting...")));
}

/// What fits on the disk is written, in whole commands and transactions. The rest keeps the server from stopping.
#[test]
fn a_full_disk_gets_the_writes_that_fit_and_the_server_does_not_stop_without_the_rest() {
    let disk = Disk::default();
    let mut server = open(&disk, "appendfsync everysec");
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "SET first 1"), "+OK|");
    server.engine.write_aof(false);
    // Each SET takes 29 bytes.
    (0..10).for_each(|i| assert_eq!(peer.run(&server, &format!("SET k{i} v{i}")), "+OK|"));
    peer.run(&server, "MULTI");
    (0..10).for_each(|i| assert_eq!(peer.run(&server, &format!("SET m{i} v{i}")), "+QUEUED|"));
    assert!(peer.run(&server, "EXEC").starts_with("*10|"));
    // At first there is room for some commands, then for all of them and a part of the transaction.
    for (room, keys) in [(100, 4), (300, 11), (100, 11)] {
        disk.set_room(Some(room));
        server.step_us.store(2_000_000, Relaxed);
        server.engine.write_aof(false);
        server.engine.write_aof(false);
        let mut again = open(&disk.after_a_kill(), "");
        assert_eq!(again.connect().run(&again, "DBSIZE"), format!(":{keys}|"), "{room}");
    }
    let failed = "-ERR Errors trying to SHUTDOWN. Check logs.|";
    assert_eq!(peer.run(&server, "SHUTDOWN"), failed);
    assert_eq!(peer.run(&server, "SHUTDOWN SAVE"), failed);
    let why = server.engine.end_aof().expect_err("the disk is full").to_string();
    assert!(
        why.starts_with("the append-only file lacks the last ") && why.ends_with("No space left on device"),
        "{why}"
    );
    disk.set_room(None);
    assert!(server.engine.end_aof().is_ok());
    let mut again = open(&disk, "");
    assert_eq!(again.connect().run(&again, "DBSIZE"), ":21|");
}

/// A rewrite writes what a full disk has refused, so the server takes writes again at once.
#[test]
fn a_rewrite_ends_the_refusal_of_writes() {
    let disk = Disk::default();
    let mut server = open(&disk, "appendfsync everysec");
    let mut peer = server.connect();
    disk.set_room(Some(0));
    assert_eq!(peer.run(&server, "SET a 1"), "+OK|");
    server.engine.write_aof(false);
    assert!(peer.run(&server, "SET b 2").starts_with("-MISCONF "));
    disk.set_room(None);
    assert!(peer.run(&server, "BGREWRITEAOF").starts_with("+Background"));
    server.engine.write_aof(false);
    assert_eq!(peer.run(&server, "SET b 2"), "+OK|");
    server.engine.write_aof(true);
    let mut again = open(&disk.after_power_failure(), "");
    assert_eq!(again.connect().run(&again, "MGET a b"), "*2|$1|1|$1|2|");
}
