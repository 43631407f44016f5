//! Long calls of commands that are usually short: they leave the worker, and keep their order and their effect.

use crate::fixture::{End, Peer, Server, Stop, command};
use std::cell::{Cell, RefCell};
use strand_engine::{LaneJob, Turn};

/// Feeds `line`, which must go to the lane. Returns its job.
#[track_caller]
fn job_of(server: &Server, peer: &mut Peer, line: &str) -> Box<LaneJob> {
    peer.hold_jobs = true;
    peer.feed(&command(line), usize::MAX);
    assert_eq!(peer.drive(server), Stop::Parked, "{:.40}", line);
    peer.job.take().expect("a job")
}

/// Hands the result of `job` to its session and runs the session. Returns all replies since.
fn finish(server: &Server, peer: &mut Peer, job: Box<LaneJob>) -> String {
    peer.session.lane_done(job.run(server.now, &|| {}));
    while peer.drive(server) == Stop::Flush {}
    peer.replies()
}

fn big_hash(server: &Server, peer: &mut Peer, fields: usize) {
    for first in (0..fields).step_by(100) {
        let pairs: String = (first..first + 100).map(|f| format!(" f{f} v")).collect();
        peer.run(server, &format!("HSET h{pairs}"));
    }
}

/// `n` keys whose shard is `shard`.
fn keys_in_shard(server: &Server, shard: usize, n: usize) -> Vec<String> {
    let keyspace = server.engine.keyspace();
    let here = |key: &String| keyspace.shard_of(keyspace.key(key.as_bytes()).hash) == shard;
    (0..).map(|i| format!("k{i}")).filter(here).take(n).collect()
}

#[test]
fn the_number_of_arguments_decides() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let mget = |n: usize| format!("MGET{}", " a".repeat(n));
    peer.run(&server, "SET a 1");
    assert_eq!(peer.run(&server, &mget(4095)).matches("$1|1|").count(), 4095);
    let job = job_of(&server, &mut peer, &mget(4096));
    assert_eq!(job.name(), "mget");
    peer.feed(b"SET a 2\r\nGET a\r\n", 99);
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Parked, ""), "it waits in order");
    let replies = finish(&server, &mut peer, job);
    assert_eq!(replies.matches("$1|1|").count(), 4096);
    assert!(replies.ends_with("$1|1|+OK|$1|2|"));
    let stats = peer.run(&server, "INFO stats");
    assert!(stats.contains(&format!("keyspace_hits:{}|", 4095 + 4096 + 1)), "{stats}");
}

#[test]
fn the_size_of_a_collection_decides_and_the_reply_is_of_one_moment() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    big_hash(&server, &mut peer, 4000);
    assert_eq!(peer.run(&server, "HKEYS h").matches("|f").count(), 4000, "at once");
    big_hash(&server, &mut peer, 5000);
    let job = job_of(&server, &mut peer, "HGETALL h");
    let other = RefCell::new(&mut other);
    let done = job.run(server.now, &|| {
        let mut other = other.borrow_mut();
        other.run(&server, "HSET h late v");
        other.run(&server, "DEL h");
    });
    peer.session.lane_done(done);
    while peer.drive(&server) == Stop::Flush {}
    let reply = peer.replies();
    assert!(reply.starts_with("*10000|") && !reply.contains("late"));
    assert_eq!(other.borrow_mut().run(&server, "EXISTS h"), ":0|");
    peer.hold_jobs = false;
    assert_eq!(peer.run(&server, "HGETALL h"), "*0|");
    // A hash with few fields and many bytes.
    let value = "v".repeat(10_000);
    (0..150).for_each(|f| drop(peer.run(&server, &format!("HSET h f{f} {value}"))));
    let job = job_of(&server, &mut peer, "HVALS h");
    assert_eq!(finish(&server, &mut peer, job).matches(&value).count(), 150);
}

