//! Long scripts that write: they run on a draft, keep nobody waiting, and take effect at one moment.

use crate::fixture::{Peer, Server, Stop, command};
use crate::long_transactions::finish;
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;
use strand_engine::LaneJob;

/// A loop that takes too long for a worker.
const LONG: &str = "for i = 1, 100000 do end";

/// The lane job of a script.
#[track_caller]
fn job_of(server: &Server, peer: &mut Peer, line: &str) -> Box<LaneJob> {
    peer.hold_jobs = true;
    peer.feed(&command(line), usize::MAX);
    assert_eq!(peer.drive(server), Stop::Parked, "{line:.60}");
    peer.hold_jobs = false;
    peer.job.take().expect("a job")
}

/// The lane job of a command that promises the keys `k:0` to `k:59999`.
#[track_caller]
fn job_of_mset(server: &Server, peer: &mut Peer) -> Box<LaneJob> {
    let pairs: String = (0..60_000).map(|i| format!(" k:{i} v")).collect();
    job_of(server, peer, &format!("MSET{pairs}"))
}

#[test]
fn others_see_all_of_a_long_script_or_nothing_and_wait_for_nothing() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    other.run(&server, "RPUSH list a b");
    let script = format!(
        "EVAL \"for i = 0, 2999 do redis.call('incr', 'n' .. i) end {LONG} redis.call('rename', 'list', 'renamed') \
         redis.call('del', 'n9') redis.call('expire', 'n7', 100) \
         return {{redis.call('get', 'n2999'), redis.call('lpop', 'renamed'), redis.call('exists', 'n9', 'list')}}\" 0"
    );
    let job = job_of(&server, &mut peer, &script);
    let (others, seen, pauses) = (RefCell::new(&mut other), RefCell::new(Vec::new()), Cell::new(0));
    let reply = finish(&server, &mut peer, job, &|| {
        let mut other = others.borrow_mut();
        pauses.set(pauses.get() + 1);
        // The first key, a key of the middle, the last key, a deleted key and a renamed key.
        if pauses.get() % 3 == 0 {
            assert_eq!(
                other.run(&server, &format!("SET other{} x", pauses.get())),
                "+OK|",
                "a key of its own"
            );
            seen.borrow_mut().push(other.run(&server, "EXISTS n0 n1500 n2999 n9 list renamed"));
        }
    });
    assert_eq!(reply, "*3|$1|1|$1|a|:0|");
    let mut seen = seen.take();
    assert!(seen.len() > 20, "{}", seen.len());
    seen.dedup();
    assert_eq!(seen, [":1|", ":4|"]);
    let looks =
        [("MGET n0 n2999 n9", "*3|$1|1|$1|1|$-1|"), ("TTL n7", ":100|"), ("LRANGE renamed 0 -1", "*1|$1|b|")];
    other.script(&server, &looks);
    let stats = other.run(&server, "INFO commandstats");
    assert!(stats.contains("cmdstat_incr:calls=3000,"), "the runs that were undone do not count: {stats}");
}

#[test]
fn a_long_script_that_others_overtake_begins_anew_and_holds_its_shards_in_the_end() {
    for (overtakes, holds) in [(1, false), (3, false), (usize::MAX, true)] {
        let mut server = Server::new();
        let (mut peer, mut other) = (server.connect(), server.connect());
        let script = format!("EVAL \"redis.call('incr', 'first') {LONG} return redis.call('incr', 'n')\" 0");
        let job = job_of(&server, &mut peer, &script);
        let (others, overtaken, waited) = (RefCell::new(&mut other), Cell::new(0), Cell::new(false));
        let reply = finish(&server, &mut peer, job, &|| {
            if overtaken.get() < overtakes && !waited.get() {
                let reply = others.borrow_mut().run(&server, "INCR first");
                // While the script holds its shards, the other client is parked.
                waited.set(reply.is_empty());
                overtaken.set(overtaken.get() + 1);
            }
        });
        assert_eq!((reply.as_str(), waited.get()), (":1|", holds), "{overtakes}");
        other.drive(&server);
        other.replies();
        // Each INCR ran once.
        let all = format!(":{}|", overtaken.get() + 1);
        other.script(&server, &[("GET n", "$1|1|"), ("INCRBY first 0", &all)]);
    }
}

