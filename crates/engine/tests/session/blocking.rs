//! Commands that wait: which client is served, when, in which order, and what ends a wait.

use crate::fixture::{End, Peer, Server, Stop, command};
use strand_keyspace::READERS_SERVED_MAX;

/// Sends a command that must wait.
#[track_caller]
pub fn blocks(peer: &mut Peer, server: &Server, line: &str) -> Option<u64> {
    peer.feed(&command(line), usize::MAX);
    let stop = peer.drive(server);
    assert_eq!(peer.replies(), "", "{line}");
    match stop {
        Stop::Blocked(until) => until,
        other => panic!("{line}: {other:?}"),
    }
}

/// Runs a session that others may have woken. Returns its replies.
pub fn replies(peer: &mut Peer, server: &Server) -> String {
    peer.drive(server);
    peer.replies()
}

/// A key whose shard is not the shard of `other`.
fn key_elsewhere(server: &Server, other: &str) -> String {
    let keyspace = server.engine.keyspace();
    let shard = |key: &str| keyspace.shard_of(keyspace.key(key.as_bytes()).hash);
    let mut keys = (0..).map(|i| format!("elsewhere:{i}"));
    keys.find(|key| shard(key) != shard(other)).expect("there are several shards")
}

#[test]
fn a_push_serves_the_waiter_before_other_clients_see_the_element() {
    let mut server = Server::new();
    let (mut pusher, mut third) = (server.connect(), server.connect());
    for (line, push, pushed, want) in [
        ("BLPOP a k 0", "RPUSH k 1 2", ":2|", "*2|$1|k|$1|1|"),
        ("BRPOP a k 0", "RPUSH k 1 2", ":2|", "*2|$1|k|$1|2|"),
        ("BLMPOP 0 2 a k LEFT COUNT 5", "RPUSH k 1 2", ":2|", "*2|$1|k|*2|$1|1|$1|2|"),
        ("BLMOVE k d RIGHT LEFT 0", "RPUSH k 1 2", ":2|", "$1|2|"),
        ("BLMOVE k k RIGHT LEFT 0", "RPUSH k 1 2", ":2|", "$1|2|"),
        ("BRPOPLPUSH k d 0", "LPUSH k 1", ":1|", "$1|1|"),
        ("BLMOVEM k d RIGHT LEFT 0 COUNT 3 BULK", "RPUSH k 1 2", ":2|", "*2|$1|1|$1|2|"),
        ("BLMOVEM k k LEFT RIGHT 0 EXACTLY 2 OBO", "RPUSH k 1 2", ":2|", "*2|$1|1|$1|2|"),
        ("BZPOPMIN a k 0", "ZADD k 1 x 2 y", ":2|", "*3|$1|k|$1|x|$1|1|"),
        ("BZPOPMAX a k 0", "ZADD k 1 x 2 y", ":2|", "*3|$1|k|$1|y|$1|2|"),
        ("BZMPOP 0 2 a k MAX COUNT 9", "ZADD k 1 x", ":1|", "*2|$1|k|*1|*2|$1|x|$1|1|"),
        (
            "XREAD BLOCK 0 STREAMS a k $ $",
            "XADD k 1-1 f v",
            "$3|1-1|",
            "*1|*2|$1|k|*1|*2|$3|1-1|*2|$1|f|$1|v|",
        ),
        (
            "XREAD BLOCK 0 STREAMS a k 7 0-5",
            "XADD k 1-1 f v",
            "$3|1-1|",
            "*1|*2|$1|k|*1|*2|$3|1-1|*2|$1|f|$1|v|",
        ),
    ] {
        pusher.run(&server, "FLUSHALL");
        let mut waiter = server.connect();
        blocks(&mut waiter, &server, line);
        assert_eq!(pusher.run(&server, push), pushed, "{push}");
        if pushed == ":1|" {
            assert_eq!(third.run(&server, "EXISTS k"), ":0|", "{line}");
        }
        assert_eq!(waiter.wakes.count(), 1, "{line}");
        assert_eq!(replies(&mut waiter, &server), want, "{line}");
        assert_eq!(waiter.run(&server, "PING"), "+PONG|");
    }
    assert!(third.run(&server, "INFO clients").contains("blocked_clients:0"));
}