#[test]
fn others_see_all_of_a_long_write_or_nothing() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    let keys: String = (0..5000).map(|k| format!(" k{k}")).collect();
    let pairs: String = (0..5000).map(|k| format!(" k{k} v")).collect();
    for (line, reply, before, after) in [
        (format!("MSET{pairs}"), "+OK|", ":0|", ":3|"),
        (format!("DEL{keys} k0"), ":5000|", ":3|", ":0|"),
        (format!("MSET{pairs}"), "+OK|", ":0|", ":3|"),
        (format!("UNLINK{keys}"), ":5000|", ":3|", ":0|"),
    ] {
        let job = job_of(&server, &mut peer, &line);
        let (other, seen) = (RefCell::new(&mut other), RefCell::new(Vec::new()));
        let done = job.run(server.now, &|| {
            // Look at the first key, one key in the middle, and the last key. The key in the middle is one that the
            // call has not reached.
            let some = 4999 - seen.borrow().len();
            let exists = other.borrow_mut().run(&server, &format!("EXISTS k0 k{some} k4999"));
            seen.borrow_mut().push(exists);
        });
        peer.session.lane_done(done);
        assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, reply), "{line:.10}");
        let mut seen = seen.take();
        seen.dedup();
        assert_eq!(seen, [before, after], "{line:.10}");
    }
    assert_eq!(peer.run(&server, "DBSIZE"), ":0|");
}

#[test]
fn a_write_beside_a_long_one_comes_before_it_or_after_it() {
    let mut server = Server::new();
    let (mut peer, mut other, mut watcher) = (server.connect(), server.connect(), server.connect());
    let pairs: String = (0..5000).map(|k| format!(" k{k} long")).collect();
    watcher.run(&server, "WATCH k4999");
    watcher.run(&server, "MULTI");
    watcher.run(&server, "SET seen yes");
    let job = job_of(&server, &mut peer, &format!("MSET{pairs}"));
    let peers = RefCell::new((&mut other, &mut watcher));
    let executed = RefCell::new(String::new());
    let done = job.run(server.now, &|| {
        let (other, watcher) = &mut *peers.borrow_mut();
        if executed.borrow().is_empty() && other.run(&server, "EXISTS k0") == ":1|" {
            *executed.borrow_mut() = watcher.run(&server, "EXEC");
            assert_eq!(other.run(&server, "APPEND k4998 +"), ":5|");
            assert_eq!(other.run(&server, "DEL k4997"), ":1|");
            assert_eq!(other.run(&server, "RENAME k4996 moved"), "+OK|");
        }
    });
    peer.session.lane_done(done);
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, "+OK|"));
    assert_eq!(executed.take(), "*-1|", "k4999 was changed before EXEC, though nobody had come to the key");
    let other = peers.into_inner().0;
    assert_eq!(other.run(&server, "MGET k4996 k4997 k4998 moved"), "*4|$-1|$-1|$5|long+|$4|long|");
}

#[test]
fn a_long_read_of_many_keys_is_of_one_moment() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    let keys: String = (0..5000).map(|k| format!(" k{k}")).collect();
    let pairs: String = (0..2000).map(|k| format!(" k{k} v")).collect();
    peer.run(&server, &format!("MSET{pairs}"));
    for (line, reply) in [
        (format!("MGET{keys}"), "*5000|"),
        (format!("EXISTS{keys}"), ":2000|"),
        (format!("TOUCH{keys}"), ":2000|"),
    ] {
        let job = job_of(&server, &mut peer, &line);
        let (other, steps) = (RefCell::new(&mut other), Cell::new(0));
        let done = job.run(server.now, &|| {
            steps.set(steps.get() + 1);
            // The shards were locked before the first pause.
            let (gone, new) = (steps.get() * 128 + 1, 4999 - steps.get());
            other.borrow_mut().run(&server, &format!("DEL k{gone}"));
            other.borrow_mut().run(&server, &format!("SET k{new} new"));
            if steps.get() == 10 {
                other.borrow_mut().run(&server, "FLUSHALL");
            }
        });
        assert!(steps.get() > 30);
        peer.session.lane_done(done);
        while peer.drive(&server) == Stop::Flush {}
        let replies = peer.replies();
        assert!(replies.starts_with(reply), "{replies:.20}");
        assert!(
            !replies.contains("new")
                && (line.starts_with("MGET") == (replies.matches("$1|v|").count() == 2000))
        );
        let other = other.into_inner();
        other.run(&server, "FLUSHALL");
        other.run(&server, &format!("MSET{pairs}"));
    }
}

