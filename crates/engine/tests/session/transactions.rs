//! MULTI, EXEC and WATCH between several sessions. The corpus has what a single session sees.

use crate::fixture::{Peer, Server, Stop, command};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;
use strand_engine::{LaneJob, Turn};

#[test]
fn others_run_between_queueing_and_exec_and_not_inside() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    a.script(&server, &[("MULTI", "+OK|"), ("INCR n", "+QUEUED|"), ("INCR n", "+QUEUED|")]);
    assert_eq!(b.run(&server, "INCR n"), ":1|");
    assert_eq!(a.run(&server, "EXEC"), "*2|:2|:3|");
    assert_eq!(b.run(&server, "GET n"), "$1|3|");
}

#[test]
fn a_watched_key_that_another_client_changes_discards_the_transaction() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    for (before, change, changes) in [
        ("SET k 1", "SET k 1", true),
        ("SET k 1", "GET k", false),
        ("SET k 1", "DEL k", true),
        ("SET k 1", "PEXPIRE k 100", true),
        ("SET k 1", "APPEND k x", true),
        ("SET k 1", "SET k 2 NX", false),
        ("SET k 1", "RENAME k other", true),
        ("DEL k", "DEL k", false),
        ("DEL k", "SET k 1", true),
        ("SET k 1", "FLUSHALL", true),
        ("DEL k", "FLUSHALL", false),
        ("SET k 1", "SWAPDB 0 1", true),
        ("HSET k f v", "HDEL k g", false),
        ("HSET k f v", "HINCRBY k f 1", false),
        ("HSET k f v", "HSET k f v", true),
    ] {
        b.run(&server, "FLUSHALL");
        b.run(&server, before);
        a.script(&server, &[("WATCH k", "+OK|"), ("MULTI", "+OK|"), ("PING", "+QUEUED|")]);
        b.run(&server, change);
        let want = if changes { "*-1|" } else { "*1|+PONG|" };
        assert_eq!(a.run(&server, "EXEC"), want, "{before}; {change}");
    }
}

#[test]
fn a_key_that_has_expired_does_not_exist_for_a_swap() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    for (here, there, want) in [
        ("DEL k", "SET k 1 PX 1", "*1|+PONG|"),
        ("SET k 1 PX 1", "SET k 1 PX 1", "*1|+PONG|"),
        ("DEL k", "SET k 1", "*-1|"),
        ("SET k 1", "SET k 1 PX 1", "*-1|"),
    ] {
        b.script(&server, &[("FLUSHALL", "+OK|"), ("SELECT 1", "+OK|")]);
        b.run(&server, there);
        b.run(&server, "SELECT 0");
        b.run(&server, here);
        server.advance_ms(2);
        a.script(&server, &[("WATCH k", "+OK|"), ("MULTI", "+OK|"), ("PING", "+QUEUED|")]);
        b.run(&server, "SWAPDB 0 1");
        assert_eq!(a.run(&server, "EXEC"), want, "{here}; {there}");
    }
}