#[test]
fn first_come_is_first_served_and_nobody_is_woken_for_nothing() {
    let mut server = Server::new();
    let mut pusher = server.connect();
    let mut waiters: Vec<Peer> = (0..4).map(|_| server.connect()).collect();
    for waiter in &mut waiters {
        blocks(waiter, &server, "BLPOP k other 0");
    }
    pusher.run(&server, "RPUSH k a b");
    pusher.run(&server, "RPUSH other c");
    let woken: Vec<usize> = waiters.iter().map(|waiter| waiter.wakes.count()).collect();
    assert_eq!(woken, [1, 1, 1, 0]);
    let got: Vec<String> = waiters.iter_mut().map(|waiter| replies(waiter, &server)).collect();
    assert_eq!(got, ["*2|$1|k|$1|a|", "*2|$1|k|$1|b|", "*2|$5|other|$1|c|", ""]);
    // A client that waits again goes to the end of the queue.
    blocks(&mut waiters[0], &server, "BLPOP k 0");
    pusher.run(&server, "RPUSH k d");
    assert_eq!(replies(&mut waiters[3], &server), "*2|$1|k|$1|d|");
    assert_eq!(pusher.run(&server, "EXISTS k other"), ":0|");
}

#[test]
fn a_waiter_for_too_many_elements_lets_later_waiters_go_first() {
    let mut server = Server::new();
    let (mut pusher, mut many, mut one) = (server.connect(), server.connect(), server.connect());
    blocks(&mut many, &server, "BLMOVEM k d LEFT RIGHT 0 EXACTLY 3 BULK");
    pusher.run(&server, "RPUSH k 1 2");
    assert_eq!(replies(&mut many, &server), "");
    assert_eq!(pusher.run(&server, "LLEN k"), ":2|");
    // A later client takes the elements, which are too few for the first client.
    assert_eq!(one.run(&server, "BLPOP k 0"), "*2|$1|k|$1|1|");
    assert_eq!(one.run(&server, "BLPOP k 0"), "*2|$1|k|$1|2|");
    blocks(&mut one, &server, "BLPOP k 0");
    pusher.run(&server, "RPUSH k 3 4 5");
    // Both clients waited. This time the list has enough elements for the first client.
    assert_eq!(replies(&mut many, &server), "*3|$1|3|$1|4|$1|5|");
    assert_eq!(replies(&mut one, &server), "");
    pusher.run(&server, "RPUSH k 6");
    assert_eq!(replies(&mut one, &server), "*2|$1|k|$1|6|");
    assert_eq!(pusher.run(&server, "LRANGE d 0 -1"), "*3|$1|3|$1|4|$1|5|");
    // On a helper thread, BLMOVEM finds too few of the 20,000 elements that it wants, and does not wait there.
    blocks(&mut many, &server, "BLMOVEM k d LEFT RIGHT 0 EXACTLY 20000 BULK");
    for _ in 0..4 {
        assert_eq!(replies(&mut many, &server), "");
        let push = format!("RPUSH k{}", " x".repeat(5000));
        pusher.run(&server, &push);
    }
    assert!(replies(&mut many, &server).starts_with("*20000|$1|x|"));
    assert_eq!(pusher.run(&server, "LLEN d"), ":20003|");
}