#[test]
fn an_atomic_long_command_locks_its_shards_and_only_their_users_wait() {
    let mut server = Server::new();
    let (mut peer, mut reader, mut elsewhere, mut counter, mut killed) =
        (server.connect(), server.connect(), server.connect(), server.connect(), server.connect());
    let [hash, last]: [String; 2] = keys_in_shard(&server, 3, 2).try_into().expect("two keys");
    let there = keys_in_shard(&server, 4, 1).remove(0);
    elsewhere.run(&server, &format!("MSET {there} x {last} v"));
    let job = job_of(&server, &mut peer, &hsetex(&hash, 2100));
    let (all, pauses) =
        (RefCell::new((&mut reader, &mut elsewhere, &mut counter, &mut killed)), Cell::new(0));
    let done = job.run(server.now, &|| {
        pauses.set(pauses.get() + 1);
        let (reader, elsewhere, counter, killed) = &mut *all.borrow_mut();
        let input = [b"PING\r\n", &command(&format!("GET {last}"))[..], b"PING\r\n"].concat();
        reader.feed(&input, usize::MAX);
        assert_eq!((reader.drive(&server), reader.replies().as_str()), (Stop::Parked, "+PONG|"));
        assert_eq!(reader.drive(&server), Stop::Parked, "woken too early it waits on");
        assert_eq!(elsewhere.run(&server, &format!("GET {there}")), "$1|x|");
        assert_eq!(counter.run(&server, "DBSIZE"), "", "it needs every shard");
        killed.feed(&command(&format!("GET {last}")), usize::MAX);
        assert_eq!(killed.drive(&server), Stop::Parked);
        assert_eq!(elsewhere.run(&server, "CLIENT KILL ID 5"), ":1|");
        assert_eq!((killed.drive(&server), killed.ended), (Stop::Ended, Some(End::Abort)));
        assert_eq!(reader.wakes.count(), 0);
    });
    assert_eq!(pauses.get(), 1);
    assert_eq!((reader.wakes.count(), counter.wakes.count(), elsewhere.wakes.count()), (1, 1, 0));
    assert_eq!((reader.drive(&server), reader.replies().as_str()), (Stop::Read, "$1|v|+PONG|"));
    assert_eq!((counter.drive(&server), counter.replies().as_str()), (Stop::Read, ":3|"));
    let stats = counter.run(&server, "INFO commandstats");
    assert!(stats.contains("cmdstat_get:calls=2,"), "a command that waited counts once: {stats}");
    peer.session.lane_done(done);
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, ":1|"));
}

fn hsetex(key: &str, fields: usize) -> String {
    let pairs: String = (0..fields).map(|f| format!(" f{f} v")).collect();
    format!("HSETEX {key} FIELDS {fields}{pairs}")
}