#[test]
fn a_login_inside_a_transaction_changes_the_rights_of_what_follows() {
    let mut server = Server::with("login-failures-max 1");
    let mut a = server.connect();
    a.script(
        &server,
        &[
            ("ACL SETUSER bob on >pw +@all -incr ~*", "+OK|"),
            ("MULTI", "+OK|"),
            ("INCR n", "+QUEUED|"),
            ("AUTH bob pw", "+QUEUED|"),
            ("INCR n", "+QUEUED|"),
            ("HELLO 3 AUTH default x SETNAME me", "+QUEUED|"),
            ("INCR n", "+QUEUED|"),
            ("ACL WHOAMI", "+QUEUED|"),
        ],
    );
    let replies = a.run(&server, "EXEC");
    let (before, after) = replies.split_once("%7|").expect("HELLO replies a map in RESP3");
    assert!(before.starts_with("*6|:1|+OK|-NOPERM ACLs rules changed between"), "{replies}");
    assert!(after.ends_with(":2|$7|default|"), "{replies}");
    assert!(a.run(&server, "CLIENT GETNAME").contains("me"));
    // A command that runs after the shards are unlocked replies in the protocol of its place.
    let config = ("CONFIG GET maxmemory-samples", "+QUEUED|");
    a.script(&server, &[("MULTI", "+OK|"), config, ("HELLO 2", "+QUEUED|"), config]);
    let replies = a.run(&server, "EXEC");
    assert!(replies.starts_with("*3|%1|$17|maxmemory-samples|$1|5|*14|"), "{replies}");
    assert!(replies.ends_with("|*2|$17|maxmemory-samples|$1|5|"), "{replies}");
    // A wrong password is an error in its place, and after too many of them no login inside EXEC is tried.
    let login = ("AUTH bob no", "+QUEUED|");
    a.script(&server, &[("MULTI", "+OK|"), login, login, login]);
    let replies = a.run(&server, "EXEC");
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.|";
    assert!(replies.starts_with(&format!("*3|{wrong}{wrong}-ERR after too many failed logins")), "{replies}");
    let stats = a.run(&server, "INFO errorstats commandstats");
    assert!(stats.contains("errorstat_WRONGPASS:count=2"), "{stats}");
    assert!(stats.contains("cmdstat_auth:") && stats.contains("failed_calls=3"), "{stats}");
}

#[test]
fn a_watched_key_that_expires_discards_the_transaction() {
    let mut server = Server::new();
    let mut a = server.connect();
    a.script(
        &server,
        &[("SET k 1 PX 10", "+OK|"), ("WATCH k", "+OK|"), ("MULTI", "+OK|"), ("PING", "+QUEUED|")],
    );
    server.advance_ms(20);
    assert_eq!(a.run(&server, "EXEC"), "*-1|");
    a.script(&server, &[("SET k 1 PX 10", "+OK|")]);
    server.advance_ms(20);
    a.script(&server, &[("WATCH k", "+OK|"), ("MULTI", "+OK|"), ("GET k", "+QUEUED|"), ("EXEC", "*1|$-1|")]);
}

#[test]
fn very_many_watched_keys_stop_no_worker_and_are_watched_all_the_same() {
    const KEYS: usize = 100_000;
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    a.hold_jobs = true;
    let watch = format!("WATCH {}", (0..KEYS).map(|n| format!("k{n}")).collect::<Vec<_>>().join(" "));
    a.feed(&command(&watch), usize::MAX);
    let mut turns = 0;
    while matches!(a.session.run(server.now), Turn::Again) {
        turns += 1;
        assert!(turns < KEYS, "it ends");
    }
    assert!(turns >= KEYS / 1024, "{turns} turns: others run in between");
    a.take_output(usize::MAX);
    assert_eq!(a.replies(), "+OK|");
    let held = |list: String| -> u64 {
        let (_, rest) = list.split_once("multi-mem=").expect("it is told");
        rest.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
    };
    assert!(held(b.run(&server, "CLIENT LIST ID 1")) > KEYS as u64, "they count as its memory");
    b.run(&server, "SET k99999 1");
    a.script(&server, &[("MULTI", "+OK|"), ("PING", "+QUEUED|"), ("EXEC", "*-1|")]);
    assert_eq!(held(b.run(&server, "CLIENT LIST ID 1")), 0);
    // EXEC runs at once, and later changes by other clients do not matter.
    a.feed(&command(&watch), usize::MAX);
    a.drive(&server);
    a.replies();
    a.script(&server, &[("MULTI", "+OK|"), ("PING", "+QUEUED|"), ("EXEC", "*1|+PONG|")]);
    b.run(&server, "SET k5 1");
    a.script(&server, &[("MULTI", "+OK|"), ("PING", "+QUEUED|"), ("EXEC", "*1|+PONG|")]);
    // A key that is watched several times counts as one key.
    for _ in 0..100 {
        a.run(&server, "WATCH k1");
    }
    assert!(held(b.run(&server, "CLIENT LIST ID 1")) < 1000);
}

