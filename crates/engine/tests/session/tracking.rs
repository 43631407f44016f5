//! Client-side caching: which invalidations clients get, when, and what the server remembers.

use crate::fixture::{Peer, Server};
use strand_engine::Delivery;

fn tracked(server: &mut Server, how: &str) -> Peer {
    let mut peer = server.connect();
    peer.run(server, "HELLO 3");
    assert_eq!(peer.run(server, how), "+OK|", "{how}");
    peer
}

fn invalidation(key: &str) -> String {
    format!(">2|$10|invalidate|*1|${}|{key}|", key.len())
}

#[test]
fn the_first_change_of_a_key_that_was_read_is_told_once() {
    let mut server = Server::new();
    let (mut a, mut b) = (tracked(&mut server, "CLIENT TRACKING ON"), server.connect());
    b.run(&server, "MSET k 1 m 1");
    assert_eq!(a.run(&server, "MGET k m"), "*2|$1|1|$1|1|");
    for (change, tells) in [
        ("SET k 2", true),
        ("SET k 3", false),
        ("APPEND m x", true),
        ("GETEX k PX 50", true),
        ("PERSIST k", true),
        ("SET k 4 NX", false),
        ("DEL k", true),
        ("SET k 5", true),
    ] {
        if change != "SET k 3" {
            a.run(&server, "MGET k m");
        }
        assert!(!b.run(&server, change).starts_with('-'));
        let key = if change.contains(" m ") { "m" } else { "k" };
        assert_eq!(a.hears(&server), if tells { invalidation(key) } else { String::new() }, "{change}");
    }
    // The key expires although nobody reads it.
    b.run(&server, "SET k v PX 10");
    a.run(&server, "GET k");
    server.advance_ms(20);
    server.engine.tick(server.now);
    assert!(a.hears(&server).contains(&invalidation("k")));
    a.run(&server, "MGET k m");
    b.run(&server, "FLUSHALL");
    assert_eq!(a.hears(&server), ">2|$10|invalidate|_|");
    // Once, also for several databases.
    for line in ["SET k 1", "SELECT 1", "SET k 1", "MULTI", "FLUSHALL", "EXEC", "SELECT 0"] {
        b.run(&server, line);
    }
    assert_eq!(a.hears(&server), ">2|$10|invalidate|_|");
    assert!(b.run(&server, "INFO stats").contains("tracking_total_keys:0|tracking_total_items:0|"));
}

/// PFCOUNT writes its result into the value. So a copy that its client had before is old.
#[test]
fn a_client_hears_of_a_copy_that_its_own_pfcount_makes_old() {
    let mut server = Server::new();
    let (mut a, mut b) = (tracked(&mut server, "CLIENT TRACKING ON"), server.connect());
    for reads_before in [false, true] {
        b.run(&server, "DEL h");
        b.run(&server, "PFADD h a b c");
        a.hears(&server);
        if reads_before {
            a.run(&server, "STRLEN h");
        }
        assert!(a.run(&server, "PFCOUNT h").starts_with(":3|"));
        assert_eq!(a.hears(&server), if reads_before { invalidation("h") } else { String::new() });
        b.run(&server, "PFADD h d");
        assert_eq!(a.hears(&server), invalidation("h"), "the count is a copy, too");
    }
}

#[test]
fn an_invalidation_never_overtakes_the_reply_it_is_about() {
    let mut server = Server::new();
    let (mut a, mut b) = (tracked(&mut server, "CLIENT TRACKING ON"), server.connect());
    let keys: Vec<String> = (0..5000).map(|i| format!("k{i}")).collect();
    a.hold_jobs = true;
    assert_eq!(a.run(&server, &format!("MGET {}", keys.join(" "))), "");
    let job = a.job.take().expect("this number of keys is read on a helper thread");
    let done = job.run(server.now, &|| {});
    // The client has read the key, but the reply has not arrived yet.
    b.run(&server, "SET k7 new");
    assert_eq!(a.hears(&server), "");
    a.session.lane_done(done);
    let all = a.hears(&server);
    assert!(all.starts_with("*5000|_|") && all.ends_with(&invalidation("k7")), "{}", &all[all.len() - 60..]);
}