#[test]
fn inside_a_transaction_nothing_waits_and_what_it_pushed_is_served_at_its_end() {
    let mut server = Server::new();
    let (mut a, mut waiter, mut second) = (server.connect(), server.connect(), server.connect());
    a.run(&server, "XGROUP CREATE s g $ MKSTREAM");
    a.run(&server, "MULTI");
    for line in [
        "BLPOP k 0",
        "BLMOVE k d LEFT LEFT 0",
        "BRPOPLPUSH k d 0",
        "BLMPOP 0 1 k LEFT",
        "BZPOPMIN k 0",
        "BZMPOP 0 1 k MIN",
        "XREAD BLOCK 0 STREAMS s $",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
        "WAIT 1 0",
        "WAITAOF 0 1 0",
    ] {
        assert_eq!(a.run(&server, line), "+QUEUED|", "{line}");
    }
    assert_eq!(a.run(&server, "EXEC"), "*10|*-1|$-1|$-1|*-1|*-1|*-1|*-1|*-1|:0|*2|:0|:0|");

    // Clients get what exists at the end of the transaction, in the order of their waits.
    blocks(&mut waiter, &server, "BLPOP one two 0");
    blocks(&mut second, &server, "BLPOP gone one 0");
    a.run(&server, "MULTI");
    for line in ["RPUSH gone x", "DEL gone", "RPUSH two 2", "RPUSH one 1", "LLEN one"] {
        assert_eq!(a.run(&server, line), "+QUEUED|");
    }
    assert_eq!(a.run(&server, "EXEC"), "*5|:1|:1|:1|:1|:1|");
    assert_eq!(replies(&mut waiter, &server), "*2|$3|two|$1|2|");
    assert_eq!(replies(&mut second, &server), "*2|$3|one|$1|1|");
    assert_eq!(a.run(&server, "EXISTS one two gone"), ":0|");
}

#[test]
fn a_wait_ends_with_its_time_and_what_was_sent_behind_it_runs_then() {
    let mut server = Server::new();
    let (mut waiter, mut other) = (server.connect(), server.connect());
    let end_us = server.now.mono_us + 100_000;
    assert_eq!(blocks(&mut waiter, &server, "BLPOP k 0.1"), Some(end_us));
    waiter.feed(b"PING\r\nRPUSH k x\r\nBLPOP k 0\r\n", usize::MAX);
    server.advance_ms(99);
    assert_eq!(waiter.drive(&server), Stop::Blocked(Some(end_us)));
    assert!(other.run(&server, "INFO clients").contains("clients_in_timeout_table:1"));
    server.advance_ms(1);
    assert_eq!(replies(&mut waiter, &server), "*-1|+PONG|:1|*2|$1|k|$1|x|");
    assert_eq!(blocks(&mut waiter, &server, "XREAD BLOCK 0 STREAMS k $"), None);
    let list = other.run(&server, "CLIENT LIST");
    assert!(list.contains("flags=b") && list.contains("cmd=xread"), "{list}");
    assert!(other.run(&server, "INFO clients").contains("blocked_clients:1|"));
    // A push after the timeout finds no waiting client.
    let mut late = server.connect();
    blocks(&mut late, &server, "BLPOP l 0.01");
    server.advance_ms(50);
    assert_eq!(replies(&mut late, &server), "*-1|");
    assert_eq!(other.run(&server, "RPUSH l x"), ":1|");
    assert_eq!(other.run(&server, "LLEN l"), ":1|");
}