#[test]
fn a_watched_hash_whose_field_expires_discards_the_transaction() {
    let mut server = Server::new();
    let mut a = server.connect();
    a.run(&server, "HSET h f 1 g 2");
    a.run(&server, "HPEXPIRE h 10 FIELDS 1 f");
    a.script(
        &server,
        &[("WATCH none", "+OK|"), ("WATCH h", "+OK|"), ("MULTI", "+OK|"), ("PING", "+QUEUED|")],
    );
    server.advance_ms(20);
    assert_eq!(a.run(&server, "EXEC"), "*-1|");
    a.script(&server, &[("WATCH h", "+OK|"), ("MULTI", "+OK|"), ("HLEN h", "+QUEUED|"), ("EXEC", "*1|:1|")]);
}

#[test]
fn a_transaction_that_the_data_makes_long_leaves_the_worker() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    let words: Vec<String> = (0..3000).map(|i| i.to_string()).collect();
    let words = words.join(" ");
    b.run(&server, &format!("RPUSH list {words}"));
    b.run(&server, &format!("RPUSH list {words}"));
    b.run(&server, &format!("SADD set {words}"));
    b.run(&server, &format!("SADD other {words}"));
    let set = "SMEMBERS set";
    for (lines, is_long) in [
        (&["LRANGE list 0 99", "INCR n"][..], false),
        (&["INCR n", "LRANGE list 0 -1"], true),
        (&["INCR n", "SORT list"], true),
        (&[set], false),
        (&[set, set], true),
        (&["RENAME list renamed", "RENAME renamed list", "LRANGE renamed 0 -1"], true),
        (&["SINTERSTORE all set other", "SMEMBERS all", "DEL all"], true),
        (&["INCR n", "LPUSH short a b", "LRANGE short 0 -1", "DEL short"], false),
    ] {
        a.run(&server, "MULTI");
        for line in lines {
            assert_eq!(a.run(&server, line), "+QUEUED|");
        }
        a.hold_jobs = true;
        a.feed(b"EXEC\r\n", usize::MAX);
        assert_eq!(a.drive(&server), if is_long { Stop::Parked } else { Stop::Read }, "{lines:?}");
        if let Some(job) = a.job.take() {
            a.session.lane_done(job.run(server.now, &|| {}));
            assert_eq!(a.drive(&server), Stop::Read);
        }
        a.hold_jobs = false;
        let replies = a.replies();
        assert!(replies.starts_with(&format!("*{}|", lines.len())) && !replies.contains("|-"), "{lines:?}");
    }
    let pushed: Vec<String> = (0..40).map(|_| "LPUSH k a b c d e".into()).collect();
    let read: Vec<String> = (0..40).map(|_| "LRANGE k 0 -1".into()).collect();
    a.run(&server, "MULTI");
    for line in pushed.iter().chain(&read) {
        assert_eq!(a.run(&server, line), "+QUEUED|");
    }
    a.hold_jobs = true;
    a.feed(b"EXEC\r\n", usize::MAX);
    assert_eq!(a.drive(&server), Stop::Parked, "it reads what it has written");
}