#[test]
fn a_condition_on_many_keys_holds_at_the_moment_of_the_write_and_nobody_waits() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    let pairs: String = (0..2100).map(|k| format!(" k{k} v")).collect();
    let (msetnx, msetex) = (format!("MSETNX{pairs}"), format!("MSETEX 2100{pairs}"));
    // Runs the call. At each pause another client runs the commands that `disturbance` gives for the number of the pause.
    // The client never waits.
    let mut run =
        |server: &mut Server, line: &str, disturbance: &dyn Fn(usize) -> &'static [&'static str]| {
            let job = job_of(server, &mut peer, line);
            let (other, pauses) = (RefCell::new(&mut other), Cell::new(0));
            let done = job.run(server.now, &|| {
                pauses.set(pauses.get() + 1);
                for line in disturbance(pauses.get()) {
                    assert!(!other.borrow_mut().run(server, line).is_empty(), "{line} does not wait");
                }
            });
            peer.session.lane_done(done);
            assert_eq!(peer.drive(server), Stop::Read);
            (peer.replies(), pauses.get())
        };
    let no_one = |_: usize| &[][..];
    let (reply, quiet) = run(&mut server, &msetnx, &no_one);
    assert_eq!(reply, ":1|");
    server.connect().run(&server, "FLUSHALL");
    // Another client sets a key and deletes the key at once, so no look meets the key. But the call looks again. After 4
    // tries the call locks its shards.
    let a_try = quiet / 5 * 3;
    let last_look = quiet / 5 + 4 * a_try;
    for (times, pauses) in [(quiet * 7 / 10, quiet + a_try), (last_look, last_look + 1)] {
        let flicker = |nth: usize| if nth <= times { &["SET k7 x", "DEL k7"][..] } else { &[] };
        assert_eq!(run(&mut server, &msetnx, &flicker), (":1|".into(), pauses), "{quiet}");
        server.connect().run(&server, "FLUSHALL");
    }
    // One key exists, or is made during the second look.
    server.connect().run(&server, "SET k2099 there");
    assert_eq!(run(&mut server, &msetnx, &no_one).0, ":0|");
    server.connect().run(&server, "DEL k2099");
    for moment in [quiet / 2, quiet * 7 / 10] {
        let late = |nth: usize| if nth == moment { &["SET k2099 there"][..] } else { &[] };
        assert_eq!(run(&mut server, &msetnx, &late).0, ":0|");
        assert_eq!(server.connect().run(&server, "DBSIZE"), ":1|");
        server.connect().run(&server, "DEL k2099");
    }
    server.connect().run(&server, "SET k2099 there");
    // MSETEX with every condition.
    for (options, reply) in
        [(" XX", ":0|"), (" NX", ":0|"), (" KEEPTTL", ":1|"), (" NX", ":0|"), (" XX PX 9000", ":1|")]
    {
        assert_eq!(run(&mut server, &format!("{msetex}{options}"), &no_one).0, reply, "{options}");
    }
    let mut checker = server.connect();
    let remaining = |checker: &mut Peer, server: &Server| checker.run(server, "PTTL k5");
    assert_eq!(
        (remaining(&mut checker, &server), checker.run(&server, "PTTL k2099")),
        (":9000|".into(), ":9000|".into())
    );
    assert_eq!(run(&mut server, &format!("{msetex} XX KEEPTTL"), &no_one).0, ":1|");
    assert_eq!(remaining(&mut checker, &server), ":9000|");
    assert_eq!(run(&mut server, &msetex, &no_one).0, ":1|");
    assert_eq!(remaining(&mut checker, &server), ":-1|");
    assert_eq!(run(&mut server, &format!("{msetex} XX NX"), &no_one).0, "-ERR syntax error|");
}