#[test]
fn any_way_to_put_a_value_at_the_key_serves() {
    let mut server = Server::new();
    let mut a = server.connect();
    for (before, line, put, want) in [
        ("RPUSH x 1", "BLPOP k 0", "RENAME x k", "*2|$1|k|$1|1|"),
        ("RPUSH x 1", "BLPOP k 0", "RENAMENX x k", "*2|$1|k|$1|1|"),
        ("RPUSH x 1", "BLPOP k 0", "COPY x k", "*2|$1|k|$1|1|"),
        ("RPUSH x 1", "BLPOP k 0", "LMOVE x k LEFT LEFT", "*2|$1|k|$1|1|"),
        ("RPUSH x 1", "BLPOP k 0", "RPOPLPUSH x k", "*2|$1|k|$1|1|"),
        ("ZADD x 1 m", "BZPOPMIN k 0", "ZUNIONSTORE k 1 x", "*3|$1|k|$1|m|$1|1|"),
        ("ZADD x 1 m", "BZPOPMIN k 0", "ZRANGESTORE k x 0 -1", "*3|$1|k|$1|m|$1|1|"),
        (
            "GEOADD x 0 0 m",
            "BZPOPMIN k 0",
            "GEOSEARCHSTORE k x FROMLONLAT 0 0 BYRADIUS 1 km STOREDIST",
            "*3|$1|k|$1|m|",
        ),
        ("XADD x 5-5 f v", "XREAD BLOCK 0 STREAMS k 0", "RENAME x k", "*1|*2|$1|k|*1|*2|$3|5-5|"),
        // A value of another type does not end the wait. After this value is removed, a push ends the wait.
        ("SET y 1", "BLPOP k 0", "ZADD k 1 m|SET k 1|DEL k|RPUSH k 1", "*2|$1|k|$1|1|"),
        ("RPUSH x 1", "BLPOP k 0", "SET k 1|RENAME x k", "*2|$1|k|$1|1|"),
    ] {
        a.run(&server, "FLUSHALL");
        a.run(&server, before);
        let mut waiter = server.connect();
        blocks(&mut waiter, &server, line);
        for put in put.split('|') {
            assert_eq!(replies(&mut waiter, &server), "", "before {put}");
            let reply = a.run(&server, put);
            assert!(!reply.starts_with('-'), "{put}: {reply}");
        }
        let got = replies(&mut waiter, &server);
        assert!(got.starts_with(want), "{put}: {got}");
    }
    // A push in another database does not end the wait.
    for (put, before) in [
        ("MOVE k 0", "SELECT 1|RPUSH k 7"),
        ("SWAPDB 0 1", "SELECT 1|RPUSH k 7"),
        ("COPY k k DB 0", "SELECT 1|RPUSH k 7"),
    ] {
        a.run(&server, "FLUSHALL");
        let mut waiter = server.connect();
        blocks(&mut waiter, &server, "BLPOP k 0");
        for line in before.split('|') {
            a.run(&server, line);
        }
        assert_eq!(replies(&mut waiter, &server), "", "another database");
        a.run(&server, put);
        assert_eq!(replies(&mut waiter, &server), "*2|$1|k|$1|7|", "{put}");
        a.run(&server, "SELECT 0");
        assert_eq!(a.run(&server, "EXISTS k"), ":0|", "{put}");
    }
    a.run(&server, "FLUSHALL");
    a.run(&server, "RPUSH x payload");
    let mut waiter = server.connect();
    blocks(&mut waiter, &server, "BLPOP k 0");
    a.feed(b"DUMP x\r\n", usize::MAX);
    a.drive(&server);
    let dumped = a.received_bytes();
    let body = &dumped[dumped.iter().position(|b| *b == b'\n').expect("a header") + 1..dumped.len() - 2];
    let mut restore =
        format!("*4\r\n$7\r\nRESTORE\r\n$1\r\nk\r\n$1\r\n0\r\n${}\r\n", body.len()).into_bytes();
    restore.extend_from_slice(body);
    restore.extend_from_slice(b"\r\n");
    assert_eq!(a.send(&server, &restore), "+OK|");
    assert_eq!(replies(&mut waiter, &server), "*2|$1|k|$7|payload|");
}