#[test]
fn a_long_transaction_that_only_reads_holds_nothing_and_sees_one_moment() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    let words: Vec<String> = (0..3000).map(|i| i.to_string()).collect();
    b.run(&server, &format!("RPUSH list {}", words.join(" ")));
    b.script(&server, &[("SET s before", "+OK|"), ("SET n 1", "+OK|")]);
    a.script(&server, &[("WATCH n", "+OK|"), ("MULTI", "+OK|")]);
    for line in ["LRANGE list 0 -1", "LLEN list", "GET s", "HGET s f", "MGET s none", "LRANGE list 0 -1"] {
        assert_eq!(a.run(&server, line), "+QUEUED|");
    }
    a.hold_jobs = true;
    a.feed(b"EXEC\r\n", usize::MAX);
    assert_eq!(a.drive(&server), Stop::Parked);
    let job = a.job.take().expect("a job");
    let (writer, writes) = (std::cell::RefCell::new(b), std::cell::Cell::new(0));
    let done = job.run(server.now, &|| {
        // The fourth pause is the first after the moment of the view.
        if writes.replace(writes.get() + 1) == 3 {
            let mut b = writer.borrow_mut();
            b.script(&server, &[("RPUSH list x", ":3001|"), ("SET s after", "+OK|"), ("INCR n", ":2|")]);
        }
    });
    assert!(writes.get() > 1, "a long command pauses");
    a.session.lane_done(done);
    assert_eq!(a.drive(&server), Stop::Read);
    let replies = a.replies();
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    assert!(replies.starts_with("*6|*3000|$1|0|") && replies.ends_with("$4|2999|"), "{:.40}", replies);
    assert!(replies.contains(&format!("|:3000|$6|before|{wrong_type}*2|$6|before|$-1|*3000|")));

    a.script(&server, &[("WATCH n", "+OK|"), ("MULTI", "+OK|"), ("LRANGE list 0 -1", "+QUEUED|")]);
    a.run(&server, "LRANGE list 0 -1");
    writer.borrow_mut().run(&server, "INCR n");
    a.hold_jobs = false;
    assert_eq!(a.run(&server, "EXEC"), "*-1|", "a watched key has changed");
}

/// Queues the lines, and sends EXEC, whose job is returned.
pub fn queued(server: &Server, peer: &mut Peer, lines: impl Iterator<Item = String>) -> Box<LaneJob> {
    peer.run(server, "MULTI");
    for line in lines {
        assert_eq!(peer.run(server, &line), "+QUEUED|", "{line:.20}");
    }
    peer.hold_jobs = true;
    peer.feed(b"EXEC\r\n", usize::MAX);
    assert_eq!(peer.drive(server), Stop::Parked);
    peer.hold_jobs = false;
    peer.job.take().expect("a job")
}

/// Runs a job, and calls `pause` in each of its pauses. Returns the replies.
pub fn finish(server: &Server, peer: &mut Peer, job: Box<LaneJob>, pause: &dyn Fn()) -> String {
    peer.session.lane_done(job.run(server.now, pause));
    while peer.drive(server) == Stop::Flush {}
    peer.replies()
}

#[test]
fn others_see_all_of_a_long_transaction_or_nothing_and_wait_for_nothing() {
    let mut server = Server::new();
    let (mut peer, mut other, mut watcher) = (server.connect(), server.connect(), server.connect());
    other.run(&server, "RPUSH list a b");
    watcher.script(&server, &[("WATCH n4999", "+OK|"), ("MULTI", "+OK|"), ("SET seen yes", "+QUEUED|")]);
    let counts = (0..5000).map(|n| format!("INCR n{n}"));
    let rest = ["RENAME list renamed", "EXPIRE n7 100", "SADD n8 x", "DEL n9", "LPOP renamed", "GET n4999"];
    let job = queued(&server, &mut peer, counts.chain(rest.map(String::from)));
    let (others, seen) = (RefCell::new((&mut other, &mut watcher)), RefCell::new(Vec::new()));
    let (pauses, executed) = (Cell::new(0), RefCell::new(String::new()));
    let replies = finish(&server, &mut peer, job, &|| {
        let (other, watcher) = &mut *others.borrow_mut();
        pauses.set(pauses.get() + 1);
        assert_eq!(other.run(&server, &format!("SET other{} x", pauses.get())), "+OK|", "a key of its own");
        // Look at the first key, a key that was not carried out yet, and the last key; then at a key that was moved,
        // and a deleted key.
        let some = 4998 - pauses.get();
        seen.borrow_mut().push(other.run(&server, &format!("EXISTS n0 n{some} n4999 n9 n9 list")));
        if other.run(&server, "EXISTS renamed") == ":1|" && executed.borrow().is_empty() {
            *executed.borrow_mut() = watcher.run(&server, "EXEC");
        }
    });
    assert!(pauses.get() > 100, "{}", pauses.get());
    let mut seen = seen.take();
    seen.dedup();
    assert_eq!(seen, [":1|", ":3|"]);
    assert_eq!(executed.take(), "*-1|", "n4999 was changed before EXEC, though nobody had come to the key");
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    let last = format!("|+OK|:1|{wrong_type}:1|$1|a|$1|1|");
    assert!(replies.starts_with("*5006|:1|:1|") && replies.ends_with(&last), "{:.40}", replies);
    let looks = "MGET n0 n7 n8 n9 n4999";
    assert_eq!(other.run(&server, looks), "*5|$1|1|$1|1|$1|1|$-1|$1|1|");
    other.script(&server, &[("TTL n7", ":100|"), ("LRANGE renamed 0 -1", "*1|$1|b|")]);
    let stats = other.run(&server, "INFO commandstats");
    assert!(stats.contains("cmdstat_incr:calls=5000,") && stats.contains("cmdstat_sadd:calls=1,"), "{stats}");
}