#[test]
fn a_client_that_leaves_stops_what_only_reads_and_not_what_writes() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let pairs: String = (0..2100).map(|k| format!(" k{k} v")).collect();
    let job = job_of(&server, &mut peer, &format!("MSET{pairs}"));
    drop(peer);
    job.run(server.now, &|| {});
    assert_eq!(server.engine.keyspace().len(0), 2100);
    let mut peer = server.connect();
    let job = job_of(&server, &mut peer, &format!("MGET{}", " k1".repeat(4096)));
    let cancel = job.cancel_handle();
    let slices = Cell::new(0);
    job.run(server.now, &|| {
        slices.set(slices.get() + 1);
        cancel.store(slices.get() == 3, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(slices.get(), 3);
}

#[test]
fn one_reply_over_the_hard_limit_is_not_built() {
    let mut server = Server::with("client-output-buffer-limit normal 100kb 0 0");
    let value = "v".repeat(10_000);
    server.connect().run(&server, &format!("SET k {value}"));
    let mget = |n: usize| format!("MGET{}", " k".repeat(n));
    let mut peer = server.connect();
    peer.hold_output = true;
    peer.feed(&command(&mget(4000)), usize::MAX);
    assert_eq!((peer.drive(&server), peer.ended), (Stop::Ended, Some(End::Abort)));
    assert!(peer.session.output().len() < 140_000, "{}", peer.session.output().len());
    // Run the same call on the lane.
    let mut peer = server.connect();
    let job = job_of(&server, &mut peer, &mget(100_000));
    let pauses = Cell::new(0);
    let done = job.run(server.now, &|| pauses.set(pauses.get() + 1));
    assert!(done.reply_bytes() < 140_000 && pauses.get() < 20, "{} {}", done.reply_bytes(), pauses.get());
    peer.session.lane_done(done);
    assert_eq!((peer.drive(&server), peer.ended), (Stop::Ended, Some(End::Abort)));
    // The reply is not sent even if the limit is raised before the call ends.
    let (mut peer, mut admin) = (server.connect(), server.connect());
    let job = job_of(&server, &mut peer, &mget(100_000));
    let done = job.run(server.now, &|| {});
    admin.run(&server, "CONFIG SET client-output-buffer-limit 'normal 0 0 0'");
    peer.session.lane_done(done);
    assert_eq!((peer.drive(&server), peer.ended), (Stop::Ended, Some(End::Abort)));
    assert_eq!(peer.replies(), "");
    admin.run(&server, "CONFIG SET client-output-buffer-limit 'normal 100kb 0 0'");
    // For a client that wants no replies, no replies wait.
    let mut peer = server.connect();
    peer.run(&server, "CLIENT REPLY OFF");
    assert_eq!(peer.run(&server, &mget(4000)), "");
    assert_eq!(peer.run(&server, &mget(100_000)), "");
    assert_eq!(peer.run(&server, "CLIENT REPLY ON"), "+OK|");
    let stats = peer.run(&server, "INFO stats");
    assert!(stats.contains("client_output_buffer_limit_disconnections:3|"), "{stats}");
}

#[test]
fn a_slice_that_waits_for_a_shard_keeps_no_other() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let [free, wanted, busy] = [5, 0, 3].map(|shard| keys_in_shard(&server, shard, 128));
    let keys: String = free.iter().chain(&wanted[1..]).chain(&busy).map(|k| format!(" {k}")).collect();
    let job = job_of(&server, &mut peer, &format!("EXISTS{}", keys.repeat(11)));
    let keyspace = server.engine.keyspace();
    let held = keyspace.lock_shard(3, 0);
    let hash = keyspace.key(wanted[0].as_bytes()).hash;
    std::thread::scope(|scope| {
        let (reached, wait) = std::sync::mpsc::channel();
        let now = server.now;
        let running = scope.spawn(move || job.run(now, &|| reached.send(()).expect("somebody listens")));
        wait.recv().expect("the first slice is of a free shard");
        for round in 0..500 {
            let is_free = (0..100_000).any(|_| {
                std::thread::yield_now();
                keyspace.try_lock(&[hash], 0).is_some()
            });
            assert!(is_free, "round {round}");
        }
        drop(held);
        peer.session.lane_done(running.join().expect("it ends"));
    });
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, ":0|"));
}