#[test]
fn a_served_waiter_gets_invalidations_in_the_order_of_its_reads() {
    let mut server = Server::new();
    let (mut a, mut b) = (tracked(&mut server, "CLIENT TRACKING ON"), server.connect());
    assert_eq!(a.run(&server, "XREAD BLOCK 0 STREAMS s $"), "");
    b.run(&server, "XADD s 1-1 f v");
    b.run(&server, "XADD s 2-1 f v");
    let reply = "%1|$1|s|*1|*2|$3|1-1|*2|$1|f|$1|v|";
    // The first change serves the waiting client, so its invalidation comes before the reply. The second change
    // invalidates what the client has read by then.
    assert_eq!(a.hears(&server), [invalidation("s").as_str(), reply, invalidation("s").as_str()].concat());
    b.run(&server, "XADD s 3-1 f v");
    assert_eq!(a.hears(&server), "", "told once");
}

#[test]
fn declared_and_undeclared_reads_of_a_script_are_tracked() {
    let mut server = Server::new();
    let (mut a, mut b) = (tracked(&mut server, "CLIENT TRACKING ON"), server.connect());
    b.run(&server, "MSET k 1 m 1");
    // From its second run on, the server knows that the script needs a key that it does not declare.
    for _ in 0..3 {
        assert_eq!(a.run(&server, "EVAL \"return redis.call('get', 'm')\" 1 k"), "$1|1|");
        b.run(&server, "SET m 1");
        assert_eq!(a.hears(&server), invalidation("m"));
        b.run(&server, "SET k 1");
        assert_eq!(a.hears(&server), "", "it was declared and not read");
    }
}

#[test]
fn the_table_is_bounded() {
    let mut server = Server::with("tracking-table-max-keys 100");
    let (mut a, mut b) = (tracked(&mut server, "CLIENT TRACKING ON"), server.connect());
    let mut invalidations = 0;
    for i in 0..1000 {
        a.run(&server, &format!("GET key:{i}"));
        invalidations += a.hears(&server).matches("invalidate").count();
    }
    // An invalidation was sent for each forgotten key, so no client keeps a copy of such a key.
    assert_eq!(invalidations + a.received_bytes().len(), 900);
    assert!(b.run(&server, "INFO stats").contains("tracking_total_keys:100|tracking_total_items:100|"));
    // A lower limit forgets some keys at once and the rest beside the regular work.
    for i in 0..100 {
        a.run(&server, &format!("GET key:{i}"));
    }
    b.run(&server, "CONFIG SET tracking-table-max-keys 1000");
    for i in 0..1000 {
        a.run(&server, &format!("GET other:{i}"));
    }
    a.hears(&server);
    assert!(b.run(&server, "INFO stats").contains("tracking_total_keys:1000|"));
    b.run(&server, "CONFIG SET tracking-table-max-keys 1");
    let at_once = a.hears(&server).matches("invalidate").count();
    assert_eq!(at_once, 256);
    server.engine.tick(server.now);
    assert_eq!(a.hears(&server).matches("invalidate").count(), 999 - 256);
    b.run(&server, "CONFIG SET tracking-table-max-keys 100");
    // A key that is too long to be remembered is invalidated at once, after the reply.
    let long = "k".repeat(2000);
    assert_eq!(a.run(&server, &format!("GET {long}")), "_|");
    assert_eq!(a.hears(&server), format!(">2|$10|invalidate|*1|$2000|{long}|"));
    // Readers that have disconnected are forgotten when a key has many of them.
    for _ in 0..300 {
        drop_after(&mut server, "GET shared");
    }
    let items = b.run(&server, "INFO stats");
    let items =
        items.split("tracking_total_items:").nth(1).and_then(|rest| rest.split('|').next()).unwrap_or("0");
    assert!(items.parse::<usize>().is_ok_and(|items| items < 200), "{items}");
    drop(a);
    assert!(b.run(&server, "INFO clients").contains("tracking_clients:0|"));
}

fn drop_after(server: &mut Server, line: &str) {
    let mut peer = tracked(server, "CLIENT TRACKING ON");
    peer.run(server, line);
}

