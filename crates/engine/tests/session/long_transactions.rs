//! Transactions that leave the worker: on copies of their records, or with their shards under a long lock.

use crate::fixture::{Peer, Server, Stop, command};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;
use strand_engine::LaneJob;

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
fn commands_about_the_session_do_not_keep_a_long_transaction_on_the_worker() {
    let mut server = Server::new();
    let (mut a, mut b, mut monitor) = (server.connect(), server.connect(), server.connect());
    let words: Vec<String> = (0..5000).map(|i| i.to_string()).collect();
    b.run(&server, &format!("SADD set {}", words.join(" ")));
    monitor.run(&server, "MONITOR");
    // With SELECT the transaction holds its shards, without SELECT it runs on copies. With INFO a second job follows.
    for (select, info) in [("SELECT 0", ""), ("CLIENT ID", ""), ("SELECT 1", "INFO server"), ("PING", "ROLE")]
    {
        b.script(&server, &[("CONFIG RESETSTAT", "+OK|"), ("SLOWLOG RESET", "+OK|")]);
        monitor.hears(&server);
        let lines = ["CLIENT SETNAME x", select, "SUNIONSTORE copy set", "CLIENT GETNAME", "SCRIPT EXISTS a"];
        let last = ["CLIENT SETNAME \"bad name\"", "UNWATCH", "SET n 1", "DEL copy"];
        let lines: Vec<&str> =
            lines.into_iter().chain(last).chain([info]).filter(|l| !l.is_empty()).collect();
        let job = queued(&server, &mut a, lines.iter().map(|line| line.to_string()));
        a.feed(b"GET n\r\n", usize::MAX);
        let list = b.run(&server, "CLIENT LIST");
        assert!(!list.contains("name=x"), "{select} {list}");
        a.session.lane_done(job.run(server.now, &|| {}));
        assert_eq!(a.drive(&server), Stop::Read);
        let replies = a.replies();
        assert!(replies.starts_with(&format!("*{}|+OK|", lines.len())), "{replies}");
        let invalid = "-ERR Client names cannot contain spaces, newlines or special characters.|";
        let middle = match select {
            "SELECT 1" => format!(":0|$1|x|*1|:0|{invalid}+OK|+OK|:0|"),
            _ => format!(":5000|$1|x|*1|:0|{invalid}+OK|+OK|:1|"),
        };
        assert!(replies.contains(&middle) && replies.ends_with("$1|1|"), "{replies}");
        let stats = b.run(&server, "INFO commandstats");
        for count in
            ["client|setname:calls=2,", "exec:calls=1,", "client|getname:calls=1,", "unwatch:calls=1,"]
        {
            assert!(stats.contains(&format!("cmdstat_{count}")), "{count} {stats}");
        }
        assert!(stats.lines().all(|line| !line.contains("setname") || line.contains("failed_calls=1")));
        let laps = b.run(&server, "LATENCY HISTOGRAM exec");
        assert!(laps.contains("|$5|calls|:1|"), "{laps}");
        let seen = monitor.hears(&server);
        assert_eq!(seen.matches("\"EXEC\"").count(), 1, "{seen}");
        assert_eq!(seen.matches("\"SETNAME\"").count(), 2, "{seen}");
        a.script(&server, &[("CLIENT SETNAME \"\"", "+OK|"), ("SELECT 0", "+OK|")]);
    }
}

#[test]
fn a_long_transaction_may_end_its_own_session() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    let words: Vec<String> = (0..5000).map(|i| i.to_string()).collect();
    b.run(&server, &format!("SADD set {}", words.join(" ")));
    let kill = format!("CLIENT KILL ID {} SKIPME no", a.session.id());
    let lines = ["SUNIONSTORE copy set", &kill, "INFO server"];
    let job = queued(&server, &mut a, lines.iter().map(|line| line.to_string()));
    a.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!(a.drive(&server), Stop::Ended);
    let replies = a.replies();
    assert!(replies.starts_with("*3|:5000|:1|$") && replies.contains("redis_version"), "{replies}");
    assert_eq!(b.run(&server, "SCARD copy"), ":5000|");
    // A long reset leaves the worker, too.
    b.hold_jobs = true;
    b.feed(&command(&format!("LATENCY RESET {}", "x ".repeat(100))), usize::MAX);
    assert_eq!(b.drive(&server), Stop::Parked);
}

#[test]
fn commands_about_the_server_run_although_the_client_leaves() {
    let mut server = Server::new();
    let mut admin = server.connect();
    for (n, leaves_early) in [(5001, true), (5002, false)] {
        let mut a = server.connect();
        let set = format!("CONFIG SET maxclients {n}");
        let lines = ["SET k v", "CLIENT SETNAME x", &set];
        let job = queued(&server, &mut a, lines.iter().map(|line| line.to_string()));
        if leaves_early {
            drop(a);
            job.run(server.now, &|| {});
        } else {
            // The client is killed when the job is back.
            let id = a.session.id();
            a.session.lane_done(job.run(server.now, &|| {}));
            admin.run(&server, &format!("CLIENT KILL ID {id}"));
            assert_eq!(a.drive(&server), Stop::Ended);
        }
        assert_eq!(admin.run(&server, "CONFIG GET maxclients"), format!("*2|$10|maxclients|$4|{n}|"));
    }
}

#[test]
fn figures_are_read_before_they_are_reset() {
    let mut server = Server::new();
    let mut a = server.connect();
    a.script(&server, &[("SET k v", "+OK|"), ("MULTI", "+OK|"), ("INFO commandstats", "+QUEUED|")]);
    a.script(
        &server,
        &[("CONFIG RESETSTAT", "+QUEUED|"), ("SLOWLOG RESET", "+QUEUED|"), ("SLOWLOG LEN", "+QUEUED|")],
    );
    let reply = a.run(&server, "EXEC");
    assert!(reply.contains("cmdstat_set:calls=1") && reply.ends_with("+OK|+OK|:0|"), "{reply}");
    assert!(!a.run(&server, "INFO commandstats").contains("cmdstat_set:"));
}

/// A search is estimated from the elements that are there now. A write before it in the transaction may remove them.
#[test]
fn a_search_after_a_write_counts_the_whole_value() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let elements: Vec<String> = (0..9000).map(|i| format!("e{i}")).collect();
    peer.run(&server, &format!("RPUSH l {}", elements.join(" ")));
    let places: Vec<String> = (0..2000).map(|i| format!("{} {} p{i}", i % 170, i / 170)).collect();
    peer.run(&server, &format!("GEOADD g {}", places.join(" ")));
    peer.hold_jobs = true;
    for (commands, is_long) in [
        (["LREM l 1 e0", "EXISTS l"], false),
        (["LREM l 1 e1", "LREM l 1 e2"], true),
        (["LPOP l", "LPOS l e3"], true),
        (["RENAME l l", "LPOS l e4"], true),
        (["GEOSEARCH g FROMMEMBER p0 BYRADIUS 1 m", "EXISTS g"], false),
        (["GEOADD g 1 1 p0", "GEOSEARCH g FROMMEMBER p0 BYRADIUS 1 m"], true),
    ] {
        peer.run(&server, "MULTI");
        commands.iter().for_each(|line| _ = peer.run(&server, line));
        let reply = peer.run(&server, "EXEC");
        assert_eq!(peer.job.is_some(), is_long, "{commands:?}: {reply}");
        if let Some(job) = peer.job.take() {
            let done = job.run(server.now, &|| {});
            peer.session.lane_done(done);
            peer.drive(&server);
            peer.replies();
        }
    }
}
