//! `maxmemory`, with an allocator that reports what the test wants.

use crate::fixture::{Server, Stop};
use std::sync::atomic::Ordering::Relaxed;

const MB: u64 = 1 << 20;
const DENIED: &str = "-OOM command not allowed when used memory > 'maxmemory'.|";

/// Stores strings of 10,000 bytes.
fn fill(server: &Server, peer: &mut crate::fixture::Peer, keys: usize) {
    let value = "x".repeat(10_000);
    (0..keys).for_each(|i| assert_eq!(peer.run(server, &format!("SET key{i} {value}")), "+OK|"));
}

#[test]
fn the_data_counts_at_once_and_everything_else_at_the_next_look() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let value = "x".repeat(10_000);
    peer.script(&server, &[("CONFIG SET maxmemory 2mb", "+OK|")]);
    let stored =
        (0..1000).take_while(|i| peer.run(&server, &format!("SET key{i} {value}")) == "+OK|").count();
    assert!((95..140).contains(&stored), "a megabyte was left: {stored}");
    // Too little memory was left for this value.
    let small = (0..10_000).take_while(|i| peer.run(&server, &format!("SET small{i} 1")) == "+OK|").count();
    assert!(small < 1000, "{small}");
    peer.script(
        &server,
        &[
            ("SET a 1", DENIED),
            ("INCR a", DENIED),
            ("GET a", "$-1|"),
            ("DEL key0", ":1|"),
            ("FLUSHALL", "+OK|"),
        ],
    );
    assert_eq!(peer.run(&server, "SET a 1"), "+OK|", "what was deleted is free at once");
    server.used_bytes.store(3 * MB, Relaxed);
    server.engine.watch_memory(server.now);
    assert_eq!(peer.run(&server, "SET a 1"), DENIED);
    server.advance_ms(1500);
    assert!(peer.run(&server, "INFO stats").contains("current_eviction_exceeded_time:1500|"));
    assert!(peer.run(&server, "INFO errorstats").contains("errorstat_OOM:count=5|"));
    assert!(
        peer.run(&server, "INFO commandstats")
            .contains("cmdstat_incr:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1")
    );
    peer.script(&server, &[("CONFIG SET maxmemory 0", "+OK|"), ("SET a 1", "+OK|")]);
    server.engine.watch_memory(server.now);
    assert!(peer.run(&server, "INFO stats").contains("current_eviction_exceeded_time:0|"));
}

#[test]
fn a_command_evicts_a_bounded_number_and_the_background_goes_on() {
    let mut server = Server::with("maxmemory-policy allkeys-lru");
    let mut peer = server.connect();
    fill(&server, &mut peer, 400);
    server.used_bytes.store(8 * MB, Relaxed);
    peer.script(&server, &[("CONFIG SET maxmemory 7mb", "+OK|"), ("SET a 1", "+OK|"), ("DBSIZE", ":385|")]);
    let mut pauses = 0;
    while server.engine.watch_memory(server.now) < 1000 {
        // The test subtracts the freed values itself, because its allocator does not notice that they are freed.
        server.used_bytes.store(8 * MB - (400 - server.engine.keyspace().len(0) as u64) * 10_240, Relaxed);
        pauses += 1;
        assert!(pauses < 100);
    }
    let left = server.engine.keyspace().len(0);
    assert!((250..300).contains(&left), "{left}");
    let evicted = format!("evicted_keys:{}|", 401 - left);
    assert!(peer.run(&server, "INFO stats").contains(&evicted), "{evicted}");
}