#[test]
fn a_long_transaction_that_others_overtake_begins_anew_and_holds_its_shards_in_the_end() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    for (overtakes, holds) in [(1, false), (3, false), (usize::MAX, true)] {
        other.run(&server, "FLUSHALL");
        let job = queued(&server, &mut peer, (0..5000).map(|n| format!("INCR n{n}")));
        let (other, overtaken, waited) = (RefCell::new(&mut other), Cell::new(0), Cell::new(false));
        let replies = finish(&server, &mut peer, job, &|| {
            if overtaken.get() < overtakes && !waited.get() {
                let reply = other.borrow_mut().run(&server, "INCR n4999");
                // While the transaction holds its shards, the other client is parked.
                waited.set(reply.is_empty());
                overtaken.set(overtaken.get() + 1);
            }
        });
        assert_eq!(waited.get(), holds, "{overtakes}");
        assert!(replies.starts_with("*5000|:1|"), "{overtakes}");
        let mine = replies.trim_end_matches('|').rsplit(':').next().and_then(|n| n.parse::<usize>().ok());
        let other = other.into_inner();
        other.drive(&server);
        other.replies();
        // Each INCR ran once.
        assert_eq!(other.run(&server, "GET n0"), "$1|1|");
        let all = other.run(&server, "INCRBY n4999 0");
        assert_eq!(all, format!(":{}|", overtaken.get() + 1), "{overtakes}");
        assert!(mine.is_some_and(|mine| mine > 0 && mine <= overtaken.get() + 1), "{mine:?}");
    }
    let stats = other.run(&server, "INFO commandstats");
    assert!(stats.contains("cmdstat_exec:calls=3,"), "{stats}");
}

#[test]
fn a_key_that_expires_during_a_long_transaction_is_gone_in_it() {
    // Another client may have found that the key is gone, before the transaction happens.
    // A transaction that only reads happens when it begins, after some 80 pauses.
    for (writes, pauses_before, is_gone) in
        [(true, 3, true), (true, 80, true), (false, 3, true), (false, 130, false)]
    {
        let mut server = Server::new();
        let (mut peer, mut other) = (server.connect(), server.connect());
        other.run(&server, "SET k old PX 100");
        let ask = if writes { "APPEND k new" } else { "STRLEN k" };
        let keys = (0..5000).map(|n| if writes { format!("INCR n{n}") } else { format!("GET n{n}") });
        let job = queued(&server, &mut peer, std::iter::once(ask.to_string()).chain(keys));
        let pauses = Cell::new(0);
        let replies = finish(&server, &mut peer, job, &|| {
            pauses.set(pauses.get() + 1);
            if pauses.get() == pauses_before {
                server.step_us.store(1_000_000_000, Relaxed);
            }
        });
        assert!(pauses.get() > pauses_before, "{}", pauses.get());
        let (gone, there) = if writes { (":3|", ":6|") } else { (":0|", ":3|") };
        let wanted = if is_gone { gone } else { there };
        assert!(replies.starts_with(&format!("*5001|{wanted}")), "{writes} {pauses_before}: {replies:.20}");
    }
}