#[test]
fn prefixes_have_limits_and_many_clients_hear_of_theirs() {
    let mut server = Server::new();
    let mut peers: Vec<_> = (0..20)
        .map(|i| tracked(&mut server, &format!("CLIENT TRACKING ON BCAST PREFIX p{}: PREFIX all", i % 2)))
        .collect();
    let mut b = server.connect();
    b.run(&server, "MSET p0:x 1 p1:x 1 other 1 allnew 1");
    for (i, peer) in peers.iter_mut().enumerate() {
        let heard = peer.hears(&server);
        let want = [invalidation(&format!("p{}:x", i % 2)), invalidation("allnew")];
        assert!(
            want.iter().all(|want| heard.contains(want)) && heard.matches("invalidate").count() == 2,
            "{heard}"
        );
    }
    let long = "x".repeat(1025);
    let mut c = tracked(&mut server, "CLIENT TRACKING ON BCAST PREFIX a");
    assert_eq!(
        c.run(&server, &format!("CLIENT TRACKING ON BCAST PREFIX {long}")),
        "-ERR a prefix may have at most 1024 bytes|"
    );
    let many: Vec<String> = (0..1024).map(|i| format!("PREFIX p{i:04}")).collect();
    assert_eq!(
        c.run(&server, &format!("CLIENT TRACKING ON BCAST {}", many.join(" "))),
        "-ERR a client may have at most 1024 prefixes|"
    );
    drop((peers, c));
    assert!(b.run(&server, "INFO stats").contains("tracking_total_prefixes:0|"));
}

#[test]
fn a_command_that_changes_many_keys_sends_one_invalidation_for_each_prefix() {
    let mut server = Server::new();
    let mut a = tracked(&mut server, "CLIENT TRACKING ON BCAST PREFIX a: PREFIX b:");
    let mut b = server.connect();
    b.run(&server, "MSET a:1 1 b:1 1 a:2 1 other 1 a:1 2");
    assert_eq!(
        a.hears(&server),
        [">2|$10|invalidate|*2|$3|a:1|$3|a:2|", invalidation("b:1").as_str()].concat()
    );
    // The keys of the client's own transaction come after the reply.
    let own = "*2|:2|:2|>2|$10|invalidate|*2|$3|a:1|$3|a:2|";
    a.run(&server, "MULTI");
    a.run(&server, "INCR a:1");
    a.run(&server, "INCR a:2");
    let reply = a.run(&server, "EXEC");
    assert_eq!([reply, a.hears(&server)].concat(), own.replacen(":2|", ":3|", 1));
    // As in redis-server, the invalidation of FLUSHALL is on its way first.
    b.run(&server, "MULTI");
    b.run(&server, "SET a:1 1");
    b.run(&server, "FLUSHALL");
    b.run(&server, "SET a:1 1");
    b.run(&server, "EXEC");
    assert_eq!(a.hears(&server), [">2|$10|invalidate|_|", invalidation("a:1").as_str()].concat());
    // A client of RESP2 hears as the target of a redirection only.
    let mut target = server.connect();
    let id = target.run(&server, "CLIENT ID");
    target.run(&server, "SUBSCRIBE __redis__:invalidate");
    let mut c = server.connect();
    c.run(&server, &format!("CLIENT TRACKING ON BCAST PREFIX c: REDIRECT {}", id.trim_matches([':', '|'])));
    b.run(&server, "MSET c:1 1 c:2 1");
    assert_eq!(target.hears(&server), "*3|$7|message|$20|__redis__:invalidate|*2|$3|c:1|$3|c:2|");
    assert_eq!(c.hears(&server), "");
}

/// The keys that several writers change are delivered together.
#[test]
fn a_client_of_bcast_hears_of_what_others_changed_since_it_began() {
    let mut server = Server::new();
    let (mut b, mut c) = (server.connect(), tracked(&mut server, "CLIENT TRACKING ON BCAST NOLOOP"));
    let mut plain = tracked(&mut server, "CLIENT TRACKING ON BCAST");
    b.run(&server, "SET before 1");
    // The change was before the client's prefix.
    let mut late = tracked(&mut server, "CLIENT TRACKING ON BCAST");
    let told = |keys: &[&str]| {
        let keys = keys.iter().map(|key| format!("${}|{key}|", key.len()));
        format!(">2|$10|invalidate|*{}|{}", keys.len(), keys.collect::<String>())
    };
    b.run(&server, "SET k1 1");
    // Earlier changes come before the reply.
    assert_eq!(c.run(&server, "SET k2 1"), told(&["before", "k1"]) + "+OK|");
    b.run(&server, "SET k2 1");
    assert_eq!(c.run(&server, "SET k3 1"), told(&["k2"]) + "+OK|");
    b.run(&server, "SET k1 1");
    assert_eq!(plain.hears(&server), told(&["before", "k1", "k2", "k3"]));
    assert_eq!(late.hears(&server), told(&["k1", "k2", "k3"]));
    assert_eq!(c.hears(&server), told(&["k1"]), "without its own keys");
    // The end of the prefix takes the changes along, and a later change is not heard of.
    b.run(&server, "SET k4 1");
    assert_eq!(late.run(&server, "CLIENT TRACKING OFF"), told(&["k4"]) + "+OK|");
    b.run(&server, "SET k5 1");
    assert_eq!(late.hears(&server), "");
    // A new prefix beside the old one.
    b.run(&server, "SET k6 1");
    assert_eq!(late.run(&server, "CLIENT TRACKING ON BCAST PREFIX p"), "+OK|");
    b.run(&server, "MSET p1 1 k7 1");
    assert_eq!(late.run(&server, "CLIENT TRACKING ON BCAST PREFIX q"), told(&["p1"]) + "+OK|");
    b.run(&server, "MSET p2 1 q1 1");
    assert_eq!(late.hears(&server), told(&["p2"]) + &told(&["q1"]));
}