#[test]
fn readers_of_a_group_are_served_in_turn_and_told_when_stream_or_group_go() {
    let mut server = Server::new();
    let (mut a, mut b, mut c, mut other) =
        (server.connect(), server.connect(), server.connect(), server.connect());
    c.run(&server, "XGROUP CREATE s g $ MKSTREAM");
    c.run(&server, "XGROUP CREATE s h $");
    blocks(&mut a, &server, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >");
    blocks(&mut b, &server, "XREADGROUP GROUP g b BLOCK 0 COUNT 1 STREAMS s >");
    blocks(&mut other, &server, "XREADGROUP GROUP h o BLOCK 0 STREAMS s >");
    c.run(&server, "XADD s 1-1 f v");
    let entry = |id: &str| format!("*1|*2|$1|s|*1|*2|$3|{id}|*2|$1|f|$1|v|");
    assert_eq!(replies(&mut a, &server), entry("1-1"));
    assert_eq!(replies(&mut b, &server), "");
    assert_eq!(replies(&mut other, &server), entry("1-1"));
    c.run(&server, "XADD s 2-1 f v");
    assert_eq!(replies(&mut b, &server), entry("2-1"));
    assert_eq!(c.run(&server, "XPENDING s g"), "*4|:2|$3|1-1|$3|2-1|*2|*2|$1|a|$1|1|*2|$1|b|$1|1|");

    let gone = "-UNBLOCKED the stream key no longer exists|";
    for (change, want) in [
        ("DEL s", gone),
        ("SET s x", gone),
        ("RENAME s t", gone),
        ("FLUSHALL", gone),
        ("SWAPDB 0 1", gone),
        ("PEXPIRE s -1", gone),
        ("XGROUP DESTROY s g", "-NOGROUP the consumer group this client was blocked on no longer exists|"),
    ] {
        let mut waiter = server.connect();
        c.run(&server, "FLUSHALL");
        c.run(&server, "XGROUP CREATE s g $ MKSTREAM");
        blocks(&mut waiter, &server, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
        c.run(&server, change);
        assert_eq!(replies(&mut waiter, &server), want, "{change}");
    }
    // Active expiry removes a stream.
    let mut waiter = server.connect();
    c.run(&server, "FLUSHALL");
    c.run(&server, "XGROUP CREATE s g $ MKSTREAM");
    c.run(&server, "PEXPIRE s 10");
    blocks(&mut waiter, &server, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    server.advance_ms(20);
    server.engine.tick(server.now);
    assert_eq!(replies(&mut waiter, &server), gone);
    // A read of a consumer's own pending entries never waits.
    c.run(&server, "XGROUP CREATE s g $ MKSTREAM");
    assert_eq!(c.run(&server, "XREADGROUP GROUP g c BLOCK 0 STREAMS s 0"), "*1|*2|$1|s|*0|");
}

#[test]
fn a_served_move_serves_the_next_one() {
    let mut server = Server::new();
    let mut pusher = server.connect();
    let mut waiters: Vec<Peer> = (0..4).map(|_| server.connect()).collect();
    for (waiter, line) in waiters.iter_mut().zip([
        "BLMOVE a b LEFT LEFT 0",
        "BLMOVE b c RIGHT RIGHT 0",
        "BRPOPLPUSH c a 0",
        "BLPOP a 0",
    ]) {
        blocks(waiter, &server, line);
    }
    assert_eq!(pusher.run(&server, "RPUSH a x"), ":1|");
    let got: Vec<String> = waiters.iter_mut().map(|waiter| replies(waiter, &server)).collect();
    assert_eq!(got, ["$1|x|", "$1|x|", "$1|x|", "*2|$1|a|$1|x|"]);
    assert_eq!(pusher.run(&server, "DBSIZE"), ":0|");
    // If the destination has another type, the waiting client gets the error and the element stays.
    pusher.run(&server, "SET d x");
    blocks(&mut waiters[0], &server, "BLMOVE a d LEFT LEFT 0");
    pusher.run(&server, "RPUSH a 1");
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    assert_eq!(replies(&mut waiters[0], &server), wrong);
    assert_eq!(pusher.run(&server, "LRANGE a 0 -1"), "*1|$1|1|");
}

#[test]
fn a_move_to_a_shard_that_is_held_comes_by_itself_and_keeps_its_turn() {
    let mut server = Server::new();
    let to = key_elsewhere(&server, "a");
    let (mut pusher, mut first, mut second) = (server.connect(), server.connect(), server.connect());
    blocks(&mut first, &server, &format!("BLMOVE a {to} LEFT LEFT 0"));
    blocks(&mut second, &server, "BLPOP a 0");
    let keyspace = server.engine.keyspace().clone();
    let held = keyspace.lock(&[keyspace.key(to.as_bytes()).hash], 0);
    assert_eq!(pusher.run(&server, "RPUSH a 1 2"), ":2|");
    drop(held);
    assert_eq!(second.wakes.count(), 0, "who is behind waits");
    assert_eq!(replies(&mut first, &server), "$1|1|");
    assert_eq!(replies(&mut second, &server), "*2|$1|a|$1|2|");
    assert_eq!(pusher.run(&server, "EXISTS a"), ":0|");

    // Another client takes the element first. The waiting client continues to wait, as the first in the queue.
    blocks(&mut first, &server, &format!("BLMOVE a {to} LEFT LEFT 0"));
    blocks(&mut second, &server, "BLPOP a 0");
    let held = keyspace.lock(&[keyspace.key(to.as_bytes()).hash], 0);
    pusher.run(&server, "RPUSH a 3");
    drop(held);
    assert_eq!(pusher.run(&server, "LPOP a"), "$1|3|");
    assert_eq!(replies(&mut first, &server), "");
    pusher.run(&server, "RPUSH a 4");
    assert_eq!(replies(&mut first, &server), "$1|4|");
    assert_eq!(replies(&mut second, &server), "");

    // The client that was woken has disconnected, so the next client gets its turn.
    blocks(&mut first, &server, &format!("BLMOVE a {to} LEFT LEFT 0"));
    pusher.run(&server, "RPUSH a 5");
    assert_eq!(replies(&mut second, &server), "*2|$1|a|$1|5|");
    blocks(&mut second, &server, "BLPOP a 0");
    let held = keyspace.lock(&[keyspace.key(to.as_bytes()).hash], 0);
    pusher.run(&server, "RPUSH a 6");
    drop(held);
    drop(first);
    assert_eq!(replies(&mut second, &server), "*2|$1|a|$1|6|");
    assert!(pusher.run(&server, "INFO clients").contains("blocked_clients:0|"));
}

#[test]
fn a_waiter_that_left_or_was_killed_takes_no_element() {
    let mut server = Server::new();
    let (mut a, mut gone, mut killed) = (server.connect(), server.connect(), server.connect());
    blocks(&mut gone, &server, "BLPOP k l 0");
    drop(gone);
    assert!(a.run(&server, "INFO clients").contains("blocked_clients:0|"));
    a.script(&server, &[("RPUSH k 1", ":1|"), ("LPOP k", "$1|1|")]);
    // A client was killed, and its session has not run since.
    blocks(&mut killed, &server, "BLPOP k l 0");
    let id = killed.session.id();
    assert_eq!(a.run(&server, &format!("CLIENT KILL ID {id}")), ":1|");
    assert!(!a.run(&server, "CLIENT LIST").contains(&format!("id={id} ")), "who is killed is not listed");
    a.script(&server, &[("RPUSH k 2", ":1|"), ("LLEN k", ":1|")]);
    assert_eq!(killed.drive(&server), Stop::Ended);
    assert_eq!(killed.ended, Some(End::Abort));
    a.script(&server, &[("RPUSH l 3", ":1|"), ("LLEN l", ":1|")]);
    assert!(a.run(&server, "INFO clients").contains("blocked_clients:0|"));
}

#[test]
fn client_unblock_ends_a_wait_once() {
    let mut server = Server::new();
    let (mut a, mut waiter) = (server.connect(), server.connect());
    let id = waiter.session.id();
    for (line, how, want) in [
        ("BLPOP k 0", "", "*-1|"),
        ("BLMOVE k d LEFT LEFT 0", " TIMEOUT", "*-1|"),
        ("WAIT 1 0", "", ":0|"),
        ("WAITAOF 0 1 0", " timeout", "*2|:0|:0|"),
        ("XREAD BLOCK 0 STREAMS k $", " ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK|"),
        ("WAIT 1 0", " error", "-UNBLOCKED client unblocked via CLIENT UNBLOCK|"),
    ] {
        blocks(&mut waiter, &server, line);
        let unblock = format!("CLIENT UNBLOCK {id}{how}");
        assert_eq!(a.run(&server, &unblock), ":1|");
        assert_eq!(a.run(&server, &unblock), ":0|", "it does not wait any more");
        assert_eq!(a.run(&server, "RPUSH k 1"), ":1|");
        assert_eq!(a.run(&server, "LPOP k"), "$1|1|", "it stays");
        assert_eq!(replies(&mut waiter, &server), want, "{line}");
    }
    blocks(&mut waiter, &server, "BLPOP k 0");
    a.run(&server, "RPUSH k 1");
    assert_eq!(a.run(&server, &format!("CLIENT UNBLOCK {id}")), ":0|", "it is served");
    assert_eq!(replies(&mut waiter, &server), "*2|$1|k|$1|1|");
    assert_eq!(a.run(&server, "CLIENT UNBLOCK -1"), ":0|");
}

#[test]
fn rights_that_were_withdrawn_meanwhile_count() {
    let mut server = Server::new();
    let (mut admin, mut waiter) = (server.connect(), server.connect());
    admin.run(&server, "ACL SETUSER u on nopass ~* +@all");
    waiter.run(&server, "AUTH u x");
    blocks(&mut waiter, &server, "BLPOP k 0");
    admin.run(&server, "ACL SETUSER u resetkeys ~other");
    assert_eq!(admin.run(&server, "RPUSH k 1"), ":1|");
    let denied = "-NOPERM this user has no permissions to access one of the keys used as arguments|";
    assert_eq!(replies(&mut waiter, &server), denied);
    assert_eq!(admin.run(&server, "LLEN k"), ":1|");
    // When the user gets more rights, the wait continues.
    blocks(&mut waiter, &server, "BLPOP other 0");
    admin.run(&server, "ACL SETUSER u +@all ~more");
    admin.run(&server, "RPUSH other 1");
    assert_eq!(replies(&mut waiter, &server), "*2|$5|other|$1|1|");
    // The user is removed, and its session ends. The next waiting client is served.
    let mut second = server.connect();
    blocks(&mut waiter, &server, "BLPOP other 0");
    blocks(&mut second, &server, "BLPOP other 0");
    admin.run(&server, "ACL DELUSER u");
    admin.run(&server, "RPUSH other 2");
    assert_eq!(waiter.drive(&server), Stop::Ended);
    assert_eq!(replies(&mut second, &server), "*2|$5|other|$1|2|");
}

#[test]
fn the_waiter_does_a_long_attempt_itself_on_a_helper_thread() {
    let mut server = Server::new();
    let (mut a, mut waiter) = (server.connect(), server.connect());
    let many = (0..5000).map(|i| i.to_string()).collect::<Vec<_>>().join(" ");
    a.run(&server, &format!("RPUSH x {many}"));
    blocks(&mut waiter, &server, "BLMPOP 0 1 k LEFT COUNT 10000");
    waiter.hold_jobs = true;
    a.run(&server, "RENAME x k");
    assert_eq!(waiter.drive(&server), Stop::Parked);
    // The element is gone before the helper thread reads the list.
    assert_eq!(a.run(&server, "RENAME k x"), "+OK|");
    let job = waiter.job.take().expect("a job");
    waiter.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!(waiter.drive(&server), Stop::Blocked(None));
    assert_eq!(waiter.replies(), "");
    waiter.hold_jobs = false;
    a.run(&server, "RENAME x k");
    let got = replies(&mut waiter, &server);
    assert!(got.starts_with("*2|$1|k|*5000|$1|0|"), "{}", &got[..40.min(got.len())]);
    assert_eq!(a.run(&server, "EXISTS k"), ":0|");
    assert!(a.run(&server, "INFO clients").contains("blocked_clients:0|"));

    let keys = (0..5000).map(|i| format!("k{i}")).collect::<Vec<_>>().join(" ");
    assert_eq!(waiter.run(&server, &format!("BLPOP {keys} 0")), "-ERR too many keys to wait for|");
    a.run(&server, "RPUSH k4999 x");
    assert_eq!(waiter.run(&server, &format!("BLPOP {keys} 0")), "*2|$5|k4999|$1|x|");
}

#[test]
fn a_reader_at_the_end_of_a_long_stream_waits_on_its_worker() {
    let mut server = Server::new();
    let (mut a, mut waiter) = (server.connect(), server.connect());
    let long = "x".repeat(2 << 20);
    a.run(&server, "XGROUP CREATE s g $ MKSTREAM");
    a.run(&server, &format!("XADD s 0-1 f {long}"));
    for i in 1..=5000 {
        a.feed(&command(&format!("XADD s {i}-1 f v")), usize::MAX);
    }
    a.drive(&server);
    a.run(&server, "XGROUP SETID s g $");
    a.run(&server, "XGROUP CREATE empty g $ MKSTREAM");
    waiter.hold_jobs = true;
    for (line, id) in [
        ("XREAD BLOCK 0 STREAMS s $", "6001-1"),
        ("XREAD BLOCK 0 STREAMS empty s 0 6001-1", "6002-1"),
        ("XREADGROUP GROUP g c BLOCK 0 STREAMS empty s > >", "6003-1"),
    ] {
        if line.contains("GROUP") {
            a.run(&server, "XGROUP SETID s g $");
        }
        blocks(&mut waiter, &server, line);
        a.run(&server, &format!("XADD s {id} f v"));
        assert_eq!(
            replies(&mut waiter, &server),
            format!("*1|*2|$1|s|*1|*2|$6|{id}|*2|$1|f|$1|v|"),
            "{line}"
        );
        assert!(waiter.job.is_none());
    }
    // A large result is read on a helper thread, not by the writer.
    waiter.feed(&command("XREAD BLOCK 0 STREAMS s 0"), usize::MAX);
    assert_eq!(waiter.drive(&server), Stop::Parked);
}

#[test]
fn a_crowd_of_readers_all_get_the_entry() {
    let mut server = Server::with("maxclients 20000");
    let mut a = server.connect();
    let mut readers: Vec<Peer> = (0..READERS_SERVED_MAX + 100).map(|_| server.connect()).collect();
    for reader in &mut readers {
        blocks(reader, &server, "XREAD BLOCK 0 STREAMS s $");
    }
    a.run(&server, "XADD s 1-1 f v");
    for reader in &mut readers {
        assert_eq!(reader.wakes.count(), 1);
        assert_eq!(replies(reader, &server), "*1|*2|$1|s|*1|*2|$3|1-1|*2|$1|f|$1|v|");
    }
    assert!(a.run(&server, "INFO clients").contains("blocked_clients:0|"));
}

#[test]
fn ten_thousand_waiters_are_served_one_by_one() {
    let mut server = Server::with("maxclients 20000");
    let mut a = server.connect();
    let mut waiters: Vec<Peer> = (0..10_000).map(|_| server.connect()).collect();
    for waiter in &mut waiters {
        blocks(waiter, &server, "BLPOP k other 0");
    }
    for (at, waiter) in waiters.iter_mut().enumerate().take(50) {
        assert_eq!(a.run(&server, &format!("RPUSH k {}", at % 10)), ":1|");
        assert_eq!(replies(waiter, &server), format!("*2|$1|k|$1|{}|", at % 10));
    }
    assert_eq!(waiters[50..].iter().map(|waiter| waiter.wakes.count()).sum::<usize>(), 0);
    waiters.truncate(100);
    assert!(a.run(&server, "INFO clients").contains("blocked_clients:50|"));
    drop(waiters);
    a.script(&server, &[("RPUSH k x", ":1|"), ("LLEN k", ":1|"), ("RPUSH other x", ":1|")]);
}

#[test]
fn waits_for_replicas_have_their_shape() {
    let mut server = Server::new();
    let mut a = server.connect();
    a.script(
        &server,
        &[
            ("WAIT 0 0", ":0|"),
            ("WAIT -1 0", ":0|"),
            ("WAIT x 0", "-ERR value is not an integer or out of range|"),
            ("WAIT 1 x", "-ERR timeout is not an integer or out of range|"),
            ("WAIT 1 -1", "-ERR timeout is negative|"),
            ("WAITAOF 0 0 0", "*2|:0|:0|"),
            (
                "WAITAOF 1 0 0",
                "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.|",
            ),
            ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1|"),
            ("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive|"),
        ],
    );
    blocks(&mut a, &server, "WAIT 1 50");
    server.advance_ms(50);
    assert_eq!(replies(&mut a, &server), ":0|");
    a.run(&server, "HELLO 3");
    blocks(&mut a, &server, "BLPOP k 0.01");
    server.advance_ms(50);
    assert_eq!(replies(&mut a, &server), "_|");
    a.run(&server, "CLIENT REPLY SKIP");
    a.feed(&command("BLPOP k 0.01"), usize::MAX);
    assert!(matches!(a.drive(&server), Stop::Blocked(Some(_))));
    server.advance_ms(50);
    assert_eq!(replies(&mut a, &server), "");
    assert_eq!(a.run(&server, "PING"), "+PONG|");
}