#[test]
fn a_long_transaction_serves_who_waits_at_its_moment() {
    let mut server = Server::new();
    let (mut peer, mut other, mut waiter) = (server.connect(), server.connect(), server.connect());
    waiter.feed(b"BLPOP second first 0\r\n", usize::MAX);
    assert!(matches!(waiter.drive(&server), Stop::Blocked(_)));
    let pushes = ["RPUSH first a", "RPUSH second b c", "LLEN first"].map(String::from);
    let job = queued(&server, &mut peer, (0..5000).map(|n| format!("INCR n{n}")).chain(pushes));
    let (other, seen) = (RefCell::new(&mut other), RefCell::new(Vec::new()));
    let replies = finish(&server, &mut peer, job, &|| {
        seen.borrow_mut().push(other.borrow_mut().run(&server, "LPOP first"));
    });
    assert!(replies.ends_with("|:1|:2|:1|"), "its own commands see what they push");
    assert!(seen.take().iter().all(|seen| seen == "$-1|"), "nobody comes before who waits");
    waiter.drive(&server);
    assert_eq!(waiter.replies(), "*2|$5|first|$1|a|", "pushed first");
    assert_eq!(peer.run(&server, "LRANGE second 0 -1"), "*2|$1|b|$1|c|");
}

#[test]
fn a_tracking_client_gets_every_invalidation_of_a_long_transaction() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    let invalidated =
        |replies: &str, key: &str| replies.contains(&format!("invalidate|*1|${}|{key}|", key.len()));
    for writes in [false, true] {
        other.run(&server, "SET kept before");
        peer.run(&server, "HELLO 3");
        peer.run(&server, "CLIENT TRACKING ON NOLOOP");
        let last = if writes { "SET kept mine" } else { "GET kept" };
        let lines = (0..5000).map(|n| format!("GET n{n}")).chain([last.into(), "GET kept".into()]);
        let job = queued(&server, &mut peer, lines);
        let (other, is_first) = (RefCell::new(&mut other), Cell::new(true));
        let replies = finish(&server, &mut peer, job, &|| {
            if is_first.replace(false) {
                other.borrow_mut().run(&server, "SET kept between");
            }
        });
        let want = if writes { "|$4|mine|" } else { "|$7|between|" };
        assert!(replies.ends_with(want), "{replies:.20}");
        server.hand_out();
        peer.drive(&server);
        assert!(!invalidated(&peer.replies(), "kept"), "its copy is the newest");
        other.into_inner().run(&server, "SET kept after");
        server.hand_out();
        peer.drive(&server);
        assert!(invalidated(&peer.replies(), "kept"), "writes: {writes}");
    }
}

#[test]
fn a_long_transaction_counts_what_it_finds_of_another_type() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    let words: Vec<String> = (0..5000).map(|i| i.to_string()).collect();
    b.run(&server, &format!("RPUSH list {}", words.join(" ")));
    a.run(&server, "CONFIG RESETSTAT");
    a.run(&server, "MULTI");
    for line in ["LRANGE list 0 -1", "HGET list f", "GET none"] {
        assert_eq!(a.run(&server, line), "+QUEUED|");
    }
    assert!(a.run(&server, "EXEC").contains("|-WRONGTYPE "));
    let stats = b.run(&server, "INFO stats");
    assert!(stats.contains("keyspace_hits:2|") && stats.contains("keyspace_misses:1|"), "{stats}");
}

