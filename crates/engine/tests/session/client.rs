//! CLIENT and the registry of clients.

use crate::fixture::{End, Server, Stop};

#[test]
fn a_client_can_name_itself_and_its_library() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let bad = "-ERR Client names cannot contain spaces, newlines or special characters.|";
    peer.script(
        &server,
        &[
            ("CLIENT ID", ":1|"),
            ("CLIENT GETNAME", "$-1|"),
            ("CLIENT SETNAME 'a b'", bad),
            ("CLIENT SETNAME \"a\\xc3\\xa4\"", bad),
            ("CLIENT SETNAME foo", "+OK|"),
            ("CLIENT GETNAME", "$3|foo|"),
            ("CLIENT SETNAME ''", "+OK|"),
            ("CLIENT GETNAME", "$-1|"),
            ("CLIENT SETINFO lib-name redis-py", "+OK|"),
            ("CLIENT SETINFO LIB-VER 1.2", "+OK|"),
            (
                "CLIENT SETINFO lib-ver '1 2'",
                "-ERR lib-ver cannot contain spaces, newlines or special characters.|",
            ),
            ("CLIENT SETINFO foo x", "-ERR Unrecognized option 'foo'|"),
            ("CLIENT NO-EVICT on", "+OK|"),
            ("CLIENT NO-EVICT x", "-ERR syntax error|"),
            ("CLIENT NO-TOUCH off", "+OK|"),
            ("CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.|"),
            ("CLIENT", "-ERR wrong number of arguments for 'client' command|"),
            ("CLIENT ID a", "-ERR wrong number of arguments for 'client|id' command|"),
            ("CLIENT UNBLOCK x", "-ERR value is not an integer or out of range|"),
            ("CLIENT UNBLOCK 99 FOO", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR|"),
            ("CLIENT UNBLOCK 99 ERROR", ":0|"),
        ],
    );
    server.advance_ms(3500);
    let info = peer.run(&server, "CLIENT INFO");
    assert!(info.starts_with("$"), "{info}");
    assert!(
        info.contains("id=1 addr=127.0.0.1:40001 laddr=127.0.0.1:6379 fd=8 name= age=3 idle=0 flags=e db=0 sub=0 psub=0 ssub=0 multi=-1 "),
        "{info}"
    );
    assert!(
        info.contains(" qbuf=26 qbuf-free=0 argv-mem=10 "),
        "its own request is counted as redis-server does: {info}"
    );
    assert!(
        info.contains(" cmd=client|info user=default redir=-1 resp=2 lib-name=redis-py lib-ver=1.2\n|"),
        "{info}"
    );
}

#[test]
fn list_shows_everybody() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    b.script(&server, &[("CLIENT SETNAME bee", "+OK|"), ("SELECT 2", "+OK|")]);
    server.advance_ms(2000);
    let list = a.run(&server, "CLIENT LIST");
    let lines: Vec<&str> = list.split('\n').collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert!(lines[1].contains("name=bee age=2 idle=2 flags=N db=2 "), "{list}");
    assert!(lines[1].contains(" cmd=select "), "{list}");
    let only = |peer: &mut crate::fixture::Peer, line: &str| peer.run(&server, line).matches("id=").count();
    assert_eq!(only(&mut a, "CLIENT LIST ID 2"), 1);
    assert_eq!(only(&mut a, "CLIENT LIST ID 2 99 1 -3"), 2);
    assert_eq!(only(&mut a, "CLIENT LIST TYPE normal"), 2);
    assert_eq!(only(&mut a, "CLIENT LIST TYPE replica"), 0);
    a.script(
        &server,
        &[
            ("CLIENT LIST TYPE foo", "-ERR Unknown client type 'foo'|"),
            ("CLIENT LIST TYPE", "-ERR syntax error|"),
            ("CLIENT LIST ID", "-ERR syntax error|"),
            ("CLIENT LIST ID x", "-ERR Invalid client ID|"),
            ("CLIENT LIST FOO", "-ERR syntax error|"),
        ],
    );
    drop(b);
    assert_eq!(a.run(&server, "CLIENT LIST").matches("id=").count(), 1);
    assert_eq!(server.engine.clients(), 1);
}