#[test]
fn writers_far_over_the_limit_wait_and_are_denied_when_nothing_is_left() {
    let mut server = Server::with("maxmemory-policy allkeys-random");
    let mut peer = server.connect();
    fill(&server, &mut peer, 100);
    server.used_bytes.store(700 * MB, Relaxed);
    peer.script(&server, &[("CONFIG SET maxmemory 800mb", "+OK|")]);
    server.used_bytes.store(900 * MB, Relaxed);
    // Every change of an option reads the memory in use.
    peer.script(&server, &[("CONFIG SET timeout 0", "+OK|")]);
    let now_us = server.now.mono_us;
    peer.feed(b"SET a 1\r\nGET a\r\n", 100);
    let mut waits = 0;
    while let Stop::Sleep(until_us) = peer.drive(&server) {
        assert_eq!(until_us, now_us + 1000 + waits * 1000);
        server.advance_ms(1);
        waits += 1;
        assert!(waits < 100);
    }
    assert_eq!(waits, 100 / 16 + 1, "16 keys at each look");
    assert_eq!(peer.run(&server, "ECHO x"), format!("{DENIED}$-1|$1|x|"));
    assert_eq!(server.engine.keyspace().len(0), 0);
}

#[test]
fn no_writer_waits_because_the_limit_was_lowered() {
    let mut server = Server::with("maxmemory-policy allkeys-random");
    let mut peer = server.connect();
    fill(&server, &mut peer, 100);
    server.used_bytes.store(900 * MB, Relaxed);
    peer.script(&server, &[("CONFIG SET maxmemory 100mb", "+OK|"), ("SET a 1", "+OK|"), ("DBSIZE", ":85|")]);
}

#[test]
fn the_background_goes_on_looking_for_the_only_volatile_key() {
    let mut server = Server::with("maxmemory-policy volatile-lru");
    let mut peer = server.connect();
    // When expiries are removed again, the tables cannot tell where the volatile keys are.
    for i in 0..20_000 {
        peer.script(
            &server,
            &[(&format!("SET key{i} 1 EX 1000"), "+OK|"), (&format!("PERSIST key{i}"), ":1|")],
        );
    }
    peer.script(&server, &[("SET volatile 1 EX 1000", "+OK|")]);
    server.used_bytes.store(10 * MB, Relaxed);
    peer.script(&server, &[("CONFIG SET maxmemory 9mb", "+OK|")]);
    let mut slices = 0;
    while server.engine.watch_memory(server.now) == 500 {
        slices += 1;
        assert!(slices < 25, "a slice looks at some 2,000 records");
    }
    assert_eq!(server.engine.keyspace().evicted_total(), 1, "and nothing is left then");
    assert_eq!(peer.run(&server, "SET a 1"), DENIED);
    assert_eq!(server.engine.keyspace().len(0), 20_000);
}

#[test]
fn memory_of_deleted_values_denies_no_command() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let value = "x".repeat(2_000_000);
    (0..2).for_each(|i| assert_eq!(peer.run(&server, &format!("SET big{i} {value}")), "+OK|"));
    server.used_bytes.store(5 * MB, Relaxed);
    peer.script(&server, &[("CONFIG SET maxmemory 4mb", "+OK|"), ("SET a 1", DENIED), ("DEL big0", ":1|")]);
    // The allocator still holds the memory.
    server.engine.watch_memory(server.now);
    peer.script(&server, &[("SET a 1", "+OK|")]);
}

#[test]
fn resetstat_forgets_what_went_but_not_the_peak() {
    let mut server = Server::with("maxmemory-policy allkeys-random");
    let mut peer = server.connect();
    fill(&server, &mut peer, 100);
    server.used_bytes.store(9 * MB, Relaxed);
    peer.script(&server, &[("CONFIG SET maxmemory 8mb", "+OK|"), ("SET a 1", "+OK|")]);
    server.used_bytes.store(MB, Relaxed);
    peer.script(&server, &[("CONFIG SET maxmemory 0", "+OK|")]);
    assert!(!peer.run(&server, "INFO stats").contains("evicted_keys:0|"));
    peer.script(&server, &[("CONFIG RESETSTAT", "+OK|")]);
    assert!(peer.run(&server, "INFO stats").contains("evicted_keys:0|"));
    assert!(peer.run(&server, "INFO memory").contains("used_memory_peak:9437184|"));
}

