//! MULTI, EXEC and WATCH between several sessions. The corpus has what a single session sees.

use crate::fixture::{Server, command};
use strand_engine::Turn;

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
    assert!(replies.starts_with(&format!("*3|{wrong}{wrong}-ERR too many failed logins")), "{replies}");
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