#[test]
fn a_worker_that_meets_a_hold_at_the_lock_puts_its_session_aside() {
    let mut server = Server::new();
    let (mut peer, mut reader) = (server.connect(), server.connect());
    let [hash, key]: [String; 2] = keys_in_shard(&server, 3, 2).try_into().expect("two keys");
    peer.run(&server, &format!("SET {key} v"));
    let job = job_of(&server, &mut peer, &hsetex(&hash, 2100));
    let (server, now) = (&server, server.now);
    let keyspace = server.engine.keyspace();
    std::thread::scope(|scope| {
        // Another thread holds the shard. The reader has passed the gate and waits for the shard when the long lock is
        // announced.
        let held = keyspace.lock_shard(3, 0);
        let (stopped, wait) = std::sync::mpsc::channel();
        let key = &key;
        scope.spawn(move || {
            let get = command(&format!("GET {key}"));
            reader.feed(&get, usize::MAX);
            let is_parked = matches!(reader.session.run(now), Turn::AwaitWake);
            let _ = stopped.send((is_parked, reader));
        });
        let running = scope.spawn(move || job.run(now, &|| {}));
        // The reader is parked although the shard stays locked.
        let (is_parked, mut reader) =
            wait.recv_timeout(std::time::Duration::from_secs(60)).expect("put aside");
        assert!(is_parked && reader.wakes.count() == 0);
        drop(held);
        peer.session.lane_done(running.join().expect("it ends"));
        assert_eq!(reader.wakes.count(), 1);
        assert_eq!((reader.drive(server), reader.replies().as_str()), (Stop::Read, "$1|v|"));
    });
    assert_eq!((peer.drive(server), peer.replies().as_str()), (Stop::Read, ":1|"));
}

#[test]
fn a_hash_is_set_at_once_or_when_that_would_take_long_never_by_halves() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    let hset = |n: usize| format!("HSET h{}", (0..n).map(|f| format!(" f{f} v")).collect::<String>());
    let job = job_of(&server, &mut peer, &hset(10_000));
    let (other, seen) = (RefCell::new(&mut other), RefCell::new(Vec::new()));
    let done = job.run(server.now, &|| seen.borrow_mut().push(other.borrow_mut().run(&server, "HLEN h")));
    peer.session.lane_done(done);
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, ":10000|"));
    assert_eq!(seen.take(), [""], "it waits for the hold");
    assert_eq!(other.borrow_mut().drive(&server), Stop::Read);
    assert_eq!(other.borrow_mut().replies(), ":10000|");

    let job = job_of(&server, &mut peer, &hset(20_000));
    let slices = Cell::new(0);
    let done = job.run(server.now, &|| {
        slices.set(slices.get() + 1);
        if slices.get() % 100 == 0 {
            other.borrow_mut().run(&server, if slices.get() == 100 { "DEL h" } else { "PEXPIRE h 0" });
        }
    });
    peer.session.lane_done(done);
    let replies = (peer.drive(&server), peer.replies());
    assert_eq!(replies, (Stop::Read, ":20000|".into()));
    assert_eq!(other.borrow_mut().run(&server, "HLEN h"), ":20000|");
}