/// The dispatcher's slice ends before all clients have heard of the changes.
#[test]
fn changes_that_are_half_way_through_are_neither_lost_nor_told_twice() {
    let mut server = Server::new();
    let how = "CLIENT TRACKING ON BCAST PREFIX k PREFIX p";
    let mut peers: Vec<_> = (0..6000).map(|_| tracked(&mut server, how)).collect();
    let mut b = server.connect();
    b.run(&server, "MSET k1 1 p1 1 k2 1");
    assert!(
        server.engine.deliver(0) == Delivery::More,
        "2,000 clients of one worker are too many for one slice"
    );
    let told = |key: &str| format!(">2|$10|invalidate|*2|$2|{key}1|$2|{key}2|");
    let first = told("k") + &invalidation("p1");
    for (i, peer) in peers.iter_mut().enumerate() {
        let line = match i % 3 {
            0 => "CLIENT TRACKING OFF",
            1 => "CLIENT TRACKING ON BCAST PREFIX q",
            _ => continue,
        };
        assert_eq!(peer.run(&server, line), first.clone() + "+OK|", "{i}");
    }
    b.run(&server, "MSET q1 1 q2 1");
    for (i, peer) in peers.iter_mut().enumerate() {
        let want = match i % 3 {
            0 => String::new(),
            1 => told("q"),
            _ => first.clone(),
        };
        assert_eq!(peer.hears(&server), want, "{i}");
    }
}

#[test]
fn a_client_that_changes_to_bcast_hears_no_more_of_the_keys_that_it_has_read() {
    let mut server = Server::new();
    let mut a = tracked(&mut server, "CLIENT TRACKING ON");
    let mut b = server.connect();
    a.run(&server, "GET key");
    a.run(&server, "CLIENT TRACKING OFF");
    a.run(&server, "CLIENT TRACKING ON BCAST PREFIX other");
    b.run(&server, "SET key 1");
    assert_eq!(a.hears(&server), "");
    b.run(&server, "SET other 1");
    assert_eq!(a.hears(&server), invalidation("other"));
}

/// As in redis-server, commands about groups change no element, so they fail no EXEC and outdate no copy.
#[test]
fn commands_about_groups_fail_no_exec_and_send_no_invalidation() {
    let mut server = Server::new();
    let (mut reader, mut writer) = (tracked(&mut server, "CLIENT TRACKING ON"), server.connect());
    for line in ["XADD s 1-1 f v", "XADD s 2-1 f v", "XADD s 3-1 f v", "XGROUP CREATE s g 0"] {
        writer.run(&server, line);
    }
    for line in [
        "XGROUP CREATE s other 0",
        "XGROUP CREATECONSUMER s g a",
        "XREADGROUP GROUP g a COUNT 2 STREAMS s >",
        "XREADGROUP GROUP g a STREAMS s 0",
        "XACK s g 1-1",
        "XCLAIM s g b 0 2-1",
        "XAUTOCLAIM s g c 0 0",
        "XACKDEL s g KEEPREF IDS 1 9-9",
        "XGROUP SETID s g 1-1",
        "XGROUP DELCONSUMER s g c",
        "XSETID s 9-9",
        "XGROUP DESTROY s g",
    ] {
        reader.run(&server, "XLEN s");
        reader.run(&server, "WATCH s");
        assert!(!writer.run(&server, line).starts_with('-'), "{line}");
        reader.run(&server, "MULTI");
        assert_eq!(reader.run(&server, "EXEC"), "*0|", "{line}");
    }
    reader.run(&server, "WATCH s");
    writer.run(&server, "XDEL s 1-1");
    assert_eq!(reader.run(&server, "MULTI"), format!("{}+OK|", invalidation("s")));
    assert_eq!(reader.run(&server, "EXEC"), "_|");
}