#[test]
fn a_draft_keeps_what_it_wrote_and_reads_again_what_it_only_read() {
    let mut server = Server::new();
    let mut peer = server.connect();
    (0..3000).for_each(|i| drop(peer.run(&server, &format!("SET n{i} {i}"))));
    peer.script(&server, &[("PFADD loglog a b c", ":1|"), ("SADD set x", ":1|"), ("SET gone 1", "+OK|")]);
    let script = format!(
        "EVAL \"redis.call('del', 'gone') redis.call('set', 'new', 'v') redis.call('sadd', 'set', 'y') \
         redis.call('set', 'n5', 'mine') local count = redis.call('pfcount', 'loglog') {LONG} \
         local sum = 0 for round = 1, 2 do for i = 0, 2999 do \
         local n = redis.call('get', 'n' .. i) if n ~= 'mine' then sum = sum + n end end end \
         return {{sum, redis.call('exists', 'gone'), redis.call('get', 'new'), redis.call('scard', 'set'), \
         redis.call('pfcount', 'loglog'), count}}\" 0"
    );
    let sum = 2 * (0..3000).filter(|n| *n != 5).sum::<u32>();
    assert_eq!(peer.run(&server, &script), format!("*6|:{sum}|:0|$1|v|:2|:3|:3|"));
    peer.script(
        &server,
        &[("EXISTS gone", ":0|"), ("GET n5", "$4|mine|"), ("GET n6", "$1|6|"), ("PFCOUNT loglog", ":3|")],
    );
    assert_eq!(peer.run(&server, "DBSIZE"), ":3003|");
}

#[test]
fn a_key_that_expires_during_a_long_script_is_gone_in_it() {
    for is_gone in [false, true] {
        let mut server = Server::new();
        let (mut peer, mut other) = (server.connect(), server.connect());
        other.run(&server, "SET k old PX 100");
        let script = format!(
            "EVAL \"redis.call('set', 'a', 1) redis.call('append', 'k', 'new') {LONG} return redis.call('get', 'k')\" 0"
        );
        let job = job_of(&server, &mut peer, &script);
        let pauses = Cell::new(0);
        let reply = finish(&server, &mut peer, job, &|| {
            pauses.set(pauses.get() + 1);
            if pauses.get() == 3 && is_gone {
                server.step_us.store(1_000_000, Relaxed);
            }
        });
        assert!(pauses.get() > 3, "{}", pauses.get());
        assert_eq!(reply, if is_gone { "$3|new|" } else { "$6|oldnew|" });
    }
}

#[test]
fn a_script_on_a_draft_may_be_killed_after_it_wrote() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    let job = job_of(&server, &mut peer, "EVAL \"redis.call('set', 'a', 1) while true do end\" 0");
    let (others, pauses) = (RefCell::new(&mut other), Cell::new(0));
    let reply = finish(&server, &mut peer, job, &|| {
        pauses.set(pauses.get() + 1);
        if pauses.get() == 20 {
            let mut other = others.borrow_mut();
            assert_eq!(other.run(&server, "SET a mine"), "+OK|");
            assert_eq!(other.run(&server, "SCRIPT KILL"), "+OK|");
        }
    });
    assert!(reply.starts_with("-ERR Script killed by user"), "{reply}");
    other.script(
        &server,
        &[("GET a", "$4|mine|"), ("SCRIPT KILL", "-NOTBUSY No scripts in execution right now.|")],
    );
}

#[test]
fn commands_that_need_more_than_their_keys_hold_shards() {
    let mut server = Server::new();
    let mut peer = server.connect();
    for (call, reply) in [
        ("redis.call('dbsize')", ":1|"),
        ("redis.call('object', 'encoding', 'a')", "$3|int|"),
        ("redis.call('select', 3) or redis.call('set', 'a', 2)", "+OK|"),
        ("redis.call('randomkey')", "$1|a|"),
        ("redis.call('copy', 'a', 'b', 'DB', 5)", ":1|"),
        ("redis.call('keys', '*')", "*1|$1|a|"),
    ] {
        peer.run(&server, "FLUSHALL");
        let script = format!("EVAL \"redis.call('set', 'a', 1) {LONG} return {call}\" 0");
        assert_eq!(peer.run(&server, &script), reply, "{call}");
        assert_eq!(peer.run(&server, "GET a"), "$1|1|", "{call}");
        // The first part of a script may select, and the rest then uses that database.
    }
    let script = format!(
        "EVAL \"redis.call('set', 'a', 1) {LONG} redis.call('select', 3) redis.call('set', 'b', 2) return 7\" 0"
    );
    assert_eq!(peer.run(&server, &script), ":7|");
    peer.script(&server, &[("EXISTS b", ":0|"), ("SELECT 3", "+OK|"), ("GET b", "$1|2|")]);
}