#[test]
fn a_long_transaction_finds_what_the_importer_keeps() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    let words: Vec<String> = (0..3000).map(|i| i.to_string()).collect();
    b.run(&server, &format!("RPUSH list {}", words.join(" ")));
    b.run(&server, "IMPORT.VERSION SET mail inbox 17");
    let lines = ["IMPORT.VERSION GET mail inbox", "IMPORT.VERSION LIST mail"];
    let alone = lines.map(|line| b.run(&server, line));
    assert!(alone[0].contains("17") && alone[1].contains("inbox"), "{alone:?}");
    a.run(&server, "MULTI");
    for line in ["LRANGE list 0 -1", "LRANGE list 0 -1"].into_iter().chain(lines) {
        assert_eq!(a.run(&server, line), "+QUEUED|");
    }
    a.hold_jobs = true;
    a.feed(b"EXEC\r\n", usize::MAX);
    assert_eq!(a.drive(&server), Stop::Parked);
    let job = a.job.take().expect("a job");
    a.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!(a.drive(&server), Stop::Read);
    let replies = a.replies();
    assert!(replies.starts_with("*4|*3000|") && replies.ends_with(&alone.concat()), "{:.40}", replies);
}

#[test]
fn a_long_transaction_leaves_the_worker_whole() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    let keys: Vec<String> = (0..3000).map(|i| format!("k{i} v")).collect();
    let mset = format!("MSET {}", keys.join(" "));
    a.script(&server, &[("SET old 1", "+OK|"), ("MULTI", "+OK|")]);
    for line in [mset.as_str(), &mset, "DBSIZE", "FLUSHALL", "DBSIZE", "KEYS *", "SET n 1", "HSET n f v"] {
        assert_eq!(a.run(&server, line), "+QUEUED|");
    }
    a.hold_jobs = true;
    a.feed(b"EXEC\r\nGET n\r\n", usize::MAX);
    assert_eq!(a.drive(&server), Stop::Parked);
    assert_eq!(b.run(&server, "DBSIZE"), ":1|", "nothing has begun");
    let job = a.job.take().expect("a job");
    a.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!(a.drive(&server), Stop::Read);
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    assert_eq!(a.replies(), format!("*8|+OK|+OK|:3001|+OK|:0|*0|+OK|{wrong_type}$1|1|"));
}

#[test]
fn commands_that_cannot_run_inside_are_refused_when_they_are_queued() {
    let mut server = Server::with("enable-debug-command yes");
    let mut a = server.connect();
    a.script(
        &server,
        &[
            ("MULTI", "+OK|"),
            ("DEBUG ERROR LOADING", "+QUEUED|"),
            ("DEBUG PROTOCOL integer", "+QUEUED|"),
            ("PING", "+QUEUED|"),
        ],
    );
    assert_eq!(a.run(&server, "EXEC"), "*3|-LOADING|:12345|+PONG|");
    for line in ["FT._LIST", "SHUTDOWN NOSAVE", "LCS a b", "DEBUG SLEEP 0", "DEBUG OBJECT a"] {
        a.script(
            &server,
            &[
                ("MULTI", "+OK|"),
                (line, "-ERR Command not allowed inside a transaction|"),
                ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
            ],
        );
    }
}

#[test]
fn commands_about_the_server_answer_in_their_place() {
    let mut server = Server::new();
    let mut a = server.connect();
    a.script(&server, &[("MULTI", "+OK|"), ("SET k 1", "+QUEUED|"), ("INFO keyspace", "+QUEUED|")]);
    a.script(&server, &[("CONFIG GET maxmemory", "+QUEUED|"), ("GET k", "+QUEUED|")]);
    let reply = a.run(&server, "EXEC");
    assert!(reply.starts_with("*4|+OK|$") && reply.contains("db0:keys=1"), "{reply}");
    assert!(reply.ends_with("*2|$9|maxmemory|$1|0|$1|1|"), "{reply}");
}