#[test]
fn client_caching_applies_to_a_refused_command_too() {
    let mut server = Server::new();
    let (mut reader, mut writer) = (tracked(&mut server, "CLIENT TRACKING ON OPTOUT"), server.connect());
    writer.run(&server, "ACL SETUSER reader on nopass ~k* &* +@all -set");
    reader.run(&server, "AUTH reader x");
    for refused in ["NOSUCH", "GET", "SET k 1", "GET other", "EXEC", "MULTI|NOSUCH|EXEC"] {
        reader.run(&server, "CLIENT CACHING NO");
        refused.split('|').for_each(|line| drop(reader.run(&server, line)));
        reader.run(&server, "GET k");
        writer.run(&server, "SET k 2");
        reader.drive(&server);
        assert_eq!(reader.replies(), invalidation("k"), "{refused}");
    }
}

#[test]
fn the_last_tracking_client_leaves_an_empty_table() {
    let mut server = Server::new();
    let mut reader = tracked(&mut server, "CLIENT TRACKING ON");
    reader.run(&server, "SET k v");
    reader.run(&server, "GET k");
    let mut other = tracked(&mut server, "CLIENT TRACKING ON");
    let keys = |peer: &mut Peer| peer.run(&server, "INFO stats").contains("tracking_total_keys:1|");
    assert!(keys(&mut reader));
    reader.run(&server, "CLIENT TRACKING OFF");
    assert!(keys(&mut reader), "another client tracks");
    other.run(&server, "CLIENT TRACKING OFF");
    assert!(!keys(&mut reader));
}

#[test]
fn client_caching_applies_to_an_attempt_after_a_wait() {
    let mut server = Server::new();
    let mut admin = server.connect();
    admin.run(&server, "ACL SETUSER u on nopass ~* +@all");
    let mut reader = tracked(&mut server, "AUTH u x");
    assert_eq!(reader.run(&server, "CLIENT TRACKING ON OPTIN"), "+OK|");
    assert_eq!(reader.run(&server, "CLIENT CACHING YES"), "+OK|");
    assert_eq!(reader.run(&server, "XREAD BLOCK 0 STREAMS s $"), "");
    // The session must check the new rights itself.
    admin.run(&server, "ACL SETUSER u &*");
    admin.run(&server, "XADD s 1-1 a b");
    let served = reader.hears(&server);
    assert!(served.contains("1-1"), "{served}");
    admin.run(&server, "XADD s 1-2 a b");
    assert_eq!(reader.hears(&server), invalidation("s"));
}

/// The expiry of a key is no change of the client that finds the key expired. So this client hears of the next change
/// of the key, also with NOLOOP.
#[test]
fn a_client_with_noloop_hears_of_a_key_that_it_found_expired() {
    let mut server = Server::new();
    let mut other = server.connect();
    for (how, read) in [("NOLOOP", "GET e"), ("NOLOOP", "MGET e none"), ("BCAST NOLOOP", "EXISTS e")] {
        other.run(&server, "SET e 1 PX 5");
        let mut reader = tracked(&mut server, &format!("CLIENT TRACKING ON {how}"));
        server.advance_ms(10);
        reader.run(&server, read);
        other.run(&server, "SET e 2");
        let heard = reader.hears(&server);
        let told = heard.matches(&invalidation("e")).count();
        assert!(told >= 1, "{how} {read}: {heard}");
        reader.run(&server, "CLIENT TRACKING OFF");
    }
}

#[test]
fn invalidations_of_own_writes_come_before_the_reply_to_the_next_command() {
    let mut server = Server::new();
    let mut peer = tracked(&mut server, "CLIENT TRACKING ON");
    peer.feed(b"GET k\r\nSET k 2\r\nGET k\r\nMSET k 3 m 4\r\nPING\r\n", usize::MAX);
    peer.drive(&server);
    let told = invalidation("k");
    assert_eq!(peer.replies(), format!("_|+OK|{told}$1|2|+OK|{told}+PONG|"));
}

#[test]
fn a_flush_of_several_databases_sends_one_invalidation() {
    let mut server = Server::new();
    let (mut reader, mut other) = (tracked(&mut server, "CLIENT TRACKING ON"), server.connect());
    for line in ["SET k 1", "SELECT 3", "SET k 1", "SELECT 5", "SET k 1"] {
        other.run(&server, line);
    }
    reader.run(&server, "GET k");
    other.run(&server, "FLUSHALL");
    assert_eq!(reader.hears(&server), ">2|$10|invalidate|_|");
}