#[test]
fn a_draft_serves_who_waits_and_sends_its_messages_when_it_is_done() {
    let mut server = Server::new();
    let (mut peer, mut other, mut waiter) = (server.connect(), server.connect(), server.connect());
    other.run(&server, "SUBSCRIBE news");
    waiter.feed(b"BLPOP list 0\r\n", usize::MAX);
    assert!(matches!(waiter.drive(&server), Stop::Blocked(_)));
    let script = format!(
        "EVAL \"redis.call('rpush', 'list', 'a', 'b') redis.call('publish', 'news', 'early') {LONG} \
         return redis.call('llen', 'list')\" 0"
    );
    let job = job_of(&server, &mut peer, &script);
    let (others, heard) = (RefCell::new(&mut other), RefCell::new(Vec::new()));
    let reply =
        finish(&server, &mut peer, job, &|| heard.borrow_mut().push(others.borrow_mut().hears(&server)));
    assert_eq!(reply, ":2|", "its own commands see what they push");
    heard.borrow_mut().push(other.hears(&server));
    let heard = heard.take();
    assert_eq!(
        heard.iter().filter(|text| !text.is_empty()).count(),
        1,
        "once, although the script ran more than once"
    );
    waiter.drive(&server);
    assert_eq!(waiter.replies(), "*2|$4|list|$1|a|");
    assert_eq!(peer.run(&server, "LRANGE list 0 -1"), "*1|$1|b|");
}

#[test]
fn rights_and_refusals_of_the_end_of_a_draft_count() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    for (change, back, error) in [
        (
            "ACL SETUSER default -set",
            "ACL SETUSER default +@all",
            "-ERR The user executing the script can't run this command or subcommand",
        ),
        (
            "CONFIG SET min-replicas-to-write 1",
            "CONFIG SET min-replicas-to-write 0",
            "-NOREPLICAS Not enough good replicas to write.",
        ),
    ] {
        let job =
            job_of(&server, &mut peer, &format!("EVAL \"redis.call('set', 'a', 1) {LONG} return 1\" 0"));
        let (others, pauses) = (RefCell::new(&mut other), Cell::new(0));
        let reply = finish(&server, &mut peer, job, &|| {
            pauses.set(pauses.get() + 1);
            // The draft has begun by then, and its script has written.
            if pauses.get() == 8 {
                assert_eq!(others.borrow_mut().run(&server, change), "+OK|");
            }
        });
        assert!(pauses.get() > 8, "{}", pauses.get());
        other.script(&server, &[(back, "+OK|"), ("EXISTS a", ":0|")]);
        assert!(reply.starts_with(error), "{reply}");
    }
}

#[test]
fn a_draft_lists_keys_with_the_changes_of_the_script() {
    let mut server = Server::new();
    let mut peer = server.connect();
    (0..3000).for_each(|i| drop(peer.run(&server, &format!("SET k:{i} {i}"))));
    peer.script(&server, &[("SET other 1", "+OK|")]);
    // `scanned` counts names by SCAN, each once.
    let script = format!(
        "EVAL \"local function scanned(...) local cursor, names, count = '0', {{}}, 0 repeat \
         local reply = redis.call('scan', cursor, ...) cursor = reply[1] \
         for _, name in ipairs(reply[2]) do if not names[name] then names[name] = true count = count + 1 end end \
         until cursor == '0' return count end \
         {LONG} redis.call('del', 'k:1', 'k:2') redis.call('set', 'k:new', 1) redis.call('rename', 'k:3', 'moved') \
         redis.call('set', 'k:5', 'again') redis.call('set', 'gone', 1) redis.call('del', 'gone') \
         redis.call('del', 'k:6') redis.call('set', 'k:6', 'back') \
         return {{#redis.call('keys', 'k:*'), #redis.call('keys', '*'), scanned('match', 'k:*'), scanned('count', 100), \
         #redis.call('keys', 'k:new'), #redis.call('keys', 'k:1'), #redis.call('keys', 'moved'), \
         #redis.call('keys', 'k:6'), #redis.call('keys', 'gone')}}\" 0"
    );
    assert_eq!(peer.run(&server, &script), "*9|:2998|:3000|:2998|:3000|:1|:0|:1|:1|:0|");
    peer.script(
        &server,
        &[("DBSIZE", ":3000|"), ("EXISTS k:1 k:2 k:3 gone", ":0|"), ("GET k:6", "$4|back|")],
    );
}