#[test]
fn kill_reaches_other_sessions() {
    let mut server = Server::new();
    let (mut a, mut b, mut c, mut d) =
        (server.connect(), server.connect(), server.connect(), server.connect());
    let id = "-ERR client-id should be greater than 0|";
    a.script(
        &server,
        &[
            ("CLIENT KILL", "-ERR wrong number of arguments for 'client|kill' command|"),
            ("CLIENT KILL 1.1.1.1:3", "-ERR No such client|"),
            ("CLIENT KILL ID x", id),
            ("CLIENT KILL ID 0", id),
            ("CLIENT KILL ID 5 ADDR", "-ERR syntax error|"),
            ("CLIENT KILL ID 999", ":0|"),
            ("CLIENT KILL TYPE foo", "-ERR Unknown client type 'foo'|"),
            ("CLIENT KILL TYPE pubsub", ":0|"),
            ("CLIENT KILL USER foo", "-ERR No such user 'foo'|"),
            ("CLIENT KILL SKIPME foo", "-ERR syntax error|"),
            ("CLIENT KILL FOO bar", "-ERR syntax error|"),
            ("CLIENT KILL ID 1", ":0|"),
            ("CLIENT KILL ID 2", ":1|"),
            ("CLIENT KILL ID 2", ":0|"),
            ("CLIENT KILL 127.0.0.1:40003", "+OK|"),
        ],
    );
    assert_eq!((b.wakes.count(), c.wakes.count(), d.wakes.count()), (1, 1, 0));
    b.feed(b"PING\r\n", 99);
    assert_eq!((b.drive(&server), b.ended, b.replies().as_str()), (Stop::Ended, Some(End::Abort), ""));
    assert_eq!(c.drive(&server), Stop::Ended);
    assert_eq!(
        d.run(&server, "CLIENT KILL LADDR 127.0.0.1:6379 USER default SKIPME no ADDR 127.0.0.1:40004"),
        ":1|"
    );
    assert_eq!(d.ended, Some(End::Close), "a client that kills itself gets the reply first");
    assert_eq!(a.drive(&server), Stop::Read);
}

#[test]
fn replies_can_be_turned_off_and_skipped() {
    let mut server = Server::new();
    let mut peer = server.connect();
    peer.script(
        &server,
        &[
            ("CLIENT REPLY x", "-ERR syntax error|"),
            ("CLIENT REPLY SKIP", ""),
            ("FOO", ""),
            ("PING", "+PONG|"),
            ("CLIENT REPLY SKIP", ""),
            ("KEYS *", ""),
            ("PING", "+PONG|"),
            ("CLIENT REPLY OFF", ""),
            ("CLIENT REPLY SKIP", ""),
            ("SET a b", ""),
            ("KEYS *", ""),
            ("CLIENT REPLY ON", "+OK|"),
            ("GET a", "$1|b|"),
            ("CLIENT REPLY OFF", ""),
        ],
    );
    assert_eq!(peer.send(&server, b"*x\r\n"), "");
    assert_eq!(peer.ended, Some(End::Close));
}

#[test]
fn a_pause_holds_commands_back_in_order() {
    let mut server = Server::new();
    let (mut admin, mut peer) = (server.connect(), server.connect());
    admin.script(
        &server,
        &[
            ("CLIENT PAUSE", "-ERR wrong number of arguments for 'client|pause' command|"),
            ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range|"),
            ("CLIENT PAUSE -1", "-ERR timeout is negative|"),
            ("CLIENT PAUSE 1 FOO", "-ERR CLIENT PAUSE mode must be WRITE or ALL|"),
            ("CLIENT PAUSE 100 WRITE", "+OK|"),
        ],
    );
    let until = server.now.mono_us + 100_000;
    peer.feed(b"GET a\r\nSET a 1\r\nGET a\r\n", 99);
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Sleep(until), "$-1|"));
    assert_eq!(peer.drive(&server), Stop::Sleep(until), "woken too early it waits on");
    server.advance_ms(100);
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, "+OK|$1|1|"));

    admin.script(&server, &[("CLIENT PAUSE 1000000", "+OK|")]);
    peer.feed(b"PING\r\n", 99);
    assert!(matches!(peer.drive(&server), Stop::Sleep(_)));
    server.engine.tick(server.now);
    let mut third = server.connect();
    third.feed(b"PING\r\n", 99);
    assert!(matches!(third.drive(&server), Stop::Sleep(_)));
}