#[test]
fn a_long_transaction_may_select_and_ask_about_the_server() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    let keys: Vec<String> = (0..3000).map(|i| format!("k{i} v")).collect();
    let mset = format!("MSET {}", keys.join(" "));
    let short =
        ["SET k 0", "SELECT 2", "SET k 2", "INFO keyspace", "SELECT x", "SELECT 99", "CONFIG GET maxmemory"];
    let stats_before = b.run(&server, "INFO commandstats");
    assert!(!stats_before.contains("cmdstat_select"), "{stats_before}");
    a.run(&server, "MULTI");
    for line in [mset.as_str(), &mset].into_iter().chain(short).chain(["GET k", "PUBLISH c m"]) {
        assert_eq!(a.run(&server, line), "+QUEUED|");
    }
    a.hold_jobs = true;
    a.feed(b"EXEC\r\nGET k\r\nCLIENT INFO\r\n", usize::MAX);
    assert_eq!(a.drive(&server), Stop::Parked);
    let job = a.job.take().expect("a job");
    a.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!(a.drive(&server), Stop::Read);
    let replies = a.replies();
    assert!(replies.starts_with("*11|+OK|+OK|+OK|+OK|+OK|$"), "{replies}");
    assert!(replies.contains("db0:keys=3001,") && replies.contains("db2:keys=1,"), "{replies}");
    let errors = "|-ERR value is not an integer or out of range|-ERR DB index is out of range|";
    let rest = format!("{errors}*2|$9|maxmemory|$1|0|$1|2|:0|$1|2|");
    assert!(replies.contains(&rest) && replies.contains(" db=2 "), "{replies}");
    let stats = b.run(&server, "INFO commandstats");
    assert!(
        stats.contains("cmdstat_select:calls=3,") && stats.contains("cmdstat_config|get:calls=1,"),
        "{stats}"
    );
    assert!(stats.contains("failed_calls=2|"), "{stats}");
    // Many commands about the server are long, too.
    a.run(&server, "MULTI");
    (0..20).for_each(|_| assert_eq!(a.run(&server, "INFO server"), "+QUEUED|"));
    a.feed(b"EXEC\r\n", usize::MAX);
    assert_eq!(a.drive(&server), Stop::Parked);
    let job = a.job.take().expect("a job");
    a.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!(a.drive(&server), Stop::Read);
    assert_eq!(a.replies().matches("redis_version:").count(), 20);
}

#[test]
fn queued_commands_count_as_client_memory_and_are_bounded() {
    let mut server = Server::with("client-query-buffer-limit 1mb");
    let (mut a, mut b) = (server.connect(), server.connect());
    a.run(&server, "MULTI");
    let line = format!("SET k {}", "x".repeat(100_000));
    let mut queued = 0;
    while a.run(&server, &line) == "+QUEUED|" {
        queued += 1;
        assert!(queued < 20, "no bound");
    }
    assert!(queued > 5 && a.ended.is_some());
    b.script(&server, &[("MULTI", "+OK|"), ("GET k", "+QUEUED|")]);
    let mut c = server.connect();
    let list = c.run(&server, "CLIENT LIST");
    assert!(list.contains("flags=x") && list.contains("multi=1"), "{list}");
}

/// A script that declares its flags counts as a write in EXEC, also when the reason for the refusal comes after the
/// script was queued. Nothing of the transaction runs then.
#[test]
fn a_queued_script_that_may_not_run_aborts_exec() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    a.script(&server, &[("SET keep 1", "+OK|"), ("MULTI", "+OK|"), ("DEL keep", "+QUEUED|")]);
    assert_eq!(a.run(&server, "EVAL \"#!lua\nreturn 1\" 0"), "+QUEUED|");
    assert_eq!(b.run(&server, "CONFIG SET maxmemory 1"), "+OK|");
    let reply = a.run(&server, "EXEC");
    let refused = "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.|";
    assert_eq!(reply, refused);
    assert_eq!(b.run(&server, "EXISTS keep"), ":1|");
}