#[test]
fn a_script_that_lists_keys_keeps_nobody_waiting_and_misses_no_key() {
    for (name, overtakes) in [("k:new", true), ("unrelated", false)] {
        let mut server = Server::new();
        let (mut peer, mut other) = (server.connect(), server.connect());
        (0..5000).for_each(|i| drop(peer.run(&server, &format!("SET k:{i} {i}"))));
        let script = format!(
            "EVAL \"{LONG} local names = redis.call('keys', 'k:*') {LONG} \
             for _, name in ipairs(names) do redis.call('del', name) end {LONG} \
             return #names + #redis.call('keys', 'k:*')\" 0"
        );
        let job = job_of(&server, &mut peer, &script);
        let (others, pauses, waits) = (RefCell::new(&mut other), Cell::new(0), Cell::new(false));
        let reply = finish(&server, &mut peer, job, &|| {
            pauses.set(pauses.get() + 1);
            // All keys are listed by then.
            let replies = match pauses.get() {
                60 => others.borrow_mut().run(&server, &format!("SET {name} 1")),
                n if n % 3 == 0 => others.borrow_mut().run(&server, "GET k:1"),
                _ => return,
            };
            waits.set(waits.get() || replies.is_empty());
        });
        assert!(pauses.get() > 100, "{}", pauses.get());
        assert!(!waits.get(), "another client waited");
        let (listed, left) = if overtakes { (":5001|", ":0|") } else { (":5000|", ":1|") };
        assert_eq!(reply, listed, "{name}");
        other.script(&server, &[("DBSIZE", left)]);
    }
}

#[test]
fn a_missing_key_is_told_once_per_look_up() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    other.run(&server, "CONFIG SET notify-keyspace-events Em");
    other.run(&server, "SUBSCRIBE __keyevent@0__:keymiss");
    let script = format!(
        "EVAL \"redis.call('set', 'k', 1) {LONG} redis.call('get', 'missing') redis.call('get', 'gone')\" 0"
    );
    peer.run(&server, &script);
    let heard = other.hears(&server);
    assert_eq!((heard.matches("missing").count(), heard.matches("gone").count()), (1, 1), "{heard}");
}

#[test]
fn a_draft_lists_keys_that_are_promised_and_not_yet_written() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    let job = job_of_mset(&server, &mut other);
    let script = format!("EVAL \"{LONG} redis.call('set', 'own', 1) return #redis.call('keys', '*')\" 0");
    let (peers, counts, pauses) = (RefCell::new(&mut peer), RefCell::new(Vec::new()), Cell::new(0));
    let reply = finish(&server, &mut other, job, &|| {
        pauses.set(pauses.get() + 1);
        if pauses.get() % 5 == 0 {
            counts.borrow_mut().push(peers.borrow_mut().run(&server, &script));
        }
    });
    assert_eq!(reply, "+OK|");
    let mut counts = counts.take();
    counts.dedup();
    // No script sees a part of the keys.
    assert_eq!(counts, [":1|", ":60001|"]);
}

#[test]
fn transactions_and_scripts_count_keys_that_are_promised() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    let job = job_of_mset(&server, &mut other);
    let script = "EVAL \"return {redis.call('exists', 'k:59999'), redis.call('dbsize')}\" 0";
    let (peers, seen, pauses) = (RefCell::new(&mut peer), RefCell::new(Vec::new()), Cell::new(0));
    let reply = finish(&server, &mut other, job, &|| {
        pauses.set(pauses.get() + 1);
        if pauses.get() % 5 == 0 {
            let (mut peer, mut seen) = (peers.borrow_mut(), seen.borrow_mut());
            if pauses.get() % 2 == 0 {
                ["MULTI", "EXISTS k:59999", "DBSIZE"].iter().for_each(|line| drop(peer.run(&server, line)));
                seen.push(peer.run(&server, "EXEC"));
            } else {
                seen.push(peer.run(&server, script));
            }
        }
    });
    assert_eq!(reply, "+OK|");
    let mut seen = seen.take();
    seen.dedup();
    assert_eq!(seen, ["*2|:0|:0|", "*2|:1|:60000|"]);
}

#[test]
fn a_script_that_only_lists_restarts_when_a_key_expires_meanwhile() {
    for is_gone in [false, true] {
        let mut server = Server::new();
        let (mut peer, mut other) = (server.connect(), server.connect());
        (0..2000).for_each(|i| drop(other.run(&server, &format!("SET k:{i} v"))));
        other.run(&server, "SET k:due v PX 100");
        let script = format!(
            "EVAL \"{LONG} local before = #redis.call('keys', 'k:*') {LONG} \
             return {{before, redis.call('exists', 'missing'), #redis.call('keys', 'k:d*')}}\" 0"
        );
        let job = job_of(&server, &mut peer, &script);
        let pauses = Cell::new(0);
        let reply = finish(&server, &mut peer, job, &|| {
            pauses.set(pauses.get() + 1);
            if pauses.get() == 60 && is_gone {
                server.step_us.store(1_000_000, Relaxed);
            }
        });
        assert!(pauses.get() > 60, "{}", pauses.get());
        assert_eq!(reply, if is_gone { "*3|:2000|:0|:0|" } else { "*3|:2001|:0|:1|" });
    }
}