#[test]
fn unpausing_wakes_the_waiting() {
    let mut server = Server::new();
    let (mut admin, mut peer) = (server.connect(), server.connect());
    admin.script(&server, &[("CLIENT PAUSE 100000 WRITE", "+OK|")]);
    peer.feed(b"SET a 1\r\n", 99);
    assert!(matches!(peer.drive(&server), Stop::Sleep(_)));
    admin.script(&server, &[("CLIENT UNPAUSE", "+OK|")]);
    assert_eq!(peer.wakes.count(), 1);
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, "+OK|"));
}

#[test]
fn help_has_redis_s_shape() {
    let mut server = Server::new();
    let mut peer = server.connect();
    for container in ["CLIENT", "CONFIG", "COMMAND", "DEBUG"] {
        if container == "DEBUG" {
            server = Server::with("enable-debug-command yes");
            peer = server.connect();
        }
        let help = peer.run(&server, &format!("{container} HELP"));
        let lines: Vec<&str> = help.split('|').collect();
        assert_eq!(help.split_once('|').unwrap().0, format!("*{}", help.matches("|+").count()), "{help}");
        assert!(lines.iter().any(|l| l.starts_with(&format!("+{container} <subcommand>"))), "{help}");
    }
}

#[test]
fn a_transaction_may_silence_or_end_its_own_session() {
    let mut server = Server::new();
    let mut peer = server.connect();
    // Replies of earlier requests of the pipeline stay.
    peer.feed(
        b"PING\r\nMULTI\r\nCLIENT REPLY OFF\r\nSET a 1\r\nEXEC\r\nPING\r\nCLIENT REPLY ON\r\nPING\r\n",
        999,
    );
    while peer.drive(&server) == Stop::Flush {}
    let replies = peer.replies();
    assert!(replies.starts_with("+PONG|+OK|+QUEUED|+QUEUED|"), "{replies}");
    assert!(replies.ends_with("+OK|+PONG|"), "{replies}");
    // Replies that are switched on in EXEC are whole.
    peer.script(
        &server,
        &[("CLIENT REPLY OFF", ""), ("MULTI", ""), ("GET b", ""), ("CLIENT REPLY ON", ""), ("PING", "")],
    );
    assert_eq!(peer.run(&server, "EXEC"), "*3|$-1|+OK|+PONG|");
    // A session that kills itself in EXEC ends, after the reply.
    let id = peer.run(&server, "CLIENT ID").trim_matches([':', '|']).to_string();
    peer.run(&server, "MULTI");
    peer.run(&server, &format!("CLIENT KILL ID {id} SKIPME no"));
    assert_eq!(peer.run(&server, "EXEC"), "*1|:1|");
    assert_eq!(peer.ended, Some(End::Close));
}

/// As in redis-server, a client in MONITOR counts as a replica, which may not use the data.
#[test]
fn a_client_in_monitor_may_not_use_the_data() {
    let mut server = Server::new();
    let (mut monitor, mut other) = (server.connect(), server.connect());
    assert_eq!(monitor.run(&server, "MONITOR"), "+OK|");
    for line in ["GET k", "SET k v", "EVAL script 0", "PUBLISH a b"] {
        assert!(
            monitor.run(&server, line).ends_with("-ERR Replica can't interact with the keyspace|"),
            "{line}"
        );
    }
    assert!(monitor.run(&server, "PING").contains("+PONG|"));
    assert!(monitor.run(&server, "RESET").ends_with("+RESET|"));
    assert_eq!(monitor.run(&server, "SET k v"), "+OK|");
    assert_eq!(other.run(&server, "GET k"), "$1|v|");
}