#[test]
fn others_see_all_of_a_long_write_of_one_key_or_nothing() {
    const N: usize = 33_000;
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    let each = |word: fn(usize) -> String| (0..N).map(word).collect::<String>();
    let members = each(|i| format!(" m{i}"));
    let pairs = each(|i| format!(" m{i} {i}"));
    let scores = each(|i| format!(" {i} m{i}"));
    let ids = each(|i| format!(" {}-1", i + 1));
    let points = each(|i| format!(" {}.5 {}.25 m{i}", i % 180, i % 80));
    let n = format!(":{N}|");
    let (more, most, two) = (format!(":{}|", N + 1), format!(":{}|", N + 2), ":2|".to_string());
    for id in 1..=2 {
        other.run(&server, &format!("XADD s {id}-1 f v"));
    }
    // For each: the write, its reply, a command that looks, what another client writes meanwhile, and what the look
    // shows before, during and after.
    for (line, reply, look, beside, [before, between, after]) in [
        (format!("HSET h{pairs}"), &n, "HLEN h", "HSET h x 1", [":0|", ":1|", &more]),
        (format!("HDEL h{members}"), &n, "HLEN h", "HSET h y 1", [&more, &most, &two]),
        (format!("SADD t{members}"), &n, "SCARD t", "SADD t x", [":0|", ":1|", &more]),
        (format!("SREM t{members}"), &n, "SCARD t", "SADD t y", [&more, &most, &two]),
        (format!("ZADD z CH{scores}"), &n, "ZCARD z", "ZADD z 1 x", [":0|", ":1|", &more]),
        (format!("ZREM z{members}"), &n, "ZCARD z", "ZADD z 1 y", [&more, &most, &two]),
        (format!("GEOADD g CH{points}"), &n, "ZCARD g", "ZADD g 1 x", [":0|", ":1|", &more]),
        (format!("RPUSH l{members}"), &more, "LLEN l", "LPUSH l x", [":0|", ":1|", &more]),
        (format!("XDEL s{ids}"), &two, "XLEN s", "XADD s 3-0 f v", [":2|", ":3|", ":1|"]),
        (format!("PFADD p{members}"), &":1|".into(), "PFCOUNT p", "PFADD p x", [":0|", ":1|", ":32938|"]),
    ] {
        let job = job_of(&server, &mut peer, &line);
        let (other, seen) = (RefCell::new(&mut other), RefCell::new(Vec::new()));
        let pauses = Cell::new(0);
        let done = job.run(server.now, &|| {
            pauses.set(pauses.get() + 1);
            if pauses.get() == 100 {
                other.borrow_mut().run(&server, beside);
            }
            seen.borrow_mut().push(other.borrow_mut().run(&server, look));
        });
        peer.session.lane_done(done);
        assert_eq!((peer.drive(&server), peer.replies()), (Stop::Read, reply.clone()), "{line:.10}");
        let mut seen = seen.take();
        seen.dedup();
        assert_eq!(seen, [before, between], "{line:.10}");
        assert_eq!(other.borrow_mut().run(&server, look), after, "{line:.10}");
        assert!(pauses.get() > 300, "{line:.10}: it began anew");
    }
}

#[test]
fn a_long_write_of_one_key_that_fails_does_nothing_and_one_that_ends_serves_who_waits() {
    const N: usize = 33_000;
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    other.run(&server, "XADD s 5-1 f v");
    let ids: String = (0..N).map(|i| format!(" {i}-1")).collect();
    let job = job_of(&server, &mut peer, &format!("XDEL s{ids} x"));
    assert_eq!(
        finish(&server, &mut peer, job),
        "-ERR Invalid stream ID specified as stream command argument|"
    );
    assert_eq!(other.run(&server, "XLEN s"), ":1|");
    // The expiry stays, and the key is removed with its last member.
    let members: String = (0..N).map(|i| format!(" m{i}")).collect();
    other.run(&server, "SADD t x");
    other.run(&server, "PEXPIRE t 5000");
    let job = job_of(&server, &mut peer, &format!("SADD t{members}"));
    assert_eq!(finish(&server, &mut peer, job), format!(":{N}|"));
    assert_eq!(other.run(&server, "PTTL t"), ":5000|");
    let job = job_of(&server, &mut peer, &format!("SREM t x{members}"));
    assert_eq!(finish(&server, &mut peer, job), format!(":{}|", N + 1));
    assert_eq!(other.run(&server, "EXISTS t"), ":0|");
    // A waiting client is served once the whole list exists.
    other.feed(b"*3\r\n$5\r\nBRPOP\r\n$1\r\nl\r\n$1\r\n0\r\n", usize::MAX);
    assert!(matches!(other.drive(&server), Stop::Blocked(_)));
    let job = job_of(&server, &mut peer, &format!("RPUSH l{members}"));
    assert_eq!(finish(&server, &mut peer, job), format!(":{N}|"));
    assert_eq!((other.drive(&server), other.replies()), (Stop::Read, format!("*2|$1|l|$6|m{}|", N - 1)));
    assert_eq!(peer.run(&server, "LLEN l"), format!(":{}|", N - 1));
}