#[test]
fn nothing_is_evicted_while_the_data_is_loaded() {
    let mut server = Server::with("maxmemory-policy allkeys-random");
    let mut peer = server.connect();
    fill(&server, &mut peer, 10);
    server.used_bytes.store(900 * MB, Relaxed);
    peer.script(&server, &[("CONFIG SET maxmemory 1mb", "+OK|")]);
    server.engine.begin_loading(100, server.now);
    server.engine.watch_memory(server.now);
    assert_eq!(server.engine.keyspace().len(0), 10);
}

#[test]
fn nothing_is_evicted_or_denied_in_a_pause() {
    let mut server = Server::with("maxmemory-policy allkeys-random");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    fill(&server, &mut peer, 10);
    server.used_bytes.store(900 * MB, Relaxed);
    admin.script(&server, &[("CLIENT PAUSE 1000 WRITE", "+OK|"), ("CONFIG SET maxmemory 1mb", "+OK|")]);
    peer.feed(b"SET a 1\r\n", 100);
    assert!(matches!(peer.drive(&server), Stop::Sleep(_)));
    server.engine.watch_memory(server.now);
    assert_eq!(server.engine.keyspace().len(0), 10);
}

#[test]
fn memory_is_shown_by_purpose() {
    let mut server = Server::new();
    let mut peer = server.connect();
    fill(&server, &mut peer, 50);
    let info = peer.run(&server, "INFO memory");
    let field = |name: &str| -> u64 {
        let line = info.split('|').find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{name} in {info}"))
    };
    assert_eq!(field("used_memory"), MB);
    assert!((500_000..700_000).contains(&field("used_memory_dataset")));
    assert_eq!(field("used_memory_overhead"), MB - field("used_memory_dataset"));
    assert_eq!((field("used_memory_jobs"), field("used_memory_garbage")), (0, 0));
    let stats = peer.run(&server, "MEMORY STATS");
    assert!(stats.starts_with("*78|$14|peak.allocated|:1048576|$15|total.allocated|:1048576|"), "{stats}");
    assert!(stats.contains("|$4|db.0|*6|$23|overhead.hashtable.main|:"), "{stats}");
    for name in ["clients.normal", "keys.count|:50", "dataset.bytes", "fragmentation.bytes"] {
        assert!(stats.contains(name), "{name} in {stats}");
    }
    peer.script(&server, &[("MEMORY PURGE", "+OK|"), ("MEMORY MALLOC-STATS", "$0||")]);
    assert!(peer.run(&server, "MEMORY DOCTOR").contains("too little"));
    server.used_bytes.store(20 * MB, Relaxed);
    assert!(peer.run(&server, "MEMORY DOCTOR").contains("No problem of memory use"));
    peer.script(&server, &[("CONFIG SET maxmemory 10mb", "+OK|")]);
    assert!(peer.run(&server, "MEMORY DOCTOR").contains("memory use exceeds maxmemory by 10"));
    // The arguments of a job count as memory while the job waits.
    peer.hold_jobs = true;
    let mut other = server.connect();
    peer.send(&server, &[b"*2\r\n$4\r\nKEYS\r\n$50000\r\n", &[b'a'; 50_000][..], b"\r\n"].concat());
    let info = other.run(&server, "INFO memory");
    let jobs =
        info.split('|').find_map(|l| l.strip_prefix("used_memory_jobs:")).and_then(|n| n.parse::<u64>().ok());
    assert!(jobs.is_some_and(|bytes| bytes >= 50_000), "{info}");
}

#[test]
fn a_refused_write_marks_the_key_as_used() {
    let mut server = Server::with("maxmemory-policy allkeys-lru");
    let mut peer = server.connect();
    peer.script(&server, &[("SET lock v", "+OK|"), ("SET other v", "+OK|")]);
    let dump = "RESTORE lock 0 x";
    for line in
        ["SETNX lock w", "MSETNX lock w", "SET lock w NX", "RENAMENX other lock", "COPY other lock", dump]
    {
        server.advance_ms(5_000);
        assert_eq!(peer.run(&server, "OBJECT IDLETIME lock"), ":5|");
        peer.run(&server, line);
        peer.script(&server, &[("OBJECT IDLETIME lock", ":0|"), ("GET lock", "$1|v|")]);
    }
}