#[test]
fn a_reply_of_many_bytes_is_copied_on_the_lane_and_is_of_one_moment() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    let (copied, shared) = ("v".repeat(16_000), "w".repeat(16_384));
    for i in 0..200 {
        peer.run(&server, &format!("MSET k{i} {copied} s{i} {shared}"));
        peer.run(&server, &format!("HSET h f{i} {copied}"));
    }
    let keys = |kind: &str, n: usize| (0..n).map(|i| format!(" {kind}{i}")).collect::<String>();
    let (mget, few, shares) = (format!("MGET{}", keys("k", 200)), keys("k", 60), keys("s", 200));
    assert_eq!(peer.run(&server, &format!("MGET{few}")).matches(&copied).count(), 60, "at once");
    peer.run(&server, "PING");
    let whole = |line: &str, values: usize| (line.to_string(), values);
    for (line, values) in [
        whole(&mget, 200),
        whole(&format!("HMGET h{}", keys("f", 200)), 200),
        whole("HRANDFIELD h 200 WITHVALUES", 200),
        whole("HSCAN h 0 COUNT 1000", 200),
    ] {
        let job = job_of(&server, &mut peer, &line);
        assert!(peer.session.output().is_empty(), "nothing is left of the first try");
        let other = RefCell::new(&mut other);
        let done = job.run(server.now, &|| {
            other.borrow_mut().run(&server, "SET k199 changed");
        });
        peer.session.lane_done(done);
        while peer.drive(&server) == Stop::Flush {}
        assert_eq!(peer.replies().matches(&copied).count(), values, "{:.20}", line);
        other.borrow_mut().run(&server, &format!("SET k199 {copied}"));
    }
    // Values that are shared, not copied, cost nothing, so the call runs in slices.
    peer.feed(&command(&format!("MGET{shares}")), usize::MAX);
    assert!(!matches!(peer.session.run(server.now), Turn::Lane(_)));
    while peer.drive(&server) == Stop::Flush {}
    assert_eq!(peer.replies().matches(&shared).count(), 200);
    let job = job_of(&server, &mut peer, &format!("MGET{}{few}", shares.repeat(25)));
    let replies = finish(&server, &mut peer, job);
    assert_eq!((replies.matches(&copied).count(), replies.matches(&shared).count()), (60, 5000));
}

#[test]
fn a_pattern_that_takes_long_to_match_leaves_the_worker() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let long = "a".repeat(50_000);
    peer.script(&server, &[(&format!("SET {long} v"), "+OK|"), (&format!("HSET h {long} v"), ":1|")]);
    let (easy, hard) = ("a*a".to_string(), format!("*{}b*", "a".repeat(100)));
    for head in ["SCAN 0 MATCH", "HSCAN h 0 MATCH"] {
        for (pattern, is_long) in [(&easy, false), (&hard, true)] {
            peer.hold_jobs = true;
            peer.feed(&command(&format!("{head} {pattern}")), usize::MAX);
            let stop = peer.drive(&server);
            let job = peer.job.take();
            assert_eq!((job.is_some(), stop == Stop::Parked), (is_long, is_long), "{head} {pattern:.20}");
            if let Some(job) = job {
                assert!(job.is_heavy(), "others do not queue behind it");
                let pauses = std::cell::Cell::new(0);
                let done = job.run(server.now, &|| pauses.set(pauses.get() + 1));
                assert!(pauses.get() > 100, "{head}: {}", pauses.get());
                peer.session.lane_done(done);
                peer.drive(&server);
                assert_eq!(peer.replies(), "*2|$1|0|*0|", "{head}");
            } else {
                assert!(peer.replies().contains(&long), "{head}");
            }
            peer.hold_jobs = false;
        }
    }
}
